//! Tests of whole clusters. (Sentinels are in `clients/conformance`, with clients that ask them.)
//!
//! Each test has servers of its own, half a dozen at most. They are ended by their own handles.

// All of it is for tests: one that cannot go on panics.
#![cfg(test)]

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
