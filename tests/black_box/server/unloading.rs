//! MODULE UNLOAD: refused while clients rely on the module; otherwise scripts go on with the queues.

use fairlock_testing::{Blocked, Client, Server, follow, wait_until};

use crate::scene::now;

/// Redisson's `lock()`, of a minute's patience, by its digest.
const LOCK: &str = "EVALSHA 8f6ed299ffd259f0539c20f89253998c0777ea75 3 k redisson_lock_queue:{k} \
                        redisson_lock_timeout:{k} 30000 uuid:1 60000";

fn server() -> Server {
    Server::with(&["--enable-module-command", "yes"])
}

#[track_caller]
fn is_refused(client: &mut Client, why: &str) {
    let error = client.run("MODULE UNLOAD fairlock");
    assert!(
        error.starts_with("(error) ERR ") && error.contains(why),
        "{error}"
    );
}

#[test]
fn it_is_refused_while_clients_rely_on_the_module() {
    let server = server();
    let mut client = server.connect();
    let path = server.module_path();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    is_refused(&mut client, "blocked clients");
    assert_eq!(client.run("FAIRLOCK.CANCEL k b"), "1");
    assert_eq!(waiter.reply(), "(nil)");
    let mut other = server.connect();
    other.int("FAIRLOCK.ACQUIRE s a SESSION LEASE 600000");
    is_refused(&mut client, "not possible");
    drop(other);
    wait_until("the session has ended", || client.run("EXISTS s") == "0");
    client.int("FAIRLOCK.ACQUIRE r a SHARED");
    is_refused(&mut client, "not possible");
    let log = server.log();
    assert_eq!(
        log.matches("fairlock is not unloaded while").count(),
        2,
        "{log}"
    );
    client.int("FAIRLOCK.RELEASE r a");
    // A lock that is only held does not need the module.
    assert_eq!(client.run("MODULE UNLOAD fairlock"), "OK");
    let unknown = client.run("FAIRLOCK.INFO k");
    assert!(
        unknown.starts_with("(error) ERR unknown command"),
        "{unknown}"
    );
    assert_eq!(client.holders("k"), "[a, 1]");
    assert_eq!(client.run("DEL k"), "1");
    assert_eq!(client.run(&format!("MODULE LOAD {path}")), "OK");
    assert!(client.int("FAIRLOCK.ACQUIRE k b") > 0);
    assert_eq!(server.info("fairlock", "fairlock_blocked_clients"), "0");
}

/// Its timers go on: for the end of a lease, and for a session's renewal.
#[test]
fn a_module_that_stays_goes_on() {
    let server = server();
    let mut client = server.connect();
    let mut bound = server.connect();
    bound.int("FAIRLOCK.ACQUIRE s a SESSION LEASE 600");
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b LEASE 600000");
    is_refused(&mut client, "blocked clients");
    client.run("MODULE UNLOAD nothing");
    assert!(waiter.int() > 0);
    assert_eq!(server.info("fairlock", "fairlock_lease_ends"), "1");
    is_refused(&mut client, "not possible");
    wait_until("the session's lease was renewed", || {
        client.int("PTTL k") < 599_000 && client.int("PTTL s") > 400
    });
    assert_eq!(client.run("EXISTS s"), "1");
}

#[test]
fn it_is_refused_while_clients_poll_and_replicates_nothing() {
    let (server, replica) = (server(), Server::start());
    follow(&replica, &server);
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    // Scores that are not lined up: the second's patience is another.
    client.run("FAIRLOCK.ACQUIRE k one ENQUEUE PATIENCE 1000");
    client.run("FAIRLOCK.ACQUIRE k two ENQUEUE PATIENCE 60000");
    is_refused(&mut client, "not possible");
    assert!(
        server
            .log()
            .contains("fairlock is not unloaded while clients wait")
    );
    for waiter in ["one", "two"] {
        assert_eq!(client.run(&format!("FAIRLOCK.CANCEL k {waiter}")), "1");
    }
    assert_eq!(client.run("MODULE UNLOAD fairlock"), "OK");
    assert_eq!(client.run("SET after 1"), "OK");
    wait_until("the replica has all", || {
        replica.connect().run("EXISTS after") == "1"
    });
    assert_eq!(replica.info("fairlock", "fairlock_blocked_clients"), "0");
}

#[test]
fn redissons_clients_wait_on_once_interception_is_off() {
    let server = server();
    if !server.knows_7_2() {
        return; // There scripts are the server's own from the beginning.
    }
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k a LEASE 600000");
    let asked = now(&mut client);
    assert!(client.int(&format!("{LOCK} {asked}")) > 0);
    is_refused(&mut client, "not possible");
    assert_eq!(client.run("CONFIG SET fairlock.intercept-eval no"), "OK");
    wait_until("it is unloaded", || {
        client.run("MODULE UNLOAD fairlock") == "OK"
    });
    assert_eq!(
        client.run("LRANGE redisson_lock_queue:{k} 0 -1"),
        "[uuid:1]"
    );
    let score = client.run("ZSCORE redisson_lock_timeout:{k} uuid:1");
    assert!(score.parse::<i64>().expect("a score") >= asked + 600_000);
}

/// Servers keep pointers to the commands of a module that is gone.
#[test]
fn it_is_refused_while_the_server_knows_a_client_by_one_of_its_commands() {
    let server = server();
    let (mut client, mut other) = (server.connect(), server.connect());
    other.run("FAIRLOCK.INFO k");
    is_refused(&mut client, "not possible");
    other.run("PING");
    other.run("MULTI");
    other.run("FAIRLOCK.INFO k");
    is_refused(&mut client, "not possible");
    assert!(other.run("EXEC").starts_with("[["));
    client.run("MULTI");
    client.run("FAIRLOCK.INFO k");
    client.run("MODULE UNLOAD fairlock");
    let all = client.run("EXEC");
    assert!(all.contains("not possible"), "{all}");
    client.run("CLIENT PAUSE 60000 WRITE");
    let paused = Blocked::send(server.port, "FAIRLOCK.ACQUIRE k a");
    wait_until("it is held up", || {
        client.run("CLIENT LIST").contains("cmd=fairlock.acquire")
    });
    is_refused(&mut client, "not possible");
    client.run("CLIENT UNPAUSE");
    let (token, mut paused) = paused.reply_and_client();
    assert!(!token.starts_with('('), "{token}");
    paused.run("PING");
    assert_eq!(client.run("MODULE UNLOAD fairlock"), "OK");
    assert!(client.run("CLIENT LIST").contains("cmd=ping"));
}
