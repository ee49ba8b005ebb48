//! What a small world has in it.

use crate::lock::scripts::Sleep;
use crate::lock::{Heard, Millis, Rules, Tick};
use Fault::{
    Break, Cancel, Close, Delete, Late, LoseToken, Restart, SetClock, Stall, TimeOut, Untold,
};

/// The kind of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It uses the commands, and asks with one of these limits: how many holders it tolerates, 0 for any number.
    Commands(&'static [u32]),
    /// It uses Redisson's scripts.
    Redisson,
}

impl Kind {
    /// It asks without SHARED.
    pub const EXCLUSIVE: Self = Self::Commands(&[1]);
    /// It asks with SHARED.
    pub const READER: Self = Self::Commands(&[0]);
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
    Untold,
    Delete,
    LoseToken,
    Restart,
    /// The server is late with what is due.
    Late,
    /// The server stands still, and reads no requests.
    Stall,
    /// The wall clock is set, twice at most.
    SetClock,
}

/// A small world.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    pub owners: &'static [Kind],
    /// Connections of each owner that uses the commands. The second is the same connection for all of them.
    pub slots: usize,
    pub waits: &'static [Wait],
    pub sessions: bool,
    pub once: bool,
    pub most_holds: i64,
    pub faults: &'static [Fault],
    pub lease: Millis,
    /// With which leases the holder may renew its own.
    pub renewals: &'static [Millis],
    /// How long an owner that polls may be silent.
    pub patience: Millis,
    /// The same of one that uses scripts, and for how long these let it sleep; none if they do not wait.
    pub scripts: &'static [Option<(Millis, Sleep)>],
    pub rules: Rules,
}

impl Scope {
    pub fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }
}

/// A millisecond is the least that counts. A turn is shorter than a deadline, so that one waiter's
/// deadline can end in another's turn.
const RULES: Rules = Rules {
    turn: 2,
    patience: 3,
    clock_skew: 0,
    max_waiters: 2,
    grace: Heard::at(Tick::of(0), 0),
    intercepts: true,
};

/// Owners that block, and all that can come between.
pub const BLOCKING: Scope = Scope {
    owners: &[Kind::EXCLUSIVE; 3],
    slots: 2,
    waits: &[Wait::Block, Wait::Try],
    sessions: false,
    once: false,
    most_holds: 2,
    faults: &[
        Break, Cancel, TimeOut, Close, Untold, Delete, LoseToken, Restart, Late,
    ],
    lease: 2,
    renewals: &[2],
    patience: 3,
    scripts: &[Some((2, Sleep::Lease))],
    rules: RULES,
};

/// Owners that poll, block or try.
pub const POLLING: Scope = Scope {
    waits: &[Wait::Poll, Wait::Block, Wait::Try],
    slots: 1,
    most_holds: 1,
    renewals: &[],
    ..BLOCKING
};

/// Owners that poll on one connection and block on another.
pub const MIXED: Scope = Scope {
    waits: &[Wait::Poll, Wait::Block],
    faults: &[Cancel, TimeOut, Close, Untold, Delete, Restart, Late],
    once: true,
    ..BLOCKING
};

/// Polling owners, and a server that does not always listen.
pub const STALLED: Scope = Scope {
    waits: &[Wait::Poll],
    faults: &[Stall, Late, Delete],
    ..POLLING
};

/// Locks that live as long as their connections.
pub const SESSIONS: Scope = Scope {
    waits: &[Wait::Block],
    sessions: true,
    once: true,
    lease: 3,
    renewals: &[1, 5],
    faults: &[TimeOut, Close, Untold, Delete, Restart],
    ..BLOCKING
};

/// The module's waiters and Redisson's in one queue, with scripts of all releases.
pub const SCRIPTS: Scope = Scope {
    owners: &[Kind::EXCLUSIVE, Kind::Redisson, Kind::Redisson],
    slots: 1,
    waits: &[Wait::Block, Wait::Poll],
    most_holds: 1,
    renewals: &[],
    faults: &[TimeOut, Delete, Restart],
    scripts: &[
        Some((2, Sleep::Lease)),
        Some((2, Sleep::BehindHead)),
        Some((3, Sleep::BehindPrevious)),
        None,
    ],
    ..BLOCKING
};

/// Owners that poll, were found in the keys, and may never answer: where scripts run as Lua.
pub const FOUND: Scope = Scope {
    waits: &[Wait::Poll],
    faults: &[Cancel, Delete, Restart],
    rules: Rules {
        intercepts: false,
        ..RULES
    },
    ..POLLING
};

/// A wall clock that is set.
pub const CLOCK: Scope = Scope {
    owners: &[Kind::EXCLUSIVE, Kind::EXCLUSIVE, Kind::Redisson],
    slots: 1,
    waits: &[Wait::Block, Wait::Poll],
    most_holds: 1,
    renewals: &[],
    faults: &[TimeOut, Delete, LoseToken, Restart, SetClock],
    ..BLOCKING
};

/// Two readers and a writer that block, and all that can come between.
pub const READERS: Scope = Scope {
    owners: &[Kind::READER, Kind::READER, Kind::EXCLUSIVE],
    slots: 1,
    most_holds: 1,
    ..BLOCKING
};

/// The same, polling or blocking.
pub const READERS_POLLING: Scope = Scope {
    waits: &[Wait::Poll, Wait::Block],
    renewals: &[],
    faults: &[TimeOut, Break, Restart, Late],
    ..READERS
};

/// Two holders at a time, of three owners, with leases that end one by one.
pub const LIMITED: Scope = Scope {
    owners: &[Kind::Commands(&[2]); 3],
    waits: &[Wait::Block, Wait::Poll],
    renewals: &[1],
    faults: &[TimeOut, Untold, Restart, Late],
    ..READERS
};

/// Owners that ask sometimes exclusively and sometimes to share, on one connection or two.
pub const UPGRADES: Scope = Scope {
    owners: &[
        Kind::Commands(&[0, 1]),
        Kind::Commands(&[0, 2]),
        Kind::READER,
    ],
    slots: 2,
    waits: &[Wait::Block, Wait::Poll, Wait::Try],
    most_holds: 2,
    renewals: &[],
    faults: &[Late],
    lease: 1,
    ..READERS
};

/// Readers whose holds live as long as their connections, and a writer.
pub const READERS_SESSIONS: Scope = Scope {
    owners: &[Kind::READER, Kind::READER, Kind::EXCLUSIVE],
    slots: 1,
    most_holds: 2,
    renewals: &[5],
    faults: &[TimeOut, Close, Untold, Delete, SetClock],
    ..SESSIONS
};

/// Readers and one of Redisson's clients.
pub const READERS_SCRIPTS: Scope = Scope {
    owners: &[Kind::READER, Kind::READER, Kind::Redisson],
    ..SCRIPTS
};

/// A larger world, for random steps.
pub const LARGE: Scope = Scope {
    owners: &[Kind::READER; 7],
    rules: Rules {
        turn: 50,
        patience: 300,
        max_waiters: 5,
        ..RULES
    },
    ..READERS_SCRIPTS
};
