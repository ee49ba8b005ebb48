//! `FAIRLOCK.HOLDERS`. What holders do is in `shared/holders.rs`.

use fairlock_testing::{Client, Server};

#[test]
fn a_session_is_a_boolean_in_resp3() {
    let server = Server::start();
    let mut client = server.connect_resp3();
    let token = client.int("FAIRLOCK.ACQUIRE k a LEASE 600000 SESSION");
    let holders = client.run("FAIRLOCK.HOLDERS k");
    assert!(
        holders.ends_with(&format!(", {token}, true, 1]]")),
        "{holders}"
    );
}

#[test]
fn a_lock_of_a_script_has_no_token_and_may_have_no_lease() {
    let (_server, mut client) = Server::connected();
    client.run("HSET k a 2");
    client.assert_reply("FAIRLOCK.HOLDERS k", "[[a, 2, -1, (nil), 0, 1]]");
    client.assert_start(
        "FAIRLOCK.INFO k",
        "[owner, a, holds, 2, lease, -1, token, (nil), ",
    );
}

/// Adds holders of `k`: `h0000` and so on.
fn share(client: &mut Client, number: usize) {
    client.run_many(
        (0..number).map(|n| format!("FAIRLOCK.ACQUIRE k h{n:04} SHARED 5000 LEASE 600000")),
    );
}

#[test]
fn very_many_holders_are_listed_in_the_order_of_their_tokens() {
    let (_server, mut client) = Server::connected();
    share(&mut client, 2_500);
    let reply = client.run("FAIRLOCK.HOLDERS k");
    let holders = reply.trim_matches(['[', ']']).split("], [");
    let names: Vec<_> = holders
        .filter_map(|holder| holder.split(", ").next())
        .collect();
    assert!(names.is_sorted() && names.len() == 2_500, "{names:?}");
    // Number and limit are those of all holders.
    client.int("FAIRLOCK.ACQUIRE k picky SHARED 4000");
    for command in ["FAIRLOCK.INFO k", "FAIRLOCK.LOCKS"] {
        client.assert_has(command, "holders, 2501, limit, 4000");
    }
}
