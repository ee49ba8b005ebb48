//! The commands: a file for each, then a file for each thing that several of them have a part in.

mod acquire;
mod break_lock;
mod cancel;
mod help;
mod holders;
mod info;
mod locks;
mod locks_all;
mod queue;
mod release;
mod renew;

mod bad_input;
mod hand_off;
mod keyspace;
mod pipelines;
mod polling;
mod session;
mod token;
mod transactions;
