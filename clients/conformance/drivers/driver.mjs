// The driver of the TypeScript package (README.md beside): driver.mjs node-redis|ioredis.

import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { Locks } from 'fairlock';
import { Cluster, Redis } from 'ioredis';
import { createClient, createCluster, createSentinel } from 'redis';

const IS_IOREDIS = process.argv[2] === 'ioredis';
const made = new Map(), holds = new Map(), ends = new Map();

const failure = (name, text) => Object.assign(new Error(text), { name });
const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

function addressOf(text) {
  const [host, port] = text.split(':');
  return { host, port: Number(port) };
}

function clientOf({ kind, addrs, username, password, readTimeout, tls, map }) {
  const files = tls && { ca: readFileSync(tls.ca), cert: readFileSync(tls.cert), key: readFileSync(tls.key) };
  const addresses = Object.entries(map ?? {}).map(([from, to]) => [from, addressOf(to)]);
  const user = password ? { username, password } : {};
  return (IS_IOREDIS ? ofIoredis : ofNodeRedis)(kind, addrs.map(addressOf), user, readTimeout, files, Object.fromEntries(addresses));
}

// What a client makes of types and order, such as `stringNumbers` and `asap`, is for the package to undo.
function ofIoredis(kind, at, user, commandTimeout, tls, natMap) {
  const options = { retryStrategy: () => 100, enableReadyCheck: !user.username, commandTimeout, tls, ...user };
  const sentinel = { sentinels: at, name: 'locks', sentinelTLS: tls, enableTLSForSentinelMode: Boolean(tls), ...options };
  const client = kind === 'cluster' ? new Cluster(at, { redisOptions: options, natMap, enableReadyCheck: !user.username })
    : new Redis(kind === 'sentinel' ? sentinel : { ...at[0], ...options, stringNumbers: true });
  return client.on('error', () => {});
}

function ofNodeRedis(kind, at, user, socketTimeout, tls, nodeAddressMap) {
  const options = { ...user, socket: { reconnectStrategy: () => 100, ...(socketTimeout && { socketTimeout }), ...(tls && { tls: true, ...tls }) } };
  const rootNodes = at.map((socket) => ({ socket }));
  const client = kind === 'cluster' ? createCluster({ rootNodes, defaults: options, nodeAddressMap })
    : kind === 'sentinel' ? createSentinel({ name: 'locks', sentinelRootNodes: at, nodeClientOptions: options, sentinelClientOptions: { socket: options.socket }, masterPoolSize: 4 })
      : createClient({ ...options, RESP: 3, commandOptions: { asap: true }, socket: { ...options.socket, ...at[0] } });
  client.on('error', () => {}).connect().catch(() => {}); // Commands wait for that.
  return client;
}

function hooksOf(locks, kind) {
  const hook = (which) => async (event) => { // What is async fails later.
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

  tryAcquire: (request) => operations.acquire(request, 'tryAcquire'),

  async acquire({ id, of, name, options }, by = 'acquire') {
    const cancel = new AbortController();
    ends.set(id, () => cancel.abort());
    const held = await made.get(of)[0][by](name, { ...options, signal: cancel.signal });
    holds.set(id, held);
    return held && { token: held.token, owner: held.owner };
  },

  async block({ id, of, name, options, inner, fail }) {
    await made.get(of)[0].run(name, options, async (held) => {
      holds.set(id, held);
      const left = new Promise((leave) => ends.set(id, leave));
      say({ event: 'inside', id, token: held.token, owner: held.owner });
      if (inner) await answer(inner);
      await left;
      if (fail) throw failure('Body', "the body's own");
    });
  },

  // Nothing refers to what it holds. Collecting garbage takes a tenth of a processor: no longer than the Locks live.
  async abandon({ of, name, options }) {
    const { token, owner } = await made.get(of)[0].acquire(name, options);
    made.get(of)[2] = setInterval(globalThis.gc, 100).unref();
    return { token, owner };
  },

  async renew({ of, lease }) {
    return { lease: await holds.get(of).renew(lease) };
  },

  release: ({ of }) => holds.get(of).release(),

  async lost({ of, wait }) {
    const { lost } = holds.get(of), over = new AbortController();
    const ended = new Promise((end) => lost.addEventListener('abort', end, { signal: over.signal }));
    if (!lost.aborted) await Promise.race([ended, sleep(wait, undefined, { signal: over.signal }).catch(() => {})]);
    over.abort();
    return { cause: lost.reason?.cause ?? null };
  },

  end: ({ of }) => ends.get(of)(),

  info: ({ of, name }) => made.get(of)[0].info(name),

  native: ({ of }) => ({ native: made.get(of)[0].native }),

  async close({ of, ping }) {
    const [ours, user, collecting] = made.get(of);
    made.delete(of);
    clearInterval(collecting);
    await ours.close();
    if (ping) await user.ping();
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

createInterface(process.stdin).on('line', (line) => answer(JSON.parse(line))).on('close', () => process.exit());
