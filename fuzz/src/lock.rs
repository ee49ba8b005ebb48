pub use fairlock::lock::*;

#[path = "../../src/lock/properties/mod.rs"]
pub mod properties;
