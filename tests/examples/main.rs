//! The programs in `examples/`, which use the client packages: each is run against a real server.

#![allow(missing_docs)]
// A test that cannot go on panics; that is its way of failing.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::must_use_candidate
)]

mod programs;
