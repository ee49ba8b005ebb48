//! Others change or delete the queue and the deadlines while clients are blocked: no waiter loses its place, hangs, or
//! is served twice.

use fairlock_testing::{Blocked, Client, Server, wait_until};

use crate::scene::{DEADLINES, QUEUE};

const ALL: &str = "w1 w2 w3 w4 w5";

/// Commands, a case a line; behind an arrow the queue as the next command finds it, if not all are in their places. `Q`
/// and `Z` stand for the names of queue and deadlines. Only waiters named `w...` come for the lock.
const DELETED: &str = "
    DEL Q
    DEL Z
    DEL Q Z
    RENAME Q gone
    RENAME Q gone; RENAME gone Q
    MOVE Q 1; MOVE Z 1
    PEXPIRE Q 100
    PEXPIRE Z 100";

const ENTRIES: &str = "
    LPOP Q
    RPOP Q
    LREM Q 0 w3
    LTRIM Q 2 2
    LTRIM Q 9 9
    RPUSH Q w2 w1
    LPUSH Q w3 -> w3 w1 w2 w4 w5
    LPUSH Q x -> x w1 w2 w3 w4 w5
    RPUSH Q x -> w1 w2 w3 w4 w5 x
    LSET Q 0 x -> x w1 w2 w3 w4 w5
    LSET Q -1 x -> w1 w2 w3 w4 w5 x
    LSET Q 2 x -> w1 w2 x w3 w4 w5
    LSET Q 2 w4
    RPUSH other x y; COPY other Q REPLACE -> w1 w2 w3 w4 w5 x y";

/// The order that others give the waiters stands, because the keys count.
const REORDERED: &str = "
    LMOVE Q Q RIGHT LEFT -> w5 w1 w2 w3 w4
    SORT Q ALPHA DESC STORE Q -> w5 w4 w3 w2 w1
    MULTI; LSET Q 1 w4; LSET Q 3 w2; EXEC -> w1 w4 w3 w2 w5
    MULTI; DEL Q; LPUSH Q w1 w2 w3 w4 w5; EXEC -> w5 w4 w3 w2 w1";

const SCORES: &str = "
    ZREM Z w1
    ZREM Z w1 w2 w3 w4 w5
    MULTI; ZREM Z w3; ZADD Z 1 x; EXEC
    ZADD Z 0 w1 0 w2 0 w3 0 w4 0 w5
    ZADD Z 1e300 w1 1e15 w3
    ZADD Z -inf w1 inf w2 -inf w3
    ZADD Z 5 x
    ZADD Z 9e15 x -> w1 w2 w3 w4 w5 x";

const TYPES: &str = "
    SET Q x; DEL Q
    SET Z x; DEL Z
    SET Q x; PEXPIREAT Q 1
    COPY k Q REPLACE; RENAME Q gone
    RENAME Q x; RENAME Z Q; RENAME x Z; DEL Q Z";

/// `w0` holds `k`; `w1` to `w5` are blocked.
struct Line {
    server: Server,
    client: Client,
    waiters: Vec<Blocked>,
}

impl Line {
    fn new() -> Self {
        // Strangers cost a turn, and are the module's to drop where it runs the scripts.
        let options = ["--fairlock.turn", "100", "--fairlock.intercept-eval", "yes"];
        let (server, mut client) = Server::connected_with(&options);
        client.int("FAIRLOCK.ACQUIRE k w0 LEASE 600000");
        let waiters = (1..=5)
            .map(|n| server.block(&format!("FAIRLOCK.ACQUIRE k w{n} LEASE 600000")))
            .collect();
        Self {
            server,
            client,
            waiters,
        }
    }

    #[track_caller]
    fn suffer(&mut self, steps: &[&str]) {
        for step in steps {
            let words: Vec<_> = step
                .split(' ')
                .map(|word| match word {
                    "Q" => "redisson_lock_queue:{k}",
                    "Z" => "redisson_lock_timeout:{k}",
                    other => other,
                })
                .map(str::as_bytes)
                .collect();
            let reply = self.client.raw(&words);
            reply.unwrap_or_else(|error| panic!("{step}: {error}"));
        }
    }

    /// The keys are whole, in this order; the head's deadline is ahead.
    #[track_caller]
    fn is_whole(&mut self, queue: &str) {
        let client = &mut self.client;
        client.assert_reply(QUEUE, queue);
        let head = queue[1..].split([',', ']']).next().expect("a head");
        let ahead = format!(
            "ZRANGEBYSCORE redisson_lock_timeout:{{k}} ({} inf",
            client.now()
        );
        assert!(names(&client.run(&ahead)).iter().any(|name| name == head));
        let mut with_deadlines = names(&client.run(DEADLINES));
        let mut waiting = names(queue);
        with_deadlines.sort();
        waiting.sort();
        assert_eq!(with_deadlines, waiting);
        for key in ["queue", "timeout"] {
            assert_eq!(client.int(&format!("PTTL redisson_lock_{key}:{{k}}")), -1);
        }
        assert_eq!(client.holders("k"), "[w0, 1]");
        assert_eq!(self.server.blocked(), 5);
    }

