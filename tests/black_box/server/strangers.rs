//! Strangers send many commands that the server refuses. With 20,000 locks in use each of them costs the server little,
//! nothing of it stays, and other clients' commands cost what they did before. `FLOOD=100000` sends more.

use std::env;

use fairlock_testing::{Client, Server, Wire};

/// How many locks have a holder and a waiter.
const LOCKS: usize = 20_000;
/// The most that one command of a stranger may cost the server, in milliseconds of CPU; most take a twentieth of that.
const MOST: f64 = 0.1;
/// The same of a command of others, meanwhile.
const MOST_OF_OTHERS: f64 = 0.06;
/// Refused, and not looked at by the filter. On a busy machine others may cost twenty times as much as this.
const UNSEEN: &str = "GET l{n}";

/// What the command filter looks at, or has looked at. `{n}` is a number that grows.
const KINDS: [&str; 14] = [
    "EVALSHA 8f6ed299ffd259f0539c20f89253998c0777ea75 3 l{n} redisson_lock_queue:{l{n}} \
     redisson_lock_timeout:{l{n}} 30000 x 300000 1",
    "EVAL TEXT 3 l{n} redisson_lock_queue:{l{n}} redisson_lock_timeout:{l{n}} 30000 x 300000 1",
    "FAIRLOCK.EVALSHA 8e19a1ddbdee9138df9f32a480c57addab4353d1 1 l{n} 1 o",
    "FAIRLOCK.ACQUIRE l{n} x SESSION",
    "FAIRLOCK.CANCEL l{n} w",
    "ACL SETUSER u{n} on nopass ~* &* +@all",
    "COPY l{n} other DB 1 REPLACE",
    "MOVE l{n} 1",
    "DEL l{n} redisson_lock_queue:{l{n}}",
    "HDEL l{n} o",
    "HPEXPIRE l{n} 0 FIELDS 1 o",
    "MODULE UNLOAD fairlock",
    "SWAPDB 0 1",
    "EXEC",
];

/// Replies are read after so many commands: newer servers close a connection without AUTH that lets them add up.
const PART: usize = 4;

fn flood() -> usize {
    let asked = env::var("FLOOD").ok();
    asked.map_or(4_000, |number| number.parse().expect("a number"))
}

/// A field of INFO, by a client that is known already.
fn info(client: &mut Client, field: &str) -> f64 {
    let info = client.run("INFO everything");
    let value = info
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value
        .and_then(|value| value.parse().ok())
        .expect("a number")
}

/// Milliseconds of CPU that the server has used.
fn used(client: &mut Client) -> f64 {
    (info(client, "used_cpu_user") + info(client, "used_cpu_sys")) * 1000.0
}

/// Sends calls of one kind, and returns the replies that are no errors.
fn send(stranger: &mut Wire, kind: &str) -> Vec<String> {
    let mut taken = Vec::new();
    for first in (0..flood()).step_by(PART) {
        let calls = (first..first + PART).map(|n| kind.replace("{n}", &(n % LOCKS).to_string()));
        stranger.send(&calls.collect::<Vec<_>>().join("\n"));
        let replies = (0..PART).map(|_| stranger.line());
        taken.extend(replies.filter(|reply| !reply.starts_with('-')));
    }
    taken
}

/// What others run meanwhile: one that has nothing to do with locks, and one that has.
const OF_OTHERS: [&str; 5] = [
    "MULTI",
    "PING",
    "EXEC",
    "FAIRLOCK.ACQUIRE own o",
    "FAIRLOCK.RELEASE own o",
];

/// What one of these costs the server.
fn of_others(client: &mut Client) -> f64 {
    let before = used(client);
    client.run_many(OF_OTHERS.repeat(100));
    (used(client) - before) / 500.0
}

#[test]
fn what_a_stranger_sends_costs_little_and_changes_nothing() {
    // I/O threads use time also while there is nothing to do.
    let (server, mut admin) =
        Server::connected_with(&["--fairlock.intercept-eval", "yes", "--io-threads", "1"]);
    for part in 0..LOCKS / 1000 {
        let locks = part * 1000..(part + 1) * 1000;
        admin.run_many(locks.flat_map(|n| {
            let (hold, wait) = ("o LEASE 6000000", "w ENQUEUE PATIENCE 6000000");
            [hold, wait].map(|call| format!("FAIRLOCK.ACQUIRE l{n} {call}"))
        }));
    }
    admin.run("ACL SETUSER stranger on nopass ~zz:* +hdel +multi +exec +eval +evalsha");
    admin.run("CONFIG SET requirepass secret");
    let mut with_no_right = server.wire("AUTH stranger x");
    assert_eq!(with_no_right.line(), "+OK");
    let without_auth = Wire::new(server.port);
    let keys = admin.run("DBSIZE");
    let number = f64::from(u32::try_from(flood()).expect("not too many"));
    for (mut stranger, who) in [
        (with_no_right, "with no right"),
        (without_auth, "without AUTH"),
    ] {
        for kind in KINDS.map(|kind| kind.replace("TEXT", &"x".repeat(1541))) {
            let what = format!("{kind:.16} {who}");
            let usual = of_others(&mut admin);
            let [unseen, each] = [UNSEEN, kind.as_str()].map(|kind| {
                let before = used(&mut admin);
                assert_eq!(send(&mut stranger, kind), [""; 0], "{what}");
                (used(&mut admin) - before) / number
            });
            let of_others = of_others(&mut admin);
            println!(
                "{what}: {each:.4} ms ({unseen:.4} unseen), others {of_others:.4} ms ({usual:.4} before)"
            );
            assert!(each < MOST.max(unseen * 20.0), "{what}: {each} ms");
            assert!(
                of_others < MOST_OF_OTHERS.max(usual * 10.0),
                "others, after {what}: {of_others} ms"
            );
            assert_eq!(admin.run("DBSIZE"), keys, "{what}");
        }
    }
    let tracked = info(&mut admin, "fairlock_locks_with_waiters_or_session");
    assert!((tracked - 20_000.0).abs() < 0.5, "{tracked}");
}
