//! Tests of whole clusters. (Sentinels are in `clients/conformance`, with clients that ask them.)
//!
//! Each test has servers of its own, half a dozen at most. They are ended by their own handles.

#![allow(missing_docs)]
// A test that cannot go on panics; that is its way of failing.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::must_use_candidate
)]

mod moving;
mod scene;
mod slots;

mod atomic;
mod demonstration;
mod failover;
mod given_up;
mod holders;
mod migration;
mod reshard;
mod routing;
