//! What one client can make the server keep, and how long one command can take: SECURITY.md states
//! the figures, which `cargo test --test black_box limits -- --nocapture` prints.

use std::fs;
use std::thread;
use std::time::Duration;

use fairlock_testing::{Blocked, Client, Server, wait_until};
use redis::Value;

const MAX_WAITERS: usize = 100_000;

fn memory(server: &Server) -> i64 {
    let used = server.info("memory", "used_memory");
    used.parse().expect("a number")
}

/// The cost of a crowd, for each member.
fn each(more: i64, number: usize) -> i64 {
    more / i64::try_from(number).expect("a small number")
}

fn words(command: &str) -> Vec<Vec<u8>> {
    command
        .split(' ')
        .map(|word| word.as_bytes().to_vec())
        .collect()
}

/// Sends many commands, some thousands in a write; how many replies are errors of this code.
fn send_all(client: &mut Client, commands: impl Iterator<Item = String>, code: &str) -> usize {
    let commands: Vec<_> = commands.collect();
    let replies = commands
        .chunks(5_000)
        .flat_map(|chunk| client.run_many(chunk));
    replies
        .filter(|reply| matches!(reply, Value::ServerError(error) if error.code() == code))
        .count()
}

/// Owners as long as owners can be.
fn owner(number: usize) -> String {
    format!("{number:0>256}")
}

#[test]
fn one_client_fills_a_queue_up_to_max_waiters_and_no_further() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k holder LEASE 600000");
    let before = memory(&server);
    let ask = |number| format!("FAIRLOCK.ACQUIRE k {} ENQUEUE", owner(number));
    let refused = send_all(&mut client, (0..MAX_WAITERS + 1_000).map(ask), "QUEUEFULL");
    assert_eq!(refused, 1_000);
    let full = memory(&server);
    let bytes = each(full - before, MAX_WAITERS);
    println!("a polling waiter with an owner of 256 bytes: {bytes} bytes");
    assert!(bytes < 2_048, "{bytes}");
    // The other ways of asking are refused too.
    for more in ["FAIRLOCK.ACQUIRE k z", "FAIRLOCK.ACQUIRE k z WAIT 5"] {
        client.assert_error(more, "QUEUEFULL");
    }
    let reply = client.at_once(&["FAIRLOCK.ACQUIRE k z ENQUEUE"]);
    assert!(reply.contains("QUEUEFULL"), "{reply}");
    assert_eq!(client.int("LLEN redisson_lock_queue:{k}"), 100_000);
    // Those that wait may ask again and again.
    assert_eq!(send_all(&mut client, (0..5_000).map(ask), "QUEUEFULL"), 0);
    let asked = memory(&server);
    assert!(asked - full < 1_000_000, "{}", asked - full);
    // And all memory is given back.
    let leave = |number| format!("FAIRLOCK.CANCEL k {}", owner(number));
    send_all(&mut client, (0..MAX_WAITERS).map(leave), "ERR");
    drop(client);
    wait_until("the memory is given back", || {
        memory(&server) - before < 3_000_000
    });
}

#[test]
fn a_call_of_a_script_with_a_hundred_thousand_keys_costs_a_look_at_each() {
    let (server, mut client) = Server::connected();
    for digest in [
        "8f6ed299ffd259f0539c20f89253998c0777ea75",
        "6a3d31570dc6f4b0bd32bcdc8e75667747c6f635",
    ] {
        let mut call = words(&format!("FAIRLOCK.EVALSHA {digest} 100000"));
        call.extend((0..100_000).map(|number| format!("k{number:0>9}").into_bytes()));
        let error = client.run_words(&call);
        assert!(error.starts_with("(error) NOSCRIPT"), "{error}");
    }
    let spent = server.command_stat("fairlock.evalsha", "usec");
    assert!(spent < 10_000_000, "{spent} microseconds");
}

#[test]
fn huge_arguments_are_refused_and_not_kept() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let before = memory(&server);
    let huge = vec![b'9'; 64 << 20];
    let huge = huge.as_slice();
    for command in [
        &[b"FAIRLOCK.ACQUIRE", &b"k"[..], huge][..],
        &[b"FAIRLOCK.ACQUIRE", b"k", b"b", huge],
        &[b"FAIRLOCK.ACQUIRE", b"k", b"b", b"LEASE", huge],
        &[b"FAIRLOCK.ACQUIRE", b"k", b"b", b"WAIT", huge],
        &[b"FAIRLOCK.RELEASE", b"k", b"a", b"TOKEN", huge],
        &[b"FAIRLOCK.RELEASE", b"k", huge],
        &[b"FAIRLOCK.CANCEL", b"k", huge],
        &[b"FAIRLOCK.RENEW", b"k", huge],
        &[b"FAIRLOCK.QUEUE", b"k", b"LIMIT", huge, b"1"],
        &[b"FAIRLOCK.EVAL", huge, b"0"],
        &[b"FAIRLOCK.EVALSHA", huge, b"0"],
    ] {
        let error = client.raw(command).expect_err("refused");
        assert!(error.starts_with("ERR ") && error.len() < 200, "{error}");
    }
    drop(client);
    wait_until("nothing is kept", || memory(&server) - before < 1_000_000);
    // More arguments than a command can use.
    let mut client = server.connect();
    let mut many = words("FAIRLOCK.ACQUIRE k b");
    many.extend((0..500_000).map(|_| b"ONCE".to_vec()));
    let error = client.run_words(&many);
    assert!(error.contains("ONCE is given twice"), "{error}");
    assert_eq!(client.holders("k"), "[a, 1]");
}

