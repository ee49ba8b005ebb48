// What is idiom in JavaScript and TypeScript.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { EventEmitter, once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { Cluster, Redis } from 'ioredis';
import { Redis as Valkey } from 'iovalkey';
import { createClient, createClientPool, createCluster, createSentinel } from 'redis';
import { Failure } from '../src/errors.js';
import { Locks } from '../src/index.mjs';
import type { Client, LocksOptions } from '../src/index.mjs';
import { one, until } from './servers.mjs';

const own = new Error('its own');

test('what is no client, or none that can carry locks, is refused', async () => {
  const url = 'redis://127.0.0.1:1';
  const sentinel = { name: 'locks', sentinelRootNodes: [{ host: '127.0.0.1', port: 1 }] };
  const lazyConnect = true;
  const ofIoredis = [new Redis(url, { lazyConnect }), new Redis({ name: 'locks', sentinels: sentinel.sentinelRootNodes, lazyConnect }), new Cluster([url], { lazyConnect })];
  const ofNodeRedis = [createClient({ url }), createCluster({ rootNodes: [{ url }] }), createSentinel(sentinel)];
  for (const right of [...ofIoredis, ...ofNodeRedis, new Valkey(url, { lazyConnect })]) await new Locks(right).close();
  const other = Object.assign(new EventEmitter(), { options: { host: '10.0.0.1', port: 6379 }, status: 'wait' });
  for (const client of [undefined, null, url, 6379, {}, { url }, sentinel, createClientPool({ url }), other, createClient]) {
    assert.throws(() => new Locks(client as unknown as Client), { name: 'TypeError', message: /createClient\(\).*ioredis/ });
  }
  assert.throws(() => new Locks(new Redis(url, { lazyConnect, keyPrefix: 'a:' })), { name: 'TypeError', message: /keyPrefix/ });
  await assert.rejects(new Locks(createClient({ url })).acquire('a'), { name: 'Refused', message: /not connected/ });
  await assert.rejects(new Locks(createSentinel(sentinel)).acquire('a'), { name: 'Refused', message: /not connected.*\(a, the master\)/ });
});

test('locks on iovalkey', async (t) => {
  const { url } = await one(t);
  const client = new Valkey(url);
  const locks = new Locks(client);
  const held = await locks.acquire('a');
  const waits = locks.acquire('a');
  await until('it waits', async () => (await locks.info('a')).waiting === 1);
  await held.release();
  await (await waits).release();
  await locks.close();
  client.disconnect();
});

// node-redis 5 writes what was sent just before a reset to the dead connection, and takes the next replies for those to it.
for (const disableClientInfo of [false, true]) {
  test(`a reset gives no lock the reply to another command, ${disableClientInfo ? 'without' : 'with'} CLIENT SETINFO`, async (t) => {
    const { locks: view, url } = await one(t);
    const accepted: Socket[] = [];
    const proxy = createServer((socket) => {
      accepted.push(socket);
      const server = connect(Number(new URL(url).port)).on('error', () => {});
      socket.on('error', () => {}).on('close', () => server.destroy()).pipe(server).pipe(socket);
    });
    await once(proxy.listen(0, '127.0.0.1'), 'listening');
    const socket = { port: (proxy.address() as AddressInfo).port, host: '127.0.0.1' };
    const client = createClient({ socket, disableClientInfo });
    const locks = new Locks(await client.on('error', () => {}).connect());
    t.after(() => locks.close().then(() => (client.destroy(), proxy.close())));
    await (await locks.acquire('a')).release();
    // What a timer starts is written after the reset was read.
    const asked = await new Promise<ReturnType<typeof locks.acquire>[]>((resolve) => {
      setTimeout(() => {
        for (const each of accepted.splice(0)) each.resetAndDestroy();
        resolve([locks.acquire('a')]);
      }, 1);
    });
    // Otherwise the library itself waits for its own reply.
    if (disableClientInfo) await new Promise((resolve) => client.once('ready', resolve));
    for (const held of await Promise.all([...asked, ...['b', 'c', 'd'].map((name) => locks.acquire(name))])) {
      assert.equal(held.token, (await view.info(held.name)).token);
    }
  });
}

