//! Black-box tests: a real redis-server with the module, talked to by a real client library.
//! One file a command, then one a theme.

#![allow(missing_docs, clippy::must_use_candidate)]

mod client;
mod server;

mod acquire;
mod bad_input;
mod break_lock;
mod cancel;
mod cluster;
mod config;
mod crowd;
mod hand_off;
mod help;
mod info;
mod keyspace;
mod load;
mod persistence;
mod polling;
mod queue;
mod redisson_keys;
mod release;
mod renew;
mod replication;
mod token;
