//! The commands, one file each: what it is for, its arguments, its reply.
//!
//! A command parses everything before anything changes, lets [`crate::waiting::step`] decide over
//! the lock's keys, and replies: parse, permit, step, reply. What has to be changed to add one is in
//! [`crate::waiting`].

pub mod acquire;
pub mod args;
pub mod break_lock;
pub mod cancel;
mod cursor;
pub mod eval;
pub mod help;
pub mod holders;
pub mod info;
pub mod locks;
pub mod queue;
pub mod release;
pub mod renew;
