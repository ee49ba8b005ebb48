//! Random sequences of steps against the rules, over the in-memory state.
//!
//! A [`World`] does what a server does: it lets time pass, expires keys, closes connections, restarts. Beside the state
//! it keeps a model of its own (what clients were told) and compares the two after each step. The model never asks the
//! rules; where they differ, a promise is broken.
//!
//! `make properties` runs 100,000 sequences; failing seeds are kept in `proptest-regressions/`. The
//! fuzzer in `fuzz/` takes the same steps, by the code that they reach.

mod checks;
mod holders;
mod scripts;
mod time;
mod world;

use proptest::prelude::*;

use crate::lock::scripts::Sleep;
use crate::lock::{Connection, Millis, Rules};
pub use world::World;

const RULES: Rules = Rules {
    turn: 50,
    lease: 100,
    patience: 300,
    clock_skew: 0,
    max_waiters: 5,
    grace: 0,
    intercepts: true,
};

/// How a client asks for the lock.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum Mode {
    Try,
    Poll,
    Block,
}

/// One step.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Action {
    Acquire {
        owner: u8,
        mode: Mode,
        lease: Millis,
        patience: Millis,
        /// How many holders it tolerates; 0 for any number, 1 for itself alone.
        limit: u32,
        once: bool,
        /// As without LEASE: a holder keeps a lease that is longer.
        keeps: bool,
        session: Option<Connection>,
    },
    Release {
        owner: u8,
        all: bool,
        token: Option<bool>,
        connection: Option<Connection>,
    },
    /// The n-th holder gives a hold up, or all.
    ReleaseByHolder {
        nth: usize,
        all: bool,
    },
    Renew {
        owner: u8,
        lease: Millis,
    },
    Cancel {
        owner: u8,
    },
    /// Of all holders, or of one owner.
    Break(Option<u8>),
    /// The n-th blocked request's time is up, or its connection closes; the queue is swept now or
    /// later.
    Leave(usize, bool),
    /// A connection that the lock may be bound to closes.
    CloseConnection(Connection),
    /// The last hand-off's receiver turns out to be gone.
    Undelivered,
    Sleep(Millis),
    /// The server stands still for this long.
    Stall(Millis),
    /// The wall clock is set this much ahead or back.
    StepClock(i64),
    /// A client deletes the lock's key.
    ForeignDelete,
    /// A client deletes the n-th holder from it, if several may hold the lock.
    ForeignDeleteHolder(usize),
    /// A client sets the score of the n-th waiter, as a distance from now.
    ForeignScore(usize, i64),
    /// An owner asks by a script of Redisson's, with a clock that is ahead or behind.
    ScriptLock {
        owner: u8,
        lease: Millis,
        patience: Option<Millis>,
        sleep: Sleep,
        skew: i64,
    },
    /// An owner gives a hold up by such a script; `forced`: all holds of any owner.
    ScriptUnlock {
        owner: u8,
        forced: bool,
        skew: i64,
    },
    /// An owner leaves the queue by such a script.
    ScriptLeave {
        owner: u8,
    },
    /// Scripts are to run as Lua from now on, or natively after all: their scores are lined up.
    LineUp,
    /// A client sets the lock's expiry.
    ForeignLease(Millis),
    /// The token's key is lost.
    LoseToken,
    /// The server restarts: connections are lost, keys are kept.
    Restart,
}

