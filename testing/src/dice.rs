//! Random numbers that a seed determines.

use std::ops::{Deref, DerefMut};

use fastrand::Rng;

/// The numbers of fastrand, and what tests ask for most.
#[derive(Clone, Debug)]
pub struct Dice(Rng);

impl Dice {
    /// Numbers for one participant, different from all others'.
    pub fn new(seed: u64, participant: usize) -> Self {
        let apart = (participant as u64).wrapping_mul(0xA076_1D64_78BD_642F);
        Self(Rng::with_seed(seed ^ apart))
    }

    /// One element of a list.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.usize(..from.len())]
    }

    /// True once in `count` times on average.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.u64(..count) == 0
    }
}

impl Deref for Dice {
    type Target = Rng;

    fn deref(&self) -> &Rng {
        &self.0
    }
}

impl DerefMut for Dice {
    fn deref_mut(&mut self) -> &mut Rng {
        &mut self.0
    }
}
