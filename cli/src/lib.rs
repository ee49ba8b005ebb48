//! `fairlock`, the command line beside the module: runs a command under a lock, shows what the
//! locks do.
//!
//! The map, in reading order:
//!
//! - [`args`]: the command line. [`failure`]: exit codes, and what an operator is told.
//! - [`server`]: addresses, connections, the nodes of a cluster. [`lock`]: what a server replies.
//! - [`exec`]: a command under a lock. [`top`]: the screen of all locks.
//!   [`query`]: one question, one answer.
//! - [`text`]: names and durations as people read them. [`shown`]: a lock as lines and JSON show it.
//!
//! Computations (rates, order, filters, the screen, when a lock counts as lost) are apart from servers and terminals,
//! with their tests beside them.

pub mod args;
pub mod exec;
pub mod failure;
pub mod lock;
pub mod query;
pub mod server;
pub mod shown;
pub mod text;
pub mod top;
