//! Each holder by itself: its lease, session, hold count and token.

use fairlock_testing::{Server, follow, wait_until};

use crate::scene::owners;

#[test]
fn a_lease_that_ends_takes_that_holder_out_and_no_other_and_lets_the_next_in() {
    let (server, mut client) = Server::connected_with(&["--hz", "1"]);
    client.int("FAIRLOCK.ACQUIRE k a SHARED 3 LEASE 600000");
    client.int("FAIRLOCK.ACQUIRE k b SHARED 3 LEASE 300");
    client.int("FAIRLOCK.ACQUIRE k c SHARED 3 LEASE 600000");
    let next = server.block("FAIRLOCK.ACQUIRE k d SHARED 3 LEASE 600000");
    // No client touches the lock: only the timer can notice.
    next.int();
    assert_eq!(owners(&client.run("FAIRLOCK.HOLDERS k")), ["a", "c", "d"]);
    client.assert_reply("HEXISTS redisson_lock_shared:{k} b", "0");
    client.assert_reply(
        "FAIRLOCK.RELEASE k b",
        "(error) NOTHELD the owner does not hold the lock",
    );
    assert_eq!(server.count("lease_ends"), 1);
}

/// Until its master takes it out, its keys are there.
#[test]
fn a_replica_shows_no_holder_whose_lease_is_over() {
    let (master, mut client) = Server::connected();
    let replica = Server::start();
    follow(&replica, &master);
    client.int("FAIRLOCK.ACQUIRE k a SHARED LEASE 600000");
    client.int("FAIRLOCK.ACQUIRE k b SHARED LEASE 2000");
    client.assert_reply("WAIT 1 0", "1");
    let mut client = replica.connect();
    master.while_stopped(|| {
        wait_until("the lease is over", || {
            owners(&client.run("FAIRLOCK.HOLDERS k")) == ["a"]
        });
        client.assert_has("FAIRLOCK.INFO k", "holders, 1,");
        client.assert_reply("HEXISTS k b", "1");
    });
}

#[test]
fn renew_is_by_owner_and_the_key_lasts_as_long_as_the_last_lease() {
    let (_server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a SHARED LEASE 100000");
    client.int("FAIRLOCK.ACQUIRE k b SHARED LEASE 200000");
    client.assert_reply("FAIRLOCK.RENEW k a LEASE 900000", "900000");
    assert!((800_000..=900_000).contains(&client.int("PTTL k")));
    client.assert_error("FAIRLOCK.RENEW k c", "NOTHELD");
    client.run("FAIRLOCK.RELEASE k a");
    assert!((100_000..=200_000).contains(&client.int("PTTL k")));
    // The other key outlives it.
    assert!(client.int("PTTL redisson_lock_shared:{k}") >= client.int("PTTL k"));
}
