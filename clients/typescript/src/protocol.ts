// The protocol of a lock, without I/O: what to send, when to listen, how long to pause. runner.ts carries the steps out.
// Time and randomness are given; durations are milliseconds.

import { Failure, LockLost, NotInTime, NotReplicated, Unavailable } from './errors.js';
import type { Cause } from './errors.js';
import { warn } from './options.js';
import type { Options } from './options.js';

const FIRST_PAUSE = 50; // after a failure; doubled each time
const LONGEST_PAUSE = 1000;
const SHORTEST = 100; // that an answer is waited for, however little of `wait` is left
const MOST_JITTER = 1000;

/** `send`: a command, with WAIT behind it if replicas have to confirm it. `listen`: until the subscription stands. `pause`: until a message. */
export type Step =
  | { readonly do: 'send'; readonly words: string[]; readonly longest: number; readonly confirm?: Options }
  | { readonly do: 'listen' }
  | { readonly do: 'pause'; readonly longest: number };

/** The reply to what was sent, and by when; of a `pause`, whether a message has ended it. */
export interface Answer { reply: unknown; isConfirmed: boolean; sent: number; at: number; address: string }

export type Protocol<T> = Generator<Step, T, Answer>;

/** Failures in a row: the first, and how long it is tried again. */
class Tries {
  #first: Failure | undefined;
  #since = 0;
  #pause = FIRST_PAUSE;

  constructor(private readonly name: string, private readonly longest: number, private readonly now: () => number) {}

  get left(): number {
    return this.#first ? this.#since + this.longest - this.now() : this.longest;
  }

  succeeded(): void {
    this.#first = undefined;
    this.#pause = FIRST_PAUSE;
  }

