//! What Redisson's fair lock promises, on a server with the module: each release, two JVMs.

use std::thread;
use std::time::Duration;

use fairlock_testing::redisson::{Answer, Driver, each_release};
use fairlock_testing::{Client, lua, wait_until};

use crate::interception::Interception;

/// The waiters of `k`, in order.
pub const QUEUE: &str = "LRANGE redisson_lock_queue:{k} 0 -1";

/// Does something with two clients of each release, without interception and with it.
fn each_pair(settings: &[&str], test: impl Fn(&mut Client, &[Driver; 2])) {
    Interception::each(|interception| {
        each_release(|release| {
            let server = interception.server(&[]);
            let pair = Driver::several([release; 2], &server, settings);
            let mut client = server.connect();
            test(&mut client, &pair);
            nothing_is_left(&mut client);
        });
    });
}

/// How many wait for a lock.
fn waiting(client: &mut Client, lock: &str) -> i64 {
    let [_, queue, ..] = lua::keys(lock);
    client.int(&format!("LLEN {queue}"))
}

/// Waits until a lock has this many waiters.
#[track_caller]
pub fn wait_for_queue(client: &mut Client, lock: &str, length: i64) {
    wait_until(&format!("{length} in the queue of {lock}"), || {
        waiting(client, lock) == length
    });
}

/// Waits until the lease of `k` goes up, as it never does by itself.
fn wait_for_renewal(client: &mut Client) {
    let mut least = client.int("PTTL k");
    wait_until("the lease is renewed", || {
        let left = client.int("PTTL k");
        let renewed = left > least;
        least = least.min(left);
        renewed
    });
}

/// Has a thread ask for a lock, and waits until it stands in the queue.
#[track_caller]
pub fn queue(client: &mut Client, driver: &Driver, thread: &str, operation: &str) -> Answer {
    let lock = operation.split(' ').nth(1).expect("a lock");
    let before = waiting(client, lock);
    let answer = driver.send(thread, operation);
    wait_for_queue(client, lock, before + 1);
    answer
}

/// Nothing is left in the keyspace but what expires by itself: the latches by which an unlock that is
/// sent twice is known.
#[track_caller]
pub fn nothing_is_left(client: &mut Client) {
    wait_until("nothing is left", || {
        let mut keys = client.list("KEYS *").into_iter();
        keys.all(|key| key.starts_with("redisson_unlock_latch:"))
    });
}

#[test]
fn a_lock_without_a_lease_lasts_as_long_as_its_client() {
    // A client renews after a third of it, if the machine lets it.
    each_pair(&["lockWatchdogTimeout=6000"], |client, [a, b]| {
        assert_eq!(a.run("1", "lock k"), "true");
        let holder = client.holders("k");
        let waiter = queue(client, b, "1", "lock k");
        // More than once.
        for _ in 0..2 {
            wait_for_renewal(client);
        }
        assert_eq!(client.holders("k"), holder);
        a.kill();
        wait_until("the lease is over", || client.holders("k") != holder);
        // Where scripts run as Lua, no message is published then.
        let head = client.run("LINDEX redisson_lock_queue:{k} 0");
        client.run(&format!("PUBLISH redisson_lock__channel:{{k}}:{head} 0"));
        assert_eq!(waiter.get(), "true");
        assert_eq!(b.run("1", "unlock k"), "done");
    });
}

#[test]
fn a_wait_that_is_given_up_leaves_nothing_behind() {
    each_pair(&[], |client, [a, b]| {
        assert_eq!(a.run("1", "lock k"), "true");
        for operation in [
            "tryLock k 1000 1000",
            "tryLock k 0 1000",
            "tryLockAsync k 1000 1000",
        ] {
            // On a busy machine an asynchronous one may fail, as it could not subscribe in time; and it says no before
            // it has left.
            wait_until(operation, || b.run("1", operation) == "false");
            wait_until(operation, || client.run(QUEUE) == "[]");
        }
        client.assert_reply("EXISTS redisson_lock_timeout:{k}", "0");
        assert_eq!(a.run("1", "unlock k"), "done");
        assert_eq!(b.run("2", "tryLock k"), "true");
        assert_eq!(b.run("2", "unlock k"), "done");
    });
}

/// Natively they cost one turn. As Lua each of them costs five minutes; before 3.13.3, five seconds.
#[test]
fn dead_waiters_do_not_hold_up_the_living() {
    each_release(|release| {
        Interception::each(|interception| {
            // Long enough for a living client on a busy machine.
            let server = interception.server_with_turn(Duration::from_secs(2));
            let [a, b, dead] = Driver::several([release; 3], &server, &[]);
            let mut client = server.connect();
            assert_eq!(a.run("1", "lock k"), "true");
            for thread in ["1", "2", "3", "4", "5"] {
                queue(&mut client, &dead, thread, "lock k");
            }
            let waiter = queue(&mut client, &b, "1", "lock k");
            dead.kill();
            assert_eq!(a.run("1", "unlock k"), "done");
            if interception.is_on() {
                assert_eq!(waiter.get(), "true");
                assert_eq!(b.run("1", "unlock k"), "done");
                nothing_is_left(&mut client);
            } else {
                thread::sleep(Duration::from_secs(9));
                assert_eq!(waiter.poll(), None);
            }
        });
    });
}
