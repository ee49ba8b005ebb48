// The driver of the TypeScript package (README.md beside): driver.mjs node-redis|ioredis.

import { AsyncResource } from 'node:async_hooks';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { Locks } from 'fairlock';
import { Cluster, Redis } from 'ioredis';
import { createClient, createCluster, createSentinel } from 'redis';

const IS_IOREDIS = process.argv[2] === 'ioredis';
const made = new Map(), holds = new Map(), inside = new Map(), calls = new Map();

const failure = (name, text) => Object.assign(new Error(text), { name });
const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

function addressOf(text) {
  const [host, port] = text.split(':');
  return { host, port: Number(port) };
}

function clientOf({ kind, at, user: username, password, timeout, tls, map }) {
  const files = tls && { ca: readFileSync(tls.ca), cert: readFileSync(tls.cert), key: readFileSync(tls.key) };
  const addresses = Object.entries(map ?? {}).map(([from, to]) => [from, addressOf(to)]);
  if (kind === 'nothing') return null;
  if (kind === 'text') return 'redis://127.0.0.1';
  const user = password ? { username, password } : {};
  return (IS_IOREDIS ? ofIoredis : ofNodeRedis)(kind, at.map(addressOf), user, timeout, files, Object.fromEntries(addresses));
}

function ofIoredis(kind, at, user, commandTimeout, tls, natMap) {
  const options = { retryStrategy: () => 100, enableReadyCheck: !user.username, commandTimeout, tls, ...user };
  const sentinel = { sentinels: at, name: 'locks', sentinelTLS: tls, enableTLSForSentinelMode: Boolean(tls), ...options };
  const client = kind === 'cluster' ? new Cluster(at, { redisOptions: options, natMap, enableReadyCheck: !user.username })
    : new Redis(kind === 'sentinel' ? sentinel : { ...at[0], ...options });
  return client.on('error', () => {});
}

function ofNodeRedis(kind, at, user, socketTimeout, tls, nodeAddressMap) {
  const options = { ...user, socket: { reconnectStrategy: () => 100, ...(socketTimeout && { socketTimeout }), ...(tls && { tls: true, ...tls }) } };
  const rootNodes = at.map((socket) => ({ socket }));
  const client = kind === 'cluster' ? createCluster({ rootNodes, defaults: options, nodeAddressMap })
    : kind === 'sentinel' ? createSentinel({ name: 'locks', sentinelRootNodes: at, nodeClientOptions: options, sentinelClientOptions: { socket: options.socket }, masterPoolSize: 4 })
      : createClient({ ...options, socket: { ...options.socket, ...at[0] } });
  client.on('error', () => {}).connect().catch(() => {}); // Commands wait for that.
  return client;
}

function hooksOf(locks, kind) {
  const hook = (which) => (event) => {
    if (kind === 'fail') throw failure('Body', 'a hook');
    say({ event: 'hook', locks, hook: which, with: event });
  };
  return { onWait: hook('wait'), onAcquired: hook('acquired'), onLost: hook('lost'), onReleased: hook('released') };
}

const operations = {
  new({ id, client, options, hooks }) {
    const user = clientOf(client);
    made.set(id, [new Locks(user, { ...options, ...(hooks && { hooks: hooksOf(id, hooks) }) }), user]);
  },

  async acquire({ id, locks, name, options, try: isTry }) {
    const cancel = new AbortController();
    calls.set(id, cancel);
    const held = await made.get(locks)[0][isTry ? 'tryAcquire' : 'acquire'](name, { ...options, signal: cancel.signal });
    holds.set(id, held);
    return held && { token: held.token, owner: held.owner };
  },

  // What is asked for inside runs there.
  async block({ id, locks, name, options }) {
    await made.get(locks)[0].run(name, options, async (held) => {
      holds.set(id, held);
      const left = new Promise((leave) => inside.set(id, AsyncResource.bind((inner) => answer(inner).then(() => inner.op === 'leave' && leave(inner)))));
      say({ event: 'inside', id, token: held.token, owner: held.owner });
      if ((await left).fail) throw failure('Body', "the body's own");
    });
  },

  leave() {},

  // Nothing refers to what it holds.
  async abandon({ locks, name, options }) {
    const { token, owner } = await made.get(locks)[0].acquire(name, options);
    setInterval(globalThis.gc, 100).unref();
    return { token, owner };
  },

  async renew({ held, lease }) {
    return { lease: await holds.get(held).renew(lease) };
  },

  release: ({ held }) => holds.get(held).release(),

  async lost({ held, wait }) {
    const { lost } = holds.get(held), over = new AbortController();
    const ended = new Promise((end) => lost.addEventListener('abort', end, { signal: over.signal }));
    if (!lost.aborted) await Promise.race([ended, sleep(wait, undefined, { signal: over.signal }).catch(() => {})]);
    over.abort();
    return { cause: lost.reason?.cause ?? null };
  },

  cancel: ({ call }) => calls.get(call).abort(),

  info: ({ locks, name }) => made.get(locks)[0].info(name),

  native: ({ locks }) => ({ native: made.get(locks)[0].native }),

  async close({ locks }) {
    const [ours, user] = made.get(locks);
    made.delete(locks);
    await ours.close();
    const works = await Promise.race([user.ping().then(() => true, (error) => !/closed/.test(error.message)), sleep(2000, true)]); // Its server may be down.
    if (!works) throw new Error('the client was closed, too');
    IS_IOREDIS ? user.disconnect() : user.isOpen && user.destroy();
  },
};

async function answer({ op, ...request }) {
  const { id } = request;
  try {
    if (!Object.hasOwn(operations, op)) throw failure('Unknown', op);
    say({ id, ok: await operations[op](request) });
  } catch ({ name, message, code, cause }) {
    say({ id, failed: { type: name, text: message, code, ...(name === 'LockLost' ? { cause } : cause && { because: String(cause.message ?? cause) }) } });
  }
}

createInterface(process.stdin).on('line', (line) => {
  const request = JSON.parse(line);
  (inside.get(request.block) ?? answer)(request);
}).on('close', () => process.exit());
