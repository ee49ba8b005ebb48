//! Tests with real Redisson clients, of several releases, against real servers with the module
//! and without it.
//!
//! The clients are JVMs that run `Driver.java`; `testing/redisson/fetch` fetches the releases
//! and compiles it. The newest release is enough for every day; `REDISSON_RELEASES` names others (`all` or a
//! list such as `3.16.8 4.7.0`). Tests that take minutes are left to `make test-all`.

#![allow(missing_docs)]
// A test that cannot go on panics; that is its way of failing.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::must_use_candidate
)]

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