  /** Pauses, if trying again may help; otherwise throws the caller's error. */
  *failed(error: unknown, began: number, left = Infinity): Protocol<void> {
    if (!(error instanceof Failure)) throw error;
    if (!error.isPassing) throw error.translated(this.name);
    if (!this.#first) this.#since = began;
    const first = (this.#first ??= error);
    const since = this.longest > 0 ? ` for ${seconds(this.longest)}` : '';
    if (this.left < 1) throw new Unavailable(`${this.name}: not available${since}: ${first.message}`, first.code, first);
    yield { do: 'pause', longest: Math.min(this.#pause, this.left, left) };
    this.#pause = Math.min(this.#pause * 2, LONGEST_PAUSE);
  }
}

/** The steps, again and again while they fail and that may pass. */
function* insisting<T>(name: string, longest: number, now: () => number, steps: () => Protocol<T>): Protocol<T> {
  for (const tries = new Tries(name, longest, now); ; ) {
    const began = now();
    try {
      return yield* steps();
    } catch (error) {
      yield* tries.failed(error, began);
    }
  }
}

/** An acquisition under way. */
export class Ask {
  readonly started: number;
  isQueued = false;
  /** The reply to some ask was lost: the owner may be queued, or hold the lock. */
  isUnheard = false;
  /** The last reply was a token. */
  isGranted = false;
  isUnconfirmed = false;
  address = '';
  /** The last token that this owner has released. */
  released = 0;

  /** `isHeard`: whether the owner's channel is listened to. `onQueued` is called when the owner has to wait. */
  constructor(
    readonly name: string, readonly owner: string, readonly options: Options, readonly now: () => number, readonly random: () => number,
    readonly isHeard: () => boolean, readonly onQueued: () => void,
  ) {
    this.started = now();
  }

  get left(): number {
    return this.started + this.options.wait - this.now();
  }

  /** Replicas have to confirm it. */
  *send(words: string[], most = Infinity): Protocol<Answer> {
    const { wait, commandTimeout, syncTimeout } = this.options;
    const longest = Math.min(commandTimeout + syncTimeout, most, wait === 0 ? Infinity : Math.max(SHORTEST, this.left));
    try {
      const answer = yield { do: 'send', words, longest, confirm: this.options };
      this.address = answer.address;
      return answer;
    } catch (error) {
      this.isUnheard ||= isLost(error);
      throw error;
    }
  }

  /** Throws if there is no time left to wait. */
  mustHaveTime(last?: Failure): void {
    const { wait } = this.options;
    if (wait !== 0 && this.left > 0) return;
    const what = `${this.name}: not acquired within ${seconds(wait)}`;
    if (this.isUnconfirmed) throw new NotReplicated(`${what}: too few replicas of ${this.address} have confirmed it`, undefined, last);
    throw new NotInTime(last ? `${what}: ${last.message}` : `${what} (${this.address})`, undefined, last);
  }
}

/** A lock that is held: its lease, when that ends, and when the next renewal is due. */
export interface Kept {
  readonly ask: Ask;
  readonly token: number;
  readonly acquired: number;
  lease: number;
  end: number;
  due: number;
  /** Whether there is nobody left who could release it. */
  isAbandoned(): boolean;
}

/** Asks until the lock is granted; throws the reason why it is not. */
export function* acquiring(ask: Ask): Protocol<Kept> {
  const { name, options, now } = ask;
  const isPatient = options.wait !== 0;
  const tries = new Tries(name, isPatient ? options.retryTimeout : options.commandTimeout, now);
  for (;;) {
    const began = now();
    try {
      const answer = yield* ask.send(acquireWords(ask), tries.left);
      tries.succeeded();
      const token = Number(answer.reply);
      if (token > 0 && token <= ask.released) {
        // A new master does not know of the release, nor perhaps of who held the lock since.
        yield* returning(ask, token);
        continue;
      }
      const kept = token > 0 ? yield* granted(ask, answer) : undefined;
      if (kept) return kept;
      ask.mustHaveTime();
      if (Array.isArray(answer.reply)) yield* waiting(ask, Number(answer.reply[1]));
      else yield { do: 'pause', longest: Math.min(FIRST_PAUSE, ask.left) };
    } catch (error) {
      if (isPatient && error instanceof Failure && error.isPassing) ask.mustHaveTime(error);
      yield* tries.failed(error, began, isPatient ? ask.left : Infinity);
    }
  }
}

function acquireWords({ name, owner, options }: Ask): string[] {
  const { shared, limit, lease, session, wait, patience } = options;
  const sharing = limit !== undefined ? ['SHARED', String(limit)] : shared ? ['SHARED'] : [];
  const waiting = wait === 0 ? ['NOWAIT'] : ['ENQUEUE', 'PATIENCE', ms(patience)];
  return ['FAIRLOCK.ACQUIRE', name, owner, ...sharing, 'LEASE', ms(lease), 'ONCE', ...(session ? ['SESSION'] : []), ...waiting];
}

/** Until it is time to ask again. */
function* waiting(ask: Ask, retryAfter: number): Protocol<void> {
  if (!ask.isQueued) ask.onQueued();
  ask.isQueued = true;
  if (ask.isHeard()) {
    // A random time more, so that the waiters of one lock do not all ask at once.
    const most = retryAfter + ask.random() * Math.min(retryAfter / 10, MOST_JITTER);
    const { reply: isWoken } = yield { do: 'pause', longest: Math.min(ask.left, most) };
    ask.mustHaveTime();
    if (isWoken) return;
  }
  // It asks again after this, so that no wake-up is missed; and a connection that is dead is found.
  yield { do: 'listen' };
}

/** The grant, unless its lease was over before it came, or too few replicas have it. */
function* granted(ask: Ask, answer: Answer): Protocol<Kept | undefined> {
  const { lease, renew, session } = ask.options;
  const token = Number(answer.reply);
  ask.isGranted = true;
  let last = answer;
  try {
    // It has been on its way for long.
    if (last.isConfirmed && last.at - last.sent >= lease / 3) last = yield* ask.send(renewWords(ask, lease));
  } catch (error) {
    if (codeOf(error) !== 'NOTHELD') throw error;
    ask.isGranted = false;
    return undefined;
  }
  if (last.isConfirmed && last.at - last.sent >= lease) return undefined;
  if (last.isConfirmed) {
    const due = renew || session ? last.sent + lease / 3 : Infinity;
    return { ask, token, acquired: last.at, lease, end: last.sent + lease, due, isAbandoned: () => false };
  }
  ask.isUnconfirmed = true;
  yield* returning(ask, token);
  return undefined;
}

/** Gives back what this owner shall not hold. */
function* returning(ask: Ask, token: number): Protocol<void> {
  ask.isGranted = true;
  try {
    yield* ask.send(['FAIRLOCK.RELEASE', ask.name, ask.owner, 'TOKEN', String(token)]);
  } catch (error) {
    if (codeOf(error) !== 'NOTHELD') throw error;
  }
  ask.isGranted = false;
  ask.released = token > ask.released ? token : 0; // A server that was told once knows.
}

/** Leaves the queue. Returns whether that was clean: the owner's name may be used again. */
export function* leaving(ask: Ask): Protocol<boolean> {
  const { name, owner, options: { commandTimeout: longest, lease, owner: given } } = ask;
  return yield* insisting(name, lease, ask.now, function* () {
    const { reply } = yield { do: 'send', words: ['FAIRLOCK.CANCEL', name, owner], longest };
    if (Number(reply) === 1) return !ask.isUnheard;
    try {
      // With a name that was given, another caller may hold it.
      if (ask.isUnheard || ask.isGranted || given === undefined) yield { do: 'send', words: ['FAIRLOCK.RELEASE', name, owner], longest };
    } catch (error) {
      if (codeOf(error) !== 'NOTHELD') throw error;
    }
    return false;
  });
}

/** Renews until the lock is lost, for a cause, or abandoned. */
export function* keeping(hold: Kept): Protocol<Cause | undefined> {
  const { now } = hold.ask;
  // Timers may ring a little early.
  while (hold.end - now() >= 1) {
    const left = Math.min(hold.due, hold.end) - now();
    if (left > 0) {
      yield { do: 'pause', longest: left };
      continue;
    }
    if (hold.isAbandoned()) return undefined;
    try {
      yield* renewing(hold, hold.lease);
    } catch (error) {
      if (codeOf(error) === 'NOTHELD') return 'notheld';
      if (error instanceof Failure && !error.isPassing) warn(`the lock ${hold.ask.name} cannot be renewed: ${error.message}`);
      hold.due = now() + Math.max(hold.lease / 10, FIRST_PAUSE);
    }
  }
  return 'lease';
}

function* renewing(hold: Kept, lease: number): Protocol<number> {
  const { name, options, now } = hold.ask;
  const longest = Math.min(options.commandTimeout + options.syncTimeout, hold.end - now());
  const answer = yield { do: 'send', words: renewWords(hold.ask, lease), longest, confirm: options };
  if (!answer.isConfirmed) throw new NotReplicated(`${name}: too few replicas of ${answer.address} have confirmed the renewal`);
  hold.lease = lease;
  hold.end = answer.sent + lease;
  if (hold.due !== Infinity) hold.due = answer.sent + lease / 3;
  return Number(answer.reply);
}

/** A renewal that the caller asks for: the lease that the server says is set. */
export function renewal(hold: Kept, lease: number): Protocol<number> {
  const { name, options, now } = hold.ask;
  return insisting(name, Math.min(options.retryTimeout, hold.end - now()), now, () => renewing(hold, lease));
}

/** Releases. Returns whether that was clean; LockLost: the lock was lost before. */
export function releasing({ ask, token, end }: Kept): Protocol<boolean> {
  const { name, owner, options, now } = ask;
  const most = Math.max(0, Math.min(options.releaseTimeout, end - now()));
  const words = ['FAIRLOCK.RELEASE', name, owner, 'TOKEN', String(token)];
  let mayHaveArrived = false;
  return insisting(name, most, now, function* () {
    try {
      const { reply } = yield { do: 'send', words, longest: Math.min(options.commandTimeout, Math.max(SHORTEST, most)) };
      return Number(reply) === 0 && !mayHaveArrived;
    } catch (error) {
      mayHaveArrived ||= isLost(error);
      if (codeOf(error) !== 'NOTHELD') throw error;
      if (!mayHaveArrived) throw new LockLost(name, 'notheld');
      return false;
    }
  });
}

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

export function informing(name: string, { commandTimeout: longest }: Options, now: () => number): Protocol<LockInfo> {
  return insisting(name, longest, now, function* () {
    const { reply } = yield { do: 'send', words: ['FAIRLOCK.INFO', name], longest };
    const { next: _, ...info } = Object.fromEntries(pairs(reply));
    return { ...info, session: Boolean(info.session) } as LockInfo; // of RESP3 it is one already
  });
}

/** Names and values, which RESP2 has as a list, and RESP3 as a map. */
function pairs(reply: unknown): [string, unknown][] {
  if (reply instanceof Map) return [...reply];
  if (!Array.isArray(reply)) return Object.entries(Object(reply));
  return reply.flatMap((key, place) => (place % 2 === 0 ? [[key, reply[place + 1]] as [string, unknown]] : []));
}

function renewWords({ name, owner }: Ask, lease: number): string[] {
  return ['FAIRLOCK.RENEW', name, owner, 'LEASE', ms(lease)];
}

/** Whole milliseconds, rounded up, for the server. */
export function ms(duration: number): string {
  return String(Math.max(1, Math.ceil(duration)));
}

/** Whether it may have been carried out though no reply has come. */
export function isLost(error: unknown): boolean {
  return error instanceof Failure && error.code === undefined;
}

export function codeOf(error: unknown): string | undefined {
  return (error as Failure | undefined)?.code;
}

function seconds(duration: number): string {
  return `${Number((duration / 1000).toPrecision(3))} s`;
}
