//! What the rules promise, over the state in memory.

mod model;
mod properties;
