//! A hash of which others have taken the holder's field out, and have left the token: the lock is free. How its waiters
//! are served: [`ways_to_become_free`](super::ways_to_become_free).

use fairlock_testing::{Server, wait_until};

#[test]
fn a_hash_with_nothing_but_a_token_is_a_free_lock_to_every_command() {
    for (command, reply) in [
        ("FAIRLOCK.BREAK k", "[1, 0]"),
        ("FAIRLOCK.CANCEL k a", "[1, 0]"),
        ("FAIRLOCK.INFO k", "[1, [owner, (nil), "),
        ("FAIRLOCK.HOLDERS k", "[1, []]"),
        ("FAIRLOCK.RELEASE k a", "(error) NOTHELD "),
        ("FAIRLOCK.RENEW k a", "(error) NOTHELD "),
    ] {
        let (server, mut client) = Server::connected();
        client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
        let waiter = server.block("FAIRLOCK.ACQUIRE k b");
        // In one transaction, so that no other command looks at the lock before.
        let replies = client.at_once(&["HDEL k a", command]);
        assert!(replies.contains(reply), "{command}: {replies}");
        waiter.int();
    }
}

/// The server counts a field that has expired until it has deleted it.
#[test]
fn an_owner_whose_field_has_expired_is_waited_for_until_it_is_deleted() {
    let (_server, mut client) = Server::connected_with(&["--enable-debug-command", "yes"]);
    client.run("DEBUG SET-ACTIVE-EXPIRE 0");
    client.int("FAIRLOCK.ACQUIRE k o LEASE 600000");
    if client.run("HPEXPIRE k 1 FIELDS 1 o").starts_with("(error)") {
        // Fields do not expire on this server.
        return;
    }
    let set = client.now();
    wait_until("it has expired", || client.now() > set + 5);
    client.assert_start("FAIRLOCK.ACQUIRE k x ENQUEUE", "[1, ");
    client.run("DEBUG SET-ACTIVE-EXPIRE 1");
    wait_until("the lock is free", || {
        !client.run("FAIRLOCK.ACQUIRE k x ENQUEUE").starts_with('[')
    });
}
