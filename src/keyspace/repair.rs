//! Mending the queue after foreign writers: the list, the deadlines and what is known here are
//! made to agree again, and no living waiter loses its place.

use std::collections::{HashMap, HashSet};

use crate::lock::{Holds, Millis, Now, Owner, Presence, State, Waiter};
use crate::server::{Key, Str, string};

use super::stored::{Line, Stored, found, instant};
use super::write;

/// Makes list, deadlines and line agree. Walks the queue, so it is only for when they do not.
pub fn repair(stored: &mut Stored<'_>) {
    let now = stored.now;
    let listed = read_list(&mut stored.queue);
    let deadlines = read_deadlines(&mut stored.deadlines);
    forget_holder(stored, &listed);
    let order = merge(
        &listed,
        &stored.known.line,
        &deadlines,
        stored.rules.intercepts,
        now,
    );

    write_list(&mut stored.queue, &listed, &order);
    let kept: HashSet<&Owner> = order.iter().collect();
    let dropped: Vec<Str> = deadlines
        .keys()
        .filter(|owner| !kept.contains(owner))
        .map(|owner| string(owner))
        .collect();
    write::remove_members(&mut stored.deadlines, &dropped);

    let known = std::mem::take(&mut stored.known.line);
    let mut line = Line::default();
    for owner in order {
        let waiter = known.get(&owner).unwrap_or_else(|| found(now));
        let waiter = if deadlines.contains_key(&owner) {
            waiter
        } else {
            give_deadline(stored, &owner, waiter)
        };
        line.push(owner, waiter);
    }
    stored.set_line(line);
    let head = stored.known.line.nth(0);
    if stored.known.turn.as_ref().map(|turn| &turn.owner) != head {
        stored.known.turn = None;
    }
}

/// A polling waiter that has taken the lock by a script, which took it out of the queue, is not a
/// lost one.
fn forget_holder(stored: &mut Stored<'_>, listed: &[Owner]) {
    let is_listed: HashSet<&Owner> = listed.iter().collect();
    let unlisted = stored.known.line.iter().filter(|(owner, waiter)| {
        let polling = matches!(waiter.presence, Presence::Polling | Presence::Asked);
        polling && !is_listed.contains(owner)
    });
    let unlisted: Vec<Owner> = unlisted.map(|(owner, _)| Owner::clone(owner)).collect();
    for owner in unlisted {
        if stored.holds(&owner) != Holds::None {
            stored.known.line.remove(&owner);
        }
    }
}

/// Gives a waiter without a deadline in the keys its own, or a fresh one if there is none.
fn give_deadline(stored: &mut Stored<'_>, owner: &Owner, mut waiter: Waiter) -> Waiter {
    let now = stored.now;
    let patience = now.deadline_after(stored.rules.patience);
    let score = match waiter.presence {
        Presence::Polling => waiter.deadline.wall,
        // Its own may be ages ahead, where scripts would line up everybody behind it.
        Presence::Asked => patience.wall.min(waiter.deadline.wall),
        _ => {
            waiter.deadline = patience;
            patience.wall
        }
    };
    write::set_score(&mut stored.deadlines, &string(owner), score);
    waiter
}

fn read_list(list: &mut Key<'_>) -> Vec<Owner> {
    (0..list.len())
        .map_while(|index| list.list_get(index))
        .map(|owner| Owner::from(owner.as_slice()))
        .collect()
}

fn read_deadlines(deadlines: &mut Key<'_>) -> HashMap<Owner, Millis> {
    deadlines
        .members()
        .into_iter()
        .map(|(owner, score)| (Owner::from(owner), instant(score)))
        .collect()
}

/// The queue as it should be: who is listed, in that order and once; waiters that live here but
/// are not listed, before whoever came after them, and before strangers that joined behind them;
/// then owners that have only a deadline, if it is not over, in the order of their deadlines.
fn merge(
    listed: &[Owner],
    line: &Line,
    deadlines: &HashMap<Owner, Millis>,
    intercepts: bool,
    now: Now,
) -> Vec<Owner> {
    let is_listed: HashSet<&Owner> = listed.iter().collect();
    let lives = |owner: &Owner| deadlines.get(owner).is_some_and(|at| *at > now.millis());
    let is_lost = |owner: &Owner, waiter: &Waiter| match waiter.presence {
        Presence::Blocked(_) => true,
        Presence::Polling => waiter.deadline.tick > now.tick(),
        Presence::Asked if intercepts => waiter.deadline.tick > now.tick(),
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
    let mut unlisted: Vec<_> = deadlines.iter().filter(|(owner, _)| lives(owner)).collect();
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
            deadline: now.deadline_after(1),
            ..found(now)
        };
        Line::of(owners(names).into_iter().map(|owner| (owner, waiter)))
    }

    fn merged(listed: &str, line: &Line, deadlines: &[(&str, Millis)]) -> String {
        merged_if(true, listed, line, deadlines)
    }

    fn merged_if(
        intercepts: bool,
        listed: &str,
        line: &Line,
        deadlines: &[(&str, Millis)],
    ) -> String {
        let deadlines = deadlines
            .iter()
            .map(|(name, at)| (owner(name), *at))
            .collect();
        let now = Now::from_millis(100);
        let order = merge(&owners(listed), line, &deadlines, intercepts, now);
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
    fn a_waiter_of_redissons_that_is_gone_was_dropped_if_it_would_have_said_that_it_leaves() {
        let asked = line("a b c", Presence::Asked);
        assert_eq!(merged_if(true, "a c", &asked, &[]), "a b c");
        assert_eq!(merged_if(false, "a c", &asked, &[]), "a c");
        assert_eq!(merged_if(false, "a c", &asked, &[("b", 101)]), "a b c");
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
        dead.deadline.tick = 100;
        polling.set(b"b", dead);
        assert_eq!(merged("c", &polling, &[]), "a c");
    }

    #[test]
    fn a_lost_waiter_that_was_found_is_back_only_while_its_deadline_stands() {
        let found = line("a b c d", Presence::Found);
        assert_eq!(merged("d", &found, &[("a", 101), ("b", 100)]), "a d");
    }

    #[test]
    fn owners_with_a_deadline_alone_join_in_its_order() {
        let deadlines = [("late", 300), ("soon", 200), ("dead", 100)];
        assert_eq!(merged("a", &Line::default(), &deadlines), "a soon late");
    }

    #[test]
    fn a_gone_waiter_does_not_come_back() {
        assert_eq!(merged("b", &line("a b", Presence::Gone), &[]), "b");
    }
}
