//! Whose scripts run natively, and what they reach.

use std::thread;

use fairlock_testing::{Client, Server, wait_until};

use super::{both, call, code, counters, intercepting, with_scripts};

/// Connections of an administrator and of a user that may do everything as yet. The server has the scripts.
fn admin_and_user(server: &Server) -> (Client, Client) {
    let mut admin = with_scripts(server);
    admin.run("ACL SETUSER user on nopass ~* &* +@all");
    let mut user = server.connect();
    user.run("AUTH user any");
    (admin, user)
}

/// What users may and may not do, and the codes that the script's call is answered with as Lua, and natively. Natively
/// it does nothing that `FAIRLOCK.RELEASE` would not, so `FAIRLOCK.EVALSHA` with these keys is all that it needs.
const USERS: &str = "
    all | ~* &* +@all | 1 | 1
    no scripts | ~* &* +@all -eval -evalsha | NOPERM | 1
    not Redisson's | ~* &* +@all -fairlock.evalsha | 1 | as Lua
    other keys | ~other* &* +@all | NOPERM | as Lua
    reads only | %R~* &* +@all | NOPERM | as Lua
    no hashes | ~* &* +@all -hincrby | ERR | 1
    no channels | ~* resetchannels +@all | ERR | 1
    its keys and channels | ~k ~redisson_*{k}* &redisson_lock__channel:{k}* +@all | 1 | 1
    a selector | ~* &* +@all (+@all ~other*) | 1 | 1
    a selector for the scripts | ~other* &* +@all (+@all ~*) | 1 | 1";

#[test]
fn users_may_do_what_their_permissions_allow_the_script() {
    let [lua, native] = both(&[]);
    for user in USERS.trim().lines() {
        let parts: Vec<&str> = user.trim().split(" | ").collect();
        let [name, rules, by_lua, natively] = parts[..] else {
            panic!("{user}");
        };
        let unlocked = || {
            let mut counted = counters(&native, "intercepted").into_iter();
            counted.find(|line| line.starts_with("unlock:"))
        };
        let before = unlocked();
        let [of_lua, of_native] = [&lua, &native].map(|server| unlock_as(server, rules));
        // Before 7.2 the error of a command in a script has a code of its own, NOPERM, too.
        let found = code(&of_lua);
        assert!(
            found == by_lua || by_lua == "ERR" && found == "NOPERM",
            "{name}: {of_lua}"
        );
        if natively == "as Lua" && native.knows_7_2() {
            assert_eq!(code(&of_native), found, "{name}: {of_native}");
        } else {
            // Before 7.2 the filter cannot ask for the user, and the server refuses what it may not run.
            let wanted = natively.replace("as Lua", "NOPERM");
            assert_eq!(code(&of_native), wanted, "{name}: {of_native}");
        }
        assert_eq!(unlocked() != before, natively == "1", "{name}");
    }
}

/// A user with these permissions unlocks a lock that has a waiter.
fn unlock_as(server: &Server, rules: &str) -> String {
    server.connect().run("FLUSHALL");
    let mut admin = with_scripts(server);
    admin.run(&format!("ACL SETUSER user reset on nopass {rules}"));
    admin.run_words(&call("lock"));
    admin.run("RPUSH redisson_lock_queue:{k} b:1");
    admin.run("ZADD redisson_lock_timeout:{k} 9999999999999 b:1");
    let mut user = server.connect();
    user.assert_reply("AUTH user any", "OK");
    user.run_words(&call("unlock"))
}

#[test]
fn a_user_whose_commands_are_listed_needs_ours_before_7_2() {
    let server = intercepting(&[]);
    let mut admin = with_scripts(&server);
    let listed = "+evalsha +@hash +@list +@sortedset +@keyspace +@string +@pubsub";
    admin.run(&format!("ACL SETUSER user on nopass ~* &* {listed}"));
    let mut user = server.connect();
    user.run("AUTH user any");
    let reply = user.run_words(&call("lock"));
    let wanted = if server.knows_7_2() {
        "(nil)"
    } else {
        "NOPERM"
    };
    assert_eq!(code(&reply), wanted);
    admin.run("ACL SETUSER user +fairlock.eval +fairlock.evalsha +eval +@all");
    assert_eq!(user.run_words(&call("lock")), "(nil)");
    assert_eq!(counters(&server, "intercepted"), ["lock:1"]);
}

#[test]
fn permissions_that_change_count_at_once() {
    let server = intercepting(&[]);
    let (mut admin, mut user) = admin_and_user(&server);
    let mut set = |rules: &str| admin.run(&format!("ACL SETUSER user {rules}"));
    assert_eq!(user.run_words(&call("lock")), "(nil)");
    set("resetkeys");
    assert_eq!(code(&user.run_words(&call("lock"))), "NOPERM");
    set("~*");
    assert_eq!(user.run_words(&call("lock")), "(nil)");
    // By a transaction, between whose steps the user asks.
    admin.run("MULTI");
    admin.run("ACL SETUSER user resetkeys");
    assert_eq!(user.run_words(&call("lock")), "(nil)");
    admin.run("EXEC");
    assert_eq!(code(&user.run_words(&call("lock"))), "NOPERM");
    assert_eq!(admin.holders("k"), "[a:1, 3]");
}

