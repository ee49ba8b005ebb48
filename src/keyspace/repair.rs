//! Repairs the queue after changes from outside the module: the list, the scores and what is tracked are
//! made to agree again, and no live waiter loses its place.

use std::collections::{HashMap, HashSet};

use crate::lock::{Holds, Now, Owner, Presence, State, Waiter, Wall, score};
use crate::server::{Key, Str, string};

use super::names::is_redissons;
use super::number::instant;
use super::open_lock::OpenLock;
use super::tracked::Line;
use super::write;

/// Makes list, scores and line agree. Walks the queue, so it is called only if they may disagree.
/// `is_loaded`: it was loaded, or was there before the module.
pub fn repair(lock: &mut OpenLock<'_>, is_loaded: bool) {
    let now = lock.now;
    let listed = read_list(&mut lock.queue);
    let scores = read_scores(&mut lock.scores);
    let known = std::mem::take(&mut lock.tracked.line);
    let mut order = merge(&listed, &known, &scores, now);
    // A waiter that took the lock by a script was taken out of the queue by that script, so it is not restored.
    let is_listed: HashSet<&Owner> = listed.iter().collect();
    order.retain(|owner| {
        let waiter = known.get(owner).filter(|waiter| waiter.ticket().is_none());
        waiter.is_none() || is_listed.contains(owner) || lock.holds(owner) == Holds::None
    });

    write_list(&mut lock.queue, &listed, &order);
    let mut line = Line::default();
    for (index, owner) in order.into_iter().enumerate() {
        let waiter = known.get(&owner);
        let mut waiter = waiter.unwrap_or_else(|| Waiter::found(Wall::default(), now));
        let found = scores.get(&owner).copied();
        let score = found.unwrap_or_else(|| give_score(lock, &owner, waiter, index));
        let is_raised = found.is_some_and(|found| found > waiter.score);
        match waiter.presence {
            Presence::Found if is_loaded => count_as_polling(lock, &owner, &mut waiter, score),
            Presence::Polling if is_raised => lives_until(lock, &mut waiter, score),
            _ => (),
        }
        line.push(owner, Waiter { score, ..waiter });
    }
    let dropped = scores.keys().filter(|owner| line.get(owner).is_none());
    let dropped: Vec<Str> = dropped.map(|owner| string(owner)).collect();
    write::remove_members(&mut lock.scores, &dropped);
    lock.tracked.line = line;
    // Another key may be in the place of the old one.
    lock.tracked.has_wide_scores = false;
}

/// A waiter that is not named as Redisson names its own is fairlock's, from before a restart or a failover: it asks
/// again when it is woken.
fn count_as_polling(lock: &OpenLock<'_>, owner: &[u8], waiter: &mut Waiter, score: Wall) {
    if !is_redissons(owner) {
        waiter.presence = Presence::Polling;
        waiter.patience = lock.rules.patience;
        waiter.deadline = lock.rules.grace;
        lives_until(lock, waiter, score);
    }
}

/// The score is the deadline of a waiter that was heard elsewhere: by another server, or by a script that runs as Lua.
fn lives_until(lock: &OpenLock<'_>, waiter: &mut Waiter, score: Wall) {
    let left = score.since(lock.now.wall());
    waiter.deadline = waiter.deadline.max(lock.now.listening_after(left));
}

/// Gives a waiter that has no score in the keys the one that it would have in a queue that has just
/// formed.
fn give_score(lock: &mut OpenLock<'_>, owner: &Owner, waiter: Waiter, index: usize) -> Wall {
    let now = lock.now;
    let patience = match waiter.presence {
        Presence::Found => lock.rules.patience,
        _ => waiter.patience,
    };
    let left = score::lease_left(lock, now);
    let at = now.after(score::ahead(left, patience.max(1), index));
    write::set_score(&mut lock.scores, &string(owner), at);
    at
}

fn read_list(list: &mut Key<'_>) -> Vec<Owner> {
    (0..list.len())
        .map_while(|index| list.list_get(index))
        .map(|owner| Owner::from(owner.as_slice()))
        .collect()
}

fn read_scores(scores: &mut Key<'_>) -> HashMap<Owner, Wall> {
    scores
        .members()
        .into_iter()
        .map(|(owner, score)| (Owner::from(owner), instant(score)))
        .collect()
}

