//! The health check of the images, `packaging/image/health`.

use std::process::Command;

use fairlock_testing::paths::root;
use fairlock_testing::{Program, Server};

/// Asks the server; the exit code must be this.
#[track_caller]
fn asked(server: &Server, word: &str, environment: &[(&str, &str)], code: i32) {
    let mut command = Command::new(root().join("packaging/image/health"));
    command
        .arg(word)
        .env("FAIRLOCK_PORT", server.port.to_string());
    command.envs(environment.iter().copied());
    let ended = Program::start(&mut command).end();
    assert_eq!(ended.code, code, "{word} {environment:?}: {ended:?}");
}

#[test]
fn a_server_that_serves_is_ready_and_one_that_is_gone_is_not_alive() {
    let server = Server::start();
    for word in ["live", "ready"] {
        asked(&server, word, &[], 0);
        asked(&server, word, &[("FAIRLOCK_HEALTH_OPTIONS", "-p 1")], 1);
    }
    asked(&server, "sick", &[], 64);
}

/// A replica that may not serve stale data refuses as a server does that is loading. Without a login that refusal comes
/// first, and hides whether the server is loading.
#[test]
fn a_server_that_answers_and_does_not_serve_is_alive_and_not_ready_whoever_asks() {
    let (server, mut client) = Server::connected();
    client.run("ACL SETUSER probe on nopass -@all +ping");
    client.run("ACL SETUSER other on >word -@all +ping");
    client.run("CONFIG SET replica-serve-stale-data no");
    client.run("REPLICAOF 127.0.0.1 1");
    asked(&server, "ready", &[], 1);
    client.run("ACL SETUSER default -ping");
    asked(&server, "ready", &[], 0);
    let probe = [("FAIRLOCK_HEALTH_USER", "probe")];
    let other = [("FAIRLOCK_HEALTH_USER", "other"), ("REDISCLI_AUTH", "word")];
    for user in [&probe[..], &other] {
        asked(&server, "live", user, 0);
        asked(&server, "ready", user, 1);
    }
}
