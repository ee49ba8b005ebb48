//! Black-box tests of the companion: the program itself, and real servers with the module.

#![allow(missing_docs)]
// A test that cannot go on panics; that is its way of failing.
#![allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

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
