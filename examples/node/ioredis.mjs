// fairlock with ioredis: node ioredis.mjs [redis://127.0.0.1:6379]
//
// The upper half is to copy; the lower half shows it at work, and fails if anything is not as it says.
//
// ioredis sends everything on one connection, where a command that blocks would hold up all behind
// it. So FairLocks asks by ENQUEUE, which is answered at once, and is woken through one subscription
// for all callers; it works on the client that you have. A session lock is bound to a connection, so
// it has one of its own (`duplicate`), and there it may block.
//
// Timeouts. ioredis has none unless you set `commandTimeout` (or `socketTimeout`). ENQUEUE is answered
// before it. The connection of a session lock is duplicated without it. Never block with it: ioredis
// forgets the command and leaves the connection open, so that the lock goes to nobody when its turn comes.

import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';

export class NotInTime extends Error {}
export class LockLost extends Error {}

export class FairLocks {
  #id = randomUUID();
  #count = 0;
  #wakeUps = new Map();

  static async on(client) {
    const locks = new FairLocks();
    locks.client = client;
    locks.subscriber = client.duplicate();
    // One pattern for all callers, whatever lock they wait for. A cluster has no patterns: there,
    // SSUBSCRIBE to an owner's channel before it asks for the first time. ioredis subscribes again
    // when it has lost the connection; what it missed by then, retry-after makes up for.
    await locks.subscriber.psubscribe(`redisson_lock__channel:*:${locks.#id}:*`);
    locks.subscriber.on('pmessage', (_pattern, channel) => {
      locks.#wakeUps.get(channel.slice(channel.lastIndexOf(locks.#id)))?.();
    });
    return locks;
  }

  // Does the work while holding the lock; `work` is given the fencing token. Milliseconds; without
  // `wait` it waits for as long as it takes. QUEUEFULL and other refusals are thrown as they are.
  async hold(name, { wait = Infinity, lease = 30_000 }, work) {
    // Nobody else has this owner's name, so no other caller can take its place or its lock.
    const owner = `${this.#id}:${++this.#count}`;
    const token = await this.#acquire(name, owner, wait, lease);
    try {
      return await work(token);
    } finally {
      await this.#release(name, owner);
    }
  }

  async #acquire(name, owner, wait, lease) {
    const end = performance.now() + wait;
    try {
      for (;;) {
        const woken = new Promise((resolve) => this.#wakeUps.set(owner, resolve));
        // ONCE: ioredis sends a command again if the connection breaks before the reply.
        const reply = await this.client.call(
          'FAIRLOCK.ACQUIRE', name, owner, 'ENQUEUE', 'LEASE', lease, 'ONCE');
        if (!Array.isArray(reply)) return reply;
        const left = end - performance.now();
        if (left <= 0) throw new NotInTime(name);
        const [, retryAfter] = reply;
        const timer = new AbortController();
        const late = sleep(Math.min(left, retryAfter), undefined, { signal: timer.signal });
        await Promise.race([woken, late.catch(() => {})]);
        timer.abort();
      }
    } catch (error) {
      // It may be queued still or, if only the reply was lost, hold the lock.
      await this.client.call('FAIRLOCK.CANCEL', name, owner).catch(() => {});
      await this.client.call('FAIRLOCK.RELEASE', name, owner).catch(() => {});
      throw error;
    } finally {
      this.#wakeUps.delete(owner);
    }
  }

  async #release(name, owner) {
    try {
      await this.client.call('FAIRLOCK.RELEASE', name, owner);
    } catch (error) {
      // The lease ended before the work did, or an operator broke the lock.
      throw error.message.startsWith('NOTHELD') ? new LockLost(name, { cause: error }) : error;
    }
  }

  // Holds a lock for as long as a connection of its own is open, which is returned: `disconnect()` it.
  // The server renews the lease, and frees the lock as soon as the process is gone; the lease bounds
  // it if the server is. Whoever works for long asks now and then by RENEW on this connection:
  // an error means that the lock is lost.
  async session(name, { wait, lease }) {
    const connection = this.client.duplicate({
      commandTimeout: undefined,
      socketTimeout: undefined,
      // Another connection would be another session.
      retryStrategy: null,
      autoResendUnfulfilledCommands: false,
    });
    try {
      const token = await connection.call(
        'FAIRLOCK.ACQUIRE', name, '*', 'SESSION', 'LEASE', lease, 'WAIT', wait);
      if (token === null) throw new NotInTime(name);
      return connection;
    } catch (error) {
      connection.disconnect();
      throw error;
    }
  }

  close() {
    this.subscriber.disconnect();
  }
}

