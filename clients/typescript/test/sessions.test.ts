// Rows 20 to 23.

import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { LockLost } from '../src/index.js';
import { AT_ONCE, aborted, failure, row, runRows } from './harness.js';
import { until } from './servers.js';

const session = true;
const MINUTE = 60_000;

row('r20 the server renews a session', ['one'], async ({ locks, view, name }) => {
  await locks().run(name, { session, lease: 3000 }, async (held) => {
    assert.equal((await view.info(name))['session'], 1);
    await sleep(7000);
    assert.equal((await view.info(name))['token'], held.token);
    assert.ok(!held.lost.aborted);
  });
  assert.ok(await view.isFree(name));
});

row('r21 a session ends with its connection', ['one'], async ({ locks, view, name }) => {
  const mine = locks();
  const held = await mine.acquire(name, { session, lease: MINUTE });
  // The one that it opened last.
  const own = (await view.clients()).at(-1);
  const waiting = mine.acquire(name);
  await view.waits(name);
  const start = performance.now();
  await view.run('CLIENT', 'KILL', 'ID', own!.id);
  await aborted(held.lost);
  assert.equal(held.lost.reason.cause, 'connection');
  const second = await waiting;
  assert.ok(performance.now() - start < AT_ONCE);
  await second.release();
  await failure(held.release(), LockLost);
});

row('r22 a session that is broken is lost', ['one'], async ({ locks, view, name }) => {
  const held = await locks().acquire(name, { session, lease: 6000 });
  await view.run('FAIRLOCK.BREAK', name);
  await aborted(held.lost);
  assert.equal(held.lost.reason.cause, 'notheld');
});

row('r23 a session waits, and is released at once', ['one'], async ({ locks, view, name }) => {
  const mine = locks();
  const first = await mine.acquire(name);
  const cancel = new AbortController();
  const cancelled = failure(mine.acquire(name, { session, lease: MINUTE, signal: cancel.signal }));
  await view.waits(name);
  cancel.abort();
  await cancelled;
  assert.deepEqual(await view.queue(name), []);
  const waiting = mine.acquire(name, { session, lease: MINUTE });
  await view.waits(name);
  await first.release();
  const held = await waiting;
  assert.equal((await view.info(name))['session'], 1);
  const before = (await view.clients()).length;
  await held.release();
  assert.ok(await view.isFree(name));
  await until('its connection is closed', async () => (await view.clients()).length === before - 1);
});

runRows('sessions');
