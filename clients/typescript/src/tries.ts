// Failures that may pass: how long, and how often, something is tried again. Durations are milliseconds.

import { setTimeout as sleep } from 'node:timers/promises';
import { Failure, Unavailable } from './errors.js';

export const FIRST_PAUSE = 50; // after a failure; doubled each time
const LONGEST_PAUSE = 1000;

/** Failures in a row: the first, and how long it is tried again. */
export class Tries {
  #first: Failure | undefined;
  #since = 0;
  #pause = FIRST_PAUSE;

  constructor(private readonly name: string, private readonly longest: number) {}

  get left(): number {
    return this.#first ? this.#since + this.longest - performance.now() : this.longest;
  }

  succeeded(): void {
    this.#first = undefined;
    this.#pause = FIRST_PAUSE;
  }

  /** How long to pause, if trying again may help; otherwise throws the caller's error. */
  failed(error: unknown, began: number): number {
    if (!(error instanceof Failure)) throw error;
    if (!error.isPassing) throw error.translated(this.name);
    if (!this.#first) this.#since = began;
    const first = (this.#first ??= error);
    const since = this.longest > 0 ? ` for ${seconds(this.longest)}` : '';
    if (this.left < 1) throw new Unavailable(`${this.name}: not available${since}: ${first.message}`, first.code, first);
    const pause = Math.min(this.#pause, this.left);
    this.#pause = Math.min(this.#pause * 2, LONGEST_PAUSE);
    return pause;
  }
}

/** Tries again and again while that fails and may pass. In the background, a pause does not keep the process alive. */
export async function insisting<T>(name: string, longest: number, attempt: () => Promise<T>, isInBackground = false): Promise<T> {
  for (const tries = new Tries(name, longest); ; ) {
    const began = performance.now();
    try {
      return await attempt();
    } catch (error) {
      await sleep(tries.failed(error, began), undefined, { ref: !isInBackground });
    }
  }
}

export function seconds(duration: number): string {
  return `${Number((duration / 1000).toPrecision(3))} s`;
}
