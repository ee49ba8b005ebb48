//! The rules of the lock: its holders, its waiters, and which waiter is next.
//!
//! This module knows nothing of Redis. It has no clock, does no I/O and never panics: the time is
//! an argument, the state of one lock sits behind the trait [`State`], and a step returns what
//! happened as [`Event`]s for others to carry out (reply to a client, publish a
//! wake-up). The same rules therefore run over Redis's keys in the server and over
//! [`memory::Memory`] in the tests.
//!
//! Who calls what, and when: a command, a timer or a closed connection begins a [`Step`] on one lock and calls
//! one of its methods. The method first drops holders whose leases have ended, then does what was asked, and at
//! the end settles: as long as the head of the queue can have the lock, it is served. So a lock is never left free
//! beside a waiter. Afterwards the caller carries out the events, and asks [`Step::next_due`] when to look again.
//!
//! Reading order, each file resting only on those before it:
//!
//! - [`clock`], [`state`], [`event`], [`holders`], [`line`](mod@line): what a lock is made of; holders and waiters are
//!   found without walking;
//! - [`step`], [`score`], [`session`], [`sharing`], [`turn`], [`due`]: what all steps rest on: the waiters' times in
//!   the keys, locks bound to connections, several holders, serving the head, when to look again;
//! - [`acquire`], [`release`], [`leave`]: the steps of the commands;
//! - [`scripts`]: the steps of Redisson's scripts.
//!
//! What the rules promise is tested in `tests/properties` (random steps) and in `tests/model` (all steps, in small
//! worlds).
//!
//! To add a step, write a method of [`Step`] in the file of its kind: it begins with `drop_ended`, and ends with
//! `settle` if it could let the head have the lock. Then give it an action in `tests/model/action.rs` and in
//! `tests/properties`, where the oracles say what the step may do. To add a way of waiting, add a [`Presence`], and
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
pub mod memory;
pub mod release;
pub mod score;
pub mod scripts;
pub mod session;
pub mod sharing;
pub mod state;
pub mod step;
pub mod turn;

#[cfg(test)]
mod tests;

pub use acquire::{Acquired, Ask, Place, WaitMode};
pub use clock::{Heard, Millis, Now, Tick};
pub use due::Due;
pub use event::Event;
pub use holders::{SharedHolder, SharedHolders};
pub use release::{GiveUp, Given, TakeAway};
pub use state::{
    Connection, Holds, Limit, Owner, Presence, Refusal, Rules, Session, State, Ticket, Turn, Waiter,
};
pub use step::Step;
