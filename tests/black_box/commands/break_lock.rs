//! `FAIRLOCK.BREAK`.

use fairlock_testing::Server;

#[test]
fn a_broken_lock_goes_to_the_next_waiter() {
    let server = Server::start();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a");
    client.int("FAIRLOCK.ACQUIRE k a");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    assert_eq!(client.run("FAIRLOCK.BREAK k"), "1");
    assert!(waiter.int() > 0);
    assert!(
        client
            .run("FAIRLOCK.RELEASE k a")
            .starts_with("(error) NOTHELD ")
    );
}

#[test]
fn a_free_lock_cannot_be_broken() {
    let server = Server::start();
    assert_eq!(server.connect().run("FAIRLOCK.BREAK k"), "0");
}

#[test]
fn breaking_is_for_administrators() {
    let server = Server::start();
    let mut client = server.connect();
    let flags = client.run("COMMAND INFO FAIRLOCK.BREAK");
    assert!(flags.contains("admin"), "{flags}");
    for taken in ["-fairlock.break", "-@admin", "-@dangerous"] {
        let mut ann = server.connect();
        client.run("ACL DELUSER ann");
        client.run(&format!("ACL SETUSER ann on nopass ~* +@all {taken}"));
        assert_eq!(ann.run("AUTH ann x"), "OK");
        let reply = ann.run("FAIRLOCK.BREAK k");
        assert!(reply.starts_with("(error) NOPERM "), "{taken}: {reply}");
        assert!(ann.int("FAIRLOCK.ACQUIRE k a") > 0);
        assert_eq!(ann.run("FAIRLOCK.RELEASE k a"), "0");
    }
}
