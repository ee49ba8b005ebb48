//! Locks with several holders (`ACQUIRE ... SHARED`), by the lines of the contract: the holders, the
//! keys, and what others do to them.

mod foreign;
mod holders;
mod keys;
mod scale;