/// The repaired queue: first the listed owners, in that order and each once. Live waiters of this server that
/// are not listed go before the waiters that came after them, and before unknown owners that joined behind them.
/// Last come the owners that have only a score, if it has not passed, in the order of their scores.
fn merge(listed: &[Owner], line: &Line, scores: &HashMap<Owner, Wall>, now: Now) -> Vec<Owner> {
    let is_listed: HashSet<&Owner> = listed.iter().collect();
    let lives = |owner: &Owner| scores.get(owner).is_some_and(|at| *at > now.wall());
    let is_lost = |owner: &Owner, waiter: &Waiter| match waiter.presence {
        Presence::Blocked(_) => true,
        Presence::Polling => waiter.lives(now),
        Presence::Asked | Presence::Found => lives(owner),
        Presence::Gone => false,
    };

    let ranks: HashMap<&Owner, usize> = line.iter().map(|(owner, _)| owner).zip(0..).collect();
    let mut lost = line
        .iter()
        .filter(|(owner, waiter)| !is_listed.contains(owner) && is_lost(owner, waiter))
        .map(|(owner, _)| owner)
        .peekable();

    let mut order = Vec::with_capacity(listed.len());
    let mut placed: HashSet<&Owner> = HashSet::new();
    let mut place = |owner| {
        if placed.insert(owner) {
            order.push(Owner::clone(owner));
        }
    };
    let last_known = listed.iter().rposition(|owner| line.get(owner).is_some());
    let (known, joined) = listed.split_at(last_known.map_or(0, |index| index + 1));
    for owner in known {
        let here = ranks.get(owner);
        while let Some(ahead) = lost.next_if(|owner| ranks.get(owner) < here) {
            place(ahead);
        }
        place(owner);
    }
    lost.for_each(&mut place);
    joined.iter().for_each(&mut place);
    let mut unlisted: Vec<_> = scores.iter().filter(|(owner, _)| lives(owner)).collect();
    unlisted.sort_by_key(|(owner, at)| (**at, Owner::clone(owner)));
    for (owner, _) in unlisted {
        place(owner);
    }
    order
}

fn write_list(list: &mut Key<'_>, listed: &[Owner], order: &[Owner]) {
    if let Some(more) = order.strip_prefix(listed) {
        for owner in more {
            write::push(list, &string(owner));
        }
        return;
    }
    let owners: Vec<Str> = order.iter().map(|owner| string(owner)).collect();
    write::rewrite_list(list, &owners);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Waiter;

    fn owner(name: &str) -> Owner {
        Owner::from(name.as_bytes())
    }

    fn owners(names: &str) -> Vec<Owner> {
        names.split_whitespace().map(owner).collect()
    }

    fn line(names: &str, presence: Presence) -> Line {
        let now = Now::from_millis(100);
        let waiter = Waiter {
            presence,
            deadline: now.listening_after(1),
            ..Waiter::found(Wall::default(), now)
        };
        Line::of(owners(names).into_iter().map(|owner| (owner, waiter)))
    }

    fn merged(listed: &str, line: &Line, scores: &[(&str, u64)]) -> String {
        let score = |(name, at): &(&str, u64)| (owner(name), Wall::of(*at));
        let scores = scores.iter().map(score).collect();
        let now = Now::from_millis(100);
        let order = merge(&owners(listed), line, &scores, now);
        let names: Vec<_> = order
            .iter()
            .map(|owner| String::from_utf8_lossy(owner))
            .collect();
        names.join(" ")
    }

    #[test]
    fn a_listed_order_stands_and_nobody_is_listed_twice() {
        assert_eq!(merged("b a b c a", &Line::default(), &[]), "b a c");
    }

    #[test]
    fn a_lost_blocked_waiter_is_back_in_its_place() {
        let blocked = line("a b c d", Presence::Blocked(1));
        assert_eq!(merged("a c d e", &blocked, &[]), "a b c d e");
        assert_eq!(merged("c", &blocked, &[]), "a b c d");
        assert_eq!(merged("", &blocked, &[]), "a b c d");
    }

    #[test]
    fn a_waiter_of_redissons_is_put_back_only_while_its_score_stands() {
        let asked = line("a b c", Presence::Asked);
        assert_eq!(merged("a c", &asked, &[]), "a c");
        assert_eq!(merged("a c", &asked, &[("b", 101)]), "a b c");
    }

    #[test]
    fn a_lost_waiter_is_placed_before_the_next_that_is_still_listed() {
        let blocked = line("a b c", Presence::Blocked(1));
        assert_eq!(merged("c x a", &blocked, &[]), "b c x a");
    }

    #[test]
    fn a_lost_waiter_is_placed_before_all_that_came_after_it() {
        // A script dropped a, b and c, and c has joined again by the same script.
        let blocked = line("a b c d e", Presence::Blocked(1));
        assert_eq!(merged("d e c", &blocked, &[]), "a b d e c");
    }

    #[test]
    fn lost_waiters_are_placed_before_whoever_joined_since() {
        let blocked = line("a b c", Presence::Blocked(1));
        assert_eq!(merged("x y", &blocked, &[]), "a b c x y");
        assert_eq!(merged("x a y", &blocked, &[]), "x a b c y");
    }

    #[test]
    fn a_lost_polling_waiter_is_back_until_its_deadline() {
        let mut polling = line("a b c", Presence::Polling);
        let mut dead = polling.get(b"b").expect("it is there");
        dead.deadline = Now::from_millis(100).listening();
        polling.set(b"b", dead);
        assert_eq!(merged("c", &polling, &[]), "a c");
    }

    #[test]
    fn a_lost_waiter_that_was_found_is_back_only_while_its_score_stands() {
        let found = line("a b c d", Presence::Found);
        assert_eq!(merged("d", &found, &[("a", 101), ("b", 100)]), "a d");
    }

    #[test]
    fn owners_with_a_score_alone_join_in_its_order() {
        let scores = [("late", 300), ("soon", 200), ("dead", 100)];
        assert_eq!(merged("a", &Line::default(), &scores), "a soon late");
    }

    #[test]
    fn a_gone_waiter_does_not_come_back() {
        assert_eq!(merged("b", &line("a b", Presence::Gone), &[]), "b");
    }
}
