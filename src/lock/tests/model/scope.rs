//! What a small world has in it.

use crate::lock::{Millis, Rules};

/// The kind of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It uses the commands, and asks with one of these limits: how many holders it tolerates, 0 for any number.
    Ours(&'static [u32]),
    /// It uses Redisson's scripts.
    Redisson,
}

impl Kind {
    /// It asks without SHARED.
    pub const EXCLUSIVE: Self = Self::Ours(&[1]);
    /// It asks with SHARED.
    pub const READER: Self = Self::Ours(&[0]);
}

/// How an owner waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// NOWAIT.
    Try,
    /// ENQUEUE.
    Poll,
    /// Neither: its connection is blocked.
    Block,
}

/// What can happen beside asking and releasing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Break,
    Cancel,
    TimeOut,
    Close,
    /// The receiver of a hand-off is gone before it can be told.
    Undelivered,
    Delete,
    LoseToken,
    Restart,
    Stall,
}

/// A small world.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    pub name: &'static str,
    pub owners: &'static [Kind],
    /// Connections of each owner that uses the commands.
    pub slots: usize,
    pub waits: &'static [Wait],
    pub sessions: bool,
    pub once: bool,
    pub most_holds: i64,
    pub faults: &'static [Fault],
    /// How often the wall clock may be set.
    pub clock_steps: u8,
    pub lease: Millis,
    /// With which leases the holder may renew its own.
    pub renewals: &'static [Millis],
    /// How long an owner that polls may be silent.
    pub patience: Millis,
    /// What scripts add to the scores of newcomers, and subtract when the lock is taken.
    pub wait: Millis,
    pub rules: Rules,
}

impl Scope {
    pub fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    /// Whether several may hold the lock.
    pub fn is_shared(&self) -> bool {
        let shares = |kind: &Kind| matches!(kind, Kind::Ours(limits) if *limits != [1]);
        self.owners.iter().any(shares)
    }
}
