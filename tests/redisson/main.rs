//! Tests with real Redisson clients, of several releases, against real servers with the module
//! and without it.
//!
//! The clients are JVMs that run `Driver.java`; `testing/redisson/fetch` fetches the releases
//! and compiles it. The newest release is enough for every day; `REDISSON_RELEASES` names others (`all` or a
//! list such as `3.16.8 4.7.0`). Tests that take minutes are left to `make test-all`.

// All of it is for tests: one that cannot go on panics.
#![cfg(test)]

mod hand;
mod interception;
mod sides;
mod states;

mod as_lua;
mod as_scripts;
mod conformance;
mod differential;
mod fingerprints;
mod intercept;
mod kinds;
mod off;
mod one_queue;
mod places;
mod topologies;
