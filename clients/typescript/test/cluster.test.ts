// Rows 32 to 34 and 47.

import assert from 'node:assert/strict';
import { CrossSlot, Locks } from '../src/index.js';
import { slotOf } from '../src/route.js';
import { clusterOf } from './clients.js';
import { AT_ONCE, LONG, failure, row, runRows } from './harness.js';
import type { Given } from './harness.js';
import { SCRIPTS, Servers, until } from './servers.js';

// A lock on each master: by name of the node.
const FIRST = { a: 0, b: 5461, c: 10923, end: 16384 };
const NEXT = { a: 'b', b: 'c', c: 'end' } as const;

function nameOn(node: 'a' | 'b' | 'c', name: string): string {
  for (let number = 0; ; number++) {
    const slot = slotOf(`${name}:${number}`);
    if (FIRST[node] <= slot && slot < FIRST[NEXT[node]]) return `${name}:${number}`;
  }
}

function cluster(servers: Servers): Locks {
  return new Locks(clusterOf([servers.url('a'), servers.url('b')]), { lease: LONG, patience: LONG, retryTimeout: 60_000 });
}

const subscribed = async (view: Awaited<ReturnType<Servers['view']>>, kind = 'SHARDCHANNELS') =>
  until('subscribed', async () => (await view.run('PUBSUB', kind)).length === 1);

async function onAllMasters({ closing, servers, name }: Given, channels: string): Promise<void> {
  const mine = closing(cluster(servers));
  for (const node of ['a', 'b', 'c'] as const) {
    const lock = nameOn(node, name);
    const view = await servers.view(node);
    const held = await mine.acquire(lock);
    assert.equal(await view.owner(lock), held.owner);
    const waiting = mine.acquire(lock);
    await view.waits(lock);
    await subscribed(view, channels);
    const start = performance.now();
    await held.release();
    const second = await waiting;
    assert.ok(performance.now() - start < AT_ONCE);
    await second.release();
    assert.ok(await view.isFree(lock));
    await until('unsubscribed', async () => (await view.run('PUBSUB', channels)).length === 0);
  }
}

row('r32 locks on all masters', ['cluster'], (given) => onAllMasters(given, 'SHARDCHANNELS'));

// As Redis 6 has none.
const without = SCRIPTS ? ['--rename-command', 'SPUBLISH', ''] : ['--fairlock.pubsub', 'publish'];
row('r32 locks on all masters, without sharded channels', ['cluster', '--rename-command', 'SSUBSCRIBE', '', ...without], (given) => {
  return onAllMasters(given, 'CHANNELS');
});

row('r33 the slot moves under a waiter', ['cluster'], async ({ closing, servers, name }) => {
  const mine = closing(cluster(servers));
  const lock = nameOn('b', name);
  const held = await mine.acquire(lock);
  const waiting = mine.acquire(lock);
  const here = await servers.view('b');
  await here.waits(lock);
  await subscribed(here);
  await servers.tell('move', slotOf(lock), 'c');
  const there = await servers.view('c');
  await subscribed(there);
  const start = performance.now();
  await held.release();
  const second = await waiting;
  assert.ok(performance.now() - start < AT_ONCE);
  assert.equal(await there.owner(lock), second.owner);
  await second.release();
});

row('r34 a master is gone for a while', ['cluster'], async ({ closing, servers, name }) => {
  const mine = closing(cluster(servers));
  const locks = [nameOn('b', name), nameOn('c', name)];
  const held = await Promise.all(locks.map((lock) => mine.acquire(lock)));
  const waiting = locks.map((lock) => mine.acquire(lock));
  const [b, c] = [await servers.view('b'), await servers.view('c')];
  await b.waits(locks[0]!);
  await c.waits(locks[1]!);
  await servers.tell('kill', 'c');
  await until('the cluster is down', async () => String(await b.run('CLUSTER', 'INFO')).includes('cluster_state:fail'));
  await servers.tell('start', 'c');
  const isUp = (view: typeof b) => view.run('CLUSTER', 'INFO').then((info) => String(info).includes('cluster_state:ok'), () => false);
  await until('the cluster is up', async () => (await isUp(b)) && (await isUp(c)));
  for (const [place, each] of held.entries()) {
    await each.release();
    await (await waiting[place]!).release();
  }
});

row('r47 braces that would spread a lock', ['cluster'], async ({ closing, servers }) => {
  const error = await failure(closing(cluster(servers)).acquire('a{b'), CrossSlot);
  assert.equal(error.code, 'CROSSSLOT');
});

runRows('a cluster');
