// The options, checked before anything is sent, in plain JavaScript as well. Durations are milliseconds, as everywhere
// there.

import type { Cause } from './errors.js';

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
  onWait?: Hook | undefined; onAcquired?: Hook | undefined; onLost?: Hook | undefined; onReleased?: Hook | undefined;
}

/** The options of one lock. */
export interface LockOptions {
  /** Longest wait; 0: try once. Without it, or Infinity: no limit. */
  wait?: number | undefined;
  /** Default 30,000. */
  lease?: number | undefined;
  /** Renew in the background at every third of the lease; default true. */
  renew?: boolean | undefined;
  /** A connection of its own, with which the lock ends. */
  session?: boolean | undefined;
  /** The owner, 1 to 256 bytes; default `host:pid:uuid`, unique. */
  owner?: string | undefined;
  /** Within the work of `run`, the same lock can be held again. */
  reentrant?: boolean | undefined;
  /** Hold together with others that are shared. */
  shared?: boolean | undefined;
  /** The most holders; implies `shared`. */
  limit?: number | undefined;
  /** Longest wait for replicas to confirm an acquisition or a renewal; default 1,000; 0: they are not asked. */
  syncTimeout?: number | undefined;
  /** How many replicas must confirm; default 1 if the master had a replica when this Locks first asked it, else 0. */
  minReplicas?: number | undefined;
  /** How long a waiter that has died keeps its place; default 10,000. */
  patience?: number | undefined;
  /** Cancels the wait. */
  signal?: AbortSignal | undefined;
}

/** Defaults for all locks, and options of the Locks itself. */
export interface LocksOptions extends Omit<LockOptions, 'signal'> {
  /** How long a server that cannot be reached is asked again; default 30,000. */
  retryTimeout?: number | undefined;
  /** Longest time for an answer; default 5,000. */
  commandTimeout?: number | undefined;
  /** How long a release that fails is sent again; default 5,000. */
  releaseTimeout?: number | undefined;
  /** If the server does not have the module: `auto`, the default, takes locks by scripts; `required` refuses (NoModule). */
  module?: 'auto' | 'required' | undefined;
  hooks?: Hooks | undefined;
}

const DEFAULTS = {
  wait: Infinity, lease: 30_000, renew: true, session: false, reentrant: false, shared: false, syncTimeout: 1000, patience: 10_000,
  retryTimeout: 30_000, commandTimeout: 5000, releaseTimeout: 5000, module: 'auto' as 'auto' | 'required', hooks: {} as Hooks,
};

export type Options = typeof DEFAULTS & LocksOptions & { signal?: AbortSignal };

// What a value is, in words and by a test.
type Check = readonly [what: string, isRight: (value: any) => boolean];

const MAX_MS = 4_503_599_627_370_496; // the server's greatest
const flag: Check = ['true or false', (value) => typeof value === 'boolean'];
const time = (least: number): Check => [`a number from ${least} to ${MAX_MS} ms`, (value) => typeof value === 'number' && value >= least && value <= MAX_MS];
const count = (least: number, most: number): Check => [`a whole number from ${least} to ${most}`, (value) => Number.isInteger(value) && value >= least && value <= most];
const isOwner = (value: any): boolean => typeof value === 'string' && value !== '' && value !== '*' && Buffer.byteLength(value) <= 256;
const areHooks = (value: any): boolean =>
  typeof value === 'object' && value !== null &&
  Object.entries(value).every(([name, hook]) => /^on(Wait|Acquired|Lost|Released)$/.test(name) && ['undefined', 'function'].includes(typeof hook));

const CHECKS: Record<keyof Options, Check> = {
  wait: [`${time(0)[0]}, or Infinity`, (value) => value === Infinity || time(0)[1](value)],
  lease: time(1), patience: time(1), syncTimeout: time(0), retryTimeout: time(0), commandTimeout: time(1), releaseTimeout: time(0),
  renew: flag, session: flag, reentrant: flag, shared: flag,
  limit: count(1, 1_000_000), minReplicas: count(0, Number.MAX_SAFE_INTEGER),
  owner: ['a string of 1 to 256 bytes, and not *', isOwner],
  module: ['"auto" or "required"', (value) => value === 'auto' || value === 'required'],
  signal: ['an AbortSignal', (value) => value instanceof EventTarget && 'aborted' in value],
  hooks: ['an object of the functions onWait, onAcquired, onLost, onReleased', areHooks],
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
  check('options', ['an object', (value) => typeof value === 'object' && value !== null], given);
  const said = Object.entries(given).filter(([, value]) => value !== undefined);
  const known = Object.keys(CHECKS).filter((key) => !others.includes(key));
  for (const [key, value] of said) {
    if (!known.includes(key)) throw new TypeError(`${key} is not an option of ${whose}; options are ${known.join(', ')}`);
    check(key, CHECKS[key as keyof Options], value);
  }
  return Object.fromEntries(said) as T;
}

function check(key: string, [what, isRight]: Check, value: unknown): void {
  if (isRight(value)) return;
  const Kind = typeof value === 'number' && what.includes('number') ? RangeError : TypeError;
  throw new Kind(`${key} is ${what}, not ${typeof value === 'string' ? JSON.stringify(value) : String(value)}`);
}

export function checkName(name: unknown): void {
  check('the name of a lock', ['a string that is not empty', (value) => typeof value === 'string' && value !== ''], name);
}

export function checkLease(lease: unknown): void {
  check('lease', CHECKS.lease, lease);
}

/** Whole milliseconds, rounded up, for the server. */
export function ms(duration: number): string {
  return String(Math.max(1, Math.ceil(duration)));
}

/** One that is async may fail later. */
export function callHook(hooks: Hooks, which: keyof Hooks, event: LockEvent): void {
  const call = async (): Promise<void> => hooks[which]?.(event);
  call().catch((error: unknown) => warn(`the hook ${which} has failed: ${String(error)}`));
}

export function warn(text: string): void {
  process.emitWarning(text, 'FairlockWarning');
}
