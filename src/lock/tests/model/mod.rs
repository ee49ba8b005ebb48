//! All that can happen to one lock, in small worlds: every state that they can reach is visited.
//!
//! Where [`super::properties`] takes random steps through a large world, this search leaves nothing out of a small one:
//! three or four owners with up to two connections each, which block, poll, try or use Redisson's scripts, and want the
//! lock for themselves, to share it, or to share it with a few; leases, turns and deadlines of a few milliseconds, and
//! time that passes one millisecond after the other, so that they end in every order; connections that close, hand-offs
//! without a receiver, wake-ups without an answer, keys that are lost, a server that is late or restarts, a clock that
//! is set.
//!
//! - [`scope`]: what a small world has in it; [`action`]: what can happen next;
//! - [`world`], [`steps`], [`server`], [`script`], [`faults`]: what a server does with the rules then;
//! - [`oracle`], [`holders`], [`life`]: what clients were told, a model that never asks the rules;
//! - [`checks`]: the promises, compared with the model after each step;
//! - [`canon`]: which worlds are the same; [`explore`]: the search, and that silence ends;
//! - [`found`]: what it has found;
//! - [`replicas`]: worlds of two servers, with a search and promises of their own.
//!
//! Safety is checked in every world: the holders are those that clients know as such, never more than each of them
//! tolerates, and none ends but by its own release, lease, session or break; tokens grow; no owner is served before a
//! living waiter that joined earlier; every blocked request has its place and gets one answer; only a polling head in
//! its turn waits for a lock that it can have, and no waiter waits behind the dead; scripts would drop no living
//! waiter; and the server knows when to look again. Progress is checked at the end: from every world, silence leads to
//! an empty queue, or to holders whose connections are open and that leave no room for the head.
//!
//! `cargo test` visits the first tens of thousands of worlds of each scope, `make model` millions: all
//! there are, where it says `complete`.

mod action;
mod canon;
mod checks;
mod explore;
mod faults;
mod found;
mod holders;
mod life;
mod oracle;
mod replicas;
mod scope;
mod script;
mod server;
mod steps;
mod world;

use crate::lock::Rules;
use explore::Explorer;
use scope::{Fault, Kind, Scope, Wait};

/// A millisecond is the least that counts. A turn is shorter than a deadline, so that one waiter's
/// deadline can end in another's turn.
const RULES: Rules = Rules {
    turn: 2,
    lease: 2,
    patience: 3,
    clock_skew: 0,
    max_waiters: 4,
    grace: 0,
    intercepts: true,
};

/// Owners that block, and all that can come between.
const BLOCKING: Scope = Scope {
    name: "blocking",
    owners: &[Kind::EXCLUSIVE; 3],
    slots: 2,
    waits: &[Wait::Block, Wait::Try],
    sessions: false,
    once: false,
    most_holds: 2,
    faults: &[
        Fault::Break,
        Fault::Cancel,
        Fault::TimeOut,
        Fault::Close,
        Fault::Undelivered,
        Fault::Delete,
        Fault::LoseToken,
        Fault::Restart,
        Fault::Stall,
    ],
    clock_steps: 0,
    lease: 2,
    renewals: &[2],
    patience: 3,
    wait: 2,
    rules: RULES,
};

/// Owners that poll, block or try.
const POLLING: Scope = Scope {
    name: "polling",
    waits: &[Wait::Poll, Wait::Block, Wait::Try],
    slots: 1,
    most_holds: 1,
    renewals: &[],
    ..BLOCKING
};

/// Owners that poll on one connection and block on another.
const MIXED: Scope = Scope {
    name: "mixed",
    waits: &[Wait::Poll, Wait::Block],
    faults: &[
        Fault::Cancel,
        Fault::TimeOut,
        Fault::Close,
        Fault::Undelivered,
        Fault::Delete,
        Fault::Restart,
        Fault::Stall,
    ],
    once: true,
    ..BLOCKING
};

/// Locks that live as long as their connections.
const SESSIONS: Scope = Scope {
    name: "sessions",
    waits: &[Wait::Block],
    sessions: true,
    once: true,
    lease: 3,
    renewals: &[1, 5],
    faults: &[
        Fault::TimeOut,
        Fault::Close,
        Fault::Undelivered,
        Fault::Delete,
        Fault::Restart,
    ],
    ..BLOCKING
};

/// Our waiters and Redisson's in one queue, whose scripts are intercepted.
const SCRIPTS: Scope = Scope {
    name: "scripts",
    owners: &[
        Kind::EXCLUSIVE,
        Kind::EXCLUSIVE,
        Kind::Redisson,
        Kind::Redisson,
    ],
    slots: 1,
    waits: &[Wait::Block, Wait::Poll],
    most_holds: 1,
    renewals: &[],
    faults: &[Fault::TimeOut, Fault::Delete, Fault::Restart],
    ..BLOCKING
};

/// The same with fewer owners of the module's: all of it can be visited.
const FEW: Scope = Scope {
    name: "few",
    owners: &[Kind::EXCLUSIVE, Kind::Redisson, Kind::Redisson],
    ..SCRIPTS
};

/// Many again, but scripts run as Lua: the server does not see who asks.
const LUA: Scope = Scope {
    name: "lua",
    rules: Rules {
        intercepts: false,
        ..RULES
    },
    ..SCRIPTS
};

