// How a lock is asked for, waited for and withdrawn from, over the connections of a Route.

import { Broken, Closed, FairlockError, NotInTime, NotReplicated, Refusal, TakenOver, Unavailable, translated } from './errors.js';
import type { Cause } from './errors.js';
import { Keep } from './keep.js';
import { acquireWords, callHook, ms, newOwner } from './options.js';
import type { Options } from './options.js';
import type { Address, Line, Route } from './route.js';

// Refusals that pass: the same owner asks again, and has its place still.
const PASSING = new Set(['CLUSTERDOWN', 'TRYAGAIN', 'LOADING', 'READONLY', 'MASTERDOWN', 'NOREPLICAS']);
const AT_ONCE = new Set(['MOVED', 'ASK', 'UNBLOCKED']);
// That say that the owner neither waits nor holds, or that another caller has its place.
const SETTLED = new Set(['TAKENOVER', 'QUEUEFULL', 'NOTALOCK', 'WRONGTYPE', 'CROSSSLOT']);
// All durations are milliseconds.
const FIRST_PAUSE = 50;
const LONGEST_PAUSE = 1000;
const WITHDRAW = 1000; // for which leaving the queue is tried
const ALONE_FOR = 1000; // for which a server without replicas is believed to have none
const REDIRECTS = 16; // in a row, before they count as failures
const MAX_IDLE = 16; // connections on which replicas confirm

/** How long, and how often, something that fails for the time being is tried again. */
class Tries {
  #since: number | undefined;
  #pause = FIRST_PAUSE;
  redirects = 0;

  constructor(private readonly longest: number, private readonly ended: AbortSignal | undefined) {}

  succeeded(): void {
    this.#since = undefined;
    this.#pause = FIRST_PAUSE;
    this.redirects = 0;
  }

