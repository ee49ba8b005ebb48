//! `FAIRLOCK.INFO`.

use fairlock_testing::Server;

#[test]
fn a_free_lock_has_no_owner() {
    let server = Server::start();
    assert_eq!(
        server.connect().run("FAIRLOCK.INFO k"),
        "[owner, (nil), holds, 0, lease, 0, token, (nil), session, 0, waiting, 0, next, (nil), \
         holders, 0, limit, 0]"
    );
}

#[test]
fn a_held_lock_shows_its_holder_and_who_is_next() {
    let (_server, mut client) = Server::connected();
    let token = client.int("FAIRLOCK.ACQUIRE k a LEASE 60000");
    client.int("FAIRLOCK.ACQUIRE k a LEASE 60000");
    client.run("FAIRLOCK.ACQUIRE k b ENQUEUE");
    client.run("FAIRLOCK.ACQUIRE k c ENQUEUE");
    let info = client.run("FAIRLOCK.INFO k");
    let rest = info
        .strip_prefix("[owner, a, holds, 2, lease, ")
        .expect("owner and holds");
    let (lease, rest) = rest.split_once(", ").expect("lease");
    assert!(
        (50_000..=60_000).contains(&lease.parse::<i64>().expect("ms")),
        "{lease}"
    );
    assert_eq!(
        rest,
        format!("token, {token}, session, 0, waiting, 2, next, b, holders, 1, limit, 1]")
    );
}

#[test]
fn it_is_a_map_in_resp3() {
    let server = Server::start();
    let mut client = server.connect_resp3();
    let info = client.run("FAIRLOCK.INFO k");
    assert!(info.starts_with("{owner: (nil), holds: 0"), "{info}");
    assert!(info.contains("session: false"), "{info}");
}
