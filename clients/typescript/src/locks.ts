// Locks: acquires, waits, and gives up.

import { AsyncLocalStorage } from 'node:async_hooks';
import { setMaxListeners } from 'node:events';
import { Line, Servers } from './clients.js';
import type { Client } from './clients.js';
import { Closed, NotInTime, NotReplicated } from './errors.js';
import { Held, Hold } from './held.js';
import { callHook, checkName, optionsOfLock, optionsOfLocks } from './options.js';
import type { LockOptions, LocksOptions, Options } from './options.js';
import { Ask, acquiring, informing, isLost, leaving } from './protocol.js';
import type { LockInfo } from './protocol.js';
import { Ears, Runner } from './runner.js';
import { Sender } from './sender.js';
import { within } from './timers.js';

// Node 18 has none; TypeScript's output for `await using` looks here.
const dispose = Symbol as { asyncDispose?: symbol };
if (!dispose.asyncDispose) Object.defineProperty(Symbol, 'asyncDispose', { value: Symbol.for('Symbol.asyncDispose') });

const WITHDRAW = 1000; // ms that leaving the queue is waited for
const now = (): number => performance.now();

type Work<T> = (held: Held) => Promise<T> | T;

/** Takes fair locks at the servers of a client, by that client. Options are defaults for its locks. */
export class Locks implements AsyncDisposable {
  readonly #options: Options;
  readonly #servers: Servers;
  readonly #sender: Sender;
  readonly #ears = new Ears();
  readonly #entered = new AsyncLocalStorage<ReadonlyMap<string, Held>>();
  readonly #holds = new Set<Hold>();
  readonly #asking = new Map<Runner, Promise<unknown>>();
  #isClosed = false;

  constructor(client: Client, options: LocksOptions = {}) {
    this.#options = optionsOfLocks(options);
    this.#servers = new Servers(client, this.#options.commandTimeout);
    this.#sender = new Sender(this.#servers, this.#options.module);
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
    return outer?.enter() ? outer : this.#ask(name, options);
  }

  async #ask(name: string, options: Options): Promise<Held> {
    const { signal } = options;
    signal?.throwIfAborted();
    const ear = this.#ears.take(name, options.owner);
    const onQueued = (): void => callHook(options.hooks, 'onWait', { name, owner: ear.owner });
    const ask = new Ask(name, ear.owner, options, now, Math.random, () => ear.isHeard, onQueued);
    ask.released = ear.released;
    const open = options.session ? () => this.#line(name) : undefined;
    const runner = new Runner(this.#sender, name, { servers: this.#servers, ear, open });
    ear.wake = runner.wake;
    const cancel = (): void => runner.end(signal?.reason);
    // One signal may end many waits: without this, Node takes that for a leak.
    if (signal) setMaxListeners(0, signal);
    signal?.addEventListener('abort', cancel);
    const asking = runner.carryOut(acquiring(ask)).then(
      (kept) => {
        const hold: Hold = new Hold(kept, this.#sender, runner.line, (isClean) => {
          this.#holds.delete(hold);
          ear.released = kept.token;
          this.#ears.give(name, ear, isClean);
        });
        this.#holds.add(hold);
        hold.tell('onAcquired', { waited: kept.acquired - ask.started });
        return new Held(hold);
      },
      async (error: unknown) => {
        ear.released = Math.max(ear.released, ask.released);
        const left = this.#left(ask, runner).then((isClean) => this.#ears.give(name, ear, isClean), () => ear.end());
        await within(WITHDRAW, left, () => {});
        throw error;
      },
    );
    this.#asking.set(runner, asking);
    try {
      return await asking;
    } finally {
      signal?.removeEventListener('abort', cancel);
      this.#asking.delete(runner);
    }
  }

  /** The connection of a session. */
  async #line(name: string): Promise<Line> {
    const line = new Line(await this.#servers.at(name), true);
    await line.open();
    return line;
  }

  /** For a caller that gives up: leaves the queue, when it is known what its last ask has brought. */
  async #left(ask: Ask, runner: Runner): Promise<boolean> {
    await runner.pending?.then(
      ({ reply }) => {
        ask.isGranted ||= Number(reply) > 0;
        ask.isQueued ||= Array.isArray(reply);
      },
      (error: unknown) => (ask.isUnheard ||= isLost(error)),
    );
    runner.line?.close();
    if (!ask.isQueued && !ask.isUnheard && !ask.isGranted) return true;
    return new Runner(this.#sender, ask.name, { isInBackground: true }).carryOut(leaving(ask));
  }

  /** Whether the server has the module; undefined before it was asked for the first time. */
  get native(): boolean | undefined {
    return this.#sender.isNative;
  }

  /** The lock's holder, and how many wait for it. */
  async info(name: string): Promise<LockInfo> {
    checkName(name);
    return new Runner(this.#sender, name).carryOut(informing(name, this.#options, now));
  }

  /** Ends all waits (Closed) and closes the package's connections; locks that are held are lost. The client stays open. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const hold of this.#holds) hold.lose('closed');
    for (const runner of this.#asking.keys()) runner.end(new Closed('Locks is closed'));
    await Promise.allSettled(this.#asking.values());
    this.#ears.close();
    this.#servers.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
