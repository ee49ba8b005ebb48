//! Black-box tests of the companion: the program itself, and real servers with the module.

// All of it is for tests: one that cannot go on panics.
#![cfg(test)]

mod program;

mod cluster;
mod exec;
mod loss;
mod pages;
mod questions;
mod refusals;
mod signals;
mod tls;
mod waiting;
