// Row 15, in a process of its own: collecting garbage blocks all else there.

import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { row, runRows } from './harness.js';
import { until } from './servers.js';

row('r15 renewal does not outlive what holds it', ['one'], async ({ locks, view, name }) => {
  const mine = locks();
  await (async () => void (await mine.acquire(name, { lease: 400 })))();
  const collect = (globalThis as { gc?: () => void }).gc;
  assert.ok(collect, 'run with --expose-gc');
  await until('it was collected', async () => {
    collect();
    await sleep(20);
    return view.isFree(name);
  });
});

runRows('garbage');
