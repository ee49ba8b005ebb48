// Carries out the steps of the protocol; and the owners' names under which a Locks listens.

import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import type { Line, Servers } from './clients.js';
import type { Answer, Protocol, Step } from './protocol.js';
import { braced } from './scripts.js';
import type { Sender } from './sender.js';
import { after } from './timers.js';

const HOST = hostname().replace(/[^A-Za-z0-9._-]/g, '-').slice(0, 200);
const IDLE = 60_000; // ms that a name is kept for the next wait

/** An owner's name, and its subscription. */
export class Ear {
  readonly owner: string;
  /** The last token that the owner has released. */
  released = 0;
  wake = (): void => {};
  forget = (): void => {};
  #line: Line | undefined;
  readonly #woken = (): void => this.wake();

  constructor(private readonly name: string, readonly given?: string) {
    this.owner = given ?? `${HOST}:${process.pid}:${randomUUID()}`;
  }

  get isHeard(): boolean {
    return this.#line?.isClosed === false;
  }

  async listen(servers: Servers): Promise<void> {
    const line = (await servers.at(this.name)).line('ears');
    await line.listen(this.#channel, this.#woken);
    this.#line = line;
  }

  end(): void {
    this.#line?.unlisten(this.#channel, this.#woken);
  }

  get #channel(): string {
    return `redisson_lock__channel:${braced(this.name)}:${this.owner}`;
  }
}

/** Names that are idle, by lock. One is used again only after a clean end: nothing is under way in its name. */
export class Ears {
  readonly #idle = new Map<string, Set<Ear>>();

  take(name: string, owner: string | undefined): Ear {
    const [ear] = (owner === undefined && this.#idle.get(name)) || [];
    ear?.forget();
    return ear?.isHeard ? ear : new Ear(name, owner);
  }

  give(name: string, ear: Ear, isClean: boolean): void {
    ear.wake = () => {};
    if (!isClean || !ear.isHeard || ear.given !== undefined) return ear.end();
    const idle = this.#idle.get(name) ?? new Set();
    this.#idle.set(name, idle.add(ear));
    const stop = after(IDLE, () => (ear.forget(), ear.end()), false);
    ear.forget = () => {
      stop();
      if (idle.delete(ear) && idle.size === 0) this.#idle.delete(name);
    };
  }

  close(): void {
    for (const ears of this.#idle.values()) for (const ear of ears) ear.forget();
  }
}

interface Means {
  ear?: Ear;
  servers?: Servers;
  /** Opens the connection of a session. */
  open?: (() => Promise<Line>) | undefined;
  line?: Line | undefined;
  isInBackground?: boolean;
}

export class Runner {
  /** The command that is under way. */
  pending: Promise<Answer> | undefined;
  #ended: { reason: unknown } | undefined;
  #reject = (_: unknown): void => {};
  #isWoken = false;
  #wake = (): void => {};

  constructor(private readonly sender: Sender, private readonly name: string, private readonly means: Means = {}) {}

  get line(): Line | undefined {
    return this.means.line;
  }

  readonly wake = (): void => {
    this.#isWoken = true;
    this.#wake();
  };

  /** The protocol goes no further, and fails with the reason. */
  end(reason: unknown): void {
    this.#ended ??= { reason };
    this.#reject(reason);
    this.#wake();
  }

  async carryOut<T>(protocol: Protocol<T>): Promise<T> {
    let next = protocol.next();
    while (!next.done) {
      const step = next.value;
      try {
        next = protocol.next(await this.#unlessEnded(step));
      } catch (error) {
        next = protocol.throw(error);
      }
    }
    return next.value;
  }

  #unlessEnded(step: Step): Promise<Answer> {
    if (this.#ended) return Promise.reject(this.#ended.reason);
    return new Promise((resolve, reject) => {
      this.#reject = reject;
      this.#perform(step).then(resolve, reject);
    });
  }

  #perform(step: Step): Promise<Answer> {
    if (step.do === 'send') {
      this.#isWoken = false;
      return (this.pending = this.#send(step));
    }
    return step.do === 'listen' ? this.#listen() : this.#pause(step.longest);
  }

  async #send(step: Step & { do: 'send' }): Promise<Answer> {
    const { means } = this;
    if (means.open && means.line?.isClosed !== false) means.line = await means.open();
    return this.sender.send(this.name, step, means.line);
  }

  async #listen(): Promise<Answer> {
    await this.means.ear!.listen(this.means.servers!);
    return { reply: null } as Answer;
  }

  #pause(longest: number): Promise<Answer> {
    return new Promise((resolve) => {
      const end = (reply: boolean): void => {
        stop();
        this.#wake = () => {};
        this.#isWoken = false;
        resolve({ reply } as Answer);
      };
      const stop = after(longest, () => end(false), !this.means.isInBackground);
      this.#wake = () => end(true);
      if (this.#isWoken) end(true);
    });
  }
}
