// Asking for a lock, waiting for it and withdrawing, over the connections of a Route.

import { setMaxListeners } from 'node:events';
import { Ask, FIRST_PAUSE, isPassing, pause } from './ask.js';
import { Commands } from './commands.js';
import { connectedReplicas } from './confirming.js';
import { Connections } from './connections.js';
import { Broken, Closed, FairlockError, Refusal, TakenOver, noModule, translated } from './errors.js';
import { Keep } from './keep.js';
import type { Line } from './line.js';
import { acquireWords, callHook, ms, renewWords } from './options.js';
import type { Options } from './options.js';
import type { Route } from './route.js';

// Refusals that mean that the owner neither waits nor holds, or that another caller has its place.
const SETTLED = new Set(['TAKENOVER', 'QUEUEFULL', 'NOTALOCK', 'WRONGTYPE', 'CROSSSLOT']);
// All durations are milliseconds.
const WITHDRAW = 1000; // for which leaving the queue is tried
const WATCH = 1000; // between two looks for the master
const SHORT = 500; // between two tries to get a descriptor
const MOST_JITTER = 1000;

export class Core {
  readonly kept = new Set<Keep>();
  readonly #asks = new Set<Ask>();
  readonly #connections: Connections;
  readonly commands: Commands;
  /** Callers that wait for a descriptor, in the order of the calls; and the first one's error. */
  readonly #short = new Set<Ask>();
  #shortage: unknown;
  #watch: NodeJS.Timeout | undefined;
  #isLooking = false;
  #isClosing = false;

  constructor(readonly route: Route, private readonly options: Options) {
    this.#connections = new Connections(route, options, (kind) => {
      if (kind === 'wake') for (const ask of this.#asks) ask.wake();
      // Perhaps the master is gone: does the next one still have the locks?
      if (kind === 'control') for (const keep of this.kept) keep.check();
    });
    this.commands = new Commands(route, this.#connections);
  }

  get isNative(): boolean | undefined {
    return this.#connections.isNative;
  }

  // ------------------------------------------------------------------------------ acquiring

  async acquire(name: string, options: Options): Promise<Keep> {
    if (this.#isClosing) throw new Closed('Locks is closed');
    const { signal } = options;
    signal?.throwIfAborted();
    const ask = new Ask(name, options);
    const cancel = () => ask.ended.abort(signal?.reason);
    // One signal may end many waits: without this, Node takes that for a leak.
    if (signal) setMaxListeners(0, signal);
    signal?.addEventListener('abort', cancel);
    this.#asks.add(ask);
    this.attend();
    try {
      return await this.#untilGranted(ask);
    } catch (error) {
      if (ask.mayBeKnown && !(error instanceof TakenOver)) await this.#withdraw(ask);
      throw error;
    } finally {
      signal?.removeEventListener('abort', cancel);
      this.#asks.delete(ask);
      this.#short.delete(ask);
      this.attend();
      ask.subscribedOn?.unsubscribe(ask.channel, ask.wake).catch(() => {});
    }
  }

  async #untilGranted(ask: Ask): Promise<Keep> {
    for (;;) {
      ask.ended.signal.throwIfAborted();
      try {
        ask.address = ask.askingAt ?? (await ask.unlessEnded(this.route.locate(ask.name)));
        const keep = await this.#ask(ask);
        if (keep) return keep;
      } catch (error) {
        if (ask.ended.signal.aborted) throw error;
        if (!(error instanceof Refusal || error instanceof Broken)) throw error;
        await this.#passed(ask, error);
      }
    }
  }

