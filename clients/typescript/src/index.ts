export type { LockInfo } from './commands.js';
export { Held, Locks } from './locks.js';
export type { Hooks, LockEvent, LockOptions, LocksOptions } from './options.js';
export type { Client } from './route.js';
export {
  Closed, CrossSlot, FairlockError, LockLost, NoModule, NotALock, NotInTime, NotReplicated, QueueFull, Refused, TakenOver,
  Unavailable, WrongType,
} from './errors.js';
export type { Cause } from './errors.js';
