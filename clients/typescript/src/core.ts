// How a lock is asked for, waited for and withdrawn from, over the connections of a Route.

import { setMaxListeners } from 'node:events';
import { Ask, FIRST_PAUSE, isPassing, pause } from './ask.js';
import { Commands } from './commands.js';
import { connectedReplicas } from './confirming.js';
import { Connections } from './connections.js';
import { Broken, Closed, FairlockError, Refusal, TakenOver, translated } from './errors.js';
import type { Cause } from './errors.js';
import { Keep } from './keep.js';
import type { Line } from './line.js';
import { acquireWords, callHook, ms } from './options.js';
import type { Options } from './options.js';
import type { Route } from './route.js';

// That say that the owner neither waits nor holds, or that another caller has its place.
const SETTLED = new Set(['TAKENOVER', 'QUEUEFULL', 'NOTALOCK', 'WRONGTYPE', 'CROSSSLOT']);
// All durations are milliseconds.
const WITHDRAW = 1000; // for which leaving the queue is tried
const WATCH = 1000; // between two looks at who is the master
const SHORT = 500; // between two tries to have a descriptor

export class Core {
  readonly kept = new Set<Keep>();
  /** For the fake: why locks were lost whose holders did not know of them yet, by token. */
  readonly gone = new Map<number, Cause>();
  readonly #asks = new Set<Ask>();
  readonly #connections: Connections;
  readonly commands: Commands;
  /** Who waits for a descriptor, in the order of the calls; and what the first one was told. */
  readonly #short = new Set<Ask>();
  #shortage: unknown;
  #watch: NodeJS.Timeout | undefined;
  #isLooking = false;
  #isClosing = false;

  constructor(readonly route: Route, private readonly options: Options, readonly hasLeases = true) {
    this.#connections = new Connections(route, options, (kind) => {
      if (kind === 'wake') for (const ask of this.#asks) ask.wake();
      // The master is gone, perhaps: does the next one still have the locks?
      if (kind === 'control') for (const keep of this.kept) keep.check();
    });
    this.commands = new Commands(route, this.#connections);
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
      ask.subscribedOn?.unsubscribe(ask.channel).catch(() => {});
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

  /** Returns if it is worth asking again; throws what the caller gets if not. */
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

  /** Asks on the connection that all share, and waits for what is worth asking again for. */
  async #ask(ask: Ask): Promise<Keep | undefined> {
    const { address, options } = ask;
    await ask.unlessEnded(this.#connections.forHolders(address));
    if (options.wait === 0 && options.session) return this.#askAlone(ask);
    const line = (ask.line = await ask.unlessEnded(this.#connections.shared('ask', address)));
    const words = acquireWords(ask.name, ask.owner, options);
    words.push(...(options.wait === 0 ? ['NOWAIT'] : ['ENQUEUE', 'PATIENCE', ms(options.patience)]));
    ask.isWoken = false;
    const sent = performance.now();
    const answer = this.#reply(ask, line, words);
    const replicas = this.#replicas(ask, line);
    replicas.catch(() => {});
    const reply = await answer;
    const received = performance.now();
    if (typeof reply === 'number') {
      if (options.session) return this.#askAlone(ask);
      if (!(await this.#isConfirmed(ask, replicas))) return this.#unconfirmed(ask, line);
      return this.#keep(ask, reply, sent, received, undefined);
    }
    if (options.wait !== 0) this.#begins(ask);
    ask.mustHaveTime();
    if (ask.isBlocking) return this.#askAlone(ask);
    await this.#untilWoken(ask, (reply as [number, number])[1]);
    return undefined;
  }

  async #untilWoken(ask: Ask, longest: number): Promise<void> {
    const line = await ask.unlessEnded(this.#connections.shared('wake', ask.address));
    if (ask.subscribedOn !== line) {
      // It asks again after this, so that no wake-up is missed.
      await ask.unlessEnded(line.subscribe(ask.channel, () => ask.wake()));
      ask.subscribedOn = line;
      return;
    }
    await ask.untilWoken(Math.min(ask.left(), longest));
    ask.mustHaveTime();
  }

  /** Asks, and waits, on a connection of its own, which only a session keeps. It has its place in the queue already. */
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
      const received = performance.now();
      if (token === null) ask.notInTime();
      if (!(await this.#isConfirmed(ask, this.#replicas(ask, line)))) return await this.#unconfirmed(ask, line);
      return (keep = this.#keep(ask, token as number, sent, received, session ? line : undefined));
    } finally {
      if (!keep?.grant.line) line.destroy();
    }
  }

  /** The first that could have no descriptor has the next one: else those behind it in the queue could have them all. */
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
      if (ask.askingAt) line.call(['ASKING']).catch(() => {});
      const reply = await ask.unlessEnded(line.call(words, timeout));
      ask.tries.succeeded();
      ask.mayBeKnown = reply !== null;
      return reply;
    } catch (error) {
      // A refusal changes nothing: what an earlier ask brought is still there, though its reply was lost, and so is the
      // place of a caller that is to ask again.
      if (error instanceof Refusal) {
        ask.mayBeKnown = !SETTLED.has(error.code) && (wasKnown || (ask.isWaiting && isPassing(error)));
      }
      throw error;
    }
  }

  // ------------------------------------------------------------------------------- replicas

  /** Whether any are to confirm: not 0. ROLE is sent along with an ask, and costs no time. */
  async #replicas(ask: Ask, line: Line): Promise<number> {
    const least = this.commands.least(ask.name, ask.options);
    if (!ask.options.syncTimeout || least > 0) return least;
    return connectedReplicas(line, await line.call(['ROLE']));
  }

  async #isConfirmed(ask: Ask, replicas: Promise<number>): Promise<boolean> {
    if ((await ask.unlessEnded(replicas)) === 0) return true;
    const before = ask.askingAt ? [['ASKING']] : [];
    const written = this.commands.written('sync', ask.address, before, ask, ask.options.lease);
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
    // A network that comes back must not leave the lock to a caller that has gone. With an owner that was given, the
    // caller may hold the lock again by then.
    void this.#leave(ask, ask.options.lease);
  }

  async #leave(ask: Ask, longest: number): Promise<boolean> {
    const commands = ['FAIRLOCK.CANCEL', 'FAIRLOCK.RELEASE'].map((command) => [command, ask.name, ask.owner]);
    const isGone = (error: unknown) => error instanceof Refusal && !isPassing(error);
    if (ask.line && !ask.line.isClosed && longest <= WITHDRAW) {
      // On the connection of the last ask they come after it for certain.
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

  /** While something is held or waited for, and others know who is the master, they are asked. */
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
      // Nobody could tell. The connections will, if there is anything wrong with them.
    }
    this.#isLooking = false;
  }

  /** For the fake: the locks with these tokens are lost, at once or as soon as their holders know of them. */
  lose(tokens: number[], cause: Cause): void {
    const kept = new Map([...this.kept].map((keep) => [keep.grant.token, keep]));
    for (const token of tokens) {
      const keep = kept.get(token);
      if (keep) keep.lose(cause);
      else this.gone.set(token, cause);
    }
  }

  /** Ends all waits, which leave their queues; then all connections. Held locks are lost to us. */
  async close(): Promise<void> {
    this.#isClosing = true;
    for (const keep of [...this.kept]) keep.lose('closed');
    for (const ask of this.#asks) ask.ended.abort(new Closed('Locks is closed'));
    const end = performance.now() + this.options.commandTimeout;
    while (this.#asks.size > 0 && performance.now() < end) await pause(1, undefined);
    this.#connections.close();
  }
}
