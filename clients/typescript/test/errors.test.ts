// Rows 57 to 61: refusals and their texts.

import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import { Cluster, Redis } from 'ioredis';
import { createClient, createClientPool, createCluster, createSentinel } from 'redis';
import { Locks, NotInTime, Refused } from '../src/index.js';
import type { LocksOptions } from '../src/index.js';
import type { Client } from '../src/index.js';
import { clientOf, clusterOf, sentinelOf } from './clients.js';
import { AT_ONCE, LONG, failure, row, runRows } from './harness.js';
import { SCRIPTS, Servers, ruleOf } from './servers.js';

row('r57 what is no client is refused', ['plain'], async ({ servers, closing }) => {
  const url = servers.url('a');
  const sentinel = { name: 'locks', sentinelRootNodes: [{ host: '127.0.0.1', port: 1 }] };
  const lazyConnect = true;
  const ofIoredis = [new Redis(url, { lazyConnect }), new Redis({ name: 'locks', sentinels: sentinel.sentinelRootNodes, lazyConnect }), new Cluster([url], { lazyConnect })];
  for (const right of [createClient({ url }), createCluster({ rootNodes: [{ url }] }), sentinel, ...ofIoredis]) closing(new Locks(right));
  // What another client was configured with.
  const other = Object.assign(new EventEmitter(), { options: { host: '10.0.0.1', port: 6379 }, status: 'wait' });
  const wrong = [
    undefined, null, url, 6379, {}, { url }, createClientPool({ url }), createSentinel(sentinel), { ...sentinel, name: undefined },
    other, createClient,
  ];
  for (const client of wrong) {
    assert.throws(() => new Locks(client as unknown as Client), { name: 'TypeError', message: /createClient\(\).*ioredis/ });
  }
});

row('r58 unknown options and wrong types are refused', ['one'], async ({ locks, view, name }) => {
  const mine = locks();
  const wrong: unknown[] = [
    null, 5, 'wait', { waitt: 3 }, { wait: null }, { wait: '5' }, { lease: '5000' }, { limit: '2' }, { renew: 'no' }, { shared: 1 },
    { owner: 7 }, { session: null }, { minReplicas: '1' }, { module: 'auto' }, { signal: {} }, { retryTimeout: 5 }, { hooks: {} }, { toString: 1 },
  ];
  for (const options of wrong as object[]) {
    await failure(mine.acquire(name, options), TypeError);
    await failure(mine.tryAcquire(name, options), TypeError);
    await failure(mine.run(name, options, () => {}), TypeError);
  }
  for (const nameless of [undefined, null, '', 7] as string[]) {
    await failure(mine.acquire(nameless), TypeError);
    await failure(mine.run(nameless, () => {}), TypeError);
    await failure(mine.info(nameless), TypeError);
  }
  await failure(mine.run(name, {}, undefined as unknown as () => void), TypeError);
  for (const options of [null, { waitt: 3 }, { lease: '5' }, { module: 'none' }, { signal: new AbortController().signal }, { hooks: { onLoss() {} } }]) {
    assert.throws(() => locks(options as LocksOptions), TypeError);
  }
  assert.deepEqual(await view.clients(), []);
  // Undefined counts as not given; a lock needs no options.
  assert.equal(await mine.run(name, () => 7), 7);
  const held = await mine.acquire(name, { wait: undefined, owner: undefined } as object);
  await failure(held.renew('5' as unknown as number), TypeError);
  await failure(held.renew(0), RangeError);
  await held.release();
});

row('r59 a server that is down is named', ['one'], async ({ locks, servers, name }) => {
  await servers.tell('kill', 'a');
  for (const wait of [0, 500]) {
    const error = await failure(locks({ commandTimeout: 500 }).acquire(name, { wait }));
    for (const part of [name, `127.0.0.1:${servers.ports['a']}`, 'Connection refused']) assert.ok(error.message.includes(part), error.message);
    assert.ok((error.cause as Error).message.includes('Connection refused'));
    if (wait > 0) assert.ok(error instanceof NotInTime);
  }
});

