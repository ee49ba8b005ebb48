//! What is measured, a file each.

pub mod clients;
pub mod crowded;
pub mod cut;
pub mod delay;
pub mod durable;
pub mod hand_off;
pub mod jvm;
pub mod length;
pub mod pieces;
pub mod postgres;
pub mod shared;
pub mod traffic;
pub mod uncontended;
