// Commands to a lock's server, tried again if that has changed; and confirmation by replicas.

import { Tries, isPassing } from './ask.js';
import type { Written } from './confirming.js';
import type { Connections } from './connections.js';
import { Broken, NotReplicated, Refusal, translated } from './errors.js';
import type { Grant } from './keep.js';
import { renewWords } from './options.js';
import type { Options } from './options.js';
import type { Route } from './route.js';
import { infoByKeys } from './scripts.js';
import type { Address } from './wire.js';

/** The state of a lock at the server. With several holders, `owner` to `session` describe one. Milliseconds. */
export interface LockInfo {
  /** Null when the lock is free. */
  owner: string | null;
  holds: number;
  /** The remaining lease; 0 when free, -1 if it is held without one. */
  lease: number;
  /** Null when free, and if a script took the lock. */
  token: number | null;
  session: boolean;
  waiting: number;
  holders: number;
  /** 1 is exclusive; 0 when free or without a limit. */
  limit: number;
}

export class Commands {
  constructor(private readonly route: Route, private readonly connections: Connections) {}

  /** A command that no waiter can delay, tried for a time. */
  control(name: string, words: string[], longest: number): Promise<unknown> {
    return this.#tried(name, longest, async (address, isAsking) => {
      const line = await this.connections.shared('control', address);
      return line.call(words, undefined, isAsking);
    });
  }

  /** Renews, once; NotReplicated if too few replicas confirm it. */
  async renew(grant: Grant, lease: number): Promise<number> {
    const { name, options } = grant;
    return this.#tried(name, 0, async (address, isAsking) => {
      const { reply, isConfirmed } = await this.written('renew', address, isAsking, grant, lease);
      if (isConfirmed || !options.syncTimeout) return reply as number;
      throw new NotReplicated(`${name}: too few replicas of ${address} have confirmed the renewal`);
    });
  }

  async info(name: string, longest: number): Promise<LockInfo> {
    return this.#tried(name, longest, async (address, isAsking) => {
      const line = await this.connections.shared('control', address);
      if (line.isScripted) return infoByKeys(line, name, isAsking);
      const reply = (await line.call(['FAIRLOCK.INFO', name], undefined, isAsking)) as unknown[];
      const pairs = reply.flatMap((key, place) => (place % 2 === 0 && key !== 'next' ? [[key, reply[place + 1]]] : []));
      const info = Object.fromEntries(pairs);
      return { ...info, session: info.session === 1 };
    });
  }

  /** Lasting refusals are thrown as this package's errors. */
  async #tried<T>(name: string, longest: number, work: (address: Address, isAsking: boolean) => Promise<T>): Promise<T> {
    const tries = new Tries(name, longest);
    let askingAt: Address | undefined;
    let failure: Broken | undefined;
    for (;;) {
      try {
        return await work(askingAt ?? (await this.route.locate(name)), askingAt !== undefined);
      } catch (error) {
        if (!(error instanceof Refusal || error instanceof Broken)) throw error;
        askingAt = undefined;
        if (tries.isRedirected(error)) {
          askingAt = this.redirected(error as Refusal);
          continue;
        }
        if (!isPassing(error)) {
          // An earlier try may have been carried out, though its reply was lost.
          if (failure) error.cause = failure;
          throw translated(error as Refusal, name);
        }
        if (error instanceof Broken) failure = error;
        this.distrust(error);
        tries.failed(error);
        await tries.again(Infinity);
      }
    }
  }

  /** The address in an ASK, if it is one. */
  redirected(refusal: Refusal): Address | undefined {
    const named = this.route.redirect(refusal);
    return refusal.code === 'ASK' ? named : undefined;
  }

  distrust(error: Refusal | Broken): void {
    if (error instanceof Refusal && error.code === 'TRYAGAIN') return;
    this.route.distrust();
    if (error instanceof Refusal && error.code === 'READONLY') this.connections.leave(error.address);
  }

  /** How many replicas must confirm, whether they are connected or not. */
  least(name: string, { syncTimeout, minReplicas }: Options): number {
    if (!syncTimeout) return 0;
    return minReplicas ?? (this.route.hasReplicas(name) ? 1 : 0);
  }

  /** RENEW, confirmed by replicas: it comes after the acquisition, takes no lock, and is harmless if that has gone. */
  async written(
    kind: 'sync' | 'renew', address: Address, isAsking: boolean, { name, owner, options }: Pick<Grant, 'name' | 'owner' | 'options'>, lease: number,
  ): Promise<Written> {
    const words = renewWords(name, owner, lease);
    const confirming = await this.connections.confirming(kind, address);
    return confirming.write({ words, isAsking, least: this.least(name, options), longest: options.syncTimeout });
  }
}
