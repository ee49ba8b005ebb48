//! `FAIRLOCK.HOLDERS`. What holders do is in `shared/holders.rs`.

use fairlock_testing::{Client, Server};

#[test]
fn holders_are_listed_in_the_order_in_which_they_came() {
    let (_server, mut client) = Server::connected();
    client.assert_reply("FAIRLOCK.HOLDERS k", "[]");
    let z = client.int("FAIRLOCK.ACQUIRE k z SHARED LEASE 600000");
    let a = client.int("FAIRLOCK.ACQUIRE k a SHARED 5 LEASE 500000 SESSION");
    assert!(a > z);
    let holders = client.run("FAIRLOCK.HOLDERS k");
    let (first, second) = holders.split_once("], [").expect("two");
    let lease = first.strip_prefix("[[z, 1, ").expect("z, with one hold");
    let lease = lease.split(", ").next().and_then(|ms| ms.parse().ok());
    assert!(
        (550_000..=600_000).contains(&lease.unwrap_or(0)),
        "{holders}"
    );
    assert!(first.ends_with(&format!(", {z}, 0, 0")), "{holders}");
    assert!(second.ends_with(&format!(", {a}, 1, 5]]")), "{holders}");
    let info = client.run("FAIRLOCK.INFO k");
    assert!(info.starts_with("[owner, z, holds, 1, lease, "), "{info}");
    assert!(info.ends_with("holders, 2, limit, 5]"), "{info}");
}

#[test]
fn an_exclusive_lock_has_one_holder() {
    let (_server, mut client) = Server::connected();
    let token = client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let holders = client.run("FAIRLOCK.HOLDERS k");
    assert!(holders.starts_with("[[a, 1, "), "{holders}");
    assert!(
        holders.ends_with(&format!(", {token}, 0, 1]]")),
        "{holders}"
    );
    assert!(
        client
            .run("FAIRLOCK.INFO k")
            .contains("holders, 1, limit, 1")
    );
    client.run("FAIRLOCK.RELEASE k a");
    assert!(
        client
            .run("FAIRLOCK.INFO k")
            .contains("holders, 0, limit, 0")
    );
}

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
    for command in [
        "FAIRLOCK.INFO k",
        "FAIRLOCK.LOCKS",
        "FAIRLOCK.LOCKS ALL AFTER 0",
    ] {
        let reply = client.run(command);
        assert!(reply.contains("holders, 2501, limit, 4000"), "{reply}");
    }
}
