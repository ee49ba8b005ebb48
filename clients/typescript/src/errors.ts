// The errors of the package, by the server's codes.

const HOME = 'https://fairlock.example';
const HELP =
  "(unknown command 'FAIRLOCK.ACQUIRE'). " +
  'Load it: "loadmodule /path/to/libfairlock.so" in its redis.conf, or MODULE LOAD. ' +
  `See docs/operations.md at ${HOME}`;

/** Why a lock was lost: see `Held.lost`. */
export type Cause = 'lease' | 'notheld' | 'connection' | 'closed';

/** Base of all errors here. `code` is the first word of the server's error, if it was one. */
export class FairlockError extends Error {
  readonly code: string | undefined;

  constructor(message: string, code?: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.code = code;
  }
}

/** The lock did not become available within `wait`. */
export class NotInTime extends FairlockError {}
/** No replica confirmed the acquisition within `wait`. */
export class NotReplicated extends NotInTime {}
/** The same owner asks elsewhere, and has the place in the queue now. */
export class TakenOver extends FairlockError {}
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

  constructor(name: string, cause: Cause, address: string) {
    super(`${name}: the lock was lost (${cause}, ${address})`, cause === 'notheld' ? 'NOTHELD' : undefined);
    this.cause = cause;
  }
}

/** A refusal as the server wrote it. */
export class Refusal extends Error {
  constructor(readonly text: string, readonly address: string, cause?: unknown) {
    super(`${address}: ${text}`, { cause });
  }

  get code(): string {
    return /^([A-Z]+) /.exec(this.text)?.[1] ?? 'ERR';
  }

  /** The server does not know the command. The second text is Upstash's. */
  get isUnknown(): boolean {
    return /^ERR .*(unknown command|command is not available)/i.test(this.text);
  }

  get isForWantOfModule(): boolean {
    return this.isUnknown && /fairlock\./i.test(this.text);
  }

  /** The user may not run a command of the module. */
  get isDenied(): boolean {
    return this.code === 'NOPERM' && /'fairlock\./i.test(this.text);
  }
}

/** A connection that broke, or an answer that did not come. */
export class Broken extends Error {
  /** The process is out of descriptors. */
  get isForWantOfDescriptors(): boolean {
    return ['EMFILE', 'ENFILE'].includes((this.cause as NodeJS.ErrnoException | undefined)?.code ?? '');
  }
}

const KINDS: Record<string, typeof FairlockError> = {
  TAKENOVER: TakenOver,
  QUEUEFULL: QueueFull,
  NOTALOCK: NotALock,
  WRONGTYPE: WrongType,
  CROSSSLOT: CrossSlot,
};

/** The error for a server without the module, and how to load it. */
export function noModule(address: string, what: string, cause?: Refusal): NoModule {
  return new NoModule(`${address}: ${what} ${HELP}`, 'ERR', cause);
}

/** The error of this package for a refusal of the server. */
export function translated(refusal: Refusal, name: string): FairlockError {
  const { code, text, address } = refusal;
  if (refusal.isForWantOfModule) return noModule(address, 'the server does not have the fairlock module', refusal);
  return new (KINDS[code] ?? Refused)(`${text} (${name}, ${address}${hint(refusal)})`, code, refusal);
}

function hint({ code, text }: Refusal): string {
  if (code === 'NOAUTH') return '; give the client a password';
  if (code !== 'NOPERM') return '';
  const isSync = /'(role|wait)'/i.test(text);
  return `; SECURITY.md at ${HOME} has a user for this package${isSync ? ', or say syncTimeout: 0' : ''}`;
}
