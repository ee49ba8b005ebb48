//! What users have reported over the years, with real clients: a server that leaves the scripts to Lua shows the
//! defect, as a plain one does, and one that runs them natively does not.
//! `docs/redisson-issues.md` has the issues' numbers.
//!
//! Here are waiters that died, and waiters that are not told.

use std::thread;
use std::time::{Duration, Instant};

use fairlock_testing::redisson::{Answer, Driver, NEWEST, OLD, each_release};
use fairlock_testing::{Client, Server, give_up, wait_until};

use crate::conformance::{nothing_is_left, queue, wait_for_queue};
use crate::hand::now;
use crate::interception::Interception;
use crate::topologies::commands;

/// The waiters of `k`, in order.
pub const QUEUE: &str = "LRANGE redisson_lock_queue:{k} 0 -1";
/// Leases are renewed as long as their clients live, and end soon after. A client renews after a
/// third of it, if a busy machine lets it.
pub const SETTINGS: &[&str] = &["lockWatchdogTimeout=6000"];
/// How long we watch that nothing happens. It would not for minutes.
const WATCHED: Duration = Duration::from_secs(9);

/// Long enough for a living client on a busy machine.
pub const TURN: Duration = Duration::from_secs(2);

/// Whether a waiter gets the lock; where it is not expected, only while we watch.
fn gets_the_lock(expected: bool, waiter: &Answer) -> bool {
    let mut answer = None;
    comes_about(expected, || {
        answer = waiter.poll();
        answer.is_some()
    });
    answer.is_some_and(|answer| answer == "true")
}

/// Whether something comes about; where it is not expected, only while we watch.
pub fn comes_about(expected: bool, mut condition: impl FnMut() -> bool) -> bool {
    let limit = if expected { give_up() } else { WATCHED };
    let start = Instant::now();
    while start.elapsed() < limit {
        if condition() {
            return true;
        }
        thread::sleep(Duration::from_millis(1));
    }
    false
}

/// `k` is held by a thread of `a`; five threads of a client that is dead by now wait for it, and
/// behind them one of `b`.
fn behind_dead_waiters(side: Interception, release: &str) -> (Server, [Driver; 2], Answer) {
    let server = side.server_with_turn(TURN);
    let [a, b, dead] = Driver::several([release; 3], &server, SETTINGS);
    let mut client = server.connect();
    assert_eq!(a.run("1", "lock k"), "true");
    for thread in ["1", "2", "3", "4", "5"] {
        queue(&mut client, &dead, thread, "lock k");
    }
    let waiter = queue(&mut client, &b, "1", "lock k");
    dead.kill();
    (server, [a, b], waiter)
}

#[test]
fn dead_waiters_do_not_hold_up_the_living() {
    each_release(|release| {
        Interception::each(|side| {
            let (server, [a, b], waiter) = behind_dead_waiters(side, release);
            assert_eq!(a.run("1", "unlock k"), "done");
            // Before 3.13.3 each of them costs five seconds, since then five minutes.
            assert_eq!(gets_the_lock(side.is_on(), &waiter), side.is_on());
            if side.is_on() {
                assert_eq!(b.run("1", "unlock k"), "done");
                nothing_is_left(&mut server.connect());
            }
        });
    });
}

/// From 3.32.0 on, Lua tells it to come back in 0 ms.
#[test]
fn a_waiter_behind_a_dead_head_does_not_spin_for_long() {
    Interception::each(|side| {
        let (server, [a, _b], waiter) = behind_dead_waiters(side, NEWEST);
        let mut client = server.connect();
        let before = scripts(&mut client);
        assert_eq!(a.run("1", "unlock k"), "done");
        if side.is_on() {
            assert_eq!(waiter.get(), "true");
            let asked = scripts(&mut client) - before;
            assert!(asked < 20, "{asked} scripts");
        } else {
            // That it asks without a pause is the client's doing; for how long, the server's.
            wait_until("it spins", || scripts(&mut client) > before + 100);
        }
    });
}

/// Scripts that clients of the newest release have had run, by Lua or natively.
fn scripts(client: &mut Client) -> u64 {
    commands(client, "evalsha") + commands(client, "fairlock.evalsha")
}

#[test]
fn an_entry_that_an_interrupted_wait_leaves_behind_is_not_waited_for() {
    each_release(|release| {
        Interception::each(|side| {
            let server = side.server_with_turn(TURN);
            let [a, b] = Driver::several([release; 2], &server, SETTINGS);
            let mut client = server.connect();
            assert_eq!(a.run("1", "lock k"), "true");
            let waiter = queue(&mut client, &b, "1", "tryLock k 600000 1000");
            let entry = client.run("LINDEX redisson_lock_queue:{k} 0");
            let score = client.int(&format!("ZSCORE redisson_lock_timeout:{{k}} {entry}"));
            assert_eq!(b.run("1", "interrupt k"), "done");
            let failed = waiter.get();
            assert!(failed.starts_with("failed"), "{failed}");
            assert_eq!(a.run("1", "unlock k"), "done");
            let taken = comes_about(side.is_on(), || b.run("2", "tryLock k") == "true");
            // The patience of old releases is 5 s: on a busy machine it ends while we watch.
            let has_expired = !side.is_on() && now() >= score.unsigned_abs();
            assert!(taken == side.is_on() || has_expired);
        });
    });
}

