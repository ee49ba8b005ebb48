// Rows 54 to 56 and 66: many callers, in one process and in several.

import assert from 'node:assert/strict';
import { fork, spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import cluster from 'node:cluster';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { LONG, row, runRows } from './harness.js';

const CHILD = fileURLToPath(new URL('./child.js', import.meta.url));

/** What a child told, and what it left on its standard error. */
async function told(child: ChildProcess): Promise<[unknown, string]> {
  let [message, errors]: [unknown, string] = [undefined, ''];
  child.on('message', (said) => (message = said));
  child.stderr!.on('data', (data) => (errors += data));
  const [code] = await once(child, 'close');
  assert.equal(code, 0, errors);
  return [message, errors];
}

row('r54 the order is that of the calls', ['one'], async ({ locks, name }) => {
  const mine = locks({ patience: LONG });
  for (const count of [10, 1000]) {
    const numbers = Array.from({ length: count }, (_, number) => number);
    const order: number[] = [];
    await Promise.all(numbers.map((number) => mine.run(name, () => void order.push(number))));
    assert.deepEqual(order, numbers);
  }
});

row('r54 the order is that of the calls, of sessions too', ['one'], async ({ locks, name }) => {
  const mine = locks({ patience: LONG });
  const numbers = Array.from({ length: 10 }, (_, number) => number);
  const order: number[] = [];
  const more = [{ session: true }, {}];
  await Promise.all(numbers.map((number) => mine.run(name, more[number % 2]!, () => void order.push(number))));
  assert.deepEqual(order, numbers);
});

row('r55 children and workers have connections of their own', ['one'], async ({ locks, servers, view, name }) => {
  const mine = locks();
  const kept = await mine.acquire(`${name}:kept`);
  const held = await mine.acquire(name);
  const words = ['take', servers.url('a'), name];
  cluster.setupPrimary({ exec: CHILD, args: words });
  const children = [fork(CHILD, words), fork(CHILD, words), cluster.fork().process, new Worker(CHILD, { workerData: words })];
  const tokens = Promise.all(children.map((child) => once(child, 'message')));
  await view.waits(name, children.length);
  assert.equal(await view.owner(name), held.owner);
  await held.release();
  const all = [held.token, ...(await tokens).flatMap(([token]) => token as number)];
  assert.equal(new Set(all).size, children.length + 1);
  assert.equal(Math.min(...all), held.token);
  assert.equal(await view.owner(`${name}:kept`), kept.owner);
  await kept.release();
});

row('r56 out of descriptors', ['one'], async ({ servers, name }) => {
  const command = ['-c', 'ulimit -n 256; exec "$0" "$@"', process.execPath, CHILD, 'full', servers.url('a'), name];
  const [order] = await told(spawn('bash', command, { stdio: ['ignore', 'inherit', 'pipe', 'ipc'] }));
  assert.deepEqual(order, Array.from({ length: 20 }, (_, number) => number));
});

row('r66 nothing is left on standard error', ['one'], async ({ servers, name }) => {
  const child = fork(CHILD, ['twenty', servers.url('a'), name], { stdio: ['ignore', 'inherit', 'pipe', 'ipc'] });
  assert.deepEqual(await told(child), [20, '']);
});

runRows('processes');