  /** Returns if asking again may help; otherwise throws the caller's error. */
  async #passed(ask: Ask, error: Refusal | Broken): Promise<void> {
    ask.askingAt = undefined;
    if (ask.tries.isRedirected(error)) {
      ask.askingAt = this.commands.redirected(error as Refusal);
      return;
    }
    if (!isPassing(error)) throw translated(error as Refusal, ask.name);
    ask.tries.failed(error);
    const isPatient = ask.options.wait !== 0;
    if (isPatient && ask.left() <= 0) ask.notInTime();
    if (error instanceof Broken && error.isForWantOfDescriptors && isPatient) {
      return pause(Math.min(SHORT, ask.left()), ask.ended.signal);
    }
    this.commands.distrust(error);
    await ask.tries.again(isPatient ? ask.left() : Infinity);
  }

  /** Asks on the shared connection, and waits for a reason to ask again. */
  async #ask(ask: Ask): Promise<Keep | undefined> {
    const { address, options } = ask;
    await ask.unlessEnded(this.#connections.forHolders(address));
    const line = (ask.line = await ask.unlessEnded(this.#connections.shared('ask', address)));
    const needing = line.isScripted ? optionNeedingModule(options) : undefined;
    if (needing) {
      // It may have been loaded since.
      await ask.unlessEnded(this.#connections.look(address));
      if (line.isScripted) throw withoutModule(needing, ask.name, line);
    }
    if (options.wait === 0 && options.session) return this.#askAlone(ask);
    const words = acquireWords(ask.name, ask.owner, options);
    words.push(...(options.wait === 0 ? ['NOWAIT'] : ['ENQUEUE', 'PATIENCE', ms(options.patience)]));
    ask.isWoken = false;
    const sent = performance.now();
    const answer = this.#reply(ask, line, words);
    const replicas = this.#replicas(ask, line);
    replicas.catch(() => {});
    const reply = await answer;
    if (typeof reply === 'number') {
      if (options.session) return this.#askAlone(ask);
      const received = performance.now();
      if (!(await this.#isConfirmed(ask, replicas))) return this.#unconfirmed(ask, line);
      return this.#kept(ask, line, reply, sent, received);
    }
    if (options.wait !== 0) this.#begins(ask);
    ask.mustHaveTime();
    if (ask.isBlocking && !line.isScripted) return this.#askAlone(ask);
    await this.#untilWoken(ask, (reply as [number, number])[1]);
    return undefined;
  }

  async #untilWoken(ask: Ask, longest: number): Promise<void> {
    const line = await ask.unlessEnded(this.#connections.shared('wake', ask.address));
    if (ask.subscribedOn !== line) {
      // It asks again after this, so that no wake-up is missed.
      await ask.unlessEnded(line.subscribe(ask.channel, ask.wake));
      ask.subscribedOn = line;
      return;
    }
    // A random time more, so that the waiters of one lock do not all ask at once.
    await ask.untilWoken(Math.min(ask.left(), longest + Math.random() * Math.min(longest / 10, MOST_JITTER)));
    ask.mustHaveTime();
  }

  /** Asks and waits on its own connection, which only a session keeps. It has its place in the queue already. */
  async #askAlone(ask: Ask): Promise<Keep | undefined> {
    const { wait, session, commandTimeout } = ask.options;
    const line = await ask.unlessEnded(this.#openFor(ask));
    let keep: Keep | undefined;
    try {
      const words = acquireWords(ask.name, ask.owner, ask.options);
      if (session) words.push('SESSION');
      if (wait !== Infinity) words.push(...(wait === 0 ? ['NOWAIT'] : ['WAIT', ms(ask.left())]));
      const sent = performance.now();
      const token = await this.#reply(ask, line, words, Math.max(0, ask.left()) + commandTimeout);
      if (token === null) ask.notInTime();
      const received = performance.now();
      if (!(await this.#isConfirmed(ask, this.#replicas(ask, line)))) return await this.#unconfirmed(ask, line);
      if (!session) return await this.#kept(ask, line, token as number, sent, received);
      return (keep = this.#keep(ask, token as number, sent, received, line));
    } finally {
      if (!keep?.grant.line) line.destroy();
    }
  }

  /** Keeps a grant, once it is known that its lease is not over: it may have been on its way for longer. */
  async #kept(ask: Ask, line: Line, token: number, sent: number, received: number): Promise<Keep | undefined> {
    if (received - sent < ask.options.lease / 3) return this.#keep(ask, token, sent, received, undefined);
    const began = performance.now();
    try {
      await this.#reply(ask, line, renewWords(ask.name, ask.owner, ask.options.lease));
    } catch (error) {
      if (!(error instanceof Refusal) || error.code !== 'NOTHELD') throw error;
      ask.mayBeKnown = false;
      ask.mustHaveTime();
      return undefined;
    }
    if (!(await this.#isConfirmed(ask, this.#replicas(ask, line)))) return this.#unconfirmed(ask, line);
    return this.#keep(ask, token, began, performance.now(), undefined);
  }

  /** The first caller without a descriptor gets the next one: otherwise those behind it could take them all. */
  async #openFor(ask: Ask): Promise<Line> {
    const [first = ask] = this.#short;
    try {
      if (first !== ask) throw this.#shortage;
      const line = await this.#connections.open(ask.address);
      this.#short.delete(ask);
      if (ask.ended.signal.aborted) line.destroy();
      return line;
    } catch (error) {
      this.#short.delete(ask);
      if (error instanceof Broken && error.isForWantOfDescriptors) {
        this.#shortage = error;
        this.#short.add(ask);
      }
      throw error;
    }
  }

  #begins(ask: Ask): void {
    if (ask.isWaiting) return;
    ask.isWaiting = true;
    callHook(ask.options.hooks, 'onWait', { name: ask.name, owner: ask.owner });
  }

  #keep(ask: Ask, token: number, sent: number, received: number, line: Line | undefined): Keep {
    const { name, owner, options, started, address } = ask;
    return new Keep(this, { name, owner, token, options, started, sent, received, line, address });
  }

  async #reply(ask: Ask, line: Line, words: string[], timeout?: number): Promise<unknown> {
    const wasKnown = ask.mayBeKnown;
    ask.mayBeKnown = true;
    try {
      const reply = await ask.unlessEnded(line.call(words, timeout, ask.askingAt !== undefined));
      ask.tries.succeeded();
      ask.mayBeKnown = reply !== null;
      return reply;
    } catch (error) {
      // A refusal changes nothing. A hold from an earlier ask whose reply was lost is still there, and so is the place
      // of a caller that asks again.
      if (error instanceof Refusal) {
        ask.mayBeKnown = !SETTLED.has(error.code) && (wasKnown || (ask.isWaiting && isPassing(error)));
      }
      throw error;
    }
  }

  // ------------------------------------------------------------------------------- replicas

  /** Whether any have to confirm: not 0. ROLE is sent along with an ask, and costs no time. */
  async #replicas(ask: Ask, line: Line): Promise<number> {
    const least = this.commands.least(ask.name, ask.options);
    if (!ask.options.syncTimeout || least > 0) return least;
    return connectedReplicas(line);
  }

  async #isConfirmed(ask: Ask, replicas: Promise<number>): Promise<boolean> {
    if ((await ask.unlessEnded(replicas)) === 0) return true;
    const written = this.commands.written('sync', ask.address, ask.askingAt !== undefined, ask, ask.options.lease);
    return ask.unlessEnded(written.then(({ isConfirmed }) => isConfirmed, (error: unknown) => {
      // The lease was over before.
      if (error instanceof Refusal && error.code === 'NOTHELD') return false;
      throw error;
    }));
  }

  async #unconfirmed(ask: Ask, line: Line): Promise<undefined> {
    await line.call(['FAIRLOCK.RELEASE', ask.name, ask.owner]).catch((error: unknown) => {
      // The lease was over before.
      if (!(error instanceof Refusal) || error.code !== 'NOTHELD') throw error;
    });
    ask.isUnconfirmed = true;
    ask.mayBeKnown = false;
    ask.mustHaveTime();
    await pause(Math.min(FIRST_PAUSE, ask.left()), ask.ended.signal);
    return undefined;
  }

  // ----------------------------------------------------------------------------- withdrawing

  /** For a caller that does not know whether it waits, holds the lock, or neither. */
  async #withdraw(ask: Ask): Promise<void> {
    const longest = Math.min(WITHDRAW, this.options.commandTimeout);
    if ((await this.#leave(ask, longest)) || ask.options.owner !== undefined) return;
    // A network that comes back must not leave the lock to a caller that has gone. With a given owner, the caller may
    // hold the lock again by then.
    void this.#leave(ask, ask.options.lease);
  }

  async #leave(ask: Ask, longest: number): Promise<boolean> {
    const commands = ['FAIRLOCK.CANCEL', 'FAIRLOCK.RELEASE'].map((command) => [command, ask.name, ask.owner]);
    const isGone = (error: unknown) => error instanceof Refusal && !isPassing(error);
    if (ask.line && !ask.line.isClosed && longest <= WITHDRAW) {
      // On the connection of the last ask they are sure to arrive after it.
      const line = ask.line;
      const done = commands.map((words) => line.call(words, longest).then(() => true, isGone));
      if ((await Promise.all(done)).every(Boolean)) return true;
    }
    try {
      for (const words of commands) {
        await this.commands.control(ask.name, words, longest).catch((error: unknown) => {
          if (!(error instanceof FairlockError) || !isGone(error.cause)) throw error;
        });
      }
      return true;
    } catch {
      return this.#connections.isClosed;
    }
  }

  // ----------------------------------------------------------------------------- watching

  /** Asks Sentinels or nodes for the master while a lock is held or waited for. */
  attend(): void {
    const isBusy = this.kept.size + this.#asks.size > 0;
    if (isBusy && this.route.masters) {
      this.#watch ??= setInterval(() => void this.#look(), WATCH).unref();
    } else {
      clearInterval(this.#watch);
      this.#watch = undefined;
    }
  }

  async #look(): Promise<void> {
    if (this.#isLooking) return;
    this.#isLooking = true;
    try {
      await this.#connections.keepMasters(await this.route.masters!());
    } catch {
      // No guide has answered. Broken connections will show by themselves.
    }
    this.#isLooking = false;
  }

  /** Ends all waits, which leave their queues; then all connections. Held locks are lost. */
  async close(): Promise<void> {
    this.#isClosing = true;
    for (const keep of [...this.kept]) keep.lose('closed');
    for (const ask of this.#asks) ask.ended.abort(new Closed('Locks is closed'));
    const end = performance.now() + this.options.commandTimeout;
    while (this.#asks.size > 0 && performance.now() < end) await pause(1, undefined);
    this.#connections.close();
  }
}

/** The option that scripts do not have. */
function optionNeedingModule({ session, shared, limit }: Options): string | undefined {
  return Object.entries({ session, shared, limit }).find(([, value]) => value)?.[0];
}

function withoutModule(option: string, name: string, { address, denied }: Line): FairlockError {
  if (denied) return translated(denied, name);
  return noModule(address, `${option} needs the fairlock module, which the server does not have`);
}