/// More waiters than the limit.
const CROWD: Scope = Scope {
    name: "crowd",
    owners: &[Kind::EXCLUSIVE; 4],
    slots: 1,
    waits: &[Wait::Block, Wait::Poll],
    most_holds: 1,
    renewals: &[],
    faults: &[
        Fault::TimeOut,
        Fault::Cancel,
        Fault::Undelivered,
        Fault::Restart,
    ],
    rules: Rules {
        max_waiters: 2,
        ..RULES
    },
    ..BLOCKING
};

/// A wall clock that is set.
const CLOCK: Scope = Scope {
    name: "clock",
    owners: &[Kind::EXCLUSIVE, Kind::EXCLUSIVE, Kind::Redisson],
    slots: 1,
    waits: &[Wait::Block, Wait::Poll],
    most_holds: 1,
    renewals: &[],
    faults: &[
        Fault::TimeOut,
        Fault::Delete,
        Fault::LoseToken,
        Fault::Restart,
    ],
    clock_steps: 2,
    ..BLOCKING
};

/// Two readers and a writer that block, and all that can come between.
const READERS: Scope = Scope {
    name: "readers",
    owners: &[Kind::READER, Kind::READER, Kind::EXCLUSIVE],
    slots: 1,
    most_holds: 1,
    ..BLOCKING
};

/// The same with less that comes between: all of it can be visited.
const READERS_FEW: Scope = Scope {
    name: "readers_few",
    waits: &[Wait::Block],
    faults: &[
        Fault::TimeOut,
        Fault::Close,
        Fault::Undelivered,
        Fault::Delete,
        Fault::Restart,
    ],
    ..READERS
};

/// The same, polling or blocking.
const READERS_POLLING: Scope = Scope {
    name: "readers_polling",
    waits: &[Wait::Poll, Wait::Block],
    renewals: &[],
    faults: &[Fault::TimeOut, Fault::Break, Fault::Restart, Fault::Stall],
    ..READERS
};

/// Two holders at a time, of three owners, with leases that end one by one.
const LIMITED: Scope = Scope {
    name: "limited",
    owners: &[Kind::Ours(&[2]); 3],
    waits: &[Wait::Block, Wait::Poll],
    renewals: &[1],
    faults: &[
        Fault::TimeOut,
        Fault::Undelivered,
        Fault::Restart,
        Fault::Stall,
    ],
    ..READERS
};

/// Owners that ask sometimes exclusively and sometimes to share, on one connection or two.
const UPGRADES: Scope = Scope {
    name: "upgrades",
    owners: &[Kind::Ours(&[0, 1]), Kind::Ours(&[0, 2]), Kind::READER],
    slots: 2,
    waits: &[Wait::Block, Wait::Poll, Wait::Try],
    most_holds: 2,
    renewals: &[],
    faults: &[],
    lease: 1,
    ..READERS
};

/// Readers whose holds live as long as their connections, and a writer.
const READERS_SESSIONS: Scope = Scope {
    name: "readers_sessions",
    owners: &[Kind::READER, Kind::READER, Kind::EXCLUSIVE],
    slots: 1,
    most_holds: 2,
    renewals: &[5],
    faults: &[
        Fault::TimeOut,
        Fault::Close,
        Fault::Undelivered,
        Fault::Delete,
    ],
    ..SESSIONS
};

/// The same with less that comes between: all of it can be visited.
const READERS_SESSIONS_FEW: Scope = Scope {
    name: "readers_sessions_few",
    most_holds: 1,
    renewals: &[],
    ..READERS_SESSIONS
};

/// Readers and one of Redisson's clients, whose scripts are intercepted.
const READERS_SCRIPTS: Scope = Scope {
    name: "readers_scripts",
    owners: &[Kind::READER, Kind::READER, Kind::Redisson],
    ..SCRIPTS
};

/// The same, but scripts run as Lua: the server does not see who asks.
const READERS_LUA: Scope = Scope {
    name: "readers_lua",
    faults: &[Fault::TimeOut, Fault::Restart],
    rules: LUA.rules,
    ..READERS_SCRIPTS
};

/// How many worlds of each scope the daily run visits.
const DAILY: usize = 30_000;

fn explore(scope: &Scope) {
    let limit = std::env::var("MODEL_STATES").ok();
    let limit = limit.and_then(|limit| limit.parse().ok());
    match Explorer::explore(scope, limit.unwrap_or(DAILY)) {
        Ok(report) => println!("{}: {report:?}", scope.name),
        Err(story) => panic!("{story}"),
    }
}

#[test]
fn blocking() {
    explore(&BLOCKING);
}

#[test]
fn polling() {
    explore(&POLLING);
}

#[test]
fn mixed() {
    explore(&MIXED);
}

#[test]
fn sessions() {
    explore(&SESSIONS);
}

#[test]
fn scripts() {
    explore(&SCRIPTS);
}

#[test]
fn few() {
    explore(&FEW);
}

#[test]
fn lua() {
    explore(&LUA);
}

#[test]
fn crowd() {
    explore(&CROWD);
}

#[test]
fn clock() {
    explore(&CLOCK);
}

#[test]
fn readers() {
    explore(&READERS);
}

#[test]
fn readers_few() {
    explore(&READERS_FEW);
}

#[test]
fn readers_sessions_few() {
    explore(&READERS_SESSIONS_FEW);
}

#[test]
fn readers_polling() {
    explore(&READERS_POLLING);
}

#[test]
fn limited() {
    explore(&LIMITED);
}

#[test]
fn upgrades() {
    explore(&UPGRADES);
}

#[test]
fn readers_sessions() {
    explore(&READERS_SESSIONS);
}

#[test]
fn readers_scripts() {
    explore(&READERS_SCRIPTS);
}

#[test]
fn readers_lua() {
    explore(&READERS_LUA);
}
