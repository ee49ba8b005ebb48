//! CLIENT PAUSE.

use fairlock_testing::{Blocked, Client, Server, wait_until};

use crate::scene::{AOF, QUEUE};

#[test]
fn nothing_is_written_while_writes_are_paused() {
    let (server, mut client) = Server::connected_with(AOF);
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    client.int("FAIRLOCK.ACQUIRE j a SESSION LEASE 600000");
    let (id, mut looking) = (client.id, server.connect());
    let mut waiters = vec![
        server.block("FAIRLOCK.ACQUIRE k b"),
        // Not over before the pause begins.
        server.block("FAIRLOCK.ACQUIRE k c WAIT 6000"),
        server.block("FAIRLOCK.ACQUIRE k d"),
        server.block("FAIRLOCK.ACQUIRE j e"),
    ];
    let dump = |client: &mut Client| {
        [
            "LRANGE redisson_lock_queue:{k} 0 -1",
            "LRANGE redisson_lock_queue:{j} 0 -1",
            "HKEYS j",
        ]
        .map(|command| client.run(command))
    };
    let kept = dump(&mut looking);
    // One behind the other, so that the lease does not end before.
    let pause = ["PEXPIRE k 100", "CLIENT PAUSE 600000 WRITE"];
    assert_eq!(looking.at_once(&pause), "[1, OK]");
    let before = server.info("persistence", "aof_current_size");
    // A lease ends, a wait is over, a waiter hangs up, a session ends.
    waiters.remove(2).disconnect();
    assert_eq!(waiters.remove(1).reply(), "(nil)");
    looking.run(&format!("CLIENT KILL ID {id}"));
    wait_until("the lease is over", || looking.run("EXISTS k") == "0");
    // Writes wait until the pause is over.
    let release = Blocked::send(server.port, "FAIRLOCK.RELEASE j f");
    let acquire = Blocked::send(server.port, "FAIRLOCK.ACQUIRE free f");
    wait_until("the writers wait", || server.blocked() == 4);
    assert_eq!(dump(&mut looking), kept);
    assert_eq!(server.info("persistence", "aof_current_size"), before);
    looking.assert_reply("CLIENT UNPAUSE", "OK");
    for waiter in waiters {
        assert!(waiter.int() > 0);
    }
    assert!(acquire.int() > 0);
    release.assert_start("(error) NOTHELD ");
    assert_eq!(looking.holders("k"), "[b, 1]");
    assert_eq!(looking.holders("j"), "[e, 1]");
    assert_eq!(looking.run(QUEUE), "[]");
}
