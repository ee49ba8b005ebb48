//! Tests of whole installations: a master with replicas and sentinels, and clusters.
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

#[path = "../black_box/client.rs"]
#[allow(dead_code, reason = "the black-box tests use the rest")]
mod client;
#[path = "../black_box/server.rs"]
#[allow(dead_code, reason = "the black-box tests use the rest")]
mod server;

mod cluster;
mod slots;

mod atomic;
mod demonstration;
mod failover;
mod migration;
mod reshard;
mod routing;
mod sentinel;
