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
fn it_is_a_map_in_resp3() {
    let server = Server::start();
    let mut client = server.connect_resp3();
    let info = client.run("FAIRLOCK.INFO k");
    assert!(info.starts_with("{owner: (nil), holds: 0"), "{info}");
    assert!(info.contains("session: false"), "{info}");
}
