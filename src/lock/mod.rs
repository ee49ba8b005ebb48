//! The lock itself: who holds it, who waits, whose turn it is.
//!
//! This room knows nothing of Redis. It has no clock, does no I/O and never panics: the time is
//! an argument, the state of one lock sits behind the small trait [`State`], and a transition
//! returns what happened as [`Event`]s for others to carry out (reply to a client, publish a
//! wake-up). The same rules therefore run over Redis's keys in the server and over
//! [`memory::Memory`] in the tests.
//!
//! Reading order: [`state`] (what a lock is made of), [`rules`] (the steps a client can take),
//! [`turn`] (what happens when the lock is free), [`score`] (the waiters' times in the keys), [`scripts`]
//! (the steps of Redisson's scripts), [`session`] (locks bound to connections), [`line`] (finding a
//! waiter's position without walking the queue). What the rules promise is tested in
//! `properties` (random steps) and in `model` (all steps, in small worlds).

#![forbid(unsafe_code)]

pub mod line;
pub mod memory;
pub mod rules;
pub mod score;
pub mod scripts;
pub mod session;
pub mod state;
pub mod turn;

#[cfg(test)]
mod model;
#[cfg(test)]
mod properties;

pub use rules::{Acquired, Ask, Place, Refusal, Rules, WaitMode};
pub use session::Session;
pub use state::{
    Connection, Event, Heard, Holds, Millis, Now, Owner, Presence, State, Tick, Ticket, Turn,
    Waiter,
};
pub use turn::Due;
