//! `fairlock exec`: waiting, running, giving back.

use fairlock_testing::{Server, wait_until};

use crate::program;

#[test]
fn the_commands_status_is_passed_on_and_the_lock_is_free_by_then() {
    let (server, mut client) = Server::connected();
    // One that is held together with others is looked at each second only.
    let loses_it = format!("--shared -- redis-cli -p {} FAIRLOCK.BREAK k", server.port);
    for (arguments, code, error) in [
        ("-- true", 0, ""),
        ("-- sh -c 'exit 7'", 7, ""),
        ("-- sh -c 'kill -TERM $$'", 143, ""),
        ("-- no-such-command", 127, "no-such-command"),
        ("-- /", 126, "/"),
        (&loses_it, 76, "lost"),
    ] {
        let ended = program::ended(server.port, format!("exec k {arguments}"));
        ended.failed(code, error);
        assert_eq!(ended.errors.is_empty(), error.is_empty(), "{ended:?}");
        assert_eq!(client.run("EXISTS k"), "0");
    }
    // A name is any bytes.
    let exec = b"exec 'k\xff\n' --wait 0 -- sh -c 'printf %s \"$FAIRLOCK_KEY\" | od -An -tx1'";
    assert_eq!(program::ended(server.port, exec).said(), " 6b ff 0a\n");
    client.run_words(&[&b"FAIRLOCK.ACQUIRE"[..], b"k\xff\n", b"a"]);
    program::ended(server.port, exec).failed(75, "did not get the lock k\\xff\\n:");
}

#[test]
fn the_command_is_told_what_it_holds_and_the_lock_is_bound_to_the_connection() {
    let (server, mut client) = Server::connected();
    let script = "echo $FAIRLOCK_KEY $FAIRLOCK_TOKEN $FAIRLOCK_OWNER; exec sleep 100";
    let program = program::script(server.port, "--lease 90s --owner *", script);
    program.wait_for("\n");
    let told = program.printed("out");
    let owner = told.trim().rsplit(' ').next().expect("an owner");
    assert_eq!(told, format!("k {} {owner}\n", client.token("k")));
    assert_eq!(owner.matches(':').count(), 2, "{owner}");
    assert_eq!(client.holders("k"), format!("[{owner}, 1]"));
    // It is renewed after a third.
    assert!((50_000..=90_000).contains(&client.int("PTTL k")));
    client.assert_has("FAIRLOCK.INFO k", "session, 1");
    // So it learns of changes at once.
    assert_eq!(server.info("clients", "tracking_clients"), "1");
    assert_eq!(program.terminate(), 143);
}

#[test]
fn a_wait_ends_in_time_by_cancel_by_a_signal_and_where_the_queue_is_full() {
    let (server, mut client) = Server::connected_with(&["--fairlock.max-waiters", "1"]);
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    for (wait, why) in [
        ("0", "it is held, or others wait for it"),
        ("50ms", "not within 50ms"),
    ] {
        let ended = program::ended(server.port, format!("exec k --wait {wait} -- echo started"));
        ended.failed(75, &format!("did not get the lock k: {why}"));
        assert_eq!(ended.out, "");
        client.assert_has("FAIRLOCK.INFO k", "waiting, 0");
    }
    let cancelled = program::waiting(&server, "--owner me");
    assert_eq!(client.run("FAIRLOCK.CANCEL k me"), "1");
    assert_eq!(cancelled.end().code, 75);
    // A code of its own, not the signal's: as PID 1 the kernel would ignore a signal that nobody listens to.
    for (signal, code) in [("HUP", 129), ("INT", 130), ("TERM", 143), ("KILL", -1)] {
        let program = program::waiting(&server, "");
        program.signal(signal);
        assert_eq!(program.end().code, code);
        wait_until("the queue is empty", || {
            client.run("FAIRLOCK.INFO k").contains("waiting, 0")
        });
    }
    client.run("FAIRLOCK.ACQUIRE k b ENQUEUE");
    program::ended(server.port, "exec k -- true").failed(75, "QUEUEFULL");
}

#[test]
fn those_that_share_the_lock_run_together_and_the_next_one_waits() {
    let (server, mut client) = Server::connected();
    for (options, next) in [("--shared", ""), ("--limit 2", "--limit 2")] {
        let together = [(); 2].map(|()| program::holding(server.port, options));
        let mut next = program::waiting(&server, next);
        let third = format!("exec k --wait 0 {options} -- true");
        program::ended(server.port, third).failed(75, "FAIRLOCK.HOLDERS k says who");
        assert!(!next.has_ended());
        for one in together {
            assert_eq!(one.terminate(), 143);
        }
        assert_eq!(next.end().code, 3);
        assert_eq!(client.run("DBSIZE"), "0");
    }
}
