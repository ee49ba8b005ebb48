// How replicas confirm a write. WAIT blocks its connection, so these have one that no waiter and no release uses; all
// writes during one WAIT share the next.

import { Refusal } from './errors.js';
import type { Line } from './line.js';
import { ms } from './options.js';

/** The writes, how many replicas must have them, and how long they may take; 0: they are not asked. */
export interface Write {
  words: string[];
  isAsking: boolean;
  least: number;
  longest: number;
}

export interface Written {
  reply: unknown;
  isConfirmed: boolean;
}

interface Confirmed {
  connected: number;
  count: number;
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
    const replies = writes.map((write) => this.#send(write));
    const confirmed = this.#confirmed(writes, replies);
    for (const [place, { least, resolve }] of writes.entries()) {
      const written = Promise.all([replies[place], confirmed]).then(([reply, { connected, count }]) => {
        return { reply, isConfirmed: count >= Math.max(least, Math.min(connected, 1)) };
      });
      resolve(written);
    }
    return confirmed;
  }

  #send({ words, isAsking }: Write): Promise<unknown> {
    const reply = this.line.call(words, undefined, isAsking);
    reply.catch(() => {});
    return reply;
  }

  async #confirmed(writes: Write[], replies: Promise<unknown>[]): Promise<Confirmed> {
    const { resent } = this.line;
    const confirmed = await this.#replicas(writes);
    await Promise.allSettled(replies);
    // WAIT came before the script that was sent again.
    return this.line.resent === resent ? confirmed : this.#replicas(writes);
  }

  /** ROLE tells how many to wait for. WAIT covers only the writes of this connection. */
  async #replicas(writes: Write[]): Promise<Confirmed> {
    const longest = Math.max(...writes.map((each) => each.longest));
    if (longest === 0) return { connected: 0, count: 0 };
    const connected = await connectedReplicas(this.line);
    const asked = Math.max(connected, ...writes.map((each) => each.least));
    const words = ['WAIT', String(asked), ms(longest)];
    const count = asked && ((await this.line.call(words, longest + this.timeout)) as number);
    return { connected, count };
  }
}

/** How many replicas a master has, by its reply to ROLE. Servers that are none are not asked. */
export async function connectedReplicas(line: Line): Promise<number> {
  const reply = await line.call(['ROLE']).catch((error: unknown) => {
    // A service that has its own ways. Masters under Sentinels know ROLE.
    if (error instanceof Refusal && error.isUnknown && !line.isUnderSentinel) return ['master', 0, []];
    throw error;
  });
  const [role, , replicas] = reply as [string, number, unknown[]];
  if (role !== 'master') throw new Refusal(`READONLY its role is ${role}`, line.address);
  return replicas.length;
}
