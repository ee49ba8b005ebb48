// The options, checked before anything is sent, in plain JavaScript as well. Durations are milliseconds, as everywhere
// there.

import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import type { Cause } from './errors.js';

const MAX_LIMIT = 1_000_000;
const MAX_OWNER = 256;
// The server's greatest number of milliseconds.
const MAX_MS = 4_503_599_627_370_496;
const HOST = hostname().replace(/[^A-Za-z0-9._-]/g, '-').slice(0, 200);

/** The argument of a hook. Durations are milliseconds. */
export interface LockEvent {
  readonly name: string;
  readonly owner: string;
  readonly token?: number;
  readonly waited?: number;
  readonly held?: number;
  readonly cause?: Cause;
}

type Hook = (event: LockEvent) => void;

/** Functions for tracing and metrics; a failure in one has no other effect. */
export interface Hooks {
  onWait?: Hook;
  onAcquired?: Hook;
  onLost?: Hook;
  onReleased?: Hook;
}

/** The options of one lock. */
export interface LockOptions {
  /** Longest wait; 0: try once. Without it, or Infinity: no limit. */
  wait?: number;
  /** Default 30,000. */
  lease?: number;
  /** Renew in the background at every third of the lease; default true. */
  renew?: boolean;
  /** The server renews, for as long as a connection of the lock's own is open. */
  session?: boolean;
  /** The owner, 1 to 256 bytes; default `host:pid:uuid`, new for each acquisition. */
  owner?: string;
  /** Within the work of `run`, the same lock can be held again. */
  reentrant?: boolean;
  /** Hold together with others that are shared. */
  shared?: boolean;
  /** The most holders; implies `shared`. */
  limit?: number;
  /** Longest wait for replicas to confirm an acquisition or a renewal; default 1,000; 0: they are not asked. */
  syncTimeout?: number;
  /** How many replicas must confirm; default 1 if Sentinel or the cluster knows a replica, else 0. */
  minReplicas?: number;
  /** How long a waiter that has died keeps its place; default 30,000. */
  patience?: number;
  /** Cancels the wait. */
  signal?: AbortSignal;
}

/** Defaults for all locks, and options of the Locks itself. */
export interface LocksOptions extends Omit<LockOptions, 'signal'> {
  /** How long a server that cannot be reached is asked again; default 30,000. */
  retryTimeout?: number;
  /** Longest time for an answer to a command that does not block; default 5,000. */
  commandTimeout?: number;
  /** How long a release that fails is sent again; default 5,000. */
  releaseTimeout?: number;
  /** If the server does not have the module: `auto`, the default, takes locks by scripts; `required` refuses (NoModule). */
  module?: 'auto' | 'required';
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
  module: 'auto' as 'auto' | 'required',
  hooks: {} as Hooks,
};

export type Options = typeof DEFAULTS & LocksOptions & { signal?: AbortSignal };

type Check = (key: string, value: unknown) => void;
const CHECKS: Record<keyof Options, Check> = {
  wait: duration(0, Infinity),
  lease: duration(1),
  renew: ofType('boolean'),
  session: ofType('boolean'),
  owner: isOwner,
  reentrant: ofType('boolean'),
  shared: ofType('boolean'),
  limit: whole(1, MAX_LIMIT),
  syncTimeout: duration(0),
  minReplicas: whole(0, Number.MAX_SAFE_INTEGER),
  patience: duration(1),
  signal: isSignal,
  retryTimeout: duration(0),
  commandTimeout: duration(1),
  releaseTimeout: duration(0),
  module: isModule,
  hooks: areHooks,
};
const FOR_ONE = ['signal'];
const FOR_ALL = ['retryTimeout', 'commandTimeout', 'releaseTimeout', 'module', 'hooks'];

/** The options of a Locks. */
export function optionsOfLocks(given: LocksOptions): Options {
  return { ...DEFAULTS, ...checked(given, FOR_ONE, 'Locks') };
}

