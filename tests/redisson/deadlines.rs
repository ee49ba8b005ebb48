//! What users have reported over the years: waiters that are alive and lose their places, because of the arithmetic on
//! all deadlines, the clients' clocks, or keys that expire.
//!
//! Where the scripts run as Lua, as on a plain server, a Redisson client is lost. A waiter of the server's own keeps
//! its place all the same; a Redisson client does where the scripts run natively.

use fairlock_testing::redisson::{Answer, Driver, NEWEST, Options};
use fairlock_testing::{Blocked, Client, MovableClock, Server, wait_until};
use tempfile::TempDir;

use crate::conformance::{queue, wait_for_queue};
use crate::interception::Interception;
use crate::scenarios::{QUEUE, SETTINGS, TURN, comes_about};

/// Far more than a waiter's patience.
const TEN_MINUTES: i64 = 600;
/// Takes the lock for a minute, which is part of the waiters' deadlines.
const MINUTE: &str = "lock k 60000";

/// The client that may lose its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Redisson,
    Blocked,
}

/// A waiter while it waits.
#[allow(dead_code, reason = "held for as long as it waits")]
enum Waiting {
    Redisson(Answer),
    Blocked(Blocked),
}

impl Victim {
    /// Joins the queue of `k`.
    fn join(self, server: &Server, driver: &Driver) -> Waiting {
        let mut client = server.connect();
        match self {
            Self::Redisson => Waiting::Redisson(queue(&mut client, driver, "victim", "lock k")),
            Self::Blocked => {
                let before = client.int("LLEN redisson_lock_queue:{k}");
                let blocked = Blocked::send(server.port, "FAIRLOCK.ACQUIRE k blocked");
                wait_for_queue(&mut client, "k", before + 1);
                Waiting::Blocked(blocked)
            }
        }
    }

    /// Plays a scenario with each client that it can affect. `scenario` is told whether the victim is expected to lose
    /// its place, and tells whether it has.
    fn each(scenario: impl Fn(Interception, Self, bool) -> bool) {
        Interception::each(|side| {
            let play = |victim, is_lost| {
                let lost = scenario(side, victim, is_lost);
                assert_eq!(lost, is_lost, "{victim:?}");
            };
            // Run as Lua, scripts drop clients of Redisson itself after subtracting from each other's scores.
            play(Self::Redisson, !side.is_on());
            play(Self::Blocked, false);
        });
    }
}

/// The head of the queue.
fn head(client: &mut Client) -> String {
    client.run("LINDEX redisson_lock_queue:{k} 0")
}

#[test]
#[ignore = "takes minutes: make test-all"]
fn a_waiter_outlives_its_patience() {
    Victim::each(|side, victim, is_lost| {
        let server = side.server_with_turn(TURN);
        let settings = [SETTINGS[0], "fairLockWaitTimeout=500"];
        let [a, b] = Driver::several([NEWEST; 2], &server, &settings);
        let mut client = server.connect();
        assert_eq!(a.run("1", "lock k"), "true");
        let _waiting = victim.join(&server, &b);
        let first = head(&mut client);
        let _next = queue(&mut client, &b, "2", "lock k");
        // They ask again whenever the lease that they know of would be over, and drop each other.
        comes_about(is_lost, || head(&mut client) != first)
    });
}

#[test]
#[ignore = "takes minutes: make test-all"]
fn a_waiter_ahead_that_gives_up_asynchronously_costs_no_place() {
    Victim::each(|side, victim, is_lost| {
        let server = side.server_with_turn(TURN);
        let [a, b] = Driver::several([NEWEST; 2], &server, SETTINGS);
        let mut client = server.connect();
        assert_eq!(a.run("1", "lock k"), "true");
        // It adds four seconds to the deadlines of all behind it, and takes five minutes back.
        let ahead = queue(&mut client, &a, "2", "tryLockAsync k 4000 1000");
        let _waiting = victim.join(&server, &b);
        assert_eq!(ahead.get(), "false");
        wait_for_queue(&mut client, "k", 1);
        let first = head(&mut client);
        let _next = queue(&mut client, &b, "2", "lock k");
        comes_about(is_lost, || head(&mut client) != first)
    });
}

#[test]
#[ignore = "takes minutes: make test-all"]
fn a_client_whose_clock_is_ahead_costs_no_place() {
    Victim::each(|side, victim, _| {
        let server = side.server_with_turn(TURN);
        let [a] = Driver::several([NEWEST], &server, SETTINGS);
        let fast = with_clock(&server, TEN_MINUTES);
        let mut client = server.connect();
        assert_eq!(a.run("1", MINUTE), "true");
        let _waiting = victim.join(&server, &a);
        let first = head(&mut client);
        // By the clock that is ahead, the victim's six minutes are over, and the eleven of the next
        // one are not: a victim that is dropped and comes back stays behind it.
        let _next = queue(&mut client, &a, "2", "lock k");
        assert_eq!(fast.driver.run("1", "tryLock k"), "false");
        head(&mut client) != first
    });
}

#[test]
#[ignore = "takes minutes: make test-all"]
fn a_client_whose_clock_is_behind_costs_no_place() {
    Victim::each(|side, victim, _| {
        let server = side.server_with_turn(TURN);
        let [a] = Driver::several([NEWEST], &server, SETTINGS);
        let slow = with_clock(&server, -TEN_MINUTES);
        let mut client = server.connect();
        assert_eq!(a.run("1", MINUTE), "true");
        // By its own clock it has six minutes, by the others' it is over.
        let _waiting = victim.join(&server, &slow.driver);
        let first = head(&mut client);
        // The next one drops it before it joins, and is ahead of it when it comes back.
        let next = a.run("2", "owner k");
        let _next = a.send("2", "lock k");
        wait_until("the next one has joined", || {
            client.run(QUEUE).contains(&next)
        });
        head(&mut client) != first
    });
}

/// A client with a clock of its own, and the folder with that clock.
struct OutOfTime {
    driver: Driver,
    _folder: TempDir,
}

fn with_clock(server: &Server, seconds: i64) -> OutOfTime {
    let folder = TempDir::new().expect("a temporary directory");
    let clock = MovableClock::new(folder.path());
    clock.set(seconds);
    let starting = Driver::spawn(&Options {
        release: NEWEST,
        mode: "single",
        ports: &[server.port],
        settings: SETTINGS,
        clock: Some(&clock),
    });
    OutOfTime {
        driver: starting.ready(),
        _folder: folder,
    }
}

#[test]
#[ignore = "takes minutes: make test-all"]
fn an_expiry_set_on_the_lock_costs_no_place() {
    Victim::each(|side, victim, _| {
        let server = side.server_with_turn(TURN);
        let [a, b] = Driver::several([NEWEST; 2], &server, &[]);
        let mut client = server.connect();
        assert_eq!(a.run("1", "lock k 60000"), "true");
        let _waiting = victim.join(&server, &b);
        let first = head(&mut client);
        // It is set on the queue and the deadlines as well; a multi-lock with a lease does it too.
        // The lock's own is longer again before it has passed.
        assert_eq!(a.run("1", "expire k 6000"), "true");
        assert_eq!(a.run("1", "lock k 60000"), "true");
        wait_until("the expiry has passed", || {
            client.int("PTTL redisson_lock_queue:{k}") < 0
        });
        head(&mut client) != first
    });
}
