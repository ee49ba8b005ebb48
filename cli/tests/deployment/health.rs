//! The health check of the images, `packaging/image/health`.

use std::process::Command;

use fairlock_testing::Server;

use super::{output, root};

/// Asks the server; the exit code.
fn health(server: &Server, word: &str, environment: &[(&str, &str)]) -> Option<i32> {
    let mut command = Command::new(root().join("packaging/image/health"));
    command
        .arg(word)
        .env("FAIRLOCK_PORT", server.port.to_string());
    output(command.envs(environment.iter().copied()))
        .status
        .code()
}

#[test]
fn a_server_that_serves_is_ready_and_one_that_is_gone_is_not_alive() {
    let server = Server::start();
    for word in ["live", "ready"] {
        assert_eq!(health(&server, word, &[]), Some(0), "{word}");
        let elsewhere = [("FAIRLOCK_HEALTH_OPTIONS", "-p 1")];
        assert_eq!(health(&server, word, &elsewhere), Some(1), "{word}");
    }
    assert_eq!(health(&server, "sick", &[]), Some(64));
}

/// A replica that may not serve stale data refuses as a server does that is loading.
#[test]
fn a_server_that_answers_and_does_not_serve_is_alive_and_not_ready() {
    let server = Server::start();
    let mut client = server.connect();
    client.run("ACL SETUSER probe on nopass -@all +ping");
    client.run("CONFIG SET replica-serve-stale-data no");
    client.run("REPLICAOF 127.0.0.1 1");
    let as_probe = [("FAIRLOCK_HEALTH_USER", "probe")];
    assert_eq!(health(&server, "live", &as_probe), Some(0));
    assert_eq!(health(&server, "ready", &as_probe), Some(1));
    assert_eq!(health(&server, "ready", &[]), Some(1));
}

/// Without a login the refusal comes first, and hides whether the server is loading.
#[test]
fn a_server_that_wants_a_login_is_asked_with_it() {
    let server = Server::start();
    let mut client = server.connect();
    client.run("ACL SETUSER probe on nopass -@all +ping");
    client.run("ACL SETUSER other on >word -@all +ping");
    client.run("ACL SETUSER default -ping");
    client.run("CONFIG SET replica-serve-stale-data no");
    client.run("REPLICAOF 127.0.0.1 1");
    let probe = ("FAIRLOCK_HEALTH_USER", "probe");
    let other = ("FAIRLOCK_HEALTH_USER", "other");
    let word = ("REDISCLI_AUTH", "word");
    assert_eq!(health(&server, "ready", &[]), Some(0));
    assert_eq!(health(&server, "ready", &[probe]), Some(1));
    assert_eq!(health(&server, "ready", &[other, word]), Some(1));
    assert_eq!(health(&server, "live", &[other, word]), Some(0));
}
