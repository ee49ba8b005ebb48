//! The commands: a file for each that has more to it than the pages show (`documents::transcripts`) and the search of
//! all rules does (`src/lock/tests`); then a file for each thing that several of them have a part in.

mod acquire;
mod holders;
mod locks;
mod queue;

mod bad_input;
mod hand_off;
mod keyspace;
mod polling;
pub mod session;
mod token;
pub mod transactions;
