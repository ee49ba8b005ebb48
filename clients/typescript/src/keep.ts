// A held lock: its renewal, the detection of its loss, and its release.

import { timed } from './ask.js';
import type { Core } from './core.js';
import { Broken, FairlockError, LockLost, Refusal, Refused, Unavailable } from './errors.js';
import type { Cause } from './errors.js';
import type { Line } from './line.js';
import type { Held } from './locks.js';
import { callHook, renewWords } from './options.js';
import type { LockEvent, Options } from './options.js';
import type { Address } from './wire.js';

// ms: the shortest and, while it is not known whether the server has the lock, the longest pause between tries to renew.
const SOON = 50;
const SOON_AT_LATEST = 1000;

export interface Grant {
  name: string;
  owner: string;
  token: number;
  options: Options;
  /** When the first ask was sent, when the successful one was, or a RENEW after it, and when that was answered. */
  started: number;
  sent: number;
  received: number;
  /** The connection of a session. */
  line: Line | undefined;
  address: Address;
}

/**
 * The package's side of a held lock. It has only a weak reference to the user's side, Held: once that is collected, no
 * one can release the lock, and renewing would hold it for ever.
 */
export class Keep {
  readonly #lost = new AbortController();
  readonly #acquired: number;
  #state: 'held' | 'lost' | 'released' = 'held';
  #holds = 1;
  /** The master may be a new one that does not have the lock. */
  #isDoubtful = false;
  #lease: number;
  #end: number;
  #timer: NodeJS.Timeout | undefined;
  #held: WeakRef<Held> | undefined;

  constructor(private readonly core: Core, readonly grant: Grant) {
    const { options, sent, received, line } = grant;
    this.#lease = options.lease;
    this.#acquired = received;
    // Of a session, the server renews the lease as long as its connection is open.
    this.#end = (line ? received : sent) + this.#lease;
    core.kept.add(this);
    core.attend();
    if (line) line.whenClosed(() => this.lose('connection'));
    this.#arm(sent + this.#lease / 3 - performance.now());
    callHook(options.hooks, 'onAcquired', this.#event({ waited: received - grant.started }));
  }

  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  get isHeld(): boolean {
    return this.#state === 'held';
  }

  #isReleased(): boolean {
    return this.#state === 'released';
  }

  belongsTo(held: Held): void {
    this.#held = new WeakRef(held);
  }

  /** One more hold for a caller that has it already. */
  enter(): Held | undefined {
    if (this.#state === 'lost') throw this.lost.reason;
    const held = this.#held?.deref();
    if (held && this.isHeld) this.#holds += 1;
    return this.isHeld ? held : undefined;
  }

  #event(more: Partial<LockEvent>): LockEvent {
    const { name, owner, token } = this.grant;
    return { name, owner, token, ...more };
  }

  #leave(): void {
    clearTimeout(this.#timer);
    this.core.kept.delete(this);
    this.core.attend();
  }

  /** Asks at once whether the server has the lock. */
  check(): void {
    this.#isDoubtful = true;
    this.#arm(0);
  }

  /** Schedules the next renewal, or the end of the lease if that comes first. */
  #arm(due: number): void {
    if (!this.isHeld) return;
    clearTimeout(this.#timer);
    const left = this.#end - performance.now();
    const { renew, session } = this.grant.options;
    // The server renews a session however late its client is.
    const wait = session ? due : renew || this.#isDoubtful ? Math.min(due, left) : left;
    this.#timer = setTimeout(() => void this.#due(), timed(wait));
    this.#timer.unref();
  }

