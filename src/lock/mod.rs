//! The rules of the lock: its holders, its waiters, and which waiter is next.
//!
//! This module knows nothing of Redis. It has no clock, does no I/O and never panics. The time is an argument.
//! The state of one lock is behind the trait [`State`]. A step replies to no client and publishes no wake-up
//! itself: it emits [`Event`]s ([`State::emit`]), and its caller carries them out. So the same rules run over
//! Redis's keys in the server and over a struct in the tests.
//!
//! The calls in their order: a command, a timer or a closed connection begins a [`Step`] on one lock and calls
//! one of its methods. The method first drops holders whose leases have ended (`drop_ended`). Then it does what
//! was asked. At the end it settles (`settle`): it serves the head of the queue for as long as the head can have
//! the lock, so that a lock is never left free beside a waiter. Afterwards the caller carries out the events,
//! and asks [`Step::next_due`] when to look at the lock again.
//!
//! The map, from top to bottom: a file imports only from those below it (`make check`).
//!
//! The steps:
//! - [`scripts`]: of Redisson's scripts;
//! - [`acquire`]: asking for the lock, and joining its queue;
//! - [`release`]: giving it up, renewing it, breaking it;
//! - [`leave`]: leaving the queue.
//!
//! What all steps rest on:
//! - [`due`]: when to look at the lock again;
//! - [`turn`]: serving the head of the queue;
//! - [`session`]: locks bound to connections;
//! - [`sharing`]: several holders;
//! - [`score`]: the waiters' times in the keys;
//! - [`step`]: one step on one lock.
//!
//! What a lock is made of:
//! - [`state`]: all of it, as the rules need it;
//! - [`line`](mod@line): the waiters, found without walking;
//! - [`holders`]: the shared holders, likewise;
//! - [`event`]: what can happen to it;
//! - [`token`]: fencing tokens, which grow;
//! - [`parts`]: owners, waiters, sessions, limits;
//! - [`listening`]: the time that this server listened to its clients;
//! - [`clock`]: the time;
//! - [`roomy`]: memory that a crowd leaves behind.
//!
//! What the rules promise is tested with a lock's state in memory (`src/lock/tests`): by all steps in small worlds, and
//! by random steps in a large one.
//!
//! To add a step, write a method of [`Step`] in the file of its kind: it begins with `drop_ended`, and ends with
//! `settle` if the head may be able to have the lock afterwards. Then give it an action in
//! `src/lock/tests/action.rs`; the oracle says what the step may do. To add a way of waiting, add a [`Presence`], and
//! follow the matches that no longer compile: they are the places where waiters of different kinds differ. What is
//! remembered of a waiter or a holder beyond the keys is lost in a restart; say in `Waiter::found`, or where holders
//! are read from the keys, what is assumed then.

#![forbid(unsafe_code)]

pub mod acquire;
pub mod clock;
pub mod due;
pub mod event;
pub mod holders;
pub mod leave;
pub mod line;
pub mod listening;
pub mod parts;
pub mod release;
pub mod roomy;
pub mod score;
pub mod scripts;
pub mod session;
pub mod sharing;
pub mod state;
pub mod step;
pub mod token;
pub mod turn;

#[cfg(test)]
mod tests;

pub use acquire::{Ask, Outcome, WaitMode};
pub use clock::{Heard, Millis, Now, Tick, Wall};
pub use due::Due;
pub use event::Event;
pub use holders::{Holder, SharedHolders};
pub use listening::Listening;
pub use parts::{
    Connection, Holds, Limit, Owner, Presence, Refusal, Rules, Session, Terms, Ticket, Turn, Waiter,
};
pub use release::GiveUp;
pub use roomy::{give_back, is_too_roomy};
pub use state::State;
pub use step::Step;
