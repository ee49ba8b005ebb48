// Rows 54 to 56 and 66: many callers, in one process and in several.

import assert from 'node:assert/strict';
import { fork, spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import cluster from 'node:cluster';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { LONG, row, runRows } from './harness.js';
import { SCRIPTS, until } from './servers.js';

const CHILD = fileURLToPath(new URL('./child.js', import.meta.url));

/** A child's report, and its standard error. */
async function told(child: ChildProcess): Promise<[unknown, string]> {
  let [message, errors]: [unknown, string] = [undefined, ''];
  child.on('message', (said) => (message = said));
  child.stderr!.on('data', (data) => (errors += data));
  const [code] = await once(child, 'close');
  assert.equal(code, 0, errors);
  return [message, errors];
}

for (const [count, session] of [[10, false], [1000, false], ...(SCRIPTS ? [] : [[10, true]])] as [number, boolean][]) {
  row(`r54 the order is that of the calls: ${count}${session ? ', every second one a session' : ''}`, ['one'], async ({ locks, view, name }) => {
    const mine = locks({ lease: LONG, patience: LONG });
    const numbers = Array.from({ length: count }, (_, number) => number);
    const order: number[] = [];
    // Until all of them wait: such a busy process may be late for its turn, and lose its place.
    const held = await mine.acquire(name);
    const done = numbers.map((number) => mine.run(name, { session: session && number % 2 === 0 }, () => void order.push(number)));
    await view.waits(name, count);
    const polling = session ? count / 2 : count;
    await until('all listen', async () => (await view.run('PUBSUB', 'CHANNELS')).length === polling);
    await held.release();
    await Promise.all(done);
    assert.deepEqual(order, numbers);
  });
}

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
  const [done, errors] = await told(child);
  assert.equal(done, 20);
  // Except the one warning about the missing module.
  const rest = SCRIPTS ? errors.replace(/^.*locks are taken by scripts.*\n.*--trace-warnings.*\n/, '') : errors;
  assert.equal(rest, '');
});

runRows('processes');
