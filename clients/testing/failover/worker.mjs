// Callers that take locks, for the failover experiment: what they held, and when, on standard output, one JSON a line.
//
//     scripts/clients/typescript run clients/testing/failover/worker.mjs
//
// FAILOVER_SENTINELS, FAILOVER_MASTER: where the master is asked for. FAILOVER_LOCKS: `name[:limit],...`. FAILOVER_WORKERS:
// callers for each lock. FAILOVER_LEASE_MS. FAILOVER_MIN_REPLICAS: empty for the default. FAILOVER_HOLD_MS, FAILOVER_IDLE_MS:
// how long each holds and then pauses, `from-to`. Ends when its input closes.

import { writeSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Locks, LockLost, NotInTime } from 'fairlock';

const {
  FAILOVER_SENTINELS, FAILOVER_MASTER, FAILOVER_LOCKS, FAILOVER_WORKERS, FAILOVER_LEASE_MS, FAILOVER_MIN_REPLICAS,
  FAILOVER_HOLD_MS, FAILOVER_IDLE_MS,
} = process.env;
const sentinelRootNodes = FAILOVER_SENTINELS.split(',').map((address) => {
  const [host, port] = address.split(':');
  return { host, port: Number(port) };
});
const minReplicas = FAILOVER_MIN_REPLICAS ? Number(FAILOVER_MIN_REPLICAS) : undefined;
const locks = new Locks({ name: FAILOVER_MASTER, sentinelRootNodes }, { lease: Number(FAILOVER_LEASE_MS), wait: 2000, minReplicas });

/** The machine's clock, in seconds: its milliseconds, and what the steady clock knows of their parts. */
function now() {
  const whole = Date.now();
  return Math.min(Math.max(performance.timeOrigin + performance.now(), whole), whole + 0.999) / 1000;
}

/** A time from a range as `50-150`. */
function within(range) {
  const [from, to] = range.split('-').map(Number);
  return from + Math.random() * (to - from);
}

const tell = (event) => writeSync(1, `${JSON.stringify(event)}\n`);

async function holdOnce(lock, limit) {
  const held = await locks.acquire(lock, { limit });
  const { owner, token } = held;
  tell({ event: 'begin', lock, limit: limit ?? 1, owner, token, at: now() });
  let ended;
  held.lost.addEventListener('abort', () => (ended = now()));
  await sleep(within(FAILOVER_HOLD_MS || '50-150'), undefined, { signal: held.lost }).catch(() => {});
  const how = held.lost.aborted ? `lost:${held.lost.reason.cause}` : 'release';
  tell({ event: 'end', lock, token, at: ended ?? now(), how });
  await held.release().catch((error) => {
    if (!(error instanceof LockLost)) throw error;
    if (how === 'release') tell({ event: 'late', lock, token, cause: error.cause });
  });
}

async function caller(lock, limit) {
  for (;;) {
    try {
      await holdOnce(lock, limit);
      await sleep(within(FAILOVER_IDLE_MS || '0-0'));
    } catch (error) {
      if (error instanceof NotInTime) continue;
      tell({ event: 'error', lock, error: `${error.name}: ${error.message}` });
      await sleep(100);
    }
  }
}

for (const lock of FAILOVER_LOCKS.split(',')) {
  const [name, limit] = lock.split(':');
  for (let count = 0; count < Number(FAILOVER_WORKERS); count++) void caller(name, limit ? Number(limit) : undefined);
}
process.stdin.resume().on('end', () => process.exit(0));