test('options are checked in plain JavaScript, too', async (t) => {
  const { locks, url } = await one(t);
  const wrong: unknown[] = [null, 5, 'wait', { waitt: 3 }, { lease: '5000' }, { signal: {} }, { hooks: {} }, { toString: 1 }];
  for (const options of wrong as object[]) {
    await assert.rejects(locks.acquire('a', options), TypeError);
    await assert.rejects(locks.tryAcquire('a', options), TypeError);
    await assert.rejects(locks.run('a', options, () => {}), TypeError);
  }
  await assert.rejects(locks.run('a', {}, undefined as unknown as () => void), TypeError);
  for (const options of [null, { module: 'none' }, { signal: new AbortController().signal }, { hooks: { onLoss() {} } }]) {
    assert.throws(() => new Locks(createClient({ url }), options as LocksOptions), TypeError);
  }
  // Undefined counts as not given; a lock needs no options.
  assert.equal(await locks.run('a', () => 7), 7);
  const held = await locks.acquire('a', { wait: undefined, owner: undefined } as object);
  await assert.rejects(held.renew('5' as unknown as number), TypeError);
  await held.release();
});

test('leaving a scope releases, and an error arrives unchanged', async (t) => {
  const { locks } = await one(t);
  const scope = async (error?: Error) => {
    await using held = await locks.acquire('a', { wait: 0 });
    assert.equal((await locks.info('a')).owner, held.owner);
    if (error) throw error;
  };
  await scope();
  for (const fails of [() => scope(own), () => locks.run('b', () => Promise.reject(own))]) await assert.rejects(fails, (error) => error === own);
  assert.equal((await locks.info('a')).owner, null);
});

test('a signal ends a wait with its reason', async (t) => {
  const { locks } = await one(t);
  await locks.run('a', async () => {
    const cancel = new AbortController();
    const { signal } = cancel;
    const waiting = assert.rejects(locks.acquire('a', { signal }), own);
    await until('it waits', async () => (await locks.info('a')).waiting === 1);
    cancel.abort(own);
    await waiting;
    assert.equal((await locks.info('a')).waiting, 0);
    await assert.rejects(locks.acquire('a', { signal }), own);
  });
});

test('a renewal that is refused is told by a warning', async (t) => {
  const { locks, url } = await one(t);
  const client = await createClient({ url }).connect();
  await locks.acquire('a', { lease: 9000 });
  const told = new Promise((resolve) => process.on('warning', ({ message }) => /cannot be renewed.*WRONGTYPE/.test(message) && resolve(message)));
  await client.set('a', 'no lock');
  client.destroy();
  await told;
});

test('what was closed does not keep a process alive', async (t) => {
  const { url } = await one(t);
  const program = `
    import { createClient } from 'redis';
    import { Locks } from './build/src/index.mjs';
    const client = await createClient({ url: '${url}' }).connect();
    const connections = async () => (await client.sendCommand(['CLIENT', 'LIST'])).split('\\n').length;
    const before = await connections();
    for (const name of ['a', 'b']) {
      const locks = new Locks(client);
      await locks.acquire(name, { lease: 100_000 });
      // The second time the answers come when all is closed.
      if (name === 'b') await client.sendCommand(['CLIENT', 'PAUSE', '2000', 'ALL']);
      await Promise.all([locks.acquire(name, { wait: 100 }).catch(() => {}), locks.acquire(name).catch(() => {}), locks.close()]);
    }
    while ((await connections()) > before) await new Promise(setImmediate);
    client.destroy();`;
  await promisify(execFile)(process.execPath, ['--input-type=module', '-e', program], { timeout: 60_000 });
});

test("Upstash's words for an unknown command are understood", () => {
  const said = new Failure(new Error("ERR Command is not available: 'FAIRLOCK.ACQUIRE'. See https://upstash.com/docs"), 'here');
  assert.equal(said.translated('a').name, 'NoModule');
});
