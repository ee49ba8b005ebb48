// Rows 50 and 51: shared and limited locks, where the server knows them.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createClient } from 'redis';
import { Locks, NotInTime } from '../src/index.js';
import { failure } from './harness.js';
import { Servers, View } from './servers.js';

/** With a server that knows SHARED; skipped on others. */
function row(title: string, work: (locks: Locks, view: View) => Promise<void>): void {
  test(title, async (context) => {
    const servers = await Servers.start('one');
    const view = await servers.view('a');
    const locks = new Locks(createClient({ url: servers.url('a') }));
    try {
      if (String(await view.run('FAIRLOCK.HELP')).includes('SHARED')) await work(locks, view);
      else context.skip('this server does not know SHARED');
    } finally {
      await locks.close();
      await servers.end();
    }
  });
}

row('r50 shared holders hold together', async (locks, view) => {
  const shared = true;
  const readers = await Promise.all([1, 2, 3].map(() => locks.acquire('report', { shared })));
  assert.equal(new Set(readers.map((reader) => reader.token)).size, 3);
  const order: string[] = [];
  const writer = locks.run('report', {}, () => void order.push('writer'));
  await view.waits('report');
  const late = locks.run('report', { shared }, () => void order.push('reader'));
  await view.waits('report', 2);
  for (const reader of readers) {
    assert.deepEqual(order, []);
    await reader.release();
  }
  await Promise.all([writer, late]);
  assert.deepEqual(order, ['writer', 'reader']);
});

row('r51 at most so many hold', async (locks, view) => {
  const limit = 2;
  const [first, second] = [await locks.acquire('licence', { limit }), await locks.acquire('licence', { limit })];
  await failure(locks.acquire('licence', { limit, wait: 0 }), NotInTime);
  const third = locks.acquire('licence', { limit });
  await view.waits('licence');
  await second.release();
  await (await third).release();
  await first.release();
  assert.ok(await view.isFree('licence'));
});