#[test]
fn all_that_wait_for_a_lock_share_its_name() {
    const NAME: usize = 1 << 20;
    let (server, mut client) = Server::connected();
    let name = "n".repeat(NAME);
    client.int(&format!("FAIRLOCK.ACQUIRE {name} holder LEASE 600000"));
    client.run(&format!("FAIRLOCK.ACQUIRE {name} first ENQUEUE"));
    let before = memory(&server);
    let ask = |number| format!("FAIRLOCK.ACQUIRE {name} w{number} ENQUEUE");
    for number in 0..100 {
        client.run(&ask(number));
    }
    let bytes = each(memory(&server) - before, 100);
    assert!(bytes < 50_000, "{bytes} for a polling waiter");
    // The server keeps the arguments of a client that is blocked, and we keep no copy of them.
    let [own, theirs] = ["FAIRLOCK.ACQUIRE", "BLPOP"].map(|command| {
        let before = memory(&server);
        let rest = |number| match command {
            "BLPOP" => format!("{number} 0"),
            _ => format!(" b{number}"),
        };
        let blocked: Vec<_> = (0..20)
            .map(|number| Blocked::send(server.port, &format!("{command} {name}{}", rest(number))))
            .collect();
        wait_until("all are blocked", || server.blocked() == blocked.len());
        let bytes = each(memory(&server) - before, blocked.len());
        for blocked in blocked {
            blocked.disconnect();
        }
        wait_until("all have left", || server.blocked() == 0);
        bytes
    });
    assert!(own - theirs < 500_000, "{own} {theirs}");
}

/// How long the server's main thread has had a processor: other programs do not count.
fn worked(server: &Server) -> Duration {
    let schedule = fs::read_to_string(format!("/proc/{}/schedstat", server.pid()));
    let schedule = schedule.expect("the server's times");
    let nanoseconds = schedule
        .split(' ')
        .next()
        .and_then(|text| text.parse().ok());
    Duration::from_nanos(nanoseconds.expect("a number"))
}

/// Begins, and asks until told to stop; the most that the server has worked before an answer.
fn longest_answer(
    server: &Server,
    begin: impl FnOnce(),
    done: impl Fn(&mut Client) -> bool,
) -> Duration {
    let mut client = server.connect();
    begin();
    let mut longest = Duration::ZERO;
    wait_until("it is done", || {
        let before = worked(server);
        let is_done = done(&mut client);
        longest = longest.max(worked(server).saturating_sub(before));
        is_done
    });
    longest
}

#[test]
fn a_connection_with_a_hundred_thousand_sessions_closes_while_others_are_served() {
    let (server, mut other) = Server::connected();
    let before = memory(&server);
    let mut client = server.connect();
    let ask = |number| format!("FAIRLOCK.ACQUIRE s{number} a SESSION LEASE 600000");
    send_all(&mut client, (0..MAX_WAITERS).map(ask), "ERR");
    assert_eq!(server.count("session_locks"), 100_000);
    let bytes = each(memory(&server) - before, MAX_WAITERS);
    println!("a lock with a session: {bytes} bytes");
    assert!(bytes < 2_048, "{bytes}");
    let closes = || drop(client);
    let longest = longest_answer(&server, closes, |client| {
        client
            .run("INFO fairlock")
            .contains("fairlock_session_locks:0\\n")
            || client.run("EXISTS s0 s50000 s99999") == "0"
    });
    println!("longest answer while 100,000 sessions end: {longest:?}");
    assert!(longest < Duration::from_secs(5), "{longest:?}");
    wait_until("all have ended", || other.run("DBSIZE") == "0");
    other.run("FLUSHALL");
    wait_until("the memory is given back", || {
        memory(&server) - before < 2_000_000
    });
}

#[test]
fn a_hundred_thousand_sessions_of_one_shared_lock_are_renewed_and_end_while_others_are_served() {
    let server = Server::start();
    let mut client = server.connect();
    let ask = |number| format!("FAIRLOCK.ACQUIRE k a{number} SHARED SESSION LEASE 21000");
    send_all(&mut client, (0..MAX_WAITERS).map(ask), "ERR");
    let all_are_due = || {
        server.signal("STOP");
        // A third of the lease, and the machine may need another.
        thread::sleep(Duration::from_millis(7500));
        server.signal("CONT");
    };
    // What is due last is renewed last.
    let last = "HGET redisson_lock_shared:{k} a99999";
    let before = client.run(last);
    let renewing = longest_answer(&server, all_are_due, |client| client.run(last) != before);
    let closes = || drop(client);
    let ending = longest_answer(&server, closes, |client| client.run("EXISTS k") == "0");
    println!("longest answer while they are renewed: {renewing:?}, while they end: {ending:?}");
    assert!(renewing.max(ending) < Duration::from_millis(250));
}

#[test]
fn queues_that_come_and_go_do_not_add_up() {
    const EACH: usize = 20_000;
    let server = Server::start();
    let before = memory(&server);
    let port = server.port;
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            thread::spawn(move || {
                let mut client = Client::new(port, 2);
                let pair = |number: usize| {
                    let key = format!("redisson_lock_queue:{{{writer}:{number:0>100}}}");
                    [format!("RPUSH {key} x"), format!("DEL {key}")]
                };
                send_all(&mut client, (0..EACH).flat_map(pair), "ERR");
            })
        })
        .collect();
    for writer in writers {
        writer.join().expect("a writer");
    }
    let peak: i64 = server
        .info("memory", "used_memory_peak")
        .parse()
        .expect("a number");
    println!(
        "160,000 queues that came and went: {} bytes more",
        peak - before
    );
    assert!(peak - before < 40_000_000, "{}", peak - before);
    wait_until("all is given back", || memory(&server) - before < 2_000_000);
}
