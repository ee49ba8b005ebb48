//! Loading the module, and what the server knows of its commands.

use std::fs;

use tempfile::TempDir;

use crate::client::Blocked;
use crate::server::{Server, wait_until};

#[test]
fn it_loads_from_the_command_line() {
    let server = Server::start();
    assert!(server.connect().run("MODULE LIST").contains("fairlock"));
}

#[test]
fn it_loads_from_a_configuration_file() {
    let plain = Server::start();
    let path = plain.module_path();
    let dir = TempDir::new().expect("a directory");
    let file = dir.path().join("redis.conf");
    let text = format!("loadmodule {path}\nfairlock.lease 1234\nfairlock.turn 77\n");
    fs::write(&file, text).expect("a file");
    let server = Server::without_module(&["--include", file.to_str().expect("UTF-8")]);
    let mut client = server.connect();
    assert_eq!(
        client.run("CONFIG GET fairlock.lease"),
        "[fairlock.lease, 1234]"
    );
    assert_eq!(
        client.run("CONFIG GET fairlock.turn"),
        "[fairlock.turn, 77]"
    );
}

#[test]
fn commands_declare_their_key() {
    let server = Server::start();
    let mut client = server.connect();
    for command in [
        "ACQUIRE k a",
        "RELEASE k a",
        "RENEW k a",
        "CANCEL k a",
        "BREAK k",
        "QUEUE k",
        "INFO k",
    ] {
        let keys = client.run(&format!("COMMAND GETKEYS FAIRLOCK.{command}"));
        assert_eq!(keys, "[k]", "{command}");
    }
}

#[test]
fn acl_key_patterns_apply_to_the_lock() {
    let server = Server::start();
    let mut client = server.connect();
    client.run("ACL SETUSER ann on nopass ~mine:* +@all");
    client.run("AUTH ann x");
    assert!(client.int("FAIRLOCK.ACQUIRE mine:k a") > 0);
    for command in [
        "ACQUIRE k a",
        "RELEASE k a",
        "RENEW k a",
        "CANCEL k a",
        "BREAK k",
        "QUEUE k",
        "INFO k",
    ] {
        let error = client.run(&format!("FAIRLOCK.{command}"));
        assert!(error.starts_with("(error) NOPERM "), "{command}: {error}");
    }
}

#[test]
fn reading_commands_are_read_only_and_the_others_write() {
    let server = Server::start();
    let mut client = server.connect();
    for (command, flag) in [
        ("ACQUIRE", "write"),
        ("RELEASE", "write"),
        ("QUEUE", "readonly"),
        ("INFO", "readonly"),
    ] {
        let info = client.run(&format!("COMMAND INFO FAIRLOCK.{command}"));
        assert!(info.contains(flag), "{command}: {info}");
    }
}

#[test]
fn it_is_not_loaded_where_a_command_that_it_needs_was_renamed() {
    let path = Server::start().module_path();
    for command in ["HSET", "DEL", "LPOP", "PUBLISH"] {
        let renamed = [
            "--rename-command",
            command,
            "hidden",
            "--enable-module-command",
            "yes",
        ];
        let server = Server::without_module(&renamed);
        let refused = server.connect().run(&format!("MODULE LOAD {path}"));
        assert!(refused.starts_with("(error) ERR "), "{refused}");
        let log = server.log();
        assert!(
            log.contains(&format!("fairlock needs the command {command}")),
            "{log}"
        );
    }
    // Others may be.
    let renamed = [
        "--rename-command",
        "KEYS",
        "",
        "--enable-module-command",
        "yes",
    ];
    let server = Server::without_module(&renamed);
    assert_eq!(server.connect().run(&format!("MODULE LOAD {path}")), "OK");
}

/// A waiter of the user ann, who may acquire the lock `k`, held by `a`.
fn ann_waits(server: &Server) -> Blocked {
    let mut ann = server.connect();
    assert_eq!(ann.run("AUTH ann x"), "OK");
    let waiter = Blocked::send_on(ann, "FAIRLOCK.ACQUIRE k ann");
    wait_until("ann waits", || server.blocked() == 1);
    waiter
}

/// The release of `k` serves nobody, for the waiter has lost its permission.
fn is_refused(server: &Server, waiter: Blocked) {
    let mut admin = server.connect();
    assert_eq!(admin.run("FAIRLOCK.RELEASE k a"), "0");
    let reply = waiter.reply();
    assert!(reply.starts_with("(error) NOPERM "), "{reply}");
    assert_eq!(admin.run("EXISTS k"), "0");
}

#[test]
fn permissions_that_a_renamed_command_changes_are_noticed() {
    const MAY: &str = "users SETUSER ann reset on nopass ~k +fairlock.acquire";
    const MAY_NOT: &str = "users setuser ann -fairlock.acquire";
    // What is renamed to itself keeps its name.
    for exec in ["EXEC", "go"] {
        let renamed = ["--rename-command", "ACL", "users"];
        let renamed = [renamed, ["--rename-command", "EXEC", exec]].concat();
        let server = Server::with(&renamed);
        let mut admin = server.connect();
        assert_eq!(admin.run(MAY), "OK");
        admin.int("FAIRLOCK.ACQUIRE k a");
        let waiter = ann_waits(&server);
        assert_eq!(admin.run(MAY_NOT), "OK");
        is_refused(&server, waiter);

        // By a transaction that was begun before ann asks.
        assert_eq!(admin.run(MAY), "OK");
        admin.int("FAIRLOCK.ACQUIRE k a");
        admin.run("MULTI");
        admin.run(MAY_NOT);
        let waiter = ann_waits(&server);
        assert_eq!(admin.run(exec), "[OK]");
        is_refused(&server, waiter);
    }
}

#[test]
fn what_it_does_not_see_under_another_name_is_in_the_log() {
    let renamed = ["--rename-command", "EVALSHA", "hidden"];
    let server = Server::with(&renamed);
    let log = server.log();
    assert!(
        log.contains("fairlock does not see the command EVALSHA"),
        "{log}"
    );
    assert!(!log.contains("does not see the command EVAL,"), "{log}");
    let server = Server::start();
    assert!(!server.log().contains("does not see"), "{}", server.log());
}

#[test]
fn it_can_be_unloaded_when_nobody_waits_and_loaded_again() {
    let server = Server::with(&["--enable-module-command", "yes"]);
    let mut client = server.connect();
    let path = server.module_path();
    client.int("FAIRLOCK.ACQUIRE k a");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    let error = client.run("MODULE UNLOAD fairlock");
    assert!(error.contains("blocked clients"), "{error}");
    assert_eq!(client.run("FAIRLOCK.RELEASE k a"), "0");
    let token = waiter.int();
    assert_eq!(client.run("MODULE UNLOAD fairlock"), "OK");
    assert_eq!(client.holders("k"), "[b, 1]");
    assert_eq!(client.run(&format!("MODULE LOAD {path}")), "OK");
    let waiter = server.block("FAIRLOCK.ACQUIRE k c");
    assert_eq!(client.run("FAIRLOCK.RELEASE k b"), "0");
    assert!(waiter.int() > token);
}