#[test]
fn the_end_of_a_lease_is_noticed_though_waiters_have_left() {
    Interception::each(|side| {
        let server = side.server_with_turn(TURN);
        // From 3.32.0 on waiters ask again when the lease ends.
        let [a, b] = Driver::several([OLD; 2], &server, &[]);
        let mut client = server.connect();
        assert_eq!(a.run("1", "lock k 10000"), "true");
        let first = queue(&mut client, &a, "2", "tryLock k 8000 60000");
        let second = queue(&mut client, &b, "1", "lock k");
        assert_eq!(first.get(), "false");
        let holds_first = format!("HEXISTS k {}", a.run("1", "owner k"));
        wait_until("the lease is over", || client.run(&holds_first) == "0");
        let over = Instant::now();
        assert_eq!(second.get(), "true");
        // It sleeps for as long as the one that left could have held the lock, five seconds.
        let slept = over.elapsed() >= Duration::from_millis(2500);
        assert_eq!(slept, !side.is_on(), "{:?}", over.elapsed());
    });
}

#[test]
fn a_lock_that_is_deleted_by_hand_goes_to_the_next() {
    Interception::each(|side| {
        let server = side.server_with_turn(TURN);
        let [a, b] = Driver::several([NEWEST; 2], &server, &[]);
        let mut client = server.connect();
        assert_eq!(a.run("1", "lock k 60000"), "true");
        let waiter = queue(&mut client, &b, "1", "lock k");
        // One to lock, one to join, one before it sleeps; and one for a script that is not there
        // yet, if it has to be.
        let missing = u64::from(commands(&mut client, "fairlock.evalsha") == 0);
        wait_until("it sleeps", || scripts(&mut client) >= 3 + missing);
        client.run("DEL k");
        assert_eq!(gets_the_lock(side.is_on(), &waiter), side.is_on());
    });
}

#[test]
fn a_head_without_a_deadline_holds_up_no_waiter() {
    Interception::each(|side| {
        let (server, [a, _b], waiter) = behind_dead_waiters(side, NEWEST);
        let mut client = server.connect();
        let head = client.run("LINDEX redisson_lock_queue:{k} 0");
        client.run(&format!("ZREM redisson_lock_timeout:{{k}} {head}"));
        assert_eq!(a.run("1", "unlock k"), "done");
        assert_eq!(gets_the_lock(side.is_on(), &waiter), side.is_on());
    });
}

#[test]
fn waiters_whose_deadlines_are_lost_wait_once() {
    Interception::each(|side| {
        let server = side.server_with_turn(TURN);
        let [a, b] = Driver::several([NEWEST; 2], &server, SETTINGS);
        let mut client = server.connect();
        assert_eq!(a.run("1", "lock k"), "true");
        let first = queue(&mut client, &b, "1", "lock k");
        let second = queue(&mut client, &b, "2", "lock k");
        client.run("DEL redisson_lock_timeout:{k}");
        // They ask again when the lease that they were told of would be over, and join once more.
        let twice = comes_about(!side.is_on(), || {
            client.run(QUEUE).matches(':').count() == 4
        });
        assert_eq!(twice, !side.is_on());
        if side.is_on() {
            assert_eq!(a.run("1", "unlock k"), "done");
            assert_eq!(first.get(), "true");
            assert_eq!(second.poll(), None);
            assert_eq!(b.run("1", "unlock k"), "done");
            assert_eq!(second.get(), "true");
            assert_eq!(b.run("2", "unlock k"), "done");
            nothing_is_left(&mut client);
        }
    });
}

#[test]
fn a_waiter_without_a_deadline_makes_no_script_fail() {
    each_release(|release| {
        // Later ones look before they compare, and stumble at the end of the queue until 3.45.0.
        let fails = match release {
            "3.11.0" | "3.11.1" | "3.16.8" | "3.24.1" => "tryLock k",
            "3.31.0" | "3.32.0" | "3.37.0" => "tryLock k 100 1000",
            _ => return,
        };
        Interception::each(|side| {
            let server = side.server_with_turn(TURN);
            let [a, b] = Driver::several([release; 2], &server, SETTINGS);
            let mut client = server.connect();
            assert_eq!(a.run("1", "lock k"), "true");
            let _waiter = queue(&mut client, &b, "1", "lock k 60000");
            wait_for_queue(&mut client, "k", 1);
            client.run("DEL redisson_lock_timeout:{k}");
            let answer = a.run("2", fails);
            let failed = answer.contains("nil");
            assert_eq!(failed, !side.is_on(), "{release}: {answer}");
        });
    });
}