    /// All are served in this order, once, and nothing is left.
    #[track_caller]
    fn serve(mut self, queue: &str) {
        let order = names(queue);
        let order = order.iter().filter_map(|name| name.strip_prefix('w'));
        let mut waiters: Vec<_> = self.waiters.into_iter().map(Some).collect();
        let (mut holder, mut last) = ("0", 0);
        for next in order {
            assert!(waiters.iter().flatten().all(|waiter| !waiter.is_done()));
            let release = format!("FAIRLOCK.RELEASE k w{holder}");
            self.client.assert_reply(&release, "0");
            let index = next.parse::<usize>().expect("a number") - 1;
            let token = waiters[index].take().expect("served once").int();
            assert!(token > last);
            assert_eq!(self.client.holders("k"), format!("[w{next}, 1]"));
            (holder, last) = (next, token);
        }
        assert!(waiters.iter().all(Option::is_none));
        self.client
            .assert_reply(&format!("FAIRLOCK.RELEASE k w{holder}"), "0");
        nothing_is_left(&mut self.client);
    }
}

/// Only the token's key remains, once strangers have had their turn.
#[track_caller]
fn nothing_is_left(client: &mut Client) {
    client.run("DEL gone other");
    wait_until("the queue is empty", || client.run(QUEUE) == "[]");
    client.assert_reply("KEYS *", "[]");
}

fn names(list: &str) -> Vec<String> {
    let names = list.trim_matches(['[', ']']).split(", ");
    names.map(str::to_owned).collect()
}

fn is_repaired(cases: &str) {
    for case in cases.trim().lines() {
        println!("{case}");
        let (steps, queue) = case.split_once(" -> ").unwrap_or((case, ALL));
        let queue = format!("[{}]", queue.replace(' ', ", "));
        let mut line = Line::new();
        line.suffer(&steps.trim().split("; ").collect::<Vec<_>>());
        line.is_whole(&queue);
        line.serve(&queue);
    }
}

#[test]
fn a_queue_that_others_delete_is_there_again() {
    is_repaired(DELETED);
}

#[test]
fn waiters_whose_entries_others_change_are_in_their_places() {
    is_repaired(ENTRIES);
}

#[test]
fn a_queue_that_others_put_in_another_order_has_that_order() {
    is_repaired(REORDERED);
}

#[test]
fn changed_deadlines_cost_no_waiter_its_place() {
    is_repaired(SCORES);
}

#[test]
fn waiters_outlive_a_key_of_another_type() {
    is_repaired(TYPES);
}

#[test]
fn a_server_that_is_flushed_serves_its_waiters_in_the_order_of_their_arrival() {
    for flush in ["FLUSHALL", "FLUSHDB ASYNC"] {
        let mut line = Line::new();
        line.suffer(&[flush]);
        // The lock is gone as well: the head holds it now.
        line.client.assert_reply(QUEUE, "[w2, w3, w4, w5]");
        assert_eq!(line.client.holders("k"), "[w1, 1]");
        assert!(line.waiters.remove(0).int() > 0);
        assert_eq!(line.server.blocked(), 4);
        for (n, waiter) in (2..).zip(line.waiters) {
            let holder = n - 1;
            line.client.int(&format!("FAIRLOCK.RELEASE k w{holder}"));
            assert!(waiter.int() > 0);
            assert_eq!(line.client.holders("k"), format!("[w{n}, 1]"));
        }
        line.client.int("FAIRLOCK.RELEASE k w5");
        nothing_is_left(&mut line.client);
    }
}

#[test]
fn a_queue_of_another_type_holds_everything_up_until_it_is_gone() {
    for key in ["Q", "Z"] {
        let mut line = Line::new();
        line.suffer(&[&format!("SET {key} x")]);
        for command in ["RELEASE k w0", "ACQUIRE k w0", "CANCEL k w1", "QUEUE k"] {
            line.client
                .assert_error(&format!("FAIRLOCK.{command}"), "WRONGTYPE");
        }
        assert_eq!(line.client.holders("k"), "[w0, 1]");
        // No waiter can be served, and none is told that it was.
        line.suffer(&["DEL k"]);
        line.client.assert_reply("EXISTS k", "0");
        assert_eq!(line.server.blocked(), 5);
        line.suffer(&[&format!("DEL {key}")]);
        assert_eq!(line.client.holders("k"), "[w1, 1]");
        line.client.assert_reply(QUEUE, "[w2, w3, w4, w5]");
        assert!(line.waiters.remove(0).int() > 0);
        assert_eq!(line.server.blocked(), 4);
    }
}

#[test]
fn a_waiter_that_leaves_while_its_entry_is_gone_stays_away() {
    let mut line = Line::new();
    let ids: Vec<i64> = line.waiters.iter().map(|waiter| waiter.id).collect();
    // In one step: its entry goes, it goes, and so does the one before it.
    line.suffer(&[
        "MULTI",
        "LREM Q 0 w3",
        &format!("CLIENT KILL ID {}", ids[2]),
        &format!("CLIENT UNBLOCK {}", ids[1]),
        "EXEC",
    ]);
    wait_until("both are gone", || line.server.blocked() == 3);
    line.client.assert_reply(QUEUE, "[w1, w4, w5]");
    let gone = line.waiters.drain(1..3);
    let replies: Vec<String> = gone.map(Blocked::reply).collect();
    assert_eq!(replies[0], "(nil)");
    line.client.int("FAIRLOCK.RELEASE k w0");
    assert!(line.waiters.remove(0).int() > 0);
    line.client.int("FAIRLOCK.RELEASE k w1");
    assert!(line.waiters.remove(0).int() > 0);
}
