// A lock that is held.

import type { Line } from './clients.js';
import { FairlockError, LockLost } from './errors.js';
import type { Cause } from './errors.js';
import { callHook, checkLease } from './options.js';
import type { LockEvent } from './options.js';
import { codeOf, keeping, releasing, renewal } from './protocol.js';
import type { Kept } from './protocol.js';
import { Runner } from './runner.js';
import type { Sender } from './sender.js';

/** What goes on without Held, to which it has a weak reference: once nobody can release the lock, it is not renewed. */
export class Hold {
  state: 'held' | 'lost' | 'released' = 'held';
  /** Of the same caller: see `reentrant`. */
  count = 1;
  readonly lost = new AbortController();
  readonly keeper: Runner;

  /** `over` is called once: with true if the owner's name may be used again. */
  constructor(
    readonly kept: Kept, readonly sender: Sender, private readonly line: Line | undefined, private readonly over: (isClean: boolean) => void,
  ) {
    this.keeper = this.runner(true);
    line?.once('closed', () => this.lose('connection'));
    this.keeper.carryOut(keeping(kept)).then((cause) => (cause ? this.lose(cause) : this.end('released', false)), () => {});
  }

  runner(isInBackground: boolean): Runner {
    return new Runner(this.sender, this.kept.ask.name, { isInBackground, line: this.line });
  }

  tell(which: 'onAcquired' | 'onLost' | 'onReleased', more: Partial<LockEvent>): void {
    const { token, ask: { name, owner, options } } = this.kept;
    callHook(options.hooks, which, { name, owner, token, ...more });
  }

  end(state: 'lost' | 'released', isClean: boolean): void {
    this.state = state;
    this.keeper.end(undefined);
    this.over(isClean);
    this.line?.close();
  }

  lose(cause: Cause): void {
    if (this.state !== 'held') return;
    this.end('lost', false);
    this.lost.abort(new LockLost(this.kept.ask.name, cause));
    this.tell('onLost', { cause, held: performance.now() - this.kept.acquired });
    // The lease is over perhaps only by this side's clock.
    if (cause === 'lease') new Runner(this.sender, this.kept.ask.name, { isInBackground: true }).carryOut(releasing(this.kept)).catch(() => {});
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
    ({ name: this.name, owner: this.owner } = hold.kept.ask);
    this.token = hold.kept.token;
    this.lost = hold.lost.signal;
    const itself = new WeakRef(this);
    hold.kept.isAbandoned = () => itself.deref() === undefined;
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
    try {
      const set = await hold.runner(false).carryOut(renewal(hold.kept, lease ?? hold.kept.lease));
      hold.keeper.wake();
      return set;
    } catch (error) {
      if (codeOf(error) !== 'NOTHELD' || hold.state !== 'held') throw error;
      hold.lose('notheld');
      throw this.lost.reason;
    }
  }

  /** Gives up the lock. LockLost: it was lost before. Releasing again does nothing. */
  async release(): Promise<void> {
    const hold = this.#hold;
    const { state } = hold;
    if (state === 'released') return;
    if (state === 'held' && --hold.count > 0) return;
    hold.state = 'released';
    if (state === 'lost') throw this.lost.reason;
    hold.keeper.end(undefined);
    let isClean = false;
    try {
      isClean = await new Runner(hold.sender, this.name).carryOut(releasing(hold.kept));
    } catch (error) {
      if (error instanceof LockLost) hold.lost.abort(error);
      throw error;
    } finally {
      hold.end('released', isClean);
    }
    hold.tell('onReleased', { held: performance.now() - hold.kept.acquired });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.release();
  }
}
