//! The table of behaviours in clients/behaviours.md, by row, for threads and for tasks.

#![allow(missing_docs, clippy::pedantic)] // Names of tests are sentences.

mod elsewhere;
mod holding;
mod masters;
mod programs;
mod scripts;
mod support;
