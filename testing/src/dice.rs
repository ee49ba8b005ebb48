//! Random numbers that a seed determines.
//!
//! The crate fastrand would do, except for this: a seed that is reported must give the same plan later
//! on. Its minor versions may change what a seed gives, as 2.1 did.

/// Random numbers that a seed determines (splitmix64).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Numbers for one participant, different from all others'.
    pub fn new(seed: u64, participant: usize) -> Self {
        Self(seed ^ (participant as u64).wrapping_mul(0xA076_1D64_78BD_642F))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below a limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// An index of a list of this length.
    pub fn index(&mut self, length: usize) -> usize {
        let index = self.below(length as u64);
        usize::try_from(index).expect("less than the length")
    }

    /// One element of a list.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    /// True once in `count` times on average.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

#[test]
fn a_seed_gives_the_same_numbers_for_ever() {
    // The first numbers of splitmix64 from 1234567, as its author gives them.
    let mut dice = Dice::new(1_234_567, 0);
    for number in [
        6_457_827_717_110_365_317,
        3_203_168_211_198_807_973,
        9_817_491_932_198_370_423,
    ] {
        assert_eq!(dice.below(u64::MAX), number);
    }
    assert_ne!(Dice::new(1, 2).next(), Dice::new(1, 3).next());
}
