//! Tokens on two servers whose clocks differ: a master and its replica, which take turns.
//!
//! What the master has given is carried to the replica later, or lost; the replica is promoted; the old master comes
//! back as its replica, restarted or not. Tokens grow from one acquisition to the next; where one promotion follows the
//! other within the difference of the clocks, those of which a replica has heard do.

use std::collections::HashSet;

use crate::lock::{Millis, Now, Rules, Wall, token};

/// By how much clocks differ.
const APART: i64 = 1_500;
/// The least time that passes.
const TICK: Millis = 1_000;
/// When it begins.
const START: Millis = 1_000_000 * TICK;

#[derive(Clone, Copy)]
struct Scope {
    /// Milliseconds by which the second server's clock is ahead.
    ahead: i64,
    /// The configured difference.
    skew: Millis,
    /// A replica is promoted that has not received everything.
    loses: bool,
    /// The least time between promotions.
    apart: Millis,
}

/// What is configured fits the clocks, and nothing is lost.
const PLANNED: Scope = Scope {
    ahead: 0,
    skew: APART.unsigned_abs() + 1,
    loses: false,
    apart: 0,
};

/// The keys: the holder's token, and the one that is kept, with the end of its key.
type Keys = (Option<i64>, Option<(i64, Wall)>);

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Server {
    keys: Keys,
    /// The greatest token that it knows of.
    greatest: i64,
}

#[derive(Clone, Default, PartialEq, Eq, Hash)]
struct World {
    time: Millis,
    /// The master, and the replica.
    servers: [Server; 2],
    /// Which of the two clocks is the master's.
    master: usize,
    /// What the replica has not received yet.
    stream: Vec<Keys>,
    /// The greatest token that was given, and the greatest that the replica had, too.
    given: i64,
    confirmed: i64,
    promoted_at: Millis,
    promotions: usize,
    grants: usize,
}

#[derive(Clone, Copy)]
enum Action {
    /// An owner acquires the lock, and releases it or not.
    Acquire(bool),
    Carry,
    /// The replica is promoted. The old master becomes its replica; or has restarted before.
    Promote(bool),
    Tick,
}

/// What a token is not greater than: `(given, confirmed)`.
type Broken = (bool, bool);

impl World {
    fn now(&self, scope: &Scope, of: usize) -> Now {
        let ahead = if of == 0 { 0 } else { scope.ahead };
        Now::from_millis(self.time.saturating_add_signed(ahead))
    }

    fn actions(&self, scope: &Scope) -> impl Iterator<Item = Action> {
        let acquires = self.stream.len() < 2 && self.grants < 3;
        let promotes = (scope.loses || self.stream.is_empty())
            && self.promotions < 3
            && self.time >= self.promoted_at + scope.apart;
        let all = [
            (Action::Acquire(false), acquires),
            (Action::Acquire(true), acquires),
            (Action::Carry, !self.stream.is_empty()),
            (Action::Promote(false), promotes),
            (Action::Promote(true), promotes),
            (Action::Tick, self.time < START + 4 * TICK),
        ];
        all.into_iter()
            .filter_map(|(action, may)| may.then_some(action))
    }

    fn after(&self, action: Action, scope: &Scope) -> (Self, Broken) {
        let mut world = self.clone();
        let (mut broken, now) = ((false, false), self.now(scope, self.master));
        let rules = Rules {
            clock_skew: scope.skew,
            ..super::scope::BLOCKING.rules
        };
        let [master, replica] = &mut world.servers;
        match action {
            Action::Acquire(releases) => {
                // As `keyspace` does: it keeps a token that is ahead of the clock, and learns that of a holder.
                let kept = master.keys.1.map_or(0, |(token, _)| token);
                let token = token::next(master.greatest.max(kept), now);
                broken = (token <= self.given, token <= self.confirmed);
                let until = token::kept_until(token, now);
                let kept = until.map(|until| (token, until)).or(master.keys.1);
                master.keys = ((!releases).then_some(token), kept);
                master.greatest = token::greatest_after(master.greatest, token, &rules, now);
                world.given = self.given.max(token);
                world.grants += 1;
                world.stream.push(master.keys);
            }
            Action::Carry => {
                let keys = world.stream.remove(0);
                world.confirmed = world.confirmed.max(keys.0.unwrap_or(0));
                replica.receive(keys, &rules, self.now(scope, 1 - self.master));
            }
            Action::Promote(restarted) => {
                world.servers.swap(0, 1);
                world.master = 1 - self.master;
                (world.promotions, world.promoted_at) = (self.promotions + 1, self.time);
                world.stream.clear();
                let now = self.now(scope, world.master);
                let [master, replica] = &mut world.servers;
                let ahead = token::before_taking_over(&rules, now);
                let held = master.keys.0.unwrap_or(0);
                master.greatest = master.greatest.max(ahead);
                master.greatest = token::greatest_after(master.greatest, held, &rules, now);
                if restarted {
                    *replica = Server::default();
                }
                replica.receive(master.keys, &rules, self.now(scope, self.master));
            }
            Action::Tick => {
                world.time += TICK;
                let now = world.now(scope, self.master);
                let kept = &mut world.servers[0].keys.1;
                *kept = kept.filter(|(_, until)| *until >= now.wall());
            }
        }
        (world, broken)
    }
}

impl Server {
    /// Receives keys from the master, and reads that of the token.
    fn receive(&mut self, keys: Keys, rules: &Rules, now: Now) {
        if let Some((token, _)) = keys.1 {
            self.greatest = token::greatest_after_loading(self.greatest, token, rules, now);
        }
        self.keys = keys;
    }
}

/// Whether a token is given that is not greater than all before; and whether one is that is not greater than those of
/// which a replica has heard. All that can happen is tried, for clocks that differ either way.
fn search(scope: Scope) -> Broken {
    let mut found = (false, false);
    for ahead in [-APART, 0, APART] {
        let scope = Scope { ahead, ..scope };
        let start = World {
            time: START,
            ..World::default()
        };
        let (mut known, mut next) = (HashSet::from([start.clone()]), vec![start]);
        while let Some(world) = next.pop() {
            for action in world.actions(&scope) {
                let (after, broken) = world.after(action, &scope);
                found = (found.0 || broken.0, found.1 || broken.1);
                if known.insert(after.clone()) {
                    next.push(after);
                }
            }
        }
    }
    found
}

const LOST: Scope = Scope {
    loses: true,
    apart: 2 * TICK,
    ..PLANNED
};

#[test]
fn tokens_grow_over_promotions_although_what_a_master_has_given_is_lost_with_it() {
    assert_eq!(search(PLANNED), (false, false));
    assert_eq!(search(LOST), (false, false));
}

#[test]
fn two_masters_lost_within_the_difference_of_their_clocks_may_give_a_token_twice() {
    assert_eq!(search(Scope { apart: 0, ..LOST }), (true, false));
}

#[test]
fn a_skew_that_is_less_than_the_difference_of_the_clocks_is_found() {
    for skew in [0, APART.unsigned_abs() / 2] {
        assert_eq!(search(Scope { skew, ..LOST }), (true, true));
    }
}
