//! Redisson's fair-lock scripts, recognised and run natively.
//!
//! Redisson takes its fair lock by EVAL and EVALSHA. With `fairlock.intercept-eval yes` a command
//! filter looks at each of them ([`filter`]): a script that is, by its SHA-1, one of those in
//! [`table`] becomes a command of ours, which the server checks as it would have checked the
//! EVAL: authentication, permissions, slots, roles. That command runs the script's native form
//! ([`run`]): the same reply, the same keys, the same messages, by the client's clock where the
//! script goes by it.
//!
//! What the native forms do not know (keys of other types, arguments that are no whole numbers,
//! queue entries without a deadline where the script would fail) is left to Lua: the script
//! itself is run, and raises its own error. So is the script of a user whose permissions are not
//! plain enough to be judged at a glance ([`permission`]).
//!
//! The scripts change the keys as any stranger does: the module takes note by their key events
//! and acts when the script is through, never inside one. It acts at once, not only at the end of
//! the event loop's turn: the next script in the same turn would drop whoever this one has left
//! without time.

pub mod filter;
mod keys;
mod leave;
mod number;
pub mod permission;
pub mod recognise;
mod renew;
mod run;
pub mod stats;
pub mod table;
mod try_lock;
mod unlock;

pub use run::{Call, Outcome, Reply, run};
