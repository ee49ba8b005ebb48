//! Many waiters on one lock: each step costs no walk of the queue.
//!
//! No time limits here; a step that walked the queue would show as minutes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::UNIX_EPOCH;

use crate::scene::left;
use fairlock_testing::{Client, Server, Wire, wait_until};

/// Bare connections, each blocked on the lock.
fn block_crowd(server: &Server, size: usize) -> Vec<TcpStream> {
    let crowd: Vec<TcpStream> = (0..size)
        .map(|n| {
            let mut socket = TcpStream::connect(("127.0.0.1", server.port)).expect("a connection");
            write!(socket, "FAIRLOCK.ACQUIRE k w{n} LEASE 600000\r\n").expect("sent");
            socket
        })
        .collect();
    wait_until("all are blocked", || server.blocked() == size);
    crowd
}

/// The sockets of all tests here together.
fn raise_file_limit() {
    let limit = rlimit::increase_nofile_limit(16_000).expect("the limit of open files");
    assert!(
        limit >= 16_000,
        "the hard limit of open files is {limit}, see ulimit -n -H"
    );
}

#[test]
fn ten_thousand_waiters_join_leave_and_are_served_in_order() {
    raise_file_limit();
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let mut crowd = block_crowd(&server, 10_000);
    assert_eq!(client.int("LLEN redisson_lock_queue:{k}"), 10_000);

    // From the middle, the head and the tail.
    let middle = client.run("LINDEX redisson_lock_queue:{k} 5000");
    client.assert_start("FAIRLOCK.QUEUE k LIMIT 5000 1", &format!("[[{middle}, "));
    client.assert_reply(&format!("FAIRLOCK.CANCEL k {middle}"), "1");
    assert_eq!(client.int("ZCARD redisson_lock_timeout:{k}"), 9_999);
    assert_ne!(client.run("LINDEX redisson_lock_queue:{k} 5000"), middle);

    // Served from the head, a thousand times.
    let mut holder = "a".to_owned();
    for _ in 0..1_000 {
        let next = client.run("LINDEX redisson_lock_queue:{k} 0");
        client.assert_reply(&format!("FAIRLOCK.RELEASE k {holder}"), "0");
        assert_eq!(client.holders("k"), format!("[{next}, 1]"));
        let n: usize = next[1..].parse().expect("a number");
        let mut reply = [0; 64];
        let length = crowd[n].read(&mut reply).expect("a reply");
        assert!(reply[..length].starts_with(b":"), "a token");
        holder = next;
    }

    // All hang up at once.
    crowd.clear();
    wait_until("the queue is empty", || {
        client.run("LLEN redisson_lock_queue:{k}") == "0"
    });
    client.assert_reply("ZCARD redisson_lock_timeout:{k}", "0");
    assert_eq!(client.holders("k"), format!("[{holder}, 1]"));
    assert_eq!(server.blocked(), 0);
    client.assert_reply(&format!("FAIRLOCK.RELEASE k {holder}"), "0");
    client.assert_reply("KEYS *", "[]");
}

/// A queue of waiters that have not asked for longer than their patience.
fn queue_dead(server: &Server, client: &mut Client, number: usize) {
    client.run_many((0..number).map(|n| format!("FAIRLOCK.ACQUIRE k dead{n} ENQUEUE PATIENCE 1")));
    wait_until("the last deadline is over", || {
        left(client, number - 1) == 0
    });
    // By the clock. Deadlines do not run while the server does not listen, for which a busy machine is enough: it makes
    // up for less than a second.
    let uptime = || server.info("server", "uptime_in_seconds").parse::<u64>();
    let until = uptime().expect("a number") + 2;
    wait_until("a second more", || uptime().expect("a number") >= until);
}

#[test]
fn a_crowd_of_dead_waiters_is_dropped_in_pieces_and_no_waiter_overtakes() {
    let (server, mut client) = Server::connected_with(&["--fairlock.turn", "600000"]);
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    queue_dead(&server, &mut client, 1_250);
    let living = server.block("FAIRLOCK.ACQUIRE k b");
    let behind = server.block("FAIRLOCK.ACQUIRE k c");
    // No time for a second piece passes in a transaction.
    let replies = client.at_once(&[
        "FAIRLOCK.RELEASE k a",
        "LLEN redisson_lock_queue:{k}",
        "ZCARD redisson_lock_timeout:{k}",
        "EXISTS k",
        "FAIRLOCK.CANCEL k dead1200",
        "LINDEX redisson_lock_queue:{k} 0",
    ]);
    assert_eq!(replies, "[0, 752, 752, 0, 1, dead1000]");
    assert!(living.int() > 0);
    client.assert_reply("LRANGE redisson_lock_queue:{k} 0 -1", "[c]");
    assert_eq!(client.holders("k"), "[b, 1]");
    assert_eq!(server.count("reaped_waiters"), 1249, "one was cancelled");

    // A newcomer between two pieces waits behind the living waiters.
    client.assert_reply("FAIRLOCK.CANCEL k c", "1");
    assert_eq!(behind.reply(), "(nil)");
    queue_dead(&server, &mut client, 1_250);
    let living = server.block("FAIRLOCK.ACQUIRE k d");
    let replies = client.at_once(&[
        "FAIRLOCK.RELEASE k b",
        "FAIRLOCK.ACQUIRE k new NOWAIT",
        "FAIRLOCK.ACQUIRE k new",
        "EXISTS k",
    ]);
    assert_eq!(replies, "[0, (nil), (nil), 1]");
    assert!(living.int() > 0);
    client.assert_reply("FAIRLOCK.RELEASE k d", "0");
    client.assert_reply("KEYS *", "[]");
}

