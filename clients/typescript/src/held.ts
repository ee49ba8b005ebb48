// A lock that is held.

import { SHORTEST } from './asks.js';
import type { Ask, Grant } from './asks.js';
import { FairlockError, Failure, LockLost, NotReplicated, isLost } from './errors.js';
import type { Cause } from './errors.js';
import { callHook, checkLease, ms, warn } from './options.js';
import type { LockEvent } from './options.js';
import { LONGEST_TIMER } from './timers.js';
import { FIRST_PAUSE, insisting } from './tries.js';

/** What goes on without Held, to which it has a weak reference: once nobody can release the lock, it is not renewed. */
export class Hold {
  state: 'held' | 'lost' | 'released' = 'held';
  /** Of the same caller: see `reentrant`. */
  count = 1;
  readonly token: number;
  readonly lost = new AbortController();
  readonly #acquired = performance.now();
  /** Its length, when it ends, and when the next renewal is due. */
  lease = 0;
  end = 0;
  #due = 0;
  #timer: NodeJS.Timeout | undefined;
  /** Whether there is nobody left who could release it. */
  isAbandoned = (): boolean => false;

  constructor(readonly ask: Ask, { token, sent }: Grant) {
    this.token = token;
    ask.close = () => this.lose('closed');
    ask.line?.once('closed', () => this.lose('connection'));
    this.#set(ask.options.lease, sent);
    this.#tell('onAcquired', { waited: this.#acquired - ask.started });
  }

  #tell(which: 'onAcquired' | 'onLost' | 'onReleased', more: Partial<LockEvent>): void {
    const { name, options, ear: { owner } } = this.ask;
    callHook(options.hooks, which, { name, owner, token: this.token, ...more });
  }

  /** The lease, from when it was asked for. */
  #set(lease: number, sent: number): void {
    const { renew, session } = this.ask.options;
    this.lease = lease;
    this.end = sent + lease;
    this.#due = renew || session ? sent + lease / 3 : Infinity;
    this.#arm();
  }

  #arm(): void {
    clearTimeout(this.#timer);
    if (this.state !== 'held') return;
    const next = Math.min(this.#due, this.end) - performance.now();
    this.#timer = setTimeout(() => this.#keep(), Math.min(next, LONGEST_TIMER)).unref();
  }

  /** Renews when it is time to, until the lock is lost or abandoned. */
  async #keep(): Promise<void> {
    if (this.state !== 'held') return;
    // Timers may ring a little early.
    if (this.end - performance.now() < 1) return this.lose('lease');
    if (this.#due > performance.now()) return this.#arm();
    if (this.isAbandoned()) return this.#over('released', false);
    try {
      await this.renew(this.lease);
    } catch (error) {
      if (this.state !== 'held') return;
      if (error instanceof Failure && !error.isPassing) warn(`the lock ${this.ask.name} cannot be renewed: ${error.message}`);
      this.#due = performance.now() + Math.max(this.lease / 10, FIRST_PAUSE);
      this.#arm();
    }
  }

  /** Once; resolves to the lease that the server says is set. */
  async renew(lease: number): Promise<number> {
    const { name, options, ear: { owner } } = this.ask;
    const longest = Math.min(options.commandTimeout + options.syncTimeout, this.end - performance.now());
    const words = ['FAIRLOCK.RENEW', name, owner, 'LEASE', ms(lease)];
    const { reply, isConfirmed, refusal, sent, address } = await this.ask.sent(words, longest);
    if (reply === null) {
      this.lose('notheld');
      throw new LockLost(name, 'notheld');
    }
    if (refusal) throw refusal;
    if (!isConfirmed) throw new NotReplicated(`${name}: too few replicas of ${address} have confirmed the renewal`);
    this.#set(lease, sent);
    return Number(reply);
  }

  /** LockLost: it was lost before. */
  async release(): Promise<void> {
    let isClean = false;
    try {
      isClean = (await this.#release()) && this.ask.unanswered === 0;
    } catch (error) {
      if (error instanceof LockLost) this.lost.abort(error);
      throw error;
    } finally {
      this.#over('released', isClean);
    }
    this.#tell('onReleased', { held: performance.now() - this.#acquired });
  }

  /** Whether that was clean: the owner's name may be used again. */
  #release(isInBackground = false): Promise<boolean> {
    const { sender, name, options, ear: { owner } } = this.ask;
    const most = Math.max(0, Math.min(options.releaseTimeout, this.end - performance.now()));
    const longest = Math.min(options.commandTimeout, Math.max(SHORTEST, most));
    const words = ['FAIRLOCK.RELEASE', name, owner, 'TOKEN', String(this.token)];
    let mayHaveArrived = false;
    const releasing = async (): Promise<boolean> => {
      try {
        const { reply } = await sender.send({ words, longest });
        if (reply === null && !mayHaveArrived) throw new LockLost(name, 'notheld');
        return Number(reply) === 0 && !mayHaveArrived;
      } catch (error) {
        mayHaveArrived ||= isLost(error);
        throw error;
      }
    };
    return insisting(name, most, releasing, isInBackground);
  }

  lose(cause: Cause): void {
    if (this.state !== 'held') return;
    this.#over('lost', false);
    this.lost.abort(new LockLost(this.ask.name, cause));
    this.#tell('onLost', { cause, held: performance.now() - this.#acquired });
    // The lease is over perhaps only by this side's clock.
    if (cause === 'lease') this.#release(true).catch(() => {});
  }

  #over(state: 'lost' | 'released', isClean: boolean): void {
    const { ears, ear, line } = this.ask;
    this.state = state;
    clearTimeout(this.#timer);
    ear.released = this.token;
    ears.give(this.ask, isClean);
    line?.close();
  }
}

/** A lock that is held. */
export class Held implements AsyncDisposable {
  readonly #hold: Hold;
  readonly name: string;
  readonly owner: string;
  /** The fencing token: it grows with each acquisition. */
  readonly token: number;
  /** Aborted as soon as the lock is known to be lost; the reason is a LockLost. */
  readonly lost: AbortSignal;

  /** @internal */
  constructor(hold: Hold) {
    this.#hold = hold;
    this.name = hold.ask.name;
    this.owner = hold.ask.ear.owner;
    this.token = hold.token;
    this.lost = hold.lost.signal;
    const itself = new WeakRef(this);
    hold.isAbandoned = () => itself.deref() === undefined;
  }

  /** @internal The same caller acquires it again. */
  enter(): boolean {
    if (this.#hold.state === 'lost') throw this.lost.reason;
    if (this.#hold.state === 'held') this.#hold.count += 1;
    return this.#hold.state === 'held';
  }

  /** Sets the lease anew, to its own length or another; resolves to the new lease in ms. */
  async renew(lease?: number): Promise<number> {
    if (lease !== undefined) checkLease(lease);
    const hold = this.#hold;
    if (hold.state === 'lost') throw this.lost.reason;
    if (hold.state === 'released') throw new FairlockError(`${this.name}: the lock was released`);
    const longest = Math.min(hold.ask.options.retryTimeout, hold.end - performance.now());
    return insisting(this.name, longest, () => hold.renew(lease ?? hold.lease));
  }

  /** Gives up the lock. LockLost: it was lost before. Releasing again does nothing. */
  async release(): Promise<void> {
    const hold = this.#hold;
    const { state } = hold;
    if (state === 'released' || (state === 'held' && --hold.count > 0)) return;
    hold.state = 'released';
    if (state === 'lost') throw this.lost.reason;
    await (hold.ask.call = hold.release());
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.release();
  }
}
