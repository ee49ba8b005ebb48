//! Tokens on two servers whose clocks differ: a master and its replica, which take turns.
//!
//! What the master has given is carried to the replica later, or lost; the replica is promoted; the old master comes
//! back as its replica, restarted or not; the token's key is deleted. Tokens grow from one acquisition to the next;
//! where one promotion follows the other within the difference of the clocks, those of which a replica has heard do.
//! Things done wrong on purpose show that the search would find them.

use std::collections::{HashSet, VecDeque};

use crate::lock::{Millis, Now, Rules, token};

/// By how much clocks differ.
const APART: i64 = 1_500;
/// The least time that passes.
const TICK: Millis = 1_000;
/// When it begins.
const START: Millis = 1_000_000 * TICK;

/// What happens in one instant here takes a millisecond at least.
fn rules(skew: Millis) -> Rules {
    Rules {
        clock_skew: skew,
        ..super::scope::BLOCKING.rules
    }
}

/// What can happen, and what is done wrong.
#[derive(Clone, Copy, Debug)]
struct Scope {
    /// Milliseconds by which the second server's clock is ahead.
    ahead: i64,
    /// The configured difference.
    skew: Millis,
    /// A replica is promoted that has not received everything.
    loses: bool,
    promotions: usize,
    /// The least time between them.
    apart: Millis,
    /// Somebody deletes the token's key.
    deletes: bool,
    /// A replica reads the tokens in the keys that it receives.
    learns: bool,
}

const PLANNED: Scope = Scope {
    ahead: 0,
    skew: APART.unsigned_abs() + 1,
    loses: false,
    promotions: 3,
    apart: 0,
    deletes: false,
    learns: true,
};

