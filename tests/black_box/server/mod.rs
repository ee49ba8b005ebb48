//! The server that the module is loaded into: how it is started, restarted, replicated and watched, who
//! may do what on it, and what it costs.

mod acl;
mod clients;
mod clock;
mod cluster;
mod config;
mod crowd;
mod durations;
mod events;
mod going_back;
mod handing_over;
mod idle;
mod limits;
mod load;
mod operations;
mod panics;
mod persistence;
mod promotion;
mod replication;
mod security;
mod stalls;
mod stats;
