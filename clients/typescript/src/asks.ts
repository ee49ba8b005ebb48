// Acquiring: asking, waiting and leaving; and the owners' names that are listened for. clients/protocol.md tells the protocol. Durations are
// milliseconds.

import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { Line } from './clients.js';
import type { Servers } from './clients.js';
import { Closed, Failure, NotInTime, NotReplicated, isLost } from './errors.js';
import { callHook, ms } from './options.js';
import type { Options } from './options.js';
import { braced } from './scripts.js';
import type { Answer, Sender } from './sender.js';
import { LONGEST_TIMER, within } from './timers.js';
import { FIRST_PAUSE, Tries, insisting, seconds } from './tries.js';

const HOST = hostname().replace(/[^A-Za-z0-9._-]/g, '-').slice(0, 200);
const IDLE = 60_000; // that a name is kept for the next wait
const LEAVE = 1000; // that leaving the queue is waited for
export const SHORTEST = 100; // that an answer is waited for, however little time is left

/** An owner's name, and its subscription, which wakes its caller. */
export class Ear {
  readonly owner: string;
  /** The last token that the owner has released. */
  released = 0;
  isWoken = false;
  idle: NodeJS.Timeout | undefined;
  #line: Line | undefined;
  #isOver = false;
  #ring = (): void => {};

  constructor(private readonly name: string, readonly given?: string) {
    this.owner = given ?? `${HOST}:${process.pid}:${randomUUID()}`;
  }

  get isHeard(): boolean {
    return this.#line?.isClosed === false;
  }

  readonly wake = (): void => {
    this.isWoken = true;
    this.#ring();
  };

  /** Until it is woken, or for some time. Whether it was woken. */
  async pause(longest: number): Promise<boolean> {
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, Math.min(longest, LONGEST_TIMER));
      this.#ring = () => {
        clearTimeout(timer);
        resolve();
      };
      if (this.isWoken) this.#ring();
    });
    const { isWoken } = this;
    this.isWoken = false;
    return isWoken;
  }

  async listen(servers: Servers): Promise<void> {
    const line = (await servers.at(this.name)).line('ears');
    await line.listen(this.#channel, this.wake);
    this.#line = line;
    if (this.#isOver) this.end();
  }

  end(): void {
    this.#isOver = true;
    this.#line?.unlisten(this.#channel, this.wake);
  }

  get #channel(): string {
    return `redisson_lock__channel:${braced(this.name)}:${this.owner}`;
  }
}

/** Names that are idle, by lock. One is used again only after a clean end: nothing is under way in its name. */
export class Ears {
  /** Of all that wait or hold. */
  readonly asks = new Set<Ask>();
  readonly #idle = new Map<string, Set<Ear>>();

