//! Clients take the holder's field out of a lock's hash, and leave only the token: the lock is free, which is found
//! within a second.

use fairlock_testing::{Server, wait_until};

use super::ways_to_become_free::blocked_and_polling_soon;

/// Ways to take the field `a` out of the hash `k`, and the command that the server needs for that.
const TAKING: [(&str, &str); 7] = [
    ("HDEL", "HDEL k a"),
    ("HGETDEL", "HGETDEL k FIELDS 1 a"),
    ("HEXPIREAT", "HEXPIREAT k 1 FIELDS 1 a"),
    ("HPEXPIREAT", "HPEXPIREAT k 1 FIELDS 1 a"),
    ("HPEXPIRE", "HPEXPIRE k 0 FIELDS 1 a"),
    ("HGETEX", "HGETEX k PXAT 1 FIELDS 1 a"),
    ("HSETEX", "HSETEX k PXAT 1 FIELDS 1 a 1"),
];

fn knows(command: &str) -> bool {
    let server = Server::start();
    server
        .connect()
        .run(&format!("COMMAND INFO {command}"))
        .contains(&command.to_lowercase())
}

/// The commands of [`TAKING`] that the server knows.
fn known() -> impl Iterator<Item = &'static str> {
    let known = TAKING.into_iter().filter(|(name, _)| knows(name));
    known.map(|(_, command)| command)
}

/// By a command, a script, or a transaction.
#[test]
fn a_lock_whose_owner_is_taken_out_goes_to_the_head() {
    for command in known() {
        let words: Vec<_> = command.split(' ').map(|word| format!("'{word}'")).collect();
        let script = format!("EVAL redis.call({}) 0", words.join(","));
        for step in [command, &script] {
            blocked_and_polling_soon(step, &[], |scene| scene.step(step));
        }
        blocked_and_polling_soon("MULTI", &[], |scene| {
            scene.step("MULTI");
            scene.step(command);
            scene.no_waiter_is_served();
            scene.step("EXEC");
        });
    }
}

#[test]
fn a_lock_whose_last_owner_others_have_put_in_and_taken_out_goes_to_the_head() {
    blocked_and_polling_soon("HDEL", &[], |scene| {
        for command in ["HSET k x 1", "HDEL k a"] {
            scene.step(command);
            scene.no_waiter_is_served();
        }
        scene.step("HDEL k x");
    });
}

#[test]
fn a_lock_whose_owner_expires_in_the_hash_goes_to_the_head() {
    if knows("HPEXPIRE") {
        blocked_and_polling_soon("HPEXPIRE", &[], |scene| {
            scene.step("PERSIST k");
            scene.step("HPEXPIRE k 50 FIELDS 1 a");
        });
    } else {
        println!("skipped: fields do not expire on this server");
    }
}

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
        for step in ["MULTI", "HDEL k a", command] {
            client.run(step);
        }
        let replies = client.run("EXEC");
        assert!(replies.contains(reply), "{command}: {replies}");
        waiter.int();
    }
}

/// The server counts a field that has expired until it has deleted it.
#[test]
fn an_owner_whose_field_has_expired_is_waited_for_until_it_is_deleted() {
    if !knows("HPEXPIRE") {
        return;
    }
    let (_server, mut client) = Server::connected_with(&["--enable-debug-command", "yes"]);
    client.run("DEBUG SET-ACTIVE-EXPIRE 0");
    client.int("FAIRLOCK.ACQUIRE k o LEASE 600000");
    client.run("HPEXPIRE k 1 FIELDS 1 o");
    let set = client.now();
    wait_until("it has expired", || client.now() > set + 5);
    client.assert_start("FAIRLOCK.ACQUIRE k x ENQUEUE", "[1, ");
    client.run("DEBUG SET-ACTIVE-EXPIRE 1");
    wait_until("the lock is free", || {
        !client.run("FAIRLOCK.ACQUIRE k x ENQUEUE").starts_with('[')
    });
}
