// The errors of the package, by the server's codes; and what a client has answered or thrown, as they are made of it.

const HOME = 'https://fairlock.example';
const HELP =
  `(unknown command 'FAIRLOCK.ACQUIRE'). Load it: "loadmodule /path/to/libfairlock.so" in its redis.conf, or MODULE LOAD. ` +
  `See docs/operations.md at ${HOME}`;

/** Why a lock was lost: see `Held.lost`. */
export type Cause = 'lease' | 'notheld' | 'connection' | 'closed';

/** Base of all errors here. `code` is the first word of the server's error, if it was one. */
export class FairlockError extends Error {
  readonly code: string | undefined;

  constructor(message: string, code?: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
  }
}

/** The lock did not become available within `wait`. */
export class NotInTime extends FairlockError {}
/** Too few replicas confirmed the acquisition within `wait`, or a renewal. */
export class NotReplicated extends NotInTime {}
/** The lock has as many waiters as the server allows (`fairlock.max-waiters`). */
export class QueueFull extends FairlockError {}
/** The key holds a hash that is not a lock. */
export class NotALock extends FairlockError {}
/** One of the lock's keys holds something else. */
export class WrongType extends FairlockError {}
/** In a cluster: the braces in the name would put the lock's keys in different slots. */
export class CrossSlot extends FairlockError {}
/** The server does not have the fairlock module. */
export class NoModule extends FairlockError {}
/** Any other refusal of the server: NOPERM, OOM, ERR, ... */
export class Refused extends FairlockError {}
/** For `retryTimeout` the server could not be reached, or refused temporarily. */
export class Unavailable extends FairlockError {}
/** Locks was closed. */
export class Closed extends FairlockError {}

/** The holder has lost the lock. */
export class LockLost extends FairlockError {
  override readonly cause: Cause;

  constructor(name: string, cause: Cause) {
    super(`${name}: the lock was lost (${cause})`, cause === 'notheld' ? 'NOTHELD' : undefined);
    this.cause = cause;
  }
}

// Bundlers give the classes other names.
const ALL = { FairlockError, NotInTime, NotReplicated, QueueFull, NotALock, WrongType, CrossSlot, NoModule, Refused, Unavailable, Closed, LockLost };
for (const [name, { prototype }] of Object.entries(ALL)) Object.defineProperty(prototype, 'name', { value: name });

const PASSING = 'CLUSTERDOWN TRYAGAIN LOADING READONLY MASTERDOWN NOREPLICAS BUSY MOVED ASK UNBLOCKED'.split(' ');
const KINDS: Record<string, typeof FairlockError> = { QUEUEFULL: QueueFull, NOTALOCK: NotALock, WRONGTYPE: WrongType, CROSSSLOT: CrossSlot };

/** A refusal as the server wrote it; or, without a code, anything else that a client has thrown: there was no reply. */
export class Failure extends Error {
  readonly text: string;
  readonly code: string | undefined;

  constructor(cause: unknown, readonly address: string) {
    const { message, code } = Object(cause) as NodeJS.ErrnoException;
    const text = cause instanceof Failure ? cause.text : message || code || String(cause);
    super(`${address}: ${text}`, { cause });
    this.text = text;
    this.code = /^([A-Z]{2,}) /.exec(text)?.[1];
  }

  /** Whether asking again later may help. */
  get isPassing(): boolean {
    return this.code === undefined || PASSING.includes(this.code) || /max number of clients/i.test(this.text);
  }

  /** The server does not know the command. The second text is Upstash's. */
  get isUnknown(): boolean {
    return /^ERR .*(unknown command|command is not available)/i.test(this.text);
  }

  /** The user may not run a command of the module. */
  get isDenied(): boolean {
    return this.code === 'NOPERM' && /'fairlock\./i.test(this.text);
  }

  /** The error for the caller. */
  translated(name: string): FairlockError {
    if (this.isUnknown && /fairlock\./i.test(this.text)) return this.noModule('the server does not have the fairlock module');
    const Kind = KINDS[this.code ?? ''] ?? Refused;
    return new Kind(`${this.text} (${name}, ${this.address}${this.#hint})`, this.code, this);
  }

  noModule(what: string): NoModule {
    return new NoModule(`${this.address}: ${what} ${HELP}`, 'ERR', this);
  }

  get #hint(): string {
    if (this.code === 'NOAUTH') return '; give the client a password';
    if (this.code !== 'NOPERM') return '';
    return `; SECURITY.md at ${HOME} has a user for this package${/'(role|wait)'/i.test(this.text) ? ', or say syncTimeout: 0' : ''}`;
  }
}

/** Whether it may have been carried out though no reply has come. */
export function isLost(error: unknown): boolean {
  return error instanceof Failure && error.code === undefined;
}

export function codeOf(error: unknown): string | undefined {
  return (error as Failure | undefined)?.code;
}
