// Locks: acquires, waits, and gives up.

import { AsyncLocalStorage } from 'node:async_hooks';
import { setMaxListeners } from 'node:events';
import { Ask, Ears } from './asks.js';
import { Servers } from './clients.js';
import type { Client } from './clients.js';
import { Closed, NotInTime, NotReplicated } from './errors.js';
import { Held, Hold } from './held.js';
import { checkName, optionsOfLock, optionsOfLocks } from './options.js';
import type { LockOptions, LocksOptions, Options } from './options.js';
import { Sender } from './sender.js';
import { insisting } from './tries.js';

// Node 18 has none; TypeScript's output for `await using` looks here.
const dispose = Symbol as { asyncDispose?: symbol };
if (!dispose.asyncDispose) Object.defineProperty(Symbol, 'asyncDispose', { value: Symbol.for('Symbol.asyncDispose') });

/** The state of a lock at the server. With several holders, `owner` to `session` describe one. Milliseconds. */
export interface LockInfo {
  /** Null when the lock is free. */
  owner: string | null;
  holds: number;
  /** The remaining lease; 0 when free, -1 if it is held without one. */
  lease: number;
  /** Null when free, and if a script took the lock. */
  token: number | null;
  session: boolean;
  waiting: number;
  holders: number;
  /** 1 is exclusive; 0 when free or without a limit. */
  limit: number;
}

type Work<T> = (held: Held) => Promise<T> | T;

/** Takes fair locks at the servers of a client, by that client. Options are defaults for its locks. */
export class Locks implements AsyncDisposable {
  readonly #options: Options;
  readonly #sender: Sender;
  readonly #ears = new Ears();
  readonly #entered = new AsyncLocalStorage<ReadonlyMap<string, Held>>();
  #isClosed = false;

  constructor(client: Client, options: LocksOptions = {}) {
    this.#options = optionsOfLocks(options);
    const { commandTimeout, module } = this.#options;
    this.#sender = new Sender(new Servers(client, commandTimeout), module);
  }

  /** The lock, to be released. Rejects with NotInTime if it does not become available within `wait`. */
  async acquire(name: string, options: LockOptions = {}): Promise<Held> {
    return this.#acquire(name, optionsOfLock(options, this.#options));
  }

  /** The lock if it is available at once, else null. */
  async tryAcquire(name: string, options: LockOptions = {}): Promise<Held | null> {
    try {
      return await this.#acquire(name, { ...optionsOfLock(options, this.#options), wait: 0 });
    } catch (error) {
      if (error instanceof NotInTime && !(error instanceof NotReplicated)) return null;
      throw error;
    }
  }

  /** Does the work while it holds the lock. Rejects with the work's error. */
  async run<T>(name: string, work: Work<T>): Promise<T>;
  async run<T>(name: string, options: LockOptions, work: Work<T>): Promise<T>;
  async run<T>(name: string, ...rest: [Work<T>] | [LockOptions, Work<T>]): Promise<T> {
    const [given, work] = rest.length > 1 ? (rest as [LockOptions, Work<T>]) : [{}, rest[0] as Work<T>];
    if (typeof work !== 'function') throw new TypeError('run(name, options, work): the work is a function');
    const options = optionsOfLock(given, this.#options);
    const held = await this.#acquire(name, options);
    const entered = new Map(this.#entered.getStore() ?? []);
    if (options.reentrant) entered.set(name, held);
    let result: T;
    try {
      result = await this.#entered.run(entered, async () => work(held));
    } catch (error) {
      await held.release().catch(() => {});
      throw error;
    }
    await held.release();
    return result;
  }

  async #acquire(name: string, options: Options): Promise<Held> {
    checkName(name);
    if (this.#isClosed) throw new Closed('Locks is closed');
    const outer = options.reentrant ? this.#entered.getStore()?.get(name) : undefined;
    if (outer?.enter()) return outer;
    const { signal } = options;
    signal?.throwIfAborted();
    const ask = new Ask(this.#sender, this.#ears, name, options);
    const cancel = (): void => ask.end(signal?.reason);
    // One signal may end many waits: without this, Node takes that for a leak.
    if (signal) setMaxListeners(0, signal);
    signal?.addEventListener('abort', cancel);
    try {
      return new Held(new Hold(ask, await (ask.call = ask.acquire())));
    } finally {
      signal?.removeEventListener('abort', cancel);
    }
  }

  /** Whether the server has the module; undefined before it was asked for the first time. */
  get native(): boolean | undefined {
    return this.#sender.isNative;
  }

  /** The lock's holder, and how many wait for it. */
  async info(name: string): Promise<LockInfo> {
    checkName(name);
    const { commandTimeout: longest } = this.#options;
    const { reply } = await insisting(name, longest, () => this.#sender.send({ words: ['FAIRLOCK.INFO', name], longest }));
    const { next: _, ...info } = Object.fromEntries(pairs(reply));
    return { ...info, session: Boolean(info.session) } as LockInfo; // of RESP3 it is one already
  }

  /** Ends all waits (Closed) and closes the package's connections; locks that are held are lost. The client stays open. */
  async close(): Promise<void> {
    this.#isClosed = true;
    const asks = [...this.#ears.asks];
    for (const ask of asks) ask.close();
    await Promise.allSettled(asks.map(({ call }) => call));
    this.#sender.servers.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

/** Names and values, which RESP2 has as a list, and RESP3 as a map. */
function pairs(reply: unknown): [string, unknown][] {
  if (reply instanceof Map) return [...reply];
  if (!Array.isArray(reply)) return Object.entries(Object(reply));
  return reply.flatMap((key, place) => (place % 2 === 0 ? [[key, reply[place + 1]] as [string, unknown]] : []));
}
