// Rows 31, 35, 36 and 62 to 65: a master with a replica, and a sentinel.

import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { Locks, NotInTime, NotReplicated, Unavailable } from '../src/index.js';
import type { Held, LocksOptions } from '../src/index.js';
import { clusterOf, sentinelOf } from './clients.js';
import { AT_ONCE, LONG, aborted, failure, row, runRows } from './harness.js';
import { until } from './servers.js';
import type { Servers, View } from './servers.js';

/** Locks at the master that the sentinel names. */
function watched(servers: Servers, options: LocksOptions = {}): Locks {
  return new Locks(sentinelOf(servers.ports['s']!), { commandTimeout: 2000, lease: LONG, patience: LONG, ...options });
}

const roleOf = async (view: View) => (await view.run('ROLE')) as [string, unknown, unknown[]];
const isReplica = async (view: View) => (await roleOf(view))[0] === 'slave';
const hasAskedNothing = async (view: View) => !/fairlock|eval/.test(await view.client.info('commandstats'));

row('r31 sentinel fails over', ['sentinel'], async ({ closing, servers, view, name }) => {
  const mine = closing(watched(servers));
  const held = await mine.acquire(name);
  const waiting: Promise<Held>[] = [];
  for (const count of [1, 2]) {
    waiting.push(mine.acquire(name));
    await view.waits(name, count);
  }
  const owners = await view.queue(name);
  await servers.tell('failover');
  // To confirm the new master's grants.
  await servers.tell('start', 'a');
  const there = await servers.view('b');
  const { owner, token } = await there.info(name);
  assert.deepEqual([owner, token], [held.owner, held.token]);
  await until('renewed at the new master', () => held.renew().catch((error) => {
    if (!(error instanceof Unavailable || error instanceof NotReplicated)) throw error;
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

row('r62 the only replica is down', ['sentinel'], async ({ closing, servers, locks, view, name }) => {
  const mine = closing(watched(servers));
  await servers.tell('kill', 'b');
  await until('none is connected', async () => (await roleOf(view))[2].length === 0);
  await failure(mine.acquire(name, { wait: 500 }), NotReplicated);
  assert.ok(await view.isFree(name));
  const start = performance.now();
  await (await mine.acquire(name, { minReplicas: 0, wait: 0 })).release();
  await (await locks().acquire(name, { wait: 0 })).release();
  assert.ok(performance.now() - start < AT_ONCE);
  await failure(locks().acquire(name, { wait: 500, minReplicas: 1 }), NotReplicated);
});

row('r62 the only replica is down in a cluster', ['cluster'], async ({ closing, servers, view }) => {
  const mine = closing(new Locks(clusterOf([servers.url('b')])));
  const name = 'b'; // a lock on a, the master with a replica
  await servers.tell('kill', 'd');
  await until('none is connected', async () => (await roleOf(view))[2].length === 0);
  await failure(mine.acquire(name, { wait: 500 }), NotReplicated);
  assert.ok(await view.isFree(name));
  await (await mine.acquire(name, { minReplicas: 0, wait: 0 })).release();
  await (await mine.acquire('a', { wait: 0 })).release(); // on c, which has none
});

row('r63 an old master that comes back is asked for nothing', ['sentinel'], async ({ closing, servers, name }) => {
  const mine = closing(watched(servers));
  const held = await mine.acquire(name);
  const waiting = mine.acquire(name);
  await servers.tell('failover');
  await servers.tell('start', 'a');
  await held.release();
  // Granted once a replica confirms it: the old master.
  await (await waiting).release();
  await mine.run(name, () => {});
  // Opened now, since the Sentinel closes the connections to a server that it makes a replica.
  const old = await servers.view('a');
  assert.ok(await isReplica(old));
  assert.ok(await hasAskedNothing(old));
});

row('r63 a replica is asked for nothing', ['replica'], async ({ locks, servers, name }) => {
  const error = await failure(locks({}, 'b').acquire(name, { wait: 300 }), NotInTime);
  assert.ok((error.cause as Error).message.includes('READONLY'));
  assert.ok(await hasAskedNothing(await servers.view('b')));
});

for (const renew of [true, false]) {
  row(`r64 after a change of master holders learn at once, renew ${renew}`, ['sentinel'], async ({ closing, servers, name }) => {
    const mine = closing(watched(servers, { renew }));
    const [gone, there] = [await mine.acquire(`${name}:gone`), await mine.acquire(name)];
    const next = await servers.view('b');
    await next.run('CONFIG', 'SET', 'replica-read-only', 'no');
    await next.run('DEL', `${name}:gone`);
    const start = performance.now();
    await servers.tell('failover');
    await aborted(gone.lost);
    assert.equal(gone.lost.reason.cause, 'notheld');
    assert.ok(performance.now() - start < AT_ONCE);
    const command = renew ? 'renew' : 'info';
    await until('the other is looked up too', async () => (await next.calls(command)) >= 2);
    assert.ok(!there.lost.aborted);
    assert.equal(await next.owner(name), there.owner);
  });
}

row('r65 renewals that no replica confirms do not count', ['replica'], async ({ locks, servers, view, name }) => {
  const mine = locks({ syncTimeout: 200 });
  const [short, long] = [await mine.acquire(`${name}:short`, { lease: 3000 }), await mine.acquire(name, { lease: 9000 })];
  await servers.tell('stop', 'b');
  const start = performance.now();
  const { message } = await failure(short.renew(), NotReplicated);
  assert.ok(message.includes(name));
  await aborted(short.lost);
  assert.equal(short.lost.reason.cause, 'lease');
  assert.ok(performance.now() - start < AT_ONCE);
  const renewals = await view.calls('renew');
  await until('the other has been tried', async () => (await view.calls('renew')) > renewals);
  await servers.tell('cont', 'b');
  await sleep(10_000);
  assert.ok(!long.lost.aborted);
  await long.release();
});

runRows('replicas');
