pub use fairlock::lock::*;

#[path = "../../src/lock/tests/properties/mod.rs"]
pub mod properties;
