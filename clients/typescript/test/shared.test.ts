// Rows 50 and 51: shared and limited locks.

import assert from 'node:assert/strict';
import { NotInTime } from '../src/index.js';
import { failure, row, runRows } from './harness.js';

row('r50 shared holders hold together', ['one'], async ({ locks, view, name }) => {
  const mine = locks();
  const shared = true;
  const readers = await Promise.all([1, 2, 3].map(() => mine.acquire(name, { shared })));
  assert.equal(new Set(readers.map((reader) => reader.token)).size, 3);
  const order: string[] = [];
  const writer = mine.run(name, {}, () => void order.push('writer'));
  await view.waits(name);
  const late = mine.run(name, { shared }, () => void order.push('reader'));
  await view.waits(name, 2);
  for (const reader of readers) {
    assert.deepEqual(order, []);
    await reader.release();
  }
  await Promise.all([writer, late]);
  assert.deepEqual(order, ['writer', 'reader']);
});

row('r51 at most so many hold', ['one'], async ({ locks, view, name }) => {
  const mine = locks();
  const limit = 2;
  const [first, second] = [await mine.acquire(name, { limit }), await mine.acquire(name, { limit })];
  await failure(mine.acquire(name, { limit, wait: 0 }), NotInTime);
  const third = mine.acquire(name, { limit });
  await view.waits(name);
  await second.release();
  await (await third).release();
  await first.release();
  assert.ok(await view.isFree(name));
});

runRows('shared');
