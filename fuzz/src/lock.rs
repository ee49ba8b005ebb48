pub use fairlock::lock::*;

#[path = "../../src/lock/tests/memory.rs"]
pub mod memory;

#[path = "../../src/lock/tests/properties/mod.rs"]
pub mod properties;
