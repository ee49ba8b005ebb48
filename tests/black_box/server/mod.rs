//! The server that the module is loaded into: how it is started, restarted, replicated and watched, its users, and what
//! the module costs it.

mod acl;
mod boundary;
mod chain;
mod clients;
mod clock;
mod cluster;
mod config;
mod crowd;
mod durations;
mod events;
mod handing_over;
mod idle;
mod io_delays;
mod io_threads;
mod limits;
mod load;
mod operations;
mod panics;
mod pauses;
mod persistence;
mod promotion;
mod replication;
mod security;
mod stalls;
mod stats;
mod strangers;
