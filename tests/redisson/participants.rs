//! The participants of a fleet: each asks for the lock again and again in ways of its own, gives up now and then, and
//! breaks its own connection.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fairlock_testing::redisson::Driver;
use fairlock_testing::{Blocked, Dice, Listener};

use crate::fleet::{Fleet, LEASE, wait_for_replacement};

/// Longest that a thread of a JVM waits, ms, where scripts can cost it its place. Until 3.31.0 one
/// that loses it waits for ever otherwise.
const PATIENT: u64 = 10_000;

/// A thread of a JVM.
pub fn redisson(fleet: &Fleet, jvm: usize, name: &str, mut dice: Dice) {
    let mut client = fleet.connect();
    while fleet.goes_on() {
        let driver = Arc::clone(&fleet.jvms[jvm].read().expect("no panic elsewhere"));
        let owner = driver.run(name, "owner k");
        let operation = match dice.below(3) {
            0 if fleet.protected => "lock k".to_owned(),
            0 => format!("tryLock k {PATIENT} -1"),
            1 if fleet.protected => format!("lock k {LEASE}"),
            1 => format!("tryLock k {PATIENT} {LEASE}"),
            _ => format!("tryLock k {} {LEASE}", 1 + dice.below(300)),
        };
        let answer = driver.run(name, &operation);
        match answer.as_str() {
            "true" => {
                fleet.inside(&owner, &mut client, &mut dice);
                let unlocked = driver.run(name, "unlock k");
                if unlocked.starts_with("failed") {
                    recover(&driver, name);
                }
            }
            "false" => fleet.excuse(&owner),
            "gone" => {
                fleet.excuse(&owner);
                wait_for_replacement(fleet, jvm, &driver);
            }
            _ => {
                fleet.excuse(&owner);
                recover(&driver, name);
            }
        }
    }
}

/// After a failure it is unknown whether the request was carried out: drops every hold.
fn recover(driver: &Driver, name: &str) {
    while driver
        .run(name, "holdCount k")
        .parse()
        .is_ok_and(|count: i64| count > 0)
    {
        driver.run(name, "unlock k");
    }
}

/// A client that blocks in the server.
pub fn blocking(fleet: &Fleet, number: usize, mut dice: Dice) {
    let mut other = fleet.connect();
    let owner = format!("blocking-{number}");
    while fleet.goes_on() {
        let session = dice.one_in(2);
        let kind = if session { " SESSION" } else { "" };
        let wait = match dice.below(300) {
            0..200 => String::new(),
            wait => format!(" WAIT {}", wait - 199),
        };
        let words = format!("FAIRLOCK.ACQUIRE k {owner} LEASE {LEASE}{kind}{wait}");
        let blocked = Blocked::send_on(fleet.connect(), &words);
        if dice.one_in(6) {
            die(fleet, &owner, blocked, &mut dice);
        } else {
            let id = blocked.id;
            let (reply, _connection) = blocked.reply_and_client();
            if reply == "(nil)" {
                fleet.excuse(&owner);
                continue;
            }
            if reply.parse::<i64>().is_err() {
                fleet.complain(format!("{words}: {reply}"));
                continue;
            }
            fleet.inside(&owner, &mut other, &mut dice);
            if session && dice.one_in(2) {
                other.run(&format!("CLIENT KILL ID {id}"));
                continue;
            }
            let left = other.run(&format!("FAIRLOCK.RELEASE k {owner}"));
            if left != "0" {
                fleet.complain(format!("{owner} released: {left}"));
            }
        }
    }
}

/// Its connection breaks at some time, perhaps just when the lock is handed to it.
fn die(fleet: &Fleet, owner: &str, blocked: Blocked, dice: &mut Dice) {
    let mut other = fleet.connect();
    thread::sleep(Duration::from_millis(dice.below(60)));
    fleet.excuse(owner);
    other.run(&format!("CLIENT KILL ID {}", blocked.id));
    // Whether it held the lock by then or not, it does not now.
    drop(blocked.reply());
    other.run(&format!("FAIRLOCK.RELEASE k {owner} ALL"));
}

/// A client that stands in the queue without blocking, and comes when it is woken.
pub fn polling(fleet: &Fleet, number: usize, mut dice: Dice) {
    let mut client = fleet.connect();
    for life in 0.. {
        let owner = format!("polling-{number}-{life}");
        let channel = format!("redisson_lock__channel:{{k}}:{owner}");
        let listener = Listener::new(fleet.server.port, &channel);
        let ask = format!("FAIRLOCK.ACQUIRE k {owner} LEASE {LEASE} ENQUEUE PATIENCE 8000");
        loop {
            if !fleet.goes_on() {
                fleet.excuse(&owner);
                return;
            }
            let reply = client.run(&ask);
            let Some(place) = reply.strip_prefix('[') else {
                fleet.inside(&owner, &mut client, &mut dice);
                client.run(&format!("FAIRLOCK.RELEASE k {owner}"));
                continue;
            };
            if dice.one_in(60) {
                // From here on it is dead, and the server does not know.
                fleet.excuse(&owner);
                break;
            }
            if dice.one_in(15) {
                if client.run(&format!("FAIRLOCK.CANCEL k {owner}")) == "1" {
                    fleet.excuse(&owner);
                }
                continue;
            }
            let retry = place.trim_end_matches(']').split(", ").nth(1);
            let retry = retry.and_then(|ms| ms.parse().ok()).expect("milliseconds");
            wait_for_message(&listener, Duration::from_millis(retry));
        }
    }
}

fn wait_for_message(listener: &Listener, retry: Duration) {
    let asked = Instant::now();
    while listener.is_quiet() && asked.elapsed() < retry {
        thread::sleep(Duration::from_millis(1));
    }
    while !listener.is_quiet() {
        listener.message();
    }
}
