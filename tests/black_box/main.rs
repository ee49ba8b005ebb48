//! Black-box tests: a real redis-server with the module, talked to by a real client library.
//!
//! - [`commands`]: a file for each, then what several of them have a part in;
//! - [`foreign`]: what others do to a lock's keys;
//! - [`server`]: the server around it, and its operation;
//! - [`documents`]: what people read and run;
//! - [`scene`]: a lock that is held and waited for, where many tests begin.

// All of it is for tests: one that cannot go on panics.
#![cfg(test)]

mod scene;

mod commands;
mod documents;
mod foreign;
mod server;
mod shared;
