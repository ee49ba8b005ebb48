//! What the rules promise, over the state in memory.

pub mod memory;
mod model;
mod properties;