  take(name: string, owner: string | undefined): Ear {
    const [ear] = (owner === undefined && this.#idle.get(name)) || [];
    if (ear) this.#remove(name, ear);
    return ear?.isHeard ? ear : new Ear(name, owner);
  }

  give(ask: Ask, isClean: boolean): void {
    const { name, ear } = ask;
    this.asks.delete(ask);
    if (!isClean || !ear.isHeard || ear.given !== undefined) return ear.end();
    const idle = this.#idle.get(name) ?? new Set();
    this.#idle.set(name, idle.add(ear));
    ear.idle = setTimeout(() => (this.#remove(name, ear), ear.end()), IDLE).unref();
  }

  #remove(name: string, ear: Ear): void {
    clearTimeout(ear.idle);
    const idle = this.#idle.get(name)!;
    idle.delete(ear);
    if (idle.size === 0) this.#idle.delete(name);
  }
}

/** The token, and when it was asked for: from then on its lease counts. */
export interface Grant { token: number; sent: number }

/** One acquisition, until it is granted, or its caller has left the queue. */
export class Ask {
  readonly started = performance.now();
  readonly ear: Ear;
  /** Of a session. */
  line: Line | undefined;
  /** What the caller waits for: the grant, or the release. */
  call: Promise<unknown> | undefined;
  /** What was sent last. */
  #underWay: Promise<Answer> | undefined;
  #isQueued = false;
  /** The last reply was a token. */
  #isGranted = false;
  /** Commands without an answer, if only as it was lost: they may still be carried out. */
  unanswered = 0;
  #isUnconfirmed = false;
  #isEnded = false;
  #address = '';
  #reject = (_: unknown): void => {};

  constructor(readonly sender: Sender, readonly ears: Ears, readonly name: string, readonly options: Options) {
    this.ear = ears.take(name, options.owner);
    ears.asks.add(this);
  }

  /** The grant; or throws why there is none, when the owner has left the queue, or leaves it in the background. */
  async acquire(): Promise<Grant> {
    try {
      return await new Promise((resolve, reject) => {
        this.#reject = reject;
        this.#asks().then(resolve, reject);
      });
    } catch (error) {
      this.#isEnded = true;
      await within(LEAVE, this.#leave(), () => {});
      throw error;
    }
  }

  /** When Locks is closed; a hold has its own. */
  close = (): void => this.end(new Closed('Locks is closed'));

  /** The caller gives up, for a reason. */
  end(reason: unknown): void {
    this.#isEnded = true;
    this.#reject(reason);
    this.ear.wake();
  }

  get #left(): number {
    return this.started + this.options.wait - performance.now();
  }

  #mustGoOn(): void {
    if (this.#isEnded) throw new Error('the caller has given up');
  }

  /** Throws if there is no time left to wait. */
  #mustHaveTime(last?: Failure): void {
    this.#mustGoOn();
    const { wait } = this.options;
    if (wait !== 0 && this.#left > 0) return;
    const what = `${this.name}: not acquired within ${seconds(wait)}`;
    if (this.#isUnconfirmed) throw new NotReplicated(`${what}: too few replicas of ${this.#address} have confirmed it`, undefined, last);
    throw new NotInTime(last ? `${what}: ${last.message}` : `${what} (${this.#address})`, undefined, last);
  }

  async #asks(): Promise<Grant> {
    const { lease, wait, retryTimeout, commandTimeout } = this.options;
    const isPatient = wait !== 0;
    const tries = new Tries(this.name, isPatient ? retryTimeout : commandTimeout);
    for (let wasLate = false; ; ) {
      const began = performance.now();
      try {
        const { reply, isConfirmed, sent } = await this.#send(this.#words, tries.left);
        tries.succeeded();
        const token = Number(reply);
        if (Array.isArray(reply)) {
          wasLate = false;
          await this.#wait(Number(reply[1]));
        } else if (token > 0 && (!isConfirmed || token <= this.ear.released)) {
          await this.#giveBack(token);
        } else if (token > 0 && performance.now() - sent < (wasLate ? lease : lease / 3)) {
          return { token, sent };
        } else if (token > 0 && !wasLate) {
          wasLate = true; // To ask again renews the lease of a holder, and puts any other into the queue.
        } else {
          wasLate = false;
          await this.#pause(FIRST_PAUSE);
        }
      } catch (error) {
        this.line?.close(); // Perhaps it is half open; or, in a cluster, another node is the right one.
        if (isPatient && error instanceof Failure && error.isPassing) this.#mustHaveTime(error);
        await this.ear.pause(Math.min(tries.failed(error, began), isPatient ? this.#left : Infinity));
      }
    }
  }

  get #words(): string[] {
    const { shared, limit, lease, session, wait, patience } = this.options;
    const sharing = limit !== undefined ? ['SHARED', String(limit)] : shared ? ['SHARED'] : [];
    const waiting = wait === 0 ? ['NOWAIT'] : ['ENQUEUE', 'PATIENCE', ms(patience)];
    return ['FAIRLOCK.ACQUIRE', this.name, this.ear.owner, ...sharing, 'LEASE', ms(lease), 'ONCE', ...(session ? ['SESSION'] : []), ...waiting];
  }

  /** Replicas have to confirm it. */
  #send(words: string[], most = Infinity): Promise<Answer> {
    this.#mustGoOn();
    const { wait, commandTimeout, syncTimeout } = this.options;
    const longest = Math.min(commandTimeout + syncTimeout, most, wait === 0 ? Infinity : Math.max(SHORTEST, this.#left));
    this.ear.isWoken = false;
    return (this.#underWay = this.#answer(words, longest));
  }

  async #answer(words: string[], longest: number): Promise<Answer> {
    const { sender, name, options } = this;
    if (options.session && this.line?.isClosed !== false) this.line = new Line(await sender.servers.at(name), true);
    const answer = await this.sent(words, longest);
    this.#address = answer.address;
    this.#isGranted = Number(answer.reply) > 0;
    if (answer.refusal) throw answer.refusal;
    return answer;
  }

  /** An ask or a renewal. */
  async sent(words: string[], longest: number): Promise<Answer> {
    this.unanswered += 1;
    const answer = await this.sender.send({ words, longest, confirm: this.options, line: this.line }).catch((error: unknown) => {
      if (!isLost(error)) this.unanswered -= 1;
      throw error;
    });
    this.unanswered -= 1;
    return answer;
  }

  /** Until it is time to ask again. */
  async #wait(retryAfter: number): Promise<void> {
    const isFirst = !this.#isQueued;
    this.#isQueued = true;
    this.#mustHaveTime();
    if (isFirst) callHook(this.options.hooks, 'onWait', { name: this.name, owner: this.ear.owner });
    // A random time more, so that the waiters of one lock do not all ask at once.
    const most = retryAfter * (1 + Math.random() / 10);
    // It asks again after it has begun to listen, so that no wake-up is missed; and a connection that is dead is found.
    if (this.ear.isHeard && (await this.#pause(most)) && this.ear.isHeard) return;
    await within(this.#left, this.ear.listen(this.sender.servers), () => {});
  }

  /** Within the time that is left. */
  async #pause(longest: number): Promise<boolean> {
    this.#mustHaveTime();
    const isWoken = await this.ear.pause(Math.min(this.#left, longest));
    this.#mustHaveTime();
    return isWoken;
  }

  /** What too few replicas have confirmed, or a new master does not know to be released, nor perhaps who held the lock since. */
  async #giveBack(token: number): Promise<void> {
    const isOld = token <= this.ear.released;
    this.#isUnconfirmed ||= !isOld;
    await this.#send(['FAIRLOCK.RELEASE', this.name, this.ear.owner, 'TOKEN', String(token)]);
    this.#isGranted = false;
    this.ear.released = isOld ? 0 : token; // A server that was told once knows.
    if (!isOld) await this.#pause(FIRST_PAUSE);
  }

  /** Leaves the queue, when it is known what was brought by what was sent last. */
  async #leave(): Promise<void> {
    await this.#underWay?.catch(() => {});
    this.line?.close();
    const isKnown = this.#isQueued || this.#isGranted || this.unanswered > 0;
    const isClean = !isKnown || this.#leavesToOthers() || (await this.#cancel().catch(() => false));
    this.ears.give(this, isClean);
  }

  /** Whether there are others with its owner that stay: the place, or the lock, is theirs, too, and the last one gives it up. */
  #leavesToOthers(): boolean {
    const { name, ear: { given } } = this;
    if (given === undefined) return false;
    const others = [...this.ears.asks].filter((ask) => ask.name === name && ask.ear.given === given && !ask.#isEnded);
    for (const other of others) other.unanswered += 1;
    return others.length > 0;
  }

  /** Whether the owner's name may be used again. */
  #cancel(): Promise<boolean> {
    const { sender, name, ear: { owner, given }, options: { commandTimeout: longest, lease } } = this;
    const leaving = async (): Promise<boolean> => {
      const { reply } = await sender.send({ words: ['FAIRLOCK.CANCEL', name, owner], longest });
      if (Number(reply) === 1) return this.unanswered === 0;
      // With a name that was given, another caller may hold it.
      const mayHold = this.unanswered > 0 || this.#isGranted || given === undefined;
      if (mayHold) await sender.send({ words: ['FAIRLOCK.RELEASE', name, owner], longest });
      return false;
    };
    return insisting(name, lease, leaving, true);
  }
}
