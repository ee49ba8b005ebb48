// What can be asked for, checked before anything is sent. Milliseconds, as everywhere in JavaScript.

import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import type { Cause } from './errors.js';

const MAX_LIMIT = 1_000_000;
const MAX_OWNER = 256;
// The server's greatest number of milliseconds.
const MAX_MS = 4_503_599_627_370_496;
const HOST = hostname().replace(/[^A-Za-z0-9._-]/g, '-').slice(0, 200);

/** What a hook is told. Durations are milliseconds. */
export interface LockEvent {
  readonly name: string;
  readonly owner: string;
  readonly token?: number;
  readonly waited?: number;
  readonly held?: number;
  readonly cause?: Cause;
}

type Hook = (event: LockEvent) => void;

/** Functions for tracing and metrics; one that fails disturbs nothing. */
export interface Hooks {
  onWait?: Hook;
  onAcquired?: Hook;
  onLost?: Hook;
  onReleased?: Hook;
}

/** What can be said of one lock. */
export interface LockOptions {
  /** Longest wait; 0: try once. Without it: no limit. */
  wait?: number;
  /** Default 30,000. */
  lease?: number;
  /** Renew in the background at every third of the lease; default true. */
  renew?: boolean;
  /** The server renews, for as long as a connection of the lock's own is open. */
  session?: boolean;
  /** Who asks, 1 to 256 bytes; default `host:pid:uuid`, new for each acquisition. */
  owner?: string;
  /** Within the work of `run`, the same lock can be held again. */
  reentrant?: boolean;
  /** Hold together with others that are shared. */
  shared?: boolean;
  /** At most so many holders; implies `shared`. */
  limit?: number;
  /** Longest wait for replicas to confirm an acquisition; default 1,000; 0: off. */
  syncTimeout?: number;
  /** How long a waiter that has died keeps its place; default 30,000. */
  patience?: number;
  /** Cancels the wait. */
  signal?: AbortSignal;
}

/** Defaults for all locks, and what is for all of them. */
export interface LocksOptions extends Omit<LockOptions, 'signal'> {
  /** How long a server that cannot be reached is asked again; default 30,000. */
  retryTimeout?: number;
  /** Longest time for an answer that is given at once; default 5,000. */
  commandTimeout?: number;
  /** How long a release that fails is sent again; default 5,000. */
  releaseTimeout?: number;
  hooks?: Hooks;
}

const DEFAULTS = {
  wait: Infinity,
  lease: 30_000,
  renew: true,
  session: false,
  reentrant: false,
  shared: false,
  syncTimeout: 1000,
  patience: 30_000,
  retryTimeout: 30_000,
  commandTimeout: 5000,
  releaseTimeout: 5000,
  hooks: {} as Hooks,
};

export type Options = typeof DEFAULTS & LocksOptions & { signal?: AbortSignal };

/** All options, checked. */
export function complete(...given: (LocksOptions & LockOptions)[]): Options {
  const options: Options = { ...DEFAULTS };
  for (const some of given) {
    for (const [key, value] of Object.entries(some)) {
      if (value !== undefined) Object.assign(options, { [key]: value });
    }
  }
  for (const key of ['syncTimeout', 'retryTimeout', 'releaseTimeout'] as const) check(key, options[key], 0);
  for (const key of ['lease', 'patience', 'commandTimeout'] as const) check(key, options[key], 1);
  if (options.wait !== Infinity) check('wait', options.wait, 0);
  const { limit, owner } = options;
  if (limit !== undefined && !(Number.isInteger(limit) && limit >= 1 && limit <= MAX_LIMIT)) {
    throw new RangeError(`limit is not a whole number from 1 to ${MAX_LIMIT}: ${limit}`);
  }
  if (owner !== undefined && (owner === '*' || owner === '' || Buffer.byteLength(owner) > MAX_OWNER)) {
    throw new RangeError(`owner is not 1 to ${MAX_OWNER} bytes long, or is *, a connection's own identity`);
  }
  return options;
}

function check(key: string, value: number, least: number): void {
  if (!(value >= least && value <= MAX_MS)) {
    throw new RangeError(`${key} is not from ${least} to ${MAX_MS} ms: ${value}`);
  }
}

/** What ACQUIRE is given in every ask. */
export function acquireWords(name: string, owner: string, options: Options): string[] {
  const words = ['FAIRLOCK.ACQUIRE', name, owner];
  if (options.shared || options.limit !== undefined) words.push('SHARED');
  if (options.limit !== undefined) words.push(String(options.limit));
  words.push('LEASE', ms(options.lease), 'ONCE');
  return options.session ? [...words, 'SESSION'] : words;
}

/** Whole milliseconds, rounded up, for the server. */
export function ms(duration: number): string {
  return String(Math.max(1, Math.ceil(duration)));
}

/** An owner that nobody else has, and that names the machine. */
export function newOwner(): string {
  return `${HOST}:${process.pid}:${randomUUID()}`;
}

export function callHook(hooks: Hooks, which: keyof Hooks, event: LockEvent): void {
  try {
    hooks[which]?.(event);
  } catch (error) {
    process.emitWarning(`the hook ${which} has failed: ${String(error)}`, 'FairlockWarning');
  }
}
