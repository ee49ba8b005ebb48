//! Random numbers that a seed determines.

/// The next of the random numbers that a seed determines (splitmix64).
pub fn mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Random numbers that a seed determines.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Of one participant, different from all others'.
    pub fn new(seed: u64, participant: usize) -> Self {
        Self(seed ^ (participant as u64).wrapping_mul(0xA076_1D64_78BD_642F))
    }

    /// Less than a limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        mix(&mut self.0) % limit
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}
