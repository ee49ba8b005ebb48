// One acquisition under way, and how often temporary failures are tried again.

import { Broken, NotInTime, NotReplicated, Refusal, Unavailable } from './errors.js';
import type { Line } from './line.js';
import { newOwner } from './options.js';
import type { Options } from './options.js';
import { braced } from './scripts.js';
import type { Address } from './wire.js';

// Temporary refusals: the same owner asks again, and still has its place.
const PASSING = new Set(['CLUSTERDOWN', 'TRYAGAIN', 'LOADING', 'READONLY', 'MASTERDOWN', 'NOREPLICAS']);
const AT_ONCE = new Set(['MOVED', 'ASK', 'UNBLOCKED']);
// All durations are milliseconds.
export const FIRST_PAUSE = 50;
const LONGEST_PAUSE = 1000;
const REDIRECTS = 16; // in a row, before they count as failures

/** How long, and how often, a temporary failure is tried again. */
export class Tries {
  /** Of the failures in a row. */
  first: Error | undefined;
  #since = 0;
  #pause = FIRST_PAUSE;
  #redirects = 0;

  constructor(private readonly name: string, private readonly longest: number, private readonly ended?: AbortSignal) {}

  succeeded(): void {
    this.first = undefined;
    this.#pause = FIRST_PAUSE;
    this.#redirects = 0;
  }

  /** Whether to try at once, perhaps elsewhere. */
  isRedirected(error: Error): boolean {
    return error instanceof Refusal && AT_ONCE.has(error.code) && ++this.#redirects <= REDIRECTS;
  }

  failed(error: Error): void {
    if (!this.first) this.#since = performance.now();
    this.first ??= error;
  }

  /** Waits, or throws Unavailable when the time is up. */
  async again(left: number): Promise<void> {
    const { longest } = this;
    const error = this.first!;
    const end = this.#since + longest;
    if (performance.now() >= end) {
      const code = error instanceof Refusal ? error.code : undefined;
      const since = longest > 0 ? ` for ${seconds(longest)}` : '';
      throw new Unavailable(`${this.name}: not available${since}: ${error.message}`, code, error);
    }
    await pause(Math.min(this.#pause, end - performance.now(), left), this.ended);
    this.#pause = Math.min(this.#pause * 2, LONGEST_PAUSE);
  }
}

export class Ask {
  readonly owner: string;
  readonly started = performance.now();
  readonly ended = new AbortController();
  readonly tries: Tries;
  /** A session lives on its connection; and with a given owner, only a blocked waiter learns of TAKENOVER. */
  readonly isBlocking: boolean;
  isWaiting = false;
  /** To the server, as waiter or holder. */
  mayBeKnown = false;
  isUnconfirmed = false;
  askingAt: Address | undefined;
  address: Address = '';
  /** The connection of the last ask: requests sent on it arrive after that. */
  line: Line | undefined;
  subscribedOn: Line | undefined;
  isWoken = false;
  #wake = () => {};

  constructor(readonly name: string, readonly options: Options) {
    this.owner = options.owner ?? newOwner();
    this.isBlocking = options.session || options.owner !== undefined;
    // Without a wait there is still the time of one answer.
    const longest = options.wait === 0 ? options.commandTimeout : options.retryTimeout;
    this.tries = new Tries(name, longest, this.ended.signal);
  }

  get channel(): string {
    return `redisson_lock__channel:${braced(this.name)}:${this.owner}`;
  }

  left(): number {
    return this.started + this.options.wait - performance.now();
  }

  /** Throws if there is no time left to wait. */
  mustHaveTime(): void {
    if (this.options.wait === 0 || this.left() <= 0) this.notInTime();
  }

  notInTime(): never {
    const { first } = this.tries;
    const what = `${this.name}: not acquired within ${seconds(this.options.wait)}`;
    if (this.isUnconfirmed) throw new NotReplicated(`${what}: too few replicas of ${this.address} have confirmed it`, undefined, first);
    throw new NotInTime(first ? `${what}: ${first.message}` : `${what} (${this.address})`, undefined, first);
  }

  readonly wake = () => {
    this.isWoken = true;
    this.#wake();
  };

  async untilWoken(longest: number): Promise<void> {
    if (this.isWoken) return;
    const done = new AbortController();
    this.#wake = () => done.abort();
    this.ended.signal.addEventListener('abort', this.#wake);
    await pause(longest, done.signal);
    this.ended.signal.removeEventListener('abort', this.#wake);
  }

  /** The result; or throws the reason why the acquisition has ended before. */
  async unlessEnded<T>(work: Promise<T>): Promise<T> {
    const { signal } = this.ended;
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
}

/** Whether trying again a little later may help. */
export function isPassing(error: Error): boolean {
  return error instanceof Broken || (error instanceof Refusal && (PASSING.has(error.code) || AT_ONCE.has(error.code)));
}

function seconds(duration: number): string {
  return `${Number((duration / 1000).toPrecision(3))} s`;
}

/** Resolves when the time is over, or with the signal. */
export function pause(longest: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, timed(longest));
    signal?.addEventListener('abort', done);
    if (signal?.aborted) done();
  });
}

/** The longest that a timer takes. */
export function timed(wait: number): number {
  return Math.min(Math.max(0, wait), 2 ** 31 - 1);
}
