// Locks without a server, for the tests of programs that use locks.
//
// FakeLocks is Locks itself, with a server in this process in place of Redis: FIFO, wait, errors, hooks are the same.
// Leases do not end by themselves: `expire` ends them.

import { Core } from './core.js';
import { Refusal } from './errors.js';
import type { Address, Line } from './line.js';
import { BaseLocks } from './locks.js';
import type { LocksOptions } from './options.js';
import type { Route } from './route.js';

const FAKE: Address = 'the fake';

interface Holder {
  owner: string;
  token: number;
  limit: number;
}

interface Waiter {
  owner: string;
  limit: number;
  /** Of one that is blocked; the others are woken by their channel. */
  reply: ((reply: unknown) => void) | undefined;
}

/** Every holder tolerates at most its limit of holders in all, itself included. */
function fits(limit: number, holders: Holder[]): boolean {
  return [limit, ...holders.map((holder) => holder.limit)].every((each) => holders.length + 1 <= each);
}

/** The rules of FAIRLOCK.ACQUIRE and the others. */
class FakeServer {
  #tokens = 0;
  readonly #held = new Map<string, Holder[]>();
  readonly #queues = new Map<string, Waiter[]>();
  readonly channels = new Map<string, () => void>();

  do(words: string[]): unknown {
    const [command, name = '', owner = '', ...options] = words;
    switch (command) {
      case 'ROLE':
        return ['master', 0, []];
      case 'FAIRLOCK.INFO':
        return this.#info(name);
      case 'FAIRLOCK.ACQUIRE':
        return this.#acquire(name, owner, options);
      case 'FAIRLOCK.CANCEL':
        return this.leave(name, owner, null);
      case 'FAIRLOCK.RENEW':
        this.#holder(name, owner);
        return Number(options[1]);
      case 'FAIRLOCK.RELEASE':
        return this.#release(name, owner, options[1]);
      default:
        throw new Refusal(`ERR unknown command '${command}'`, FAKE);
    }
  }

  #acquire(name: string, owner: string, options: string[]): unknown {
    const queue = this.queue(name);
    const holders = this.held(name);
    const holder = holders.find((each) => each.owner === owner);
    if (holder) return holder.token;
    const limit = limitOf(options);
    const place = queue.findIndex((waiter) => waiter.owner === owner);
    if (fits(limit, holders) && (place === 0 || queue.length === 0)) {
      queue.splice(0, place + 1);
      const token = this.#grant(name, owner, limit);
      this.#serve(name);
      return token;
    }
    if (options.includes('NOWAIT')) return null;
    return this.#wait(name, owner, limit, place, options.includes('ENQUEUE'));
  }

  #wait(name: string, owner: string, limit: number, place: number, isPolling: boolean): unknown {
    const queue = this.queue(name);
    const waiter: Waiter = { owner, limit, reply: undefined };
    if (place < 0) queue.push(waiter);
    else queue.splice(place, 1, waiter)[0]!.reply?.(new Refusal('TAKENOVER the owner asks on another connection', FAKE));
    const forever = 2 ** 31 - 1;
    if (isPolling) return [queue.indexOf(waiter) + 1, forever];
    return new Promise((resolve, reject) => {
      waiter.reply = (reply) => (reply instanceof Error ? reject(reply) : resolve(reply));
    });
  }

  #grant(name: string, owner: string, limit: number): number {
    this.held(name).push({ owner, token: ++this.#tokens, limit });
    return this.#tokens;
  }

  #serve(name: string): void {
    const queue = this.queue(name);
    while (queue[0] && fits(queue[0].limit, this.held(name))) {
      const { owner, limit, reply } = queue[0];
      if (!reply) {
        const key = name.includes('{') ? name : `{${name}}`;
        this.channels.get(`redisson_lock__channel:${key}:${owner}`)?.();
        return;
      }
      queue.shift();
      reply(this.#grant(name, owner, limit));
    }
  }

  #release(name: string, owner: string, token: string | undefined): number {
    const holder = this.#holder(name, owner);
    if (token !== undefined && holder.token !== Number(token)) throw notHeld();
    this.held(name).splice(this.held(name).indexOf(holder), 1);
    this.#serve(name);
    return 0;
  }

  #holder(name: string, owner: string): Holder {
    const holder = this.held(name).find((each) => each.owner === owner);
    if (!holder) throw notHeld();
    return holder;
  }

  leave(name: string, owner: string, reply: unknown): number {
    const queue = this.queue(name);
    const place = queue.findIndex((waiter) => waiter.owner === owner);
    if (place < 0) return 0;
    queue.splice(place, 1)[0]!.reply?.(reply);
    this.#serve(name);
    return 1;
  }

  #info(name: string): unknown[] {
    const [holder] = this.held(name);
    const holders = this.held(name).length;
    const least = Math.min(...this.held(name).map((each) => each.limit));
    const limit = Number.isFinite(least) ? least : 0;
    const { owner = null, token = null } = holder ?? {};
    // Leases do not end here.
    const lease = holder ? -1 : 0;
    const info = { owner, holds: holder ? 1 : 0, lease, token, session: 0, waiting: this.queue(name).length, holders, limit };
    return Object.entries(info).flat();
  }

  /** Takes the lock from all that hold it, and serves the next ones; the tokens that it had. */
  free(name: string): number[] {
    const tokens = this.held(name).splice(0).map((holder) => holder.token);
    this.#serve(name);
    return tokens;
  }

  held(name: string): Holder[] {
    return this.#held.get(name) ?? (this.#held.set(name, []), this.#held.get(name)!);
  }

  queue(name: string): Waiter[] {
    return this.#queues.get(name) ?? (this.#queues.set(name, []), this.#queues.get(name)!);
  }
}

