pub use fairlock::lock::*;

#[path = "../../src/lock/tests/mod.rs"]
mod tests;
pub use tests::random;