fn action() -> impl Strategy<Value = Action> {
    let owner = 0..7u8;
    let mode = prop_oneof![
        Just(Mode::Try),
        Just(Mode::Poll),
        Just(Mode::Block),
        Just(Mode::Block)
    ];
    let lease = prop_oneof![Just(10u64), Just(100), Just(1_000), Just(5_000)];
    let patience = prop_oneof![Just(1u64), Just(40), Just(300), Just(2_000)];
    let limit = prop_oneof![4 => Just(0u32), 4 => Just(1), 2 => Just(2), 1 => Just(3)];
    let again = (any::<bool>(), any::<bool>());
    let token = prop_oneof![Just(None), Just(Some(true)), Just(Some(false))];
    let connection = prop_oneof![Just(None), (1..4u64).prop_map(Some)];
    let patience_by_script = prop::option::of(prop_oneof![Just(0u64), Just(40), Just(300)]);
    let sleep = prop_oneof![
        Just(Sleep::BehindHead),
        Just(Sleep::BehindPrevious),
        Just(Sleep::Lease)
    ];
    let skew = prop_oneof![4 => Just(0i64), 1 => -3_000..3_000i64];
    prop_oneof![
        8 => (owner.clone(), mode, lease.clone(), patience, limit, again, connection.clone()).prop_map(
            |(owner, mode, lease, patience, limit, (once, keeps), session)| {
                Action::Acquire { owner, mode, lease, patience, limit, once, keeps, session }
            }
        ),
        2 => (owner.clone(), any::<bool>(), token, connection).prop_map(
            |(owner, all, token, connection)| Action::Release { owner, all, token, connection }
        ),
        4 => (0..5usize, any::<bool>()).prop_map(|(nth, all)| Action::ReleaseByHolder { nth, all }),
        1 => (1..4u64).prop_map(Action::CloseConnection),
        1 => (owner.clone(), lease.clone()).prop_map(|(owner, lease)| Action::Renew { owner, lease }),
        1 => owner.clone().prop_map(|owner| Action::Cancel { owner }),
        1 => prop::option::of(owner.clone()).prop_map(Action::Break),
        3 => (0..5usize, any::<bool>()).prop_map(|(nth, swept)| Action::Leave(nth, swept)),
        1 => Just(Action::Undelivered),
        3 => prop_oneof![1..60u64, 1..3_000u64].prop_map(Action::Sleep),
        1 => prop_oneof![1..60u64, 1..9_000u64].prop_map(Action::Stall),
        1 => prop_oneof![-3_000..3_000i64, Just(-3_600_000), Just(3_600_000)].prop_map(Action::StepClock),
        1 => Just(Action::ForeignDelete),
        1 => (0..5usize).prop_map(Action::ForeignDeleteHolder),
        1 => (0..5usize, -600..600i64).prop_map(|(nth, score)| Action::ForeignScore(nth, score)),
        6 => (owner.clone(), lease.clone(), patience_by_script, sleep, skew.clone()).prop_map(
            |(owner, lease, patience, sleep, skew)| {
                Action::ScriptLock { owner, lease, patience, sleep, skew }
            }
        ),
        3 => (owner.clone(), prop::bool::weighted(0.2), skew).prop_map(
            |(owner, forced, skew)| Action::ScriptUnlock { owner, forced, skew }
        ),
        1 => owner.clone().prop_map(|owner| Action::ScriptLeave { owner }),
        1 => Just(Action::LineUp),
        1 => lease.prop_map(Action::ForeignLease),
        1 => Just(Action::LoseToken),
        1 => Just(Action::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000),
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_lock_keeps_its_promises(actions in prop::collection::vec(action(), 1..60)) {
        let mut world = World::new();
        for action in &actions {
            world.act(action)?;
        }
    }
}

/// An owner asks for the lock, with a session if it names a connection.
#[cfg(test)]
fn share(owner: u8, session: Option<Connection>) -> Action {
    Action::Acquire {
        owner,
        mode: Mode::Try,
        lease: 1_000,
        patience: 300,
        limit: 0,
        once: false,
        keeps: false,
        session,
    }
}

/// Takes these steps, each of which is checked as above.
#[cfg(test)]
fn after(actions: &[Action]) -> Result<World, TestCaseError> {
    let mut world = World::new();
    for action in actions {
        world.act(action)?;
    }
    Ok(world)
}

#[test]
fn two_holders_that_rely_on_one_connection_both_end_with_it() -> Result<(), TestCaseError> {
    let leaves = Action::ReleaseByHolder { nth: 0, all: true };
    let closes = Action::CloseConnection(1);
    let world = after(&[
        share(0, Some(1)),
        share(1, Some(1)),
        share(2, Some(1)),
        leaves,
        closes,
    ])?;
    assert!(world.holders.is_empty());
    Ok(())
}

#[test]
fn a_session_lives_on_although_somebody_has_cut_its_lease_short() -> Result<(), TestCaseError> {
    let world = after(&[
        share(0, Some(1)),
        share(1, None),
        Action::ForeignLease(10),
        Action::Sleep(3_000),
    ])?;
    assert!(world.holders.get(b"a").is_some() && world.holders.get(b"b").is_none());
    Ok(())
}

#[test]
fn an_owner_that_is_back_before_its_closed_connection_is_swept_keeps_its_place()
-> Result<(), TestCaseError> {
    let ask = |owner, mode, limit| Action::Acquire {
        owner,
        mode,
        lease: 1_000,
        patience: 300,
        limit,
        once: false,
        keeps: false,
        session: None,
    };
    // The holder is alone, or tolerates one more, or any number.
    for limit in [1, 2, 0] {
        let world = after(&[
            ask(0, Mode::Try, limit),
            ask(1, Mode::Block, 1),
            ask(2, Mode::Block, 1),
            Action::Leave(0, false),
            ask(1, Mode::Poll, 1),
        ])?;
        let queue = world.state.queue.iter();
        let queue: Vec<u8> = queue.flat_map(|(owner, _)| owner.to_vec()).collect();
        assert_eq!(queue, b"bc", "{limit}");
    }
    Ok(())
}