  async #due(): Promise<void> {
    if (!this.isHeld) return;
    const left = this.#end - performance.now();
    const { renew, session } = this.grant.options;
    // Timers may ring a little early.
    if (left < 1 && !session) return this.lose('lease');
    if (this.#held && !this.#held.deref()) return this.#abandon();
    if (session) return this.#checkSession();
    // The lease may end while the answer does not come.
    this.#arm(left);
    if (!renew && !this.#isDoubtful) return;
    try {
      await (renew ? this.renew() : this.#lookUp());
      this.#isDoubtful = false;
    } catch (error) {
      // A release may have come first.
      if (error instanceof Refused && this.isHeld) process.emitWarning(`cannot be renewed: ${error.message}`, 'FairlockWarning');
      const pause = Math.max(this.#lease / 10, SOON);
      this.#arm(this.#isDoubtful ? Math.min(pause, SOON_AT_LATEST) : pause);
    }
  }

  /** Checks a lock that is not renewed. (With several holders the server shows one, perhaps another.) */
  async #lookUp(): Promise<void> {
    const { owner, holders, token } = await this.core.commands.info(this.grant.name, this.grant.options.commandTimeout);
    const isOurs = owner === this.grant.owner && token === this.grant.token;
    if (!isOurs && holders <= 1) this.lose('notheld');
  }

  #abandon(): void {
    this.#leave();
    this.#state = 'released';
    // The user dropped it without a release: the lease ends by itself, and a session with its connection.
    this.grant.line?.destroy();
  }

  /** Asks on a session's own connection whether the lock is still there; the server renews it. */
  async #checkSession(): Promise<void> {
    const sent = performance.now();
    try {
      // The rest of the lease at the last check, if this one is in time.
      const words = renewWords(this.grant.name, this.grant.owner, this.#lease);
      await this.grant.line!.call(words, Math.max(SOON, (this.#lease * 2) / 3));
      this.#renewed(this.#lease, sent);
    } catch (error) {
      this.lose(error instanceof Refusal && error.code === 'NOTHELD' ? 'notheld' : 'connection');
    }
  }

  #renewed(lease: number, sent: number): void {
    this.#lease = lease;
    this.#end = sent + lease;
    this.#arm(lease / 3);
  }

  /** Sets the lease anew; only this moves the end that the client knows. */
  async renew(lease = this.#lease): Promise<number> {
    if (this.#state === 'lost') throw this.lost.reason;
    if (this.#isReleased()) throw new FairlockError(`${this.grant.name}: the lock was released`);
    const sent = performance.now();
    try {
      const set = await this.core.commands.renew(this.grant, lease);
      this.#renewed(lease, sent);
      return set;
    } catch (error) {
      if (!(error instanceof FairlockError) || error.code !== 'NOTHELD' || this.#isReleased()) throw error;
      this.lose('notheld');
      throw this.lost.reason;
    }
  }

  lose(cause: Cause): void {
    if (!this.isHeld) return;
    this.#state = 'lost';
    this.#leave();
    this.grant.line?.destroy();
    this.#lost.abort(this.#lockLost(cause));
    const held = performance.now() - this.#acquired;
    callHook(this.grant.options.hooks, 'onLost', this.#event({ cause, held }));
  }

  #lockLost(cause: Cause): LockLost {
    return new LockLost(this.grant.name, cause, this.grant.address);
  }

  async release(): Promise<void> {
    if (this.#state === 'released') return;
    if (this.#holds > 1) {
      this.#holds -= 1;
      return;
    }
    const wasLost = this.#state === 'lost';
    this.#state = 'released';
    this.#leave();
    if (wasLost) {
      await this.#releaseIfStillOurs();
      throw this.lost.reason;
    }
    await this.#release();
    const held = performance.now() - this.#acquired;
    callHook(this.grant.options.hooks, 'onReleased', this.#event({ held }));
  }

  async #release(): Promise<void> {
    const { name, owner, token, options, line } = this.grant;
    const longest = Math.min(options.releaseTimeout, Math.max(0, this.#end - performance.now()));
    try {
      await this.core.commands.control(name, ['FAIRLOCK.RELEASE', name, owner, 'TOKEN', String(token)], longest);
    } catch (error) {
      // The end of its connection frees the lock as well.
      if (line && error instanceof Unavailable) return;
      if (!(error instanceof FairlockError) || error.code !== 'NOTHELD') throw error;
      // If only the reply was lost, the first try has released it.
      if (error.cause instanceof Refusal && error.cause.cause instanceof Broken) return;
      const lost = this.#lockLost('notheld');
      this.#lost.abort(lost);
      throw lost;
    } finally {
      line?.destroy();
    }
  }

  async #releaseIfStillOurs(): Promise<void> {
    if ((this.lost.reason as LockLost).cause !== 'lease') return;
    const { name, owner, token } = this.grant;
    const words = ['FAIRLOCK.RELEASE', name, owner, 'TOKEN', String(token)];
    // The lease is over perhaps only by this side's clock.
    await this.core.commands.control(name, words, 0).catch(() => {});
  }
}
