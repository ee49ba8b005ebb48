//! What users have reported over the years, with real clients: a server that leaves the scripts to Lua shows the
//! defect, as a plain one does, and one that runs them natively does not.
//! `docs/redisson-issues.md` has the issues' numbers.
//!
//! Here are waiters that died, and waiters that are not told; [`crate::places`] has what is shown without a JVM.

use std::thread;
use std::time::{Duration, Instant};

use fairlock_testing::redisson::{Answer, Driver, NEWEST, OLD, each_release};
use fairlock_testing::{Client, give_up, wait_until};

use crate::conformance::{nothing_is_left, queue};
use crate::interception::Interception;
use crate::topologies::commands;

/// The waiters of `k`, in order.
pub const QUEUE: &str = "LRANGE redisson_lock_queue:{k} 0 -1";
/// Leases are renewed as long as their clients live, and end soon after. A client renews after a
/// third of it, if a busy machine lets it.
const SETTINGS: &[&str] = &["lockWatchdogTimeout=6000"];
/// How long we watch that nothing happens. It would not for minutes.
const WATCHED: Duration = Duration::from_secs(9);

/// Long enough for a living client on a busy machine.
const TURN: Duration = Duration::from_secs(2);

/// Whether a waiter gets the lock; where it is not expected, only while we watch.
fn gets_the_lock(expected: bool, waiter: &Answer) -> bool {
    let limit = if expected { give_up() } else { WATCHED };
    let start = Instant::now();
    while start.elapsed() < limit {
        if let Some(answer) = waiter.poll() {
            return answer == "true";
        }
        thread::sleep(Duration::from_millis(1));
    }
    false
}

#[test]
fn dead_waiters_do_not_hold_up_the_living() {
    each_release(|release| {
        Interception::each(|side| {
            let server = side.server_with_turn(TURN);
            let [a, b, dead] = Driver::several([release; 3], &server, SETTINGS);
            let mut client = server.connect();
            assert_eq!(a.run("1", "lock k"), "true");
            for thread in ["1", "2", "3", "4", "5"] {
                queue(&mut client, &dead, thread, "lock k");
            }
            let waiter = queue(&mut client, &b, "1", "lock k");
            dead.kill();
            assert_eq!(a.run("1", "unlock k"), "done");
            // Before 3.13.3 each of them costs five seconds, since then five minutes.
            assert_eq!(gets_the_lock(side.is_on(), &waiter), side.is_on());
            if side.is_on() {
                assert_eq!(b.run("1", "unlock k"), "done");
                nothing_is_left(&mut client);
            }
        });
    });
}

/// Scripts that clients of the newest release have had run, by Lua or natively.
fn scripts(client: &mut Client) -> u64 {
    commands(client, "evalsha") + commands(client, "fairlock.evalsha")
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