// A store that has seen a token refuses all that are smaller.
const CONDITIONAL_WRITE = `
  if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'token') or 0) then
    return redis.error_reply('STALE token')
  end
  return redis.call('HSET', KEYS[1], 'token', ARGV[1], 'amount', ARGV[2])`;

// ------------------------------------------------------------------------------------- at work

const LOCK = 'example:ioredis';
const STOCK = 'example:ioredis:stock';
const WAIT = 30_000;

const url = process.argv[2] ?? process.env.FAIRLOCK_URL ?? 'redis://127.0.0.1:6379';
const client = new Redis(url);
const locks = await FairLocks.on(client);
const write = (token, amount) => client.eval(CONDITIONAL_WRITE, 1, STOCK, token, amount);
const amount = async () => Number(await client.hget(STOCK, 'amount'));

async function manyWorkersLoseNothing() {
  await client.del(STOCK);
  const work = async () => {
    for (let round = 0; round < 5; round++) {
      // Nobody asks again before half of this lease is over unless woken, and by then it is too late.
      await locks.hold(LOCK, { wait: WAIT, lease: 120_000 }, async (token) => {
        const before = await amount();
        await sleep(2); // Time enough for others to write, if they could.
        await write(token, before + 1);
      });
    }
  };
  await Promise.all([work(), work(), work(), work()]);
  expect((await amount()) === 20, '4 workers, woken in turn, have added 5 each');
}

async function whoDoesNotGetItInTimeGoesOn() {
  await locks.hold(LOCK, { wait: WAIT, lease: 10_000 }, async () => {
    const second = locks.hold(LOCK, { wait: 50, lease: 10_000 }, () => expect(false, 'two hold it'));
    expect((await failure(second)) instanceof NotInTime, 'not in time: somebody else has the lock');
    const queue = await client.call('FAIRLOCK.QUEUE', LOCK);
    expect(queue.length === 0, 'whoever gave up has left the queue');
  });
}

async function aHolderPastItsLeaseCannotWrite() {
  const late = locks.hold(LOCK, { wait: WAIT, lease: 50 }, async (old) => {
    // This holder sleeps. Meanwhile its lease ends, and the next one takes the lock.
    await locks.hold(LOCK, { wait: WAIT, lease: 10_000 }, async (token) => {
      expect(token > old, 'tokens grow');
      await write(token, 7);
    });
    const refusal = await failure(write(old, 9));
    expect(/STALE/.test(refusal.message), `the store refuses the old token: ${refusal.message}`);
  });
  expect((await failure(late)) instanceof LockLost, 'and the release tells that the lock was lost');
  expect((await amount()) === 7, 'the newer value stays');
}

async function aWaitOutlivesTheTimeout() {
  const hasty = client.duplicate({ commandTimeout: 2000 });
  const ordinary = await FairLocks.on(hasty);
  // Somebody has it for three seconds; this client gives up after two.
  await client.call('FAIRLOCK.ACQUIRE', LOCK, 'somebody', 'LEASE', '3000');
  const blocking = hasty.duplicate();
  const outcomes = [
    failure(blocking.call('FAIRLOCK.ACQUIRE', LOCK, '*')).then(() => blocking.disconnect()),
    ordinary.hold(LOCK, { wait: WAIT, lease: 10_000 }, () => console.log('ENQUEUE waits')),
    ordinary.session(LOCK, { wait: WAIT, lease: 60_000 }).then((session) => session.disconnect()),
  ];
  await Promise.all(outcomes);
  console.log('so does a connection without the timeout, and one with it gives up');
  ordinary.close();
  hasty.disconnect();
}

async function aSessionEndsWithItsConnection() {
  const connection = await locks.session(LOCK, { wait: WAIT, lease: 60_000 });
  expect((await connection.call('FAIRLOCK.RENEW', LOCK, '*')) === 60_000, 'the session holds');
  const start = performance.now();
  const successor = locks.hold(LOCK, { wait: WAIT, lease: 10_000 }, () => performance.now() - start);
  await sleep(200);
  connection.disconnect(); // As when the process dies: nobody releases.
  const waited = await successor;
  expect(waited >= 150, 'the next one waits as long as the connection is open');
  expect(waited < 20_000, "then it has the lock at once, not when a minute's lease ends");
}

function expect(isSo, what) {
  if (!isSo) {
    console.error(`not so: ${what}`);
    process.exit(1);
  }
  console.log(what);
}

async function failure(promise) {
  return promise.then(() => expect(false, 'this should have failed'), (error) => error);
}

await manyWorkersLoseNothing();
await whoDoesNotGetItInTimeGoesOn();
await aHolderPastItsLeaseCannotWrite();
await aWaitOutlivesTheTimeout();
await aSessionEndsWithItsConnection();
locks.close();
client.disconnect();
