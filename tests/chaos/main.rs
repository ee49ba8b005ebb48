//! Chaos: a real server under load from many clients, with faults, and a checker that is told
//! nothing but what the clients saw.
//!
//! - [`plan`]: which fault when, a pure function of a seed.
//! - [`actor`]: clients of all kinds; what they ask for is drawn from the seed too.
//! - [`harm`]: carries the plan out.
//! - [`history`]: what the clients, an observer of the keys and the fault injector write down.
//! - [`written`]: histories as files.
//! - [`witness`]: watches whether the machine lets server and clients run.
//! - [`checker`], [`porcupine`]: find in a history what should not be; they know nothing of the product's code.
//! - [`guarantees`]: rounds for each way of keeping data; [`by_scripts`]: clients of a server without the module;
//!   [`soak`]: long and calm.
//!
//! A seed reproduces the plan and the choices of every client, not how the threads and the server
//! interleave: a round that found something is repeated with the same seed until it is found again.

// All of it is for tests: one that cannot go on panics.
#![cfg(test)]

mod actor;
mod by_scripts;
mod checker;
mod guarantees;
mod harm;
mod history;
mod plan;
mod porcupine;
mod round;
mod soak;
mod wire;
mod witness;
mod world;
mod written;
