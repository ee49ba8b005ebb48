//! What is promised under faults, by what the server keeps on disk.

use std::fmt::Debug;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fairlock_testing::setting;

use crate::actor::fetch_scripts;
use crate::checker::Violation;
use crate::plan::Disk;
use crate::round;

/// Milliseconds that a round takes besides its plan, about.
const AROUND: u64 = 3000;
/// A longer run is many rounds, each with its own seed: seconds.
const ROUND: u64 = 60;

/// Waits until no other round is going on: they measure time, and two would disturb each other.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A third of `CHAOS_SECONDS`, in rounds that begin with `CHAOS_SEED` and count it up.
fn keeps_its_promises(disk: Disk) {
    fetch_scripts();
    let _alone = alone();
    let seconds = setting("CHAOS_SECONDS").unwrap_or(ROUND);
    let seed = setting("CHAOS_SEED").unwrap_or(1);
    let rounds = seconds.div_ceil(ROUND);
    let length = (seconds * 1000 / 3 / rounds)
        .saturating_sub(AROUND)
        .max(1000);
    for seed in seed..seed + rounds {
        println!("{disk:?}: {length} ms, CHAOS_SEED={seed}");
        nothing(&round::run(disk, seed, length), disk, seed);
    }
}

/// Fails if anything was found in a round of this kind.
pub fn nothing(found: &[Violation], kind: impl Debug, seed: u64) {
    let first: Vec<_> = found.iter().take(20).collect();
    assert!(
        found.is_empty(),
        "{kind:?}, CHAOS_SEED={seed}: {} violations\n{first:#?}",
        found.len()
    );
}

#[test]
fn with_every_write_on_disk_nothing_acknowledged_is_lost() {
    keeps_its_promises(Disk::Always);
}

#[test]
fn with_snapshots_all_since_the_last_one_is_lost_and_the_locks_go_on() {
    keeps_its_promises(Disk::Snapshots);
}

#[test]
fn a_failover_that_is_asked_for_loses_nothing() {
    keeps_its_promises(Disk::Replica);
}
