//! Which fault happens when, and to which client. A pure function of the seed.

use fairlock_testing::Dice;

use crate::history::{Harm, Part};
use crate::world::{CLIENTS, LOCKS};

/// A planned fault, and how many milliseconds it lasts if it lasts.
pub type Act = (Harm, u64);

/// What a server keeps on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// Every write, before its reply.
    Always,
    /// What the last snapshot has.
    Snapshots,
    /// Nothing: there is a replica that has it, and can become the master.
    Replica,
}

impl Disk {
    pub fn options(self) -> &'static [&'static str] {
        match self {
            Self::Always => &["--appendonly", "yes", "--appendfsync", "always"],
            Self::Snapshots | Self::Replica => &[],
        }
    }
}

/// Affects no promise: all must be kept during it.
pub const OPTIONS: [(&str, &str); 11] = [
    ("fairlock.intercept-eval", "yes"),
    ("fairlock.intercept-eval", "no"),
    ("fairlock.turn", "2000"),
    ("fairlock.turn", "4000"),
    ("fairlock.pubsub", "both"),
    ("fairlock.pubsub", "publish"),
    ("fairlock.lease", "1000"),
    ("fairlock.patience", "60000"),
    ("notify-keyspace-events", "KEAd"),
    ("notify-keyspace-events", ""),
    ("hz", "100"),
];

/// Milliseconds after the begin, and what is to happen then. One after the other, in order.
pub type Plan = Vec<(u64, Act)>;

/// The plan of a round of this length in milliseconds: every kind of fault there is for such servers once, in an order
/// that the seed decides, and then any of them.
pub fn plan(seed: u64, disk: Disk, length: u64) -> Plan {
    let mut dice = Dice::new(seed, usize::MAX);
    let mut plan = Plan::new();
    let any = kinds(disk);
    let mut first = any.clone();
    dice.shuffle(&mut first);
    // The load gets going first.
    let mut at = 300;
    while at < length {
        let kind = first.pop().unwrap_or_else(|| dice.pick(&any));
        plan.push((at, act(kind, &mut dice)));
        // What takes long delays what comes after it.
        at += 50 + dice.u64(..450);
    }
    plan
}

/// Numbers of the kinds, see [`act`].
fn kinds(disk: Disk) -> Vec<u64> {
    let mut kinds: Vec<u64> = (0..11).collect();
    if disk == Disk::Replica {
        kinds.push(11);
    } else {
        // A kill takes time, and is what most of this is about.
        kinds.extend([12, 12]);
    }
    if disk == Disk::Always {
        kinds.push(13);
    }
    kinds
}

fn act(kind: u64, dice: &mut Dice) -> Act {
    let client = dice.usize(..CLIENTS);
    let lock = dice.usize(..LOCKS);
    match kind {
        0 => (Harm::Pause, 20 + dice.u64(..600)),
        1 | 2 => (Harm::ClientKill { client }, 0),
        3 | 4 => (Harm::HalfOpen { client }, 100 + dice.u64(..900)),
        5 => {
            let seconds = dice.i64(-3..=3);
            (Harm::ClockStep { seconds }, 0)
        }
        6 => (Harm::FlushAll, 0),
        7 => {
            let (seldom, often) = (
                [Part::Queue, Part::Deadlines, Part::Token, Part::Shared],
                Part::Lock,
            );
            let key = if dice.one_in(3) {
                often
            } else {
                dice.pick(&seldom)
            };
            (Harm::Delete { lock, key }, 0)
        }
        8 => {
            let client = dice.one_in(2).then_some(client);
            (Harm::Break { lock, client }, 0)
        }
        9 => {
            let choice = dice.usize(..OPTIONS.len());
            (Harm::Config { choice }, 0)
        }
        10 if dice.one_in(2) => (Harm::OutOfMemory, 50 + dice.u64(..200)),
        10 => (Harm::Snapshot, 0),
        11 => (Harm::Failover, 0),
        12 => (Harm::Kill { lost_since: None }, 0),
        _ => (Harm::RewriteAof, 0),
    }
}
