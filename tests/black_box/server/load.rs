//! Loading the module.

use std::fs;

use fairlock_testing::Server;
use fairlock_testing::native::library;

/// Loads the module, and keeps one of the server's functions from it.
const HIDING: &str = "tests/black_box/server/hiding.c";

#[test]
fn it_is_not_loaded_where_a_command_that_it_needs_was_renamed() {
    let path = Server::start().module_path();
    let load = |command, cluster| {
        let options = format!(
            "--rename-command {command} hidden --enable-module-command yes --cluster-enabled {cluster}"
        );
        let server = Server::without_module(&options.split(' ').collect::<Vec<_>>());
        let reply = server.connect().run(&format!("MODULE LOAD {path}"));
        (reply, server.log())
    };
    let needed = ["ACL", "HSET", "HDEL", "DEL", "LPOP", "PUBLISH"].map(|command| (command, "no"));
    for (command, cluster) in needed.into_iter().chain([("CLUSTER", "yes")]) {
        let (refused, log) = load(command, cluster);
        assert!(refused.starts_with("(error) ERR "), "{refused}");
        assert!(
            log.contains(&format!("fairlock needs the command {command}")),
            "{log}"
        );
    }
    // Others may be, and CLUSTER where no slots move.
    for command in ["KEYS", "CLUSTER"] {
        assert_eq!(load(command, "no").0, "OK", "{command}");
    }
}

#[test]
fn it_is_never_unloaded_and_goes_on() {
    let (server, mut client) = Server::connected_with(&["--enable-module-command", "yes"]);
    let mut assert_refused = |why: &str| {
        let error = client.run("MODULE UNLOAD fairlock");
        assert!(error.starts_with("(error) ERR "), "{error}");
        assert!(error.contains(why), "{error}");
    };
    assert_refused("not possible");
    assert!(
        server
            .log()
            .contains("restart the server without it, or fail over")
    );
    let mut other = server.connect();
    other.int("FAIRLOCK.ACQUIRE k a");
    let waiter = server.block("FAIRLOCK.ACQUIRE k b");
    assert_refused("blocked clients");
    // The timer for the end of the lease goes on.
    other.int("FAIRLOCK.RENEW k a LEASE 600");
    assert!(waiter.int() > 0);
    assert_eq!(server.count("lease_ends"), 1);
}

#[test]
fn the_server_knows_the_release() {
    let parts = env!("CARGO_PKG_VERSION").split('.');
    let release = parts.fold(0, |all, part| {
        all * 100 + part.parse::<i32>().expect("a number")
    });
    let (_server, mut client) = Server::connected();
    client.assert_has("MODULE LIST", &format!("name, fairlock, ver, {release},"));
}

/// A server that can load modules, without one.
fn plain() -> Server {
    Server::without_module(&["--enable-module-command", "yes"])
}

fn is_mapped(server: &Server) -> bool {
    let maps = fs::read_to_string(format!("/proc/{}/maps", server.pid())).expect("its memory");
    maps.contains("libfairlock.so")
}

#[track_caller]
fn does_not_load(server: &Server, arguments: &str) {
    server
        .connect()
        .assert_error(&format!("MODULE LOAD {arguments}"), "ERR");
}

#[test]
fn a_server_that_lacks_what_it_needs_is_told() {
    let path = Server::start().module_path();
    for (lacks, said) in [
        // The last function that came, with Redis 7.0.5.
        ("GetAbsExpire", "fairlock needs Redis 7.0.5"),
        ("Alloc-", "fairlock needs memory that is aligned"),
    ] {
        let server = plain();
        let hiding = library(HIDING, server.dir());
        let load = format!("{} {path} RedisModule_{lacks}", hiding.display());
        does_not_load(&server, &load);
        assert!(server.log().contains(said), "{lacks}");
    }
}

#[test]
fn a_server_may_lack_an_optional_function() {
    let path = Server::start().module_path();
    for function in [
        "RedisModule_GetModuleUserACLString",
        "RedisModule_GetModuleOptionsAll",
        "RedisModule_SetCommandACLCategories",
        "RedisModule_CommandFilterGetClientId",
    ] {
        let server = plain();
        let hiding = library(HIDING, server.dir());
        let load = format!("MODULE LOAD {} {path} {function}", hiding.display());
        let mut client = server.connect();
        assert_eq!(client.run(&load), "OK", "{function}");
        assert!(client.int("FAIRLOCK.ACQUIRE k a") > 0);
        client.assert_reply("CONFIG SET fairlock.intercept-eval yes", "OK");
        client.assert_reply("EVAL return(1) 0", "1");
        client.assert_reply("COPY k l", "1");
        client.assert_reply("FAIRLOCK.BREAK k", "1");
    }
}

#[test]
fn its_code_stays_where_it_is_when_it_is_refused() {
    let path = Server::start().module_path();
    let renamed = ["--rename-command", "HSET", "hidden"];
    let server =
        Server::without_module(&[&renamed[..], &["--enable-module-command", "yes"]].concat());
    assert!(!is_mapped(&server));
    does_not_load(&server, &path);
    assert!(is_mapped(&server));
}

#[test]
fn it_can_be_refused_and_taken_back_many_times_in_one_iteration_and_leaves_no_memory_behind() {
    let path = Server::start().module_path();
    let server = plain();
    let mut client = server.connect();
    // With keys, loading begins a walk over them that goes on in the event loop; with a queue among
    // them, it finds what is to be done.
    client.run("SET other value");
    client.run("HSET k a 1");
    client.run("RPUSH redisson_lock_queue:{k} b");
    let bad = format!("MODULE LOAD {path} lease never");
    // The server finds out that there is no such option when the module has been initialised.
    let taken_back = format!("MODULE LOADEX {path} CONFIG fairlock.no 1");
    let mut rounds = |number: usize| {
        for _ in 0..number {
            let replies = client.run_many([&bad, &taken_back, &bad, &taken_back, &taken_back]);
            let ok = redis::Value::Okay;
            assert!(!replies.contains(&ok), "{replies:?}");
            // In another iteration, with what the last one has left to the event loop.
            assert!(!client.run("MODULE LIST").contains("fairlock"));
        }
        let used = server.info("memory", "used_memory_dataset");
        used.parse::<i64>().expect("a number of bytes")
    };
    let before = rounds(5);
    let grown = rounds(20) - before;
    assert!(grown < 100_000, "{grown} bytes");
    client.assert_reply(&format!("MODULE LOAD {path}"), "OK");
    client.run("DEL k");
    assert!(client.int("FAIRLOCK.ACQUIRE k b ENQUEUE") > 0);
}