/** The options of one lock. */
export function optionsOfLock(given: LockOptions, all: Options): Options {
  return { ...all, ...checked(given, FOR_ALL, 'one lock') };
}

/** The given ones; undefined counts as not given. */
function checked<T extends object>(given: T, others: string[], whose: string): T {
  if (typeof given !== 'object' || given === null) throw new TypeError(`options are an object, not ${shown(given)}`);
  const said = Object.entries(given).filter(([, value]) => value !== undefined);
  for (const [key, value] of said) {
    const check = Object.hasOwn(CHECKS, key) && !others.includes(key) && CHECKS[key as keyof Options];
    if (!check) {
      const known = Object.keys(CHECKS).filter((each) => !others.includes(each)).join(', ');
      throw new TypeError(`${key} is not an option of ${whose}; options are ${known}`);
    }
    check(key, value);
  }
  return Object.fromEntries(said) as T;
}

export function checkName(name: unknown): void {
  if (typeof name !== 'string' || name === '') {
    throw new TypeError(`the name of a lock is a string that is not empty, not ${shown(name)}`);
  }
}

export function checkLease(lease: unknown): void {
  CHECKS.lease('lease', lease);
}

function shown(value: unknown): string {
  return typeof value === 'string' ? JSON.stringify(value) : String(value);
}

function ofType(type: string): Check {
  return (key, value) => {
    if (typeof value !== type) throw new TypeError(`${key} is a ${type}, not ${shown(value)}`);
  };
}

function duration(least: number, greatest = MAX_MS): Check {
  return (key, value) => {
    ofType('number')(key, value);
    if (!((value as number) >= least && ((value as number) <= MAX_MS || value === greatest))) {
      throw new RangeError(`${key} is not from ${least} to ${MAX_MS} ms: ${value}`);
    }
  };
}

function whole(least: number, greatest: number): Check {
  return (key, value) => {
    ofType('number')(key, value);
    if (!(Number.isInteger(value) && (value as number) >= least && (value as number) <= greatest)) {
      throw new RangeError(`${key} is not a whole number from ${least} to ${greatest}: ${value}`);
    }
  };
}

function isOwner(key: string, owner: unknown): void {
  ofType('string')(key, owner);
  if (owner === '*' || owner === '' || Buffer.byteLength(owner as string) > MAX_OWNER) {
    throw new RangeError(`owner is not 1 to ${MAX_OWNER} bytes long, or is *, a connection's own identity`);
  }
}

function isModule(key: string, value: unknown): void {
  if (value !== 'auto' && value !== 'required') throw new TypeError(`${key} is "auto" or "required", not ${shown(value)}`);
}

function isSignal(key: string, signal: unknown): void {
  if (!(signal instanceof EventTarget && 'aborted' in signal)) throw new TypeError(`${key} is no AbortSignal: ${shown(signal)}`);
}

function areHooks(key: string, hooks: unknown): void {
  if (typeof hooks !== 'object' || hooks === null) throw new TypeError(`${key} is an object, not ${shown(hooks)}`);
  for (const [which, hook] of Object.entries(hooks)) {
    if (!['onWait', 'onAcquired', 'onLost', 'onReleased'].includes(which)) throw new TypeError(`there is no hook ${which}`);
    if (hook !== undefined) ofType('function')(which, hook);
  }
}

/** The arguments of ACQUIRE in every ask. */
export function acquireWords(name: string, owner: string, options: Options): string[] {
  const words = ['FAIRLOCK.ACQUIRE', name, owner];
  if (options.shared || options.limit !== undefined) words.push('SHARED');
  if (options.limit !== undefined) words.push(String(options.limit));
  return [...words, 'LEASE', ms(options.lease), 'ONCE'];
}

export function renewWords(name: string, owner: string, lease: number): string[] {
  return ['FAIRLOCK.RENEW', name, owner, 'LEASE', ms(lease)];
}

/** Whole milliseconds, rounded up, for the server. */
export function ms(duration: number): string {
  return String(Math.max(1, Math.ceil(duration)));
}

/** A unique owner that names the machine. */
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