function notHeld(): Refusal {
  return new Refusal('NOTHELD the owner does not hold the lock, or not by this token', FAKE);
}

/** 1 is exclusive, Infinity is SHARED without a limit. */
function limitOf(options: string[]): number {
  const shared = options.indexOf('SHARED');
  if (shared < 0) return 1;
  return Number(options[shared + 1]) || Infinity;
}

class FakeLine implements Line {
  readonly address = FAKE;
  isClosed = false;
  readonly #listeners: (() => void)[] = [];
  #waits: [string, string] | undefined;

  constructor(private readonly server: FakeServer) {}

  async call(words: string[]): Promise<unknown> {
    const wait = words.indexOf('WAIT');
    const [, name = '', owner = ''] = words;
    this.#waits = [name, owner];
    const timer = wait > 0 && setTimeout(() => this.server.leave(name, owner, null), Number(words[wait + 1]));
    try {
      return await this.server.do(words);
    } finally {
      if (timer) clearTimeout(timer);
    }
  }

  async subscribe(channel: string, wake: () => void): Promise<void> {
    this.server.channels.set(channel, wake);
  }

  async unsubscribe(channel: string): Promise<void> {
    this.server.channels.delete(channel);
  }

  whenClosed(listener: () => void): void {
    this.#listeners.push(listener);
  }

  destroy(): void {
    if (this.isClosed) return;
    this.isClosed = true;
    if (this.#waits) this.server.leave(...this.#waits, null);
    for (const listener of this.#listeners) listener();
  }
}

class FakeRoute implements Route {
  constructor(private readonly server: FakeServer) {}

  readonly masters = undefined;

  async locate(): Promise<Address> {
    return FAKE;
  }

  hasReplicas(): boolean {
    return false;
  }

  async open(): Promise<Line> {
    return new FakeLine(this.server);
  }

  redirect(): undefined {
    return undefined;
  }

  distrust(): void {}

  close(): void {}
}

/** Locks that need no server. Two of them share no locks. */
export class FakeLocks extends BaseLocks {
  readonly #server: FakeServer;

  constructor(options: LocksOptions = {}) {
    const server = new FakeServer();
    super(options, (all) => new Core(new FakeRoute(server), all, false));
    this.#server = server;
  }

  /** Ends the leases of all that hold the lock. */
  expire(name: string): void {
    this.core.lose(this.#server.free(name), 'lease');
  }

  /** Frees the lock, as FAIRLOCK.BREAK does. */
  breakLock(name: string): void {
    this.core.lose(this.#server.free(name), 'notheld');
  }

  /** The owners that hold the lock. */
  holders(name: string): string[] {
    return this.#server.held(name).map((holder) => holder.owner);
  }

  /** The owners that wait for the lock, first in, first out. */
  waiting(name: string): string[] {
    return this.#server.queue(name).map((waiter) => waiter.owner);
  }
}