row('r59 credentials that are wrong are refused at once', ['one'], async ({ closing, servers, view, name }) => {
  const address = `127.0.0.1:${servers.ports['a']}`;
  const refused = async (user: string) => {
    const start = performance.now();
    const error = await failure(closing(new Locks(clientOf(`redis://${user}${address}`))).acquire(name), Refused);
    assert.ok(performance.now() - start < AT_ONCE);
    assert.ok(error.message.includes(name) && error.message.includes(address), error.message);
    assert.ok(error.message.startsWith(error.code!));
    return error;
  };
  await view.run('ACL', 'SETUSER', 'ann', 'on', '>right', '~*', '&*', '+@all', '-eval', '-evalsha', ...(SCRIPTS ? [] : ['-fairlock.acquire']));
  await view.run('CONFIG', 'SET', 'requirepass', 'secret');
  assert.equal((await refused('ann:wrong@')).code, 'WRONGPASS');
  const none = await refused('');
  assert.ok(none.code === 'NOAUTH' && none.message.includes('password'));
  const few = await refused('ann:right@');
  assert.ok(few.code === 'NOPERM' && few.message.includes('SECURITY.md'));
  await view.run('ACL', 'SETUSER', 'ann', '+@all', '-wait', '-role');
  assert.ok((await refused('ann:right@')).message.includes('syncTimeout'));
});

async function everything(locks: Locks, name: string): Promise<void> {
  const held = await locks.acquire(name);
  const waiting = [{}, { session: !SCRIPTS }, { owner: 'me' }].map((options) => locks.run(name, options, () => {}));
  const cancel = new AbortController();
  const cancelled = failure(locks.acquire(name, { signal: cancel.signal }));
  while ((await locks.info(name)).waiting < 4);
  cancel.abort();
  await cancelled;
  await held.renew();
  await held.release();
  await Promise.all(waiting);
  await Promise.all([1, 2].map(() => locks.run(name, SCRIPTS ? {} : { limit: 2 }, () => {})));
  assert.equal((await locks.info(name)).owner, null);
}

const user = SCRIPTS ? { username: 'scripts', password: 'secret4' } : { username: 'packages', password: 'secret' };

const clients: Record<string, (servers: Servers) => Client> = {
  one: (servers) => clientOf(servers.url('a'), user),
  replica: (servers) => clientOf(servers.url('a'), user),
  sentinel: ({ ports }) => sentinelOf(ports['s']!, user),
  cluster: (servers) => clusterOf([servers.url('b')], user),
};
for (const [kind, client] of Object.entries(clients)) {
  row(`r60 the user of SECURITY.md can do all: ${kind}`, [kind], async ({ closing, servers }) => {
    const words = await ruleOf(user.username);
    for (const node of Object.keys(servers.ports)) {
      if (node.length === 1 && node !== 's') await (await servers.view(node)).run(...words);
    }
    // In a cluster, on all masters.
    for (const name of ['app:1', 'app:2', 'app:3', 'app:4']) await everything(closing(new Locks(client(servers))), name);
  });
}

row('r61 who holds it, and how many wait', ['one'], async ({ locks, view, name }) => {
  const mine = locks({ lease: LONG, patience: LONG });
  const free = { owner: null, holds: 0, lease: 0, token: null, session: false, waiting: 0, holders: 0, limit: 0 };
  assert.deepEqual(await mine.info(name), free);
  const session = !SCRIPTS;
  const held = await mine.acquire(name, { session });
  const waiting = mine.run(name, () => {});
  await view.waits(name);
  const { lease, ...info } = await mine.info(name);
  assert.ok(lease > 0 && lease <= LONG);
  const { owner, token } = held;
  assert.deepEqual(info, { owner, holds: 1, token, session, waiting: 1, holders: 1, limit: 1 });
  await held.release();
  await waiting;
  if (SCRIPTS) return;
  const two = [await mine.acquire(name, { limit: 3 }), await mine.acquire(name, { limit: 3 })];
  const { holders, limit } = await mine.info(name);
  assert.deepEqual([holders, limit], [2, 3]);
  for (const each of two) await each.release();
});

runRows('errors');