  /** Waits, or throws Unavailable when it has been long enough. */
  async after(error: Error, left = Infinity): Promise<void> {
    const now = performance.now();
    this.#since ??= now;
    if (now - this.#since >= this.longest) {
      const code = error instanceof Refusal ? error.code : undefined;
      throw new Unavailable(`not available for ${this.longest} ms: ${error.message}`, code, error);
    }
    await pause(Math.min(this.#pause, this.#since + this.longest - now, left), this.ended);
    this.#pause = Math.min(this.#pause * 2, LONGEST_PAUSE);
  }
}

/** One acquisition under way. */
class Ask {
  readonly owner: string;
  readonly started = performance.now();
  readonly ended = new AbortController();
  readonly tries: Tries;
  /** A session lives on its connection; and with an owner that was given only a blocked waiter learns of TAKENOVER. */
  readonly isBlocking: boolean;
  isWaiting = false;
  /** To the server, as waiter or holder. */
  mayBeKnown = false;
  isUnconfirmed = false;
  askingAt: Address | undefined;
  /** The connection of the last ask. What is sent on it next comes after it. */
  line: Line | undefined;
  subscribedOn: Line | undefined;
  isWoken = false;
  wake = () => {};

  constructor(readonly name: string, readonly options: Options) {
    this.owner = options.owner ?? newOwner();
    this.isBlocking = options.session || (options.owner !== undefined && options.wait !== 0);
    // With no time to wait there is that of one answer.
    const longest = options.wait === 0 ? options.commandTimeout : options.retryTimeout;
    this.tries = new Tries(longest, this.ended.signal);
  }

  get channel(): string {
    const { name, owner } = this;
    return `redisson_lock__channel:${name.includes('{') ? name : `{${name}}`}:${owner}`;
  }

  left(): number {
    return this.started + this.options.wait - performance.now();
  }

  notInTime(cause?: unknown): never {
    if (this.isUnconfirmed) throw new NotReplicated(`${this.name}: no replica has confirmed it in time`, undefined, cause);
    throw new NotInTime(`${this.name}: not in time`, undefined, cause);
  }
}

export class Core {
  readonly kept = new Set<Keep>();
  /** For the fake: why locks were lost whose holders did not know of them yet, by token. */
  readonly gone = new Map<number, Cause>();
  readonly #asks = new Set<Ask>();
  readonly #shared = new Map<string, Promise<Line>>();
  readonly #confirming = new Map<Address, Line[]>();
  readonly #lines = new Set<Line>();
  readonly #aloneUntil = new Map<Address, number>();
  #isClosing = false;
  #isClosed = false;

  constructor(readonly route: Route, private readonly options: Options, readonly hasLeases = true) {}

  // ------------------------------------------------------------------------------ acquiring

  async acquire(name: string, options: Options): Promise<Keep> {
    if (this.#isClosing) throw new Closed('Locks is closed');
    options.signal?.throwIfAborted();
    const ask = new Ask(name, options);
    const cancel = () => ask.ended.abort(options.signal?.reason);
    options.signal?.addEventListener('abort', cancel);
    this.#asks.add(ask);
    try {
      return await this.#untilGranted(ask);
    } catch (error) {
      if (ask.mayBeKnown && !(error instanceof TakenOver)) await this.#withdraw(ask);
      throw error;
    } finally {
      options.signal?.removeEventListener('abort', cancel);
      this.#asks.delete(ask);
      ask.subscribedOn?.unsubscribe(ask.channel).catch(() => {});
    }
  }

  async #untilGranted(ask: Ask): Promise<Keep> {
    for (;;) {
      ask.ended.signal.throwIfAborted();
      let address: Address = '';
      try {
        address = ask.askingAt ?? (await unlessEnded(ask, this.route.locate(ask.name)));
        const keep = await (ask.isBlocking ? this.#askBlocked(ask, address) : this.#askAt(ask, address));
        if (keep) return keep;
      } catch (error) {
        if (error instanceof FairlockError || ask.ended.signal.aborted) throw error;
        if (!(error instanceof Refusal || error instanceof Broken)) throw error;
        await this.#passed(ask, error, address);
      }
    }
  }

  /** Returns if it is worth asking again; throws what the caller gets if not. */
  async #passed(ask: Ask, error: Refusal | Broken, address: Address): Promise<void> {
    ask.askingAt = undefined;
    if (this.#isRedirected(ask.tries, error)) {
      const refusal = error as Refusal;
      const named = this.route.redirect(refusal);
      if (refusal.code === 'ASK') ask.askingAt = named;
      return;
    }
    if (!isPassing(error)) throw translated(error as Refusal, this.route.describe(address));
    this.#distrust(address, error);
    const { wait } = ask.options;
    if (wait !== 0 && ask.left() <= 0) ask.notInTime(error);
    await ask.tries.after(error, wait === 0 ? Infinity : ask.left());
  }

  #isRedirected(tries: Tries, error: Error): boolean {
    return error instanceof Refusal && AT_ONCE.has(error.code) && ++tries.redirects <= REDIRECTS;
  }

  #distrust(address: Address, error: Error): void {
    if (error instanceof Refusal && error.code === 'TRYAGAIN') return;
    this.route.distrust();
    for (const kind of ['ask', 'control']) {
      const key = `${kind} ${address}`;
      const line = this.#shared.get(key);
      this.#shared.delete(key);
      line?.then((stale) => stale.destroy(), () => {});
    }
  }

