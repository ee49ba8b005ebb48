//! What the drivers have found so far: each row is the shortest way to a promise that was broken once. Every step is
//! checked as in the search. And what they do not try.

use super::action::{Action, Request, Script, Step};
use super::memory::Memory;
use super::scope::{BLOCKING, Kind, LARGE, Scope, Wait};
use super::world::{NAMES, World};
use crate::lock::scripts::Sleep;
use crate::lock::{self, Ask, GiveUp, Now, Owner, Refusal, Terms, WaitMode};

/// Reads a step: an owner, on its second connection if a 1 follows; what it does; how.
fn step(text: &str) -> Step {
    let words: Vec<&str> = text.split_whitespace().collect();
    let has = |word| words.contains(&word);
    let number = |name: &str| {
        let found = words.iter().find_map(|word| word.strip_prefix(name));
        found.map(|number| number.parse::<i64>().expect("a number"))
    };
    let owner = usize::from(words[0].as_bytes()[0] - b'A');
    let slot = usize::from(words[0].ends_with('1'));
    let lease = number("lease=").unwrap_or(2).unsigned_abs();
    let ask = |wait| {
        Action::Acquire(Request {
            owner,
            slot,
            wait,
            limit: number("limit=").map_or(1, |limit| limit.try_into().expect("a limit")),
            lease,
            patience: 3,
            once: has("once"),
            keeps: false,
            session: has("session"),
        })
    };
    let action = match *words.get(1).unwrap_or(&words[0]) {
        "blocks" => ask(Wait::Block),
        "polls" => ask(Wait::Poll),
        "tries" => ask(Wait::Try),
        "releases" => Action::Release(owner, slot, None, false),
        "renews" => Action::Renew(owner, lease),
        "leaves" => Action::TimeOut(owner, slot),
        "closes" => Action::Close(owner, slot),
        "leaves_by_script" => Action::LeaveByScript(owner),
        "asks_by_script" => Action::LockByScript(Script {
            owner,
            lease,
            wait: (!has("full")).then_some((2, Sleep::Lease)),
            skew: number("skew=").unwrap_or(0),
            memory_is_full: has("full"),
        }),
        "is_far" => Action::SetScore(owner, 1 << 40),
        "silence" => Action::Silence(1),
        "late" => Action::Late,
        "delete" => Action::Delete,
        "restart" => Action::Restart,
        other => match (other.split_once('='), number("sleep="), number("clock=")) {
            (_, Some(time), _) => Action::Silence(time.unsigned_abs()),
            (_, _, Some(by)) => Action::SetClock(by),
            (Some(("expiry", at)), ..) => Action::SetExpiry(at.parse().expect("a time")),
            _ => panic!("{text}"),
        },
    };
    Step {
        action,
        undelivered: has("in_vain"),
    }
}

/// Why; then the worlds, the steps, and who holds the lock in the end, as often as it does.
const FOUND: &str = "
# A hand-off that nobody got takes no other hold with it.
small: A blocks; B blocks; A releases in_vain; B1 blocks; silence: B
small: A blocks; B blocks session; A releases in_vain; B1 blocks session; silence: B
# One that its owner has asked about since stands.
small: A blocks; B blocks; A releases in_vain; B1 blocks once; silence: B
# A waiter that leaves twice is counted once.
small: A blocks; B blocks; B leaves; B blocks; B leaves; silence: A
# A lease that ends before a command that changes nothing is acted on.
small: A blocks; silence; silence; B blocks; late; A releases; silence: B
# A head lives through the millisecond of its score.
small: A blocks; C asks_by_script; silence; silence; A releases; D asks_by_script; silence; C asks_by_script; silence;
  delete; C asks_by_script: C
# A clock that is set ahead does not expose the head.
small: A blocks; B polls; A releases; clock=4: -
# A waiter that asks for more is served as it asked before.
small: B blocks limit=2 lease=1; silence; C blocks limit=0 lease=1; A blocks limit=0 lease=1; late; A1 tries lease=1: AC
# A dead writer keeps no reader from joining others.
small: A blocks limit=0; C polls; silence; A renews; silence; A renews; silence; B tries limit=0: AB
small: A blocks limit=0; C polls; silence; B blocks limit=0; A renews; silence; A renews; late; C releases; silence: AB
small: A blocks limit=0; C blocks; C leaves; B tries limit=0: AB
# A row of readers is served at once, and none overtakes a writer.
small: C blocks; A blocks limit=0; B blocks limit=0; D blocks; C releases: AB
small: A blocks limit=0; C blocks; B blocks limit=0; A releases: C
# Two holders that rely on one connection both end with it.
large: A1 tries limit=0 session lease=1000; B1 tries limit=0 session lease=1000; C1 tries limit=0 session lease=1000;
  A1 releases; B1 closes; silence: -
