// Rows 31, 35 and 36: a master with a replica, and a sentinel.

import assert from 'node:assert/strict';
import { Locks, NotInTime, NotReplicated, Unavailable } from '../src/index.js';
import type { Held } from '../src/index.js';
import { AT_ONCE, failure, row, runRows } from './harness.js';
import { until } from './servers.js';

row('r31 sentinel fails over', ['sentinel'], async ({ closing, servers, view, name }) => {
  const sentinelRootNodes = [{ host: '127.0.0.1', port: servers.ports['s']! }];
  const mine = closing(new Locks({ name: 'locks', sentinelRootNodes }, { commandTimeout: 2000 }));
  const held = await mine.acquire(name);
  const waiting: Promise<Held>[] = [];
  for (const count of [1, 2]) {
    waiting.push(mine.acquire(name));
    await view.waits(name, count);
  }
  const owners = await view.queue(name);
  await servers.tell('failover');
  const there = await servers.view('b');
  const { owner, token } = await there.info(name);
  assert.deepEqual([owner, token], [held.owner, held.token]);
  await until('renewed at the new master', () => held.renew().catch((error) => {
    if (!(error instanceof Unavailable)) throw error;
    return false;
  }));
  await held.release();
  for (const [place, each] of waiting.entries()) {
    const next = await each;
    assert.equal(next.owner, owners[place]);
    assert.equal(await there.owner(name), next.owner);
    await next.release();
  }
});

row('r35 an acquisition is on the replica', ['replica'], async ({ locks, servers, view, name }) => {
  const mine = locks();
  const replica = await servers.view('b');
  const isThere = async (held: Held) => assert.equal(await replica.run('HEXISTS', name, held.owner), 1);
  for (let round = 0; round < 50; round++) await mine.run(name, {}, isThere);
  for (let round = 0; round < 20; round++) {
    const first = await mine.acquire(name);
    const waiting = mine.run(name, {}, isThere);
    await view.waits(name);
    await first.release();
    await waiting;
  }
});

row('r36 no replica confirms', ['replica'], async ({ locks, servers, view, name }) => {
  const mine = locks({ syncTimeout: 100 });
  await servers.tell('stop', 'b');
  assert.ok((await failure(mine.acquire(name, { wait: 500 }), NotReplicated)) instanceof NotInTime);
  assert.ok(await view.isFree(name));
  // The lease is over before the wait for replicas.
  await failure(mine.acquire(name, { wait: 500, lease: 20, renew: false }), NotReplicated);
  const start = performance.now();
  await (await mine.acquire(name, { syncTimeout: 0, wait: 0 })).release();
  assert.ok(performance.now() - start < AT_ONCE);
  const before = await view.calls('release');
  const waiting = mine.acquire(name, { wait: 60_000 });
  await until('it was released again', async () => (await view.calls('release')) > before + 1);
  await servers.tell('cont', 'b');
  const held = await waiting;
  assert.equal(await view.owner(name), held.owner);
  await held.release();
});

runRows('replicas');