/// Valkey has permissions for databases since 9.1.
#[test]
fn a_user_with_permission_for_one_database_runs_scripts_natively_there() {
    let server = intercepting(&[]);
    let (mut admin, mut user) = admin_and_user(&server);
    if admin.run("ACL SETUSER user resetdbs db=1") == "OK" {
        assert_eq!(code(&user.run_words(&call("lock"))), "NOPERM");
        user.assert_reply("SELECT 1", "OK");
        assert_eq!(user.run_words(&call("lock")), "(nil)");
        assert_eq!(counters(&server, "intercepted"), ["lock:1"]);
    }
}

/// By command: Redis 8.6 does not check again whether the user may use the keys, of no queued command.
#[test]
fn permissions_that_change_before_a_transaction_runs_or_in_it_count() {
    let server = intercepting(&[]);
    for in_it in [false, true] {
        let (mut admin, mut user) = admin_and_user(&server);
        let change = "ACL SETUSER user -evalsha -fairlock.evalsha";
        user.run("MULTI");
        if in_it {
            user.run(change);
        }
        assert_eq!(user.run_words(&call("lock")), "QUEUED");
        if !in_it {
            admin.run(change);
        }
        user.assert_has("EXEC", "NOPERM");
        admin.assert_reply("EXISTS k", "0");
    }
}

/// A user who may use the keys of a call, but none of the server's commands and no channel, gets no more than the
/// FAIRLOCK commands would give: all else runs as Lua, which the user may not.
#[test]
fn a_script_reaches_nothing_that_the_commands_of_the_lock_do_not() {
    let server = intercepting(&[]);
    let mut admin = with_scripts(&server);
    admin.run("ACL SETUSER user on nopass resetchannels ~* -@all +evalsha +fairlock.evalsha");
    let mut user = server.connect();
    user.run("AUTH user any");
    let mut with = |role: &str, changes: &[(usize, &str)]| {
        let mut words = call(role);
        for (index, word) in changes {
            words[*index] = (*word).to_owned();
        }
        code(&user.run_words(&words)).to_owned()
    };
    assert_eq!(with("lock", &[]), "(nil)");
    let refused = |reply: String| assert!(["ERR", "NOPERM"].contains(&&*reply), "{reply}");
    // Another channel, another key as the latch, another message, somebody's hash.
    admin.run("SET other 1");
    admin.run("HSET data a:1 x");
    admin.run("HSET more a:1 1 b 2");
    refused(with("unlock", &[(6, "news")]));
    refused(with("unlock", &[(7, "fresh")]));
    refused(with("unlock", &[(8, "news")]));
    refused(with("renew", &[(3, "data")]));
    refused(with("renew", &[(3, "more")]));
    let of_data = [
        "data",
        "redisson_lock_queue:{data}",
        "redisson_lock_timeout:{data}",
    ];
    let of_data: Vec<_> = (3..)
        .zip(of_data)
        .chain([(6, "redisson_lock__channel:{data}")])
        .collect();
    refused(with("force-unlock", &of_data));
    admin.assert_reply("EXISTS fresh", "0");
    admin.assert_reply("PTTL data", "-1");
    admin.assert_reply("PTTL more", "-1");
    assert_eq!(with("unlock", &[]), "1");
    // The lock is not among the keys of this script.
    admin.run("ACL SETUSER user resetkeys ~redisson_*");
    refused(with("leave", &[]));
    admin.run("ACL SETUSER user ~k");
    assert_eq!(with("leave", &[]), "(nil)");
}

#[test]
fn permissions_that_change_while_writes_are_paused_count_when_they_go_on() {
    let server = intercepting(&[]);
    let (mut admin, mut user) = admin_and_user(&server);
    user.run_words(&call("lock"));
    let (id, mut paused) = (user.id, user);
    admin.run("CLIENT PAUSE 600000 WRITE");
    let asks = thread::spawn(move || paused.run_words(&call("unlock")));
    wait_until("it is held up", || {
        let client = admin.run(&format!("CLIENT LIST ID {id}"));
        client.contains("cmd=evalsha") || client.contains("cmd=fairlock.evalsha")
    });
    admin.run("ACL SETUSER user resetkeys");
    admin.run("CLIENT UNPAUSE");
    let reply = asks.join().expect("no panic");
    assert_eq!(code(&reply), "NOPERM", "{reply}");
    assert_eq!(admin.holders("k"), "[a:1, 1]");
}