# A session lives on although its lease was cut short; or another one's, which ends as early and is not short.
large: A tries limit=0 session lease=1000; B tries limit=0 lease=1000; expiry=10; silence; sleep=3000: A
large: A tries limit=0 session lease=10; B tries limit=0 session lease=100; expiry=10; silence; sleep=3000: AB
# It does although another lease ends as early when the clock is set ahead.
large: A tries limit=0; B tries limit=0 session; clock=2; silence; silence: B
# An owner that is back before the place of its closed connection is removed keeps it.
large: A tries; B blocks; C blocks; B leaves; B polls; silence; A releases; B tries: B
large: A tries; B blocks; C blocks; B leaves; B asks_by_script; silence; A releases; B tries: B
large: A tries limit=2; B blocks; C blocks; B leaves; B polls; silence; A releases; B tries: B
large: A tries limit=2; B blocks; C blocks; B leaves; B asks_by_script; silence; A releases; B tries: B
# A script is refused without memory if it would write, and only then.
large: A tries; B blocks; B leaves; delete; C asks_by_script full: -
large: A tries; B polls; restart; sleep=5; delete; silence; C asks_by_script full skew=2494: -
# A head whose turn begins in the step of a script has that turn, whatever time the script's client has.
large: A tries limit=0 lease=100; C asks_by_script; restart; sleep=50; delete; D asks_by_script skew=349: -
";

const SMALL: Scope = Scope {
    owners: &[Kind::EXCLUSIVE; 4],
    ..BLOCKING
};

#[track_caller]
fn after(mut world: World, steps: &str) -> World {
    for text in steps.split("; ") {
        match world.after(step(text)) {
            Ok((after, _)) => world = after,
            Err(broken) => panic!("{text}: {broken}"),
        }
    }
    world
}

#[test]
fn what_was_broken_once_stays_mended() {
    let joined = FOUND.replace("\n  ", " ");
    for row in joined.lines().filter(|row| row.contains(": ")) {
        println!("{row}");
        let parts: Vec<&str> = row.split(": ").collect();
        let scope = if parts[0] == "large" { LARGE } else { SMALL };
        let world = after(World::new(&scope), parts[1]);
        let holders = (0..4).map(|owner| (NAMES[owner], world.oracle.holds(owner)));
        let names = holders.flat_map(|(name, holds)| (0..holds).map(|_| char::from(name[0])));
        assert_eq!(names.collect::<String>(), parts[2].replace('-', ""));
    }
}

#[test]
fn a_score_that_another_client_has_set_far_off_is_set_right_and_a_blocked_waiters_not_too_often() {
    let world = World::new(&LARGE);
    let world = after(world, "A tries; B blocks; B is_far; silence");
    let ahead = world.state.queue[0].1.score.since(world.now.wall());
    assert_eq!(ahead, 1_002);
}

#[test]
fn a_server_that_may_be_cut_off_renews_no_lease() {
    let mut world = after(World::new(&LARGE), "A tries session lease=1000");
    let end = world.state.lease_end;
    world.state.is_cut_off = true;
    world = after(world, "sleep=600");
    assert_eq!(world.state.lease_end, end);
    world.state.is_cut_off = false;
    assert!(after(world, "sleep=600").state.lease_end > end);
}

#[test]
fn application_data_is_refused_and_left_as_it_is() {
    let refused = Some(Refusal::NotALock);
    for owner in [NAMES[0], NAMES[1]] {
        let mut state = Memory {
            holder: Some((Owner::from(NAMES[0]), 1)),
            is_alien: true,
            ..Memory::default()
        };
        let before = state.clone();
        let now = Now::from_millis(1_000);
        let mut step = lock::Step::new(&mut state, &BLOCKING.rules, now);
        let ask = Ask {
            owner,
            terms: Terms::UNKNOWN,
            keeps_longer_lease: false,
            patience: 1,
            once: false,
            wait: Some(WaitMode::Polling),
        };
        assert_eq!(step.ask(&ask).err(), refused);
        let request = GiveUp {
            owner,
            token: None,
            all: false,
            connection: None,
        };
        assert_eq!(step.release(&request).err(), refused);
        assert_eq!(step.renew(owner, 1).err(), refused);
        assert_eq!(step.break_lock(None, true).err(), refused);
        assert_eq!(step.force_unlock(now.wall()).err(), refused);
        assert_eq!(state, before);
    }
}