/// The keys: the holder's token, and the one that is kept, with the end of its key.
type Keys = (Option<i64>, Option<(i64, Millis)>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Server {
    keys: Keys,
    /// The greatest token that it knows of.
    greatest: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Acquire,
    Release,
    Carry,
    /// The replica is promoted. The old master becomes its replica; or has restarted before.
    Promote(bool),
    DeleteToken,
    Tick,
}

/// What a token is not greater than: `(given, confirmed)`.
type Broken = (bool, bool);

impl World {
    fn new() -> Self {
        Self {
            time: START,
            servers: [Server::default(); 2],
            master: 0,
            stream: Vec::new(),
            given: 0,
            confirmed: 0,
            promoted_at: 0,
            promotions: 0,
            grants: 0,
        }
    }

    fn now(&self, scope: &Scope, of: usize) -> Now {
        let ahead = if of == 0 { 0 } else { scope.ahead };
        Now::from_millis(self.time.saturating_add_signed(ahead))
    }

    fn actions(&self, scope: &Scope) -> Vec<Action> {
        let mut actions = Vec::new();
        let (token, kept) = self.servers[0].keys;
        if self.time < START + 4 * TICK {
            actions.push(Action::Tick);
        }
        if self.stream.len() < 2 && token.is_some() {
            actions.push(Action::Release);
        } else if self.stream.len() < 2 && self.grants < 3 {
            actions.push(Action::Acquire);
        }
        if !self.stream.is_empty() {
            actions.push(Action::Carry);
        }
        if scope.deletes && kept.is_some() {
            actions.push(Action::DeleteToken);
        }
        let may_lose = scope.loses || self.stream.is_empty();
        if may_lose
            && self.promotions < scope.promotions
            && self.time >= self.promoted_at + scope.apart
        {
            actions.extend([Action::Promote(false), Action::Promote(true)]);
        }
        actions
    }

    fn after(&self, action: Action, scope: &Scope) -> (Self, Broken) {
        let mut world = self.clone();
        let (mut broken, now) = ((false, false), self.now(scope, self.master));
        let rules = rules(scope.skew);
        let [master, replica] = &mut world.servers;
        let before = master.keys;
        match action {
            Action::Acquire => {
                // As `keyspace` does: it keeps a token that is ahead of the clock, and learns that of a holder.
                let kept = before.1.map_or(0, |(token, _)| token);
                let token = token::next(master.greatest.max(kept), now);
                broken = (token <= self.given, token <= self.confirmed);
                let until = token::kept_until(token, now);
                master.keys = (Some(token), until.map(|until| (token, until)).or(before.1));
                master.greatest = token::greatest_after(master.greatest, token, &rules, now);
                world.given = self.given.max(token);
                world.grants += 1;
            }
            Action::Release => {
                let token = before.0.unwrap_or(0);
                let until = token::kept_until(token, now);
                master.keys = (None, until.map(|until| (token, until)).or(before.1));
            }
            Action::Carry => {
                let keys = world.stream.remove(0);
                let now = self.now(scope, 1 - self.master);
                world.confirmed = world.confirmed.max(keys.0.unwrap_or(0));
                replica.receive(keys, scope, now);
            }
            Action::Promote(restarted) => {
                world.servers.swap(0, 1);
                world.master = 1 - self.master;
                (world.promotions, world.promoted_at) = (self.promotions + 1, self.time);
                world.stream.clear();
                let now = self.now(scope, world.master);
                let [master, replica] = &mut world.servers;
                let ahead = token::before_taking_over(&rules, now);
                master.greatest = master.greatest.max(ahead);
                if let Some(token) = master.keys.0 {
                    master.greatest = token::greatest_after(master.greatest, token, &rules, now);
                }
                let keys = master.keys;
                if restarted {
                    *replica = Server::default();
                }
                replica.receive(keys, scope, self.now(scope, self.master));
            }
            Action::DeleteToken => master.keys.1 = None,
            Action::Tick => {
                world.time += TICK;
                let now = world.now(scope, self.master);
                let kept = &mut world.servers[0].keys.1;
                *kept = kept.filter(|(_, until)| *until >= now.millis());
            }
        }
        let keys = world.servers[0].keys;
        if keys != before && !matches!(action, Action::Promote(_)) {
            world.stream.push(keys);
        }
        (world, broken)
    }
}

impl Server {
    /// Receives keys from the master, and reads that of the token.
    fn receive(&mut self, keys: Keys, scope: &Scope, now: Now) {
        if let Some((token, _)) = keys.1.filter(|_| scope.learns) {
            let rules = rules(scope.skew);
            self.greatest = token::greatest_after_loading(self.greatest, token, &rules, now);
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
        let mut known = HashSet::from([World::new()]);
        let mut next = VecDeque::from([World::new()]);
        while let Some(world) = next.pop_front() {
            for action in world.actions(&scope) {
                let (after, broken) = world.after(action, &scope);
                found = (found.0 || broken.0, found.1 || broken.1);
                if known.insert(after.clone()) {
                    next.push_back(after);
                }
            }
        }
    }
    found
}

#[test]
fn tokens_grow_over_promotions() {
    assert_eq!(search(PLANNED), (false, false));
}

const LOST: Scope = Scope {
    loses: true,
    apart: 2 * TICK,
    ..PLANNED
};

#[test]
fn tokens_grow_although_what_a_master_has_given_is_lost_with_it() {
    let deletes = true;
    assert_eq!(search(Scope { deletes, ..LOST }), (false, false));
}

#[test]
fn two_masters_lost_within_the_difference_of_their_clocks_may_give_a_token_twice() {
    let quick = Scope { apart: 0, ..LOST };
    assert_eq!(search(quick), (true, false));
    let deletes = true;
    assert_eq!(search(Scope { deletes, ..quick }), (true, true));
    let promotions = 2;
    let twice = Scope {
        promotions,
        deletes,
        ..quick
    };
    assert_eq!(search(twice), (true, false));
    let learns = false;
    assert_eq!(search(Scope { learns, ..twice }), (true, true));
}

#[test]
fn a_skew_that_is_less_than_the_difference_of_the_clocks_is_found() {
    for skew in [0, APART.unsigned_abs() / 2] {
        assert_eq!(search(Scope { skew, ..LOST }), (true, true));
    }
}
