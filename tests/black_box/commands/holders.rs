//! `FAIRLOCK.HOLDERS` and `FAIRLOCK.INFO`. What holders do is in `shared/holders.rs`.

use fairlock_testing::Server;

use crate::scene::owners;

#[test]
fn a_free_lock_has_no_owner() {
    let (_server, mut client) = Server::connected();
    client.assert_reply(
        "FAIRLOCK.INFO k",
        "[owner, (nil), holds, 0, lease, 0, token, (nil), session, 0, waiting, 0, next, (nil), \
         holders, 0, limit, 0]",
    );
}

#[test]
fn very_many_holders_are_listed_in_the_order_of_their_tokens() {
    let (_server, mut client) = Server::connected();
    let ask = |n| format!("FAIRLOCK.ACQUIRE k h{n:04} SHARED 5000 LEASE 600000");
    client.run_many((0..2_500).map(ask));
    let names = owners(&client.run("FAIRLOCK.HOLDERS k"));
    assert!(names.is_sorted() && names.len() == 2_500, "{names:?}");
    // Number and limit are those of all holders.
    client.int("FAIRLOCK.ACQUIRE k picky SHARED 4000");
    for command in ["FAIRLOCK.INFO k", "FAIRLOCK.LOCKS"] {
        client.assert_has(command, "holders, 2501, limit, 4000");
    }
}
