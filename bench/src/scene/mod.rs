//! What is measured, a file each.

pub mod crowded;
pub mod cut;
pub mod delay;
pub mod durable;
pub mod hand_off;
pub mod length;
pub mod traffic;
pub mod uncontended;
