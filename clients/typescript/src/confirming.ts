// How replicas confirm a write. WAIT holds up its connection, so these have one that no waiter and no release uses; all
// that is written while one WAIT is under way shares the next.

import { Refusal } from './errors.js';
import type { Line } from './line.js';
import { ms } from './options.js';

/** What is to be written, how many replicas must have it at least, and how long they may take; 0: they are not asked. */
export interface Write {
  /** Sent one after another; the last one's reply counts. */
  commands: string[][];
  least: number;
  longest: number;
}

export interface Written {
  reply: unknown;
  isConfirmed: boolean;
}

interface Waiting extends Write {
  resolve: (written: Promise<Written>) => void;
}

export class Confirming {
  #queue: Waiting[] = [];
  #isAtWork = false;

  constructor(private readonly line: Line, private readonly timeout: number) {}

  write(write: Write): Promise<Written> {
    return new Promise((resolve) => {
      this.#queue.push({ ...write, resolve });
      if (!this.#isAtWork) void this.#work();
    });
  }

  async #work(): Promise<void> {
    this.#isAtWork = true;
    while (this.#queue.length > 0) await this.#confirm(this.#queue.splice(0)).catch(() => {});
    this.#isAtWork = false;
  }

  #confirm(writes: Waiting[]): Promise<unknown> {
    const replies = writes.map(({ commands }) => commands.map((words) => this.#send(words)).at(-1)!);
    const confirmed = this.#replicas(writes);
    for (const [place, { least, resolve }] of writes.entries()) {
      const written = Promise.all([replies[place], confirmed]).then(([reply, { connected, count }]) => {
        return { reply, isConfirmed: count >= Math.max(least, Math.min(connected, 1)) };
      });
      resolve(written);
    }
    return confirmed;
  }

  #send(words: string[]): Promise<unknown> {
    const reply = this.line.call(words);
    reply.catch(() => {});
    return reply;
  }

  /** ROLE comes right before WAIT: WAIT covers what was written before the last command of its connection. */
  async #replicas(writes: Write[]): Promise<{ connected: number; count: number }> {
    const longest = Math.max(...writes.map((each) => each.longest));
    if (longest === 0) return { connected: 0, count: 0 };
    const connected = connectedReplicas(this.line, await this.line.call(['ROLE']));
    const asked = Math.max(connected, ...writes.map((each) => each.least));
    const words = ['WAIT', String(asked), ms(longest)];
    const count = asked && ((await this.line.call(words, longest + this.timeout)) as number);
    return { connected, count };
  }
}

/** How many replicas a master has, by its reply to ROLE. A server that is none is asked for nothing. */
export function connectedReplicas({ address }: Line, reply: unknown): number {
  const [role, , replicas] = reply as [string, number, unknown[]];
  if (role !== 'master') throw new Refusal(`READONLY its role is ${role}`, address);
  return replicas.length;
}
