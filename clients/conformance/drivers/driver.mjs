// The driver of the TypeScript package (README.md beside): driver.mjs node-redis|ioredis.

import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { FairlockError, Locks } from 'fairlock';
import { Cluster, Redis } from 'ioredis';
import { createClient, createCluster, createSentinel } from 'redis';

const IS_IOREDIS = process.argv[2] === 'ioredis';
const DURATIONS = ['wait', 'lease', 'syncTimeout', 'patience', 'retryTimeout', 'commandTimeout', 'releaseTimeout'];
const NAMES = { TypeError: 'Argument', RangeError: 'Argument', AbortError: 'Cancelled' };
const made = new Map(), holds = new Map(), inside = new Map(), calls = new Map();

const bodyError = (text) => Object.assign(new Error(text), { name: 'Body' });
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
  return (IS_IOREDIS ? ofIoredis : ofNodeRedis)(kind, at.map(addressOf), user, timeout && timeout * 1000, files, Object.fromEntries(addresses));
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

function optionsOf(given) {
  const entries = Object.entries(given).map(([key, value]) => [key.replace(/_./g, (part) => part[1].toUpperCase()), value]);
  return Object.fromEntries(entries.map(([key, value]) => {
    if (!DURATIONS.includes(key)) return [key, value];
    return [key, key === 'wait' && value === null ? Infinity : typeof value === 'number' ? value * 1000 : value];
  }));
}

function hooksOf(locks, kind) {
  const hook = (which) => ({ waited, held, ...event }) => {
    if (kind === 'fail') throw bodyError('a hook');
    say({ event: 'hook', locks, hook: which, ...event, ...(waited !== undefined && { waited: waited / 1000 }), ...(held !== undefined && { held: held / 1000 }) });
  };
  return { onWait: hook('wait'), onAcquired: hook('acquired'), onLost: hook('lost'), onReleased: hook('released') };
}

const operations = {
  new({ id, client, options, hooks }) {
    const user = clientOf(client);
    made.set(id, [new Locks(user, { ...optionsOf(options), ...(hooks && { hooks: hooksOf(id, hooks) }) }), user]);
  },

  async acquire({ id, locks, name, options, try: isTry }) {
    const cancel = new AbortController();
    calls.set(id, cancel);
    const given = { ...optionsOf(options), signal: cancel.signal };
    const held = await made.get(locks)[0][isTry ? 'tryAcquire' : 'acquire'](name, given);
    holds.set(id, held);
    return held && { token: held.token, owner: held.owner };
  },

  async block({ id, locks, name, options, inner }) {
    await made.get(locks)[0].run(name, optionsOf(options), async (held) => {
      holds.set(id, held);
      const token = inner && (await made.get(locks)[0].run(name, optionsOf(inner), (again) => again.token));
      const left = new Promise((leave) => inside.set(id, leave));
      say({ event: 'inside', id, token: held.token, owner: held.owner, inner: token });
      if (await left) throw bodyError("the body's own");
    });
  },

  leave: ({ block, fail }) => inside.get(block)(fail),

  // Nothing refers to what it holds.
  async abandon({ locks, name, options }) {
    const { token, owner } = await made.get(locks)[0].acquire(name, optionsOf(options));
    setInterval(globalThis.gc, 100).unref();
    return { token, owner };
  },

  async renew({ held, lease }) {
    return { lease: (await holds.get(held).renew(lease === undefined ? undefined : lease * 1000)) / 1000 };
  },

  release: ({ held }) => holds.get(held).release(),

  async lost({ held, wait }) {
    const { lost } = holds.get(held), over = new AbortController();
    const ended = new Promise((end) => lost.addEventListener('abort', end, { signal: over.signal }));
    if (!lost.aborted) await Promise.race([ended, sleep(wait * 1000, undefined, { signal: over.signal }).catch(() => {})]);
    over.abort();
    return { cause: lost.reason?.cause ?? null };
  },

  cancel: ({ call }) => calls.get(call).abort(),

  async info({ locks, name }) {
    const info = await made.get(locks)[0].info(name);
    return { ...info, lease: info.lease > 0 ? info.lease / 1000 : null, limit: info.limit || null };
  },

  native: ({ locks }) => ({ native: made.get(locks)[0].native ?? null }),

  async close({ locks }) {
    const [ours, user] = made.get(locks);
    made.delete(locks);
    await ours.close();
    const works = await Promise.race([user.ping().then(() => true, (error) => !/closed/.test(error.message)), sleep(2000, true)]); // Its server may be down.
    if (!works) throw new Error('the client was closed, too');
    IS_IOREDIS ? user.disconnect() : user.isOpen && user.destroy();
  },
};

function failure(error) {
  const { name, message: text, code = null, cause } = error;
  const isLost = name === 'LockLost', type = error instanceof FairlockError ? name : (NAMES[name] ?? name);
  return { type, code, text, cause: isLost ? cause : null, because: !isLost && cause ? String(cause.message ?? cause) : null, also: [] };
}

async function answer({ op, ...request }) {
  const { id } = request;
  if (!Object.hasOwn(operations, op)) return say({ id, unknown: op });
  try {
    say({ id, ok: (await operations[op](request)) ?? {} });
  } catch (error) {
    say({ id, failed: failure(error) });
  }
}

createInterface(process.stdin).on('line', (line) => answer(JSON.parse(line))).on('close', () => process.exit());
