// Tasks of tests in a process or thread of their own: `child.js TASK URL NAME`. It reports to its parent, or fails.

import assert from 'node:assert/strict';
import { closeSync, openSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { parentPort, workerData } from 'node:worker_threads';
import { Locks } from '../src/index.js';
import { clientOf } from './clients.js';
import { SCRIPTS, until } from './servers.js';

const [task, url, name] = (workerData ?? process.argv.slice(2)) as string[];

/** Holds the lock once. */
async function take(locks: Locks): Promise<number> {
  return locks.run(name!, (held) => held.token);
}

/** Holds the lock while no file and no connection can be opened, and others wait. */
async function full(locks: Locks): Promise<number[]> {
  const held = await locks.acquire(name!, { lease: 6000 });
  const files: number[] = [];
  assert.throws(() => {
    for (;;) files.push(openSync('/dev/null', 'r'));
  }, { code: 'EMFILE' });
  const order: number[] = [];
  const numbers = Array.from({ length: 20 }, (_, number) => number);
  const waiting = numbers.map((number) => locks.run(name!, { session: !SCRIPTS && number % 2 === 1 }, () => void order.push(number)));
  await until('all wait', async () => (await locks.info(name!)).waiting === numbers.length);
  await sleep(8000);
  assert.ok(!held.lost.aborted);
  assert.throws(() => openSync('/dev/null', 'r'), { code: 'EMFILE' });
  await held.release();
  await until('the first one has had it', () => order.length > 0);
  for (const file of files) closeSync(file);
  await Promise.all(waiting);
  return order;
}

/** Twenty callers wait, and hold the lock one after another. */
async function twenty(locks: Locks): Promise<number> {
  const { signal } = new AbortController();
  const callers = Array.from({ length: 20 }, (_, number) => locks.run(name!, { signal, session: !SCRIPTS && number % 5 === 0 }, () => sleep(10)));
  await Promise.all(callers);
  return callers.length;
}

const locks = new Locks(clientOf(url!), { patience: 120_000 });
const done = await { take, full, twenty }[task as 'take']!(locks);
await locks.close();
if (parentPort) parentPort.postMessage(done);
else process.send!(done, () => process.connected && process.disconnect());
