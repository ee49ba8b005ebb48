export type { Client } from './clients.js';
export { Held } from './held.js';
export { Locks } from './locks.js';
export type { LockInfo } from './locks.js';
export type { Hooks, LockEvent, LockOptions, LocksOptions } from './options.js';
export {
  Closed, CrossSlot, FairlockError, LockLost, NoModule, NotALock, NotInTime, NotReplicated, QueueFull, Refused, Unavailable, WrongType,
} from './errors.js';
export type { Cause } from './errors.js';