  /** Asks by ENQUEUE, and waits for what is worth asking again for. */
  async #askAt(ask: Ask, address: Address): Promise<Keep | undefined> {
    // To release by: a full server must not keep a holder from it.
    await unlessEnded(ask, this.#line('control', address));
    const line = (ask.line = await unlessEnded(ask, this.#line('ask', address)));
    const { options } = ask;
    const words = acquireWords(ask.name, ask.owner, options);
    words.push(...(options.wait === 0 ? ['NOWAIT'] : ['ENQUEUE', 'PATIENCE', ms(options.patience)]));
    ask.isWoken = false;
    const sent = performance.now();
    const reply = await this.#reply(ask, line, words);
    const received = performance.now();
    if (typeof reply === 'number') {
      if (!(await unlessEnded(ask, this.#confirm(ask, address)))) return this.#unconfirmed(ask, line);
      return this.#keep(ask, reply, sent, received, undefined);
    }
    if (options.wait === 0 || !Array.isArray(reply)) ask.notInTime();
    this.#begins(ask);
    if (ask.left() <= 0) ask.notInTime();
    const wakeUps = await unlessEnded(ask, this.#line('wake', address));
    if (ask.subscribedOn !== wakeUps) {
      // Asked again after this, so that no wake-up is missed.
      await unlessEnded(ask, wakeUps.subscribe(ask.channel, () => woken(ask)));
      ask.subscribedOn = wakeUps;
      wakeUps.whenClosed(() => woken(ask));
      return undefined;
    }
    if (!ask.isWoken) await untilWoken(ask, Math.min(ask.left(), (reply as [number, number])[1]));
    if (ask.left() <= 0) ask.notInTime();
    return undefined;
  }

  /** Asks, and waits, on a connection of its own, which only a session keeps. */
  async #askBlocked(ask: Ask, address: Address): Promise<Keep | undefined> {
    await unlessEnded(ask, this.#line('control', address));
    const line = await unlessEnded(ask, this.#open(address));
    try {
      const words = acquireWords(ask.name, ask.owner, ask.options);
      let sent = performance.now();
      let token = ask.isWaiting ? null : await this.#reply(ask, line, [...words, 'NOWAIT']);
      if (token === null) {
        if (ask.options.wait === 0 || ask.left() <= 0) ask.notInTime();
        this.#begins(ask);
        const wait = ask.options.wait === Infinity ? [] : ['WAIT', ms(ask.left())];
        sent = performance.now();
        token = await this.#reply(ask, line, [...words, ...wait], ask.left() + ask.options.commandTimeout);
      }
      const received = performance.now();
      if (token === null) ask.notInTime();
      if (!(await unlessEnded(ask, this.#confirmOn(line, ask)))) return await this.#unconfirmed(ask, line);
      return this.#keep(ask, token as number, sent, received, ask.options.session ? line : undefined);
    } finally {
      if (![...this.kept].some((keep) => keep.grant.line === line)) line.destroy();
    }
  }

  #begins(ask: Ask): void {
    if (ask.isWaiting) return;
    ask.isWaiting = true;
    callHook(ask.options.hooks, 'onWait', { name: ask.name, owner: ask.owner });
  }

  #keep(ask: Ask, token: number, sent: number, received: number, line: Line | undefined): Keep {
    const { name, owner, options, started } = ask;
    return new Keep(this, { name, owner, token, options, started, sent, received, line });
  }

  async #reply(ask: Ask, line: Line, words: string[], timeout?: number): Promise<unknown> {
    const wasKnown = ask.mayBeKnown;
    ask.mayBeKnown = true;
    try {
      if (ask.askingAt) line.call(['ASKING']).catch(() => {});
      const reply = await unlessEnded(ask, line.call(words, timeout));
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

  /**
   * Whether a replica has the acquisition, or there is none. WAIT would hold up the others who ask on the same
   * connection, so it has one with an ACQUIRE of its own: asking again is harmless, and comes later in the stream.
   */
  async #confirm(ask: Ask, address: Address): Promise<boolean> {
    if (!ask.options.syncTimeout || (this.#aloneUntil.get(address) ?? 0) > performance.now()) return true;
    const idle = this.#confirming.get(address) ?? [];
    this.#confirming.set(address, idle);
    const line = idle.pop() ?? (await this.#open(address));
    if (line.isClosed) return this.#confirm(ask, address);
    const isConfirmed = await this.#confirmOn(line, ask, [...acquireWords(ask.name, ask.owner, ask.options), 'NOWAIT']);
    if (idle.length < MAX_IDLE && !line.isClosed) idle.push(line);
    else line.destroy();
    return isConfirmed;
  }

  /** INFO comes right before WAIT: WAIT covers what was written before the last command of its connection. */
  async #confirmOn(line: Line, ask: Ask, again?: string[]): Promise<boolean> {
    const { syncTimeout, commandTimeout } = ask.options;
    if (!syncTimeout || (this.#aloneUntil.get(line.address) ?? 0) > performance.now()) return true;
    const [, said] = await Promise.all([again && this.#again(line, again), line.call(['INFO', 'replication'])]);
    const replicas = /connected_slaves:(\d+)/.exec(String(said))?.[1] ?? '0';
    if (replicas === '0') {
      this.#aloneUntil.set(line.address, performance.now() + ALONE_FOR);
      return true;
    }
    const confirmed = await line.call(['WAIT', replicas, ms(syncTimeout)], syncTimeout + commandTimeout);
    return (confirmed as number) >= 1;
  }

  async #again(line: Line, words: string[]): Promise<void> {
    if ((await line.call(words)) === null) throw new Broken('the lock was lost while replicas were asked');
  }

  async #unconfirmed(ask: Ask, line: Line): Promise<undefined> {
    await line.call(['FAIRLOCK.RELEASE', ask.name, ask.owner]).catch((error: unknown) => {
      // The lease was over before.
      if (!(error instanceof Refusal) || error.code !== 'NOTHELD') throw error;
    });
    ask.isUnconfirmed = true;
    ask.mayBeKnown = false;
    if (ask.options.wait === 0 || ask.left() <= 0) ask.notInTime();
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
    const isGone = (error: unknown) => error instanceof Refusal && !isPassing(error) && !AT_ONCE.has(error.code);
    if (ask.line && !ask.line.isClosed && longest <= WITHDRAW) {
      // On the connection of the last ask they come after it for certain.
      const line = ask.line;
      const done = commands.map((words) => line.call(words, longest).then(() => true, isGone));
      if ((await Promise.all(done)).every(Boolean)) return true;
    }
    try {
      for (const words of commands) {
        await this.control(ask.name, words, longest).catch((error: unknown) => {
          if (!(error instanceof FairlockError) || !isGone(error.cause)) throw error;
        });
      }
      return true;
    } catch {
      return this.#isClosed;
    }
  }

  // ----------------------------------------------------------------------------- connections

  /** A command that no waiter can hold up, tried for so long. Refusals that do not pass are thrown as this package's errors. */
  async control(name: string, words: string[], longest: number): Promise<{ reply: unknown }> {
    const tries = new Tries(longest, undefined);
    let askingAt: Address | undefined;
    let failure: Broken | undefined;
    for (;;) {
      let address: Address = '';
      try {
        address = askingAt ?? (await this.route.locate(name));
        const line = await this.#line('control', address);
        if (askingAt) line.call(['ASKING']).catch(() => {});
        return { reply: await line.call(words) };
      } catch (error) {
        if (!(error instanceof Refusal || error instanceof Broken)) throw error;
        askingAt = undefined;
        if (this.#isRedirected(tries, error)) {
          const named = this.route.redirect(error as Refusal);
          if ((error as Refusal).code === 'ASK') askingAt = named;
          continue;
        }
        if (!isPassing(error)) {
          // An earlier try may have been carried out, though its reply was lost.
          if (failure) error.cause = failure;
          throw translated(error as Refusal, this.route.describe(address));
        }
        if (error instanceof Broken) failure = error;
        this.#distrust(address, error);
        await tries.after(error);
      }
    }
  }

  /** The connection of a kind to a server, that all callers share. */
  #line(kind: 'ask' | 'control' | 'wake', address: Address): Promise<Line> {
    if (this.#isClosed) throw new Closed('Locks is closed');
    const key = `${kind} ${address}`;
    const known = this.#shared.get(key);
    if (known) return known;
    const opened = this.#open(address);
    this.#shared.set(key, opened);
    const forget = () => {
      if (this.#shared.get(key) === opened) this.#shared.delete(key);
    };
    opened.then((line) => line.whenClosed(forget), forget);
    return opened;
  }

  async #open(address: Address): Promise<Line> {
    const line = await this.route.open(address);
    if (this.#isClosed) {
      line.destroy();
      throw new Closed('Locks is closed');
    }
    this.#lines.add(line);
    line.whenClosed(() => this.#lines.delete(line));
    return line;
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
    this.#isClosed = true;
    for (const line of [...this.#lines]) line.destroy();
  }
}

/** Whether it is worth trying again a little later. */
function isPassing(error: Error): boolean {
  if (error instanceof Refusal) return PASSING.has(error.code) || AT_ONCE.has(error.code);
  // A wrong password will not get better.
  return error instanceof Broken && !(error.cause instanceof Refusal);
}

function woken(ask: Ask): void {
  ask.isWoken = true;
  ask.wake();
}

async function untilWoken(ask: Ask, longest: number): Promise<void> {
  const done = new AbortController();
  ask.wake = () => done.abort();
  ask.ended.signal.addEventListener('abort', ask.wake);
  await pause(longest, done.signal);
  ask.ended.signal.removeEventListener('abort', ask.wake);
}

/** The result, or the reason for which the acquisition has ended meanwhile. */
async function unlessEnded<T>(ask: Ask, work: Promise<T>): Promise<T> {
  const { signal } = ask.ended;
  let ended = () => {};
  const end = new Promise<never>((_, reject) => {
    ended = () => reject(signal.reason);
    signal.addEventListener('abort', ended);
    if (signal.aborted) ended();
  });
  try {
    return await Promise.race([work, end]);
  } finally {
    work.catch(() => {});
    end.catch(() => {});
    signal.removeEventListener('abort', ended);
  }
}

/** Resolves when the time is over, or with the signal. */
function pause(longest: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', done);
      resolve();
    };
    // The longest that a timer takes.
    const timer = setTimeout(done, Math.min(Math.max(0, longest), 2 ** 31 - 1));
    signal?.addEventListener('abort', done);
    if (signal?.aborted) done();
  });
}
