//! Commands that are sent behind others on one connection.

use fairlock_testing::{Server, Wire, wait_until};

#[test]
fn commands_behind_an_acquire_that_blocks_wait_with_it_and_run_in_order() {
    let (server, mut client) = Server::connected();
    let token = client.int("FAIRLOCK.ACQUIRE k a");
    let mut wire = Wire::new(server.port);
    wire.send(
        "APPEND log 1\nFAIRLOCK.ACQUIRE k b\nAPPEND log 2\nFAIRLOCK.ACQUIRE k b\n\
         FAIRLOCK.ACQUIRE j b\nFAIRLOCK.RELEASE k b ALL\nAPPEND log 3",
    );
    assert_eq!(wire.line(), ":1");
    wait_until("b waits", || server.blocked() == 1);
    client.assert_reply("GET log", "1");
    client.assert_reply("EXISTS j", "0");
    client.int("FAIRLOCK.RELEASE k a");
    let next = wire.token();
    assert!(next > token);
    assert_eq!(wire.line(), ":2");
    assert_eq!(wire.token(), next);
    let other = wire.line();
    assert!(other.len() > 10, "{other}");
    assert_eq!(wire.line(), ":0");
    assert_eq!(wire.line(), ":3");
    client.assert_reply("GET log", "123");
    client.assert_reply("EXISTS k", "0");
}

#[test]
fn commands_behind_an_acquire_run_when_its_time_is_up() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a");
    let mut wire = Wire::new(server.port);
    wire.send(
        "FAIRLOCK.ACQUIRE k b WAIT 30\nFAIRLOCK.ACQUIRE k b WAIT 30\nLLEN redisson_lock_queue:{k}",
    );
    assert_eq!(wire.line(), "$-1");
    assert_eq!(wire.line(), "$-1");
    assert_eq!(wire.line(), ":0");
}

#[test]
fn a_pipeline_of_pairs_lets_a_waiter_in_between() {
    let (server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    let mut wire = Wire::new(server.port);
    let pair = "FAIRLOCK.RELEASE k a\nFAIRLOCK.ACQUIRE k a NOWAIT";
    wire.send(&vec![pair; 100].join("\n"));
    assert_eq!(wire.line(), ":0");
    // From here on it is the waiter's, however often the former holder asks.
    for _ in 0..99 {
        assert_eq!(wire.line(), "$-1");
        assert!(wire.line().starts_with("-NOTHELD "));
    }
    assert_eq!(wire.line(), "$-1");
    assert!(waiter.int() > 0);
    assert_eq!(client.holders("k"), "[b, 1]");
}
