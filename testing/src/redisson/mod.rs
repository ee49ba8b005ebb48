//! Redisson: its releases, the scripts of its fair lock, and real clients.
//!
//! - [`releases()`]: the releases, and where they are fetched to;
//! - [`Driver`]: a client, a JVM that carries out a test's commands;
//! - [`harvest`]: all scripts of a release, from what such a client sends.

mod driver;
pub mod harvest;
mod releases;

pub use driver::{Answer, Driver, Options, Starting};
pub use releases::{NEWEST, OLD, each_release, folder, releases};
