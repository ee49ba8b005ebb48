// The public classes: Locks and Held.

import { AsyncLocalStorage } from 'node:async_hooks';
import type { LockInfo } from './commands.js';
import { Core } from './core.js';
import { NotInTime, NotReplicated } from './errors.js';
import type { Keep } from './keep.js';
import { checkLease, checkName, optionsOfLock, optionsOfLocks } from './options.js';
import type { LockOptions, LocksOptions, Options } from './options.js';
import { routeOf } from './route.js';
import type { Client } from './route.js';

// Node 18 has none; TypeScript's output for `await using` looks here.
const dispose = Symbol as { asyncDispose?: symbol };
if (!dispose.asyncDispose) Object.defineProperty(Symbol, 'asyncDispose', { value: Symbol.for('Symbol.asyncDispose') });

/** A lock that is held. */
export class Held implements AsyncDisposable {
  readonly #keep: Keep;
  readonly name: string;
  readonly owner: string;
  /** The fencing token: it grows with each acquisition. */
  readonly token: number;
  /** Aborted as soon as the lock is known to be lost; the reason is a LockLost. */
  readonly lost: AbortSignal;

  /** @internal */
  constructor(keep: Keep) {
    this.#keep = keep;
    ({ name: this.name, owner: this.owner, token: this.token } = keep.grant);
    this.lost = keep.lost;
    keep.belongsTo(this);
  }

  /** Sets the lease anew, to its own length or another; resolves to the new lease in ms. */
  async renew(lease?: number): Promise<number> {
    if (lease !== undefined) checkLease(lease);
    return this.#keep.renew(lease);
  }

  /** Gives up the lock. LockLost: it was lost before. Releasing again does nothing. */
  release(): Promise<void> {
    return this.#keep.release();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.release();
  }
}

type Entered = ReadonlyMap<string, Keep>;
type Work<T> = (held: Held) => Promise<T> | T;

/**
 * Takes fair locks at the servers of a client: of node-redis (`createClient`, `createCluster`, the options given to
 * `createSentinel`) or ioredis (`Redis`, also with sentinels, `Cluster`). Options are defaults for its locks. It has
 * connections of its own, by the same library, and leaves the client alone, which need not be connected.
 */
export class Locks implements AsyncDisposable {
  readonly #options: Options;
  readonly #entered = new AsyncLocalStorage<Entered>();
  readonly #core: Core;

  constructor(client: Client, options: LocksOptions = {}) {
    this.#options = optionsOfLocks(options);
    this.#core = new Core(routeOf(client, this.#options.commandTimeout), this.#options);
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
    if (options.reentrant) {
      const keep = [...this.#core.kept].find((each) => each.grant.token === held.token && each.grant.name === name);
      if (keep) entered.set(name, keep);
    }
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
    const outer = options.reentrant ? this.#entered.getStore()?.get(name)?.enter() : undefined;
    return outer ?? new Held(await this.#core.acquire(name, options));
  }

  /** Whether the server has the module; undefined before it was asked for the first time. */
  get native(): boolean | undefined {
    return this.#core.isNative;
  }

  /** The lock's holder, and how many wait for it. */
  async info(name: string): Promise<LockInfo> {
    checkName(name);
    return this.#core.commands.info(name, this.#options.commandTimeout);
  }

  /** Ends all waits (Closed) and closes the connections; locks that are held are lost. */
  close(): Promise<void> {
    return this.#core.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
