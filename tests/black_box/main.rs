//! Black-box tests: a real redis-server with the module, talked to by a real client library.
//! One file a command, then one a theme.

#![allow(missing_docs)]
// A test that cannot go on panics; that is its way of failing.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::must_use_candidate
)]

#[allow(dead_code, reason = "other test binaries use the rest")]
mod client;
mod scene;
#[allow(dead_code, reason = "other test binaries use the rest")]
mod server;

mod acl;
mod acquire;
mod bad_input;
mod break_lock;
mod cancel;
mod clients;
mod clock;
mod cluster;
mod config;
mod crowd;
mod documents;
mod events;
mod figures;
mod foreign_deadlines;
mod foreign_queue;
mod freedom;
mod hand_off;
mod handing_over;
mod help;
mod info;
mod install;
mod keyspace;
mod limits;
mod load;
mod locks;
mod matrix;
mod not_a_lock;
mod operations;
mod other_module;
mod panics;
mod persistence;
mod polling;
mod promotion;
mod queue;
mod redisson_keys;
mod release;
mod renew;
mod replication;
mod scripts;
mod security;
mod session;
mod stalls;
mod stats;
mod token;
mod transactions;
