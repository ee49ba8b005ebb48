//! All that can happen to one lock on two servers: a master and its replica.
//!
//! Each server steps by the rules, over keys in memory. What a step has changed is carried to the replica later, or
//! lost; the replica is promoted; the old master goes on beside it, or is lost, and comes back as its replica with the
//! other's data; clocks differ; clients use WAIT. The promises are those of `docs/guarantees.md`. Each [`Scope`] says
//! which of them it keeps. Of the others, tests show that they can be broken there: a weaker promise is then all there
//! is. Mutations, things done wrong on purpose, show that the search would find them.
//!
//! - [`server`]: one server; [`world`]: both, and their clients; [`action`]: what can happen next;
//! - [`explore`]: the search, and random walks.

mod action;
mod explore;
mod server;
mod world;

use proptest::prelude::*;

use crate::lock::Millis;
use explore::{explore, reach, walk};
use server::TICK;

const LEASE: Millis = 3 * TICK;

/// Within `fairlock.clock-skew`, and not a whole number of ticks.
const NEAR: i64 = 1_500;
/// More than that.
const FAR: i64 = 2_000;

/// What a user may count on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// "One owner at a time", within leases less the difference of the servers' clocks.
    OneOwner,
    /// The same for "an owner to which WAIT replied 1".
    OneConfirmedOwner,
    /// The same, with whole leases as clients count them: from before they asked.
    OneByClientsClocks,
    /// "Tokens grow": each acquisition's is greater than all that were given before.
    TokensGrow,
    /// Each acquisition's token is greater than all that WAIT has confirmed before. So "a token that WAIT confirmed
    /// is never given again".
    ConfirmedTokensGrow,
}

/// What is done wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// A promoted server does not go ahead of its clock.
    NoSkew,
    /// A replica does not read the tokens in the keys that it receives.
    NotLearned,
    /// A client does not ask by WAIT, or does not look at the reply.
    WaitIgnored,
    /// A client asks by WAIT when its server was a replica in between.
    LateWait,
}

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A replica is promoted that has not received everything.
    Loss,
    /// Clients still reach the old master.
    Partition,
    /// An old master restarts before it comes back.
    Restart,
    /// Somebody deletes the token's key.
    Delete,
}

/// What can happen.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    pub name: &'static str,
    /// Milliseconds by which the replica's clock is ahead of the master's, one after the other.
    pub clocks: &'static [i64],
    pub owners: usize,
    /// How often time passes, an owner gets the lock or asks again as its holder, and a replica is promoted.
    pub ticks: u64,
    pub grants: usize,
    pub promotions: usize,
    /// The least time between promotions.
    pub apart: Millis,
    pub faults: &'static [Fault],
    pub mutation: Option<Mutation>,
    /// What is never broken.
    pub keeps: &'static [Promise],
}

/// FAILOVER, or a planned switch.
const PLANNED: Scope = Scope {
    name: "planned",
    clocks: &[-NEAR, 0, NEAR],
    owners: 2,
    ticks: 4,
    grants: 3,
    promotions: 3,
    apart: 0,
    faults: &[Fault::Restart],
    mutation: None,
    keeps: &[
        Promise::OneOwner,
        Promise::OneConfirmedOwner,
        Promise::TokensGrow,
        Promise::ConfirmedTokensGrow,
    ],
};

/// The master is lost with what its replica has not received; not twice within the difference of the clocks.
const LOST: Scope = Scope {
    name: "lost",
    apart: 2 * TICK,
    faults: &[Fault::Loss, Fault::Restart],
    keeps: &[
        Promise::OneConfirmedOwner,
        Promise::TokensGrow,
        Promise::ConfirmedTokensGrow,
    ],
    ..PLANNED
};

/// The old master is cut off from the new one and not from clients; and one promotion may follow the other at once.
const PARTITION: Scope = Scope {
    name: "partition",
    apart: 0,
    faults: &[Fault::Loss, Fault::Partition, Fault::Restart],
    keeps: &[Promise::OneConfirmedOwner, Promise::ConfirmedTokensGrow],
    ..LOST
};

/// The same with clocks that agree.
const SAME_CLOCK: Scope = Scope {
    name: "same_clock",
    clocks: &[0],
    keeps: &[
        Promise::OneConfirmedOwner,
        Promise::OneByClientsClocks,
        Promise::ConfirmedTokensGrow,
    ],
    ..PARTITION
};

/// The token's key is deleted as well, and the servers go on running; no two promotions within the difference of the
/// clocks.
const DELETED: Scope = Scope {
    name: "deleted",
    apart: 2 * TICK,
    faults: &[Fault::Loss, Fault::Partition, Fault::Delete],
    ..PARTITION
};

/// One promotion follows the other before any time has passed.
const QUICK: Scope = Scope {
    name: "quick",
    ticks: 0,
    apart: 0,
    faults: &[Fault::Loss, Fault::Delete],
    keeps: PARTITION.keeps,
    ..LOST
};

#[test]
fn a_planned_failover_keeps_all_promises_by_the_servers_clocks() {
    explore(&PLANNED);
}

#[test]
fn a_lost_master_takes_unconfirmed_locks_with_it_and_tokens_grow() {
    explore(&LOST);
    reach(&LOST, Promise::OneOwner);
}

#[test]
fn beside_an_old_master_only_what_wait_has_confirmed_is_sure() {
    explore(&PARTITION);
    reach(&PARTITION, Promise::OneOwner);
    reach(&PARTITION, Promise::TokensGrow);
}

#[test]
fn a_lease_ends_early_by_its_owners_clock_at_a_server_whose_clock_is_ahead() {
    explore(&SAME_CLOCK);
    reach(&PLANNED, Promise::OneByClientsClocks);
}

#[test]
fn confirmed_tokens_grow_though_their_key_is_deleted() {
    explore(&DELETED);
}

#[test]
fn a_deleted_token_may_be_given_again_after_promotions_within_the_difference_of_the_clocks() {
    let at_once = Scope {
        owners: 1,
        ticks: 0,
        apart: 0,
        ..DELETED
    };
    reach(&at_once, Promise::ConfirmedTokensGrow);
}

#[test]
fn two_masters_lost_within_the_difference_of_their_clocks_may_give_a_token_twice() {
    explore(&QUICK);
    reach(&QUICK, Promise::TokensGrow);
}

#[test]
fn clocks_that_differ_by_more_than_the_skew_let_confirmed_tokens_shrink() {
    let clocks = &[-FAR, FAR];
    reach(&Scope { clocks, ..LOST }, Promise::ConfirmedTokensGrow);
}

#[test]
fn mutations_are_found() {
    for (mutation, promise) in [
        (Mutation::NoSkew, Promise::ConfirmedTokensGrow),
        (Mutation::NotLearned, Promise::ConfirmedTokensGrow),
        (Mutation::WaitIgnored, Promise::OneConfirmedOwner),
        (Mutation::LateWait, Promise::OneConfirmedOwner),
    ] {
        let mutation = Some(mutation);
        reach(&Scope { mutation, ..QUICK }, promise);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(100)
    ))]

    #[test]
    fn long_walks_keep_the_promises(choices in prop::collection::vec(any::<usize>(), 1..150)) {
        for scope in [PLANNED, LOST, PARTITION, SAME_CLOCK, DELETED] {
            let scope = Scope { owners: 3, ticks: 40, grants: 40, promotions: 9, ..scope };
            walk(&scope, &choices).map_err(TestCaseError::fail)?;
        }
    }
}