#[test]
fn a_dead_waiter_that_asks_between_two_pieces_is_alive() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    queue_dead(&server, &mut client, 1_500);
    let replies = client.at_once(&[
        "FAIRLOCK.RELEASE k a",
        "FAIRLOCK.ACQUIRE k dead1000 ENQUEUE PATIENCE 600000",
        "HEXISTS k dead1000",
    ]);
    assert!(replies.starts_with("[0, 1"), "{replies}");
    assert!(replies.ends_with(", 1]"), "{replies}");
    client.assert_reply("FAIRLOCK.RELEASE k dead1000", "0");
    wait_until("the rest are dropped", || client.run("KEYS *") == "[]");
}

#[test]
fn waits_that_end_together_all_end() {
    raise_file_limit();
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let mut crowd: Vec<TcpStream> = (0..1_000)
        .map(|_| TcpStream::connect(("127.0.0.1", server.port)).expect("a connection"))
        .collect();
    server.while_stopped(|| {
        for (n, socket) in crowd.iter_mut().enumerate() {
            write!(socket, "FAIRLOCK.ACQUIRE k w{n} WAIT 50\r\n").expect("sent");
        }
    });
    for socket in &mut crowd {
        let mut reply = [0; 64];
        let length = socket.read(&mut reply).expect("a reply");
        assert_eq!(&reply[..length], b"$-1\r\n");
    }
    client.wait_for("FAIRLOCK.QUEUE k", "[]");
    assert_eq!(server.count("timeouts"), 1000);
    assert_eq!(client.holders("k"), "[a, 1]");
    client.assert_reply("FAIRLOCK.RELEASE k a", "0");
    client.assert_reply("KEYS *", "[]");
}

#[test]
fn of_leases_that_end_at_once_the_first_come_first_in_pieces() {
    const LOCKS: usize = 2000;
    let (server, mut client) = Server::connected_with(&["--enable-debug-command", "yes"]);
    // Else the server's own job finds some, in any order.
    client.run("DEBUG SET-ACTIVE-EXPIRE 0");
    client.run_many((0..LOCKS).flat_map(|n| {
        ["o LEASE 600000", "w ENQUEUE"].map(|call| format!("FAIRLOCK.ACQUIRE l{n} {call}"))
    }));
    let mut woken = server.wire("PSUBSCRIBE redisson_lock__channel:*");
    (0..6).for_each(|_| drop(woken.line()));
    let mut other = Wire::new(server.port);
    // Those with an odd number end first.
    let set_end = |client: &mut Client, end: i64| {
        let end_of = |n| end + i64::from(n % 2 == 0);
        client.run_many((0..LOCKS).map(|n| format!("PEXPIREAT l{n} {}", end_of(n))));
        // The new leases are noticed in pieces, too.
        (0..100).for_each(|_| drop(client.run("PING")));
    };
    // None ends before the server is stopped, however long this machine takes to set them.
    let begun = client.now();
    set_end(&mut client, begun + 600_000);
    let set = client.now();
    let end = set + 4000 + 3 * (set - begun);
    set_end(&mut client, end);
    server.while_stopped(|| {
        let passed = || UNIX_EPOCH.elapsed().expect("a time").as_millis();
        wait_until("all are over", || passed() > end.unsigned_abs().into());
        other.send("INFO fairlock");
    });
    let info = other.until("fairlock_locks_with");
    let ended = info
        .iter()
        .find_map(|line| line.strip_prefix("fairlock_lease_ends:"));
    let ended: usize = ended
        .and_then(|ended| ended.parse().ok())
        .expect("a number");
    assert!(ended < LOCKS, "the other client is served in between");
    let order = (0..LOCKS).map(|_| {
        let message: Vec<_> = (0..9).map(|_| woken.line()).collect();
        let lock = message[6].trim_start_matches("redisson_lock__channel:{l");
        let number = lock.trim_end_matches("}:w").parse::<usize>();
        number.expect("a number") % 2 == 1
    });
    assert!(order.is_sorted_by(|before, after| before >= after));
}
