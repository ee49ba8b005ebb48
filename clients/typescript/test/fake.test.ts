// Rows 48, 49 and 52.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LockLost, NotInTime } from '../src/index.js';
import type { Held } from '../src/index.js';
import { FakeLocks } from '../src/testing.js';
import { failure } from './harness.js';
import { until } from './servers.js';

const waits = (fake: FakeLocks, count = 1) =>
  until(`${count} wait`, () => fake.waiting('orders').length === count);

test('r48 the fake is fair', async () => {
  const told: string[] = [];
  const hook = (which: string) => () => void told.push(which);
  const fake = new FakeLocks({ hooks: { onWait: hook('wait'), onAcquired: hook('acquired'), onReleased: hook('released') } });
  const first = await fake.acquire('orders');
  await failure(fake.acquire('orders', { wait: 50 }), NotInTime);
  assert.equal(await fake.tryAcquire('orders'), null);
  const cancel = new AbortController();
  const cancelled = failure(fake.acquire('orders', { signal: cancel.signal }));
  await waits(fake);
  cancel.abort();
  await cancelled;
  assert.deepEqual(fake.waiting('orders'), []);
  const waiting: Promise<Held>[] = [];
  for (let count = 1; count <= 3; count++) {
    waiting.push(fake.acquire('orders', { session: count === 2 }));
    await waits(fake, count);
  }
  const order = fake.waiting('orders');
  await first.release();
  const tokens = [first.token];
  for (const [place, each] of waiting.entries()) {
    const held = await each;
    assert.equal(held.owner, order[place]);
    tokens.push(held.token);
    await held.release();
  }
  assert.deepEqual(tokens, [...new Set(tokens)].sort((a, b) => a - b));
  await fake.run('orders', { reentrant: true }, async (outer) => {
    await fake.run('orders', { reentrant: true }, (inner) => assert.equal(inner, outer));
  });
  await failure(fake.acquire('orders', { lease: 0 }), RangeError);
  assert.deepEqual(fake.holders('orders'), []);
  assert.deepEqual(told.filter((which) => which === 'wait').length, 5);
  assert.deepEqual(told.filter((which) => which !== 'wait').slice(0, 2), ['acquired', 'released']);
  await fake.close();
});

for (const [way, cause] of [['expire', 'lease'], ['breakLock', 'notheld']] as const) {
  test(`r49 a fake lock is lost by ${way}`, async () => {
    const fake = new FakeLocks();
    const held = await fake.acquire('orders');
    const waiting = fake.acquire('orders');
    await waits(fake);
    fake[way]('orders');
    assert.ok(held.lost.aborted);
    assert.equal(held.lost.reason.cause, cause);
    const second = await waiting;
    await failure(held.release(), LockLost);
    assert.deepEqual(fake.holders('orders'), [second.owner]);
    await fake.close();
  });
}

test('r49 a lock is lost that its holder does not know of yet', async () => {
  const fake = new FakeLocks();
  const first = await fake.acquire('orders');
  // Given to it in the same moment: those that poll would have to ask first.
  const waiting = fake.acquire('orders', { session: true });
  await waits(fake);
  fake.expire('orders');
  fake.breakLock('orders');
  const second = await waiting;
  assert.deepEqual([first, second].map((held) => held.lost.reason.cause), ['lease', 'notheld']);
  assert.deepEqual(fake.holders('orders'), []);
  await fake.close();
});

test('r52 the fake knows shared and limited locks', async () => {
  const fake = new FakeLocks();
  const readers = await Promise.all([1, 2, 3].map(() => fake.acquire('orders', { shared: true })));
  const order: string[] = [];
  const writer = fake.run('orders', {}, () => void order.push('writer'));
  await waits(fake);
  const late = fake.run('orders', { shared: true }, () => void order.push('reader'));
  await waits(fake, 2);
  for (const reader of readers) {
    assert.deepEqual(order, []);
    await reader.release();
  }
  await Promise.all([writer, late]);
  assert.deepEqual(order, ['writer', 'reader']);
  const [first, second] = [await fake.acquire('orders', { limit: 2 }), await fake.acquire('orders', { limit: 2 })];
  assert.equal(await fake.tryAcquire('orders', { limit: 2 }), null);
  const third = fake.acquire('orders', { limit: 2 });
  await waits(fake);
  await first.release();
  await (await third).release();
  await second.release();
  await fake.close();
});
