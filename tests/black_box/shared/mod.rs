//! Locks with several holders (`ACQUIRE ... SHARED`), by the lines of the contract: the rule, the holders, the
//! keys, what others do to them, and Redisson's clients among them.

mod foreign;
mod holders;
mod keys;
mod redisson;
mod rule;
mod scale;
