//! The packages' own scripts (`clients/lua`): what they refuse, what dead waiters cost, what a user needs, and locks
//! that others use by the module.

use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use fairlock_testing::cluster::Cluster;
use fairlock_testing::{Client, Listener, Server, lua, wait_until};

use crate::interception::Interception;

/// Such a pause between two asks may be longer than what is left of a turn.
const LATE: Duration = Duration::from_secs(1);

fn load_module(client: &mut Client, options: &str) {
    let module = fairlock_testing::server::module();
    let load = format!("MODULE LOAD {} {options}", module.display());
    client.assert_reply(&load, "OK");
}

/// One who waits behind them asks as the packages do: at its retry-after, and up to a tenth of it later.
#[test]
fn a_row_of_dead_waiters_costs_scripts_a_turn_for_the_first_and_sixteen_behind_it() {
    let (_server, mut client) = lua::connected();
    client.run("LUA.ACQUIRE k holder NOWAIT");
    for number in 0..20 {
        client.run(&format!("LUA.ACQUIRE k dead{number} ENQUEUE"));
    }
    client.run("LUA.ACQUIRE k alive ENQUEUE");
    client.assert_reply("LUA.RELEASE k holder", "0");
    let (mut heads, mut late) = (Vec::new(), Duration::ZERO);
    while heads.len() < 9 && heads.last().is_none_or(|head| head != "(nil)") {
        let reply = client.run("LUA.ACQUIRE k alive ENQUEUE PATIENCE 30000 ONCE");
        heads.push(client.run("LINDEX redisson_lock_queue:{k} 0"));
        let (_, retry_after) = reply.split_once(", ").unwrap_or(("", "0"));
        let retry_after = retry_after.trim_end_matches(']').parse();
        let retry_after = Duration::from_millis(retry_after.expect("milliseconds"));
        let asked = Instant::now();
        sleep(retry_after.mul_f64(1.1));
        late = late.max(asked.elapsed().saturating_sub(retry_after));
    }
    heads.dedup();
    // One that this test was too late for costs its turn alone.
    assert!(
        heads == ["dead0", "dead17", "(nil)"] || late > LATE,
        "{heads:?}"
    );
}

/// Also behind a silent head, where a script does what it does not do elsewhere.
#[test]
fn the_user_of_the_security_page_may_do_all_that_scripts_do() {
    let page = std::fs::read_to_string(fairlock_testing::paths::root().join("SECURITY.md"));
    let page = page.expect("the page");
    let user = page
        .lines()
        .find(|line| line.contains("ACL SETUSER scripts "));
    let user = user.expect("the user");
    for script in lua::SCRIPTS.iter() {
        // Of `redis.call` and `redis.pcall`.
        for call in script.text.split("call('").skip(1) {
            let (command, _) = call.split_once('\'').expect("its end");
            let word = format!("+{}", command.to_lowercase());
            let is_allowed = user.split_whitespace().any(|allowed| allowed == word);
            assert!(is_allowed, "{command}, which {} calls", script.command);
        }
    }
}

/// A package that has not found the module yet, where others share the lock by it.
#[test]
fn they_wait_behind_those_who_share_the_lock() {
    Interception::each(|interception| {
        let server = interception.server(&[]);
        let mut client = server.connect();
        lua::load(&mut client);
        for owner in ["a", "b"] {
            client.run(&format!("FAIRLOCK.ACQUIRE k {owner} SHARED"));
        }
        client.assert_start("LUA.ACQUIRE k c ENQUEUE", "[1, ");
        client.assert_reply("LUA.ACQUIRE k d NOWAIT", "(nil)");
        for owner in ["a", "b"] {
            client.assert_start("LUA.ACQUIRE k c ENQUEUE", "[1, ");
            client.assert_reply(&format!("FAIRLOCK.RELEASE k {owner}"), "0");
        }
        client.int("LUA.ACQUIRE k c ENQUEUE");
    });
}

/// A fleet moves over without a stop: a lock that is held and queued for by scripts goes on, for scripts and commands.
#[test]
fn once_the_module_is_loaded_commands_and_scripts_share_a_lock_in_order() {
    for interception in ["yes", "no"] {
        let server = Server::without_module(&["--enable-module-command", "yes"]);
        let mut client = server.connect();
        lua::load(&mut client);
        let mut last = 0;
        let mut is_greater = |token: i64| {
            assert!(token > last, "{token} after {last}");
            last = token;
        };
        is_greater(client.int("LUA.ACQUIRE k a ENQUEUE"));
        client.assert_start("LUA.ACQUIRE k b ENQUEUE", "[1, ");
        load_module(
            &mut client,
            &format!("intercept-eval {interception} turn 60000"),
        );
        let blocked = server.block("FAIRLOCK.ACQUIRE k c");
        client.assert_start("LUA.ACQUIRE k d ENQUEUE", "[3, ");
        client.assert_start("FAIRLOCK.ACQUIRE k e ENQUEUE", "[4, ");
        let woken = Listener::new(server.port, "redisson_lock__channel:{k}:d");
        client.assert_reply("LUA.RELEASE k a", "0");
        // It is the turn of b.
        client.assert_reply("LUA.ACQUIRE k f NOWAIT", "(nil)");
        client.assert_reply("FAIRLOCK.ACQUIRE k f NOWAIT", "(nil)");
        is_greater(client.int("LUA.ACQUIRE k b ENQUEUE"));
        assert!(!blocked.is_done());
        client.assert_reply("FAIRLOCK.RELEASE k b", "0");
        is_greater(blocked.int());
        client.assert_reply("LUA.RELEASE k c", "0");
        assert_eq!(woken.message(), "0");
        client.assert_start("FAIRLOCK.ACQUIRE k e ENQUEUE", "[2, ");
        is_greater(client.int("LUA.ACQUIRE k d ENQUEUE"));
        client.assert_reply("LUA.RELEASE k d", "0");
        is_greater(client.int("FAIRLOCK.ACQUIRE k e ENQUEUE"));
        client.assert_reply("FAIRLOCK.RELEASE k e", "0");
        client.assert_reply("KEYS *", "[fairlock_token:{k}]");
    }
}

/// By a script that the module does not run: it is seen by the deadline that it sets.
#[test]
fn who_goes_on_asking_by_script_keeps_its_place_once_the_module_is_loaded() {
    for interception in ["yes", "no"] {
        let server = Server::without_module(&["--enable-module-command", "yes"]);
        let mut client = server.connect();
        lua::load(&mut client);
        client.run("LUA.ACQUIRE k a NOWAIT LEASE 600000");
        client.run("LUA.ACQUIRE k b ENQUEUE PATIENCE 3000");
        client.run("LUA.ACQUIRE k c ENQUEUE");
        let first = client.int("ZSCORE redisson_lock_timeout:{k} b");
        let options = format!("intercept-eval {interception} turn 1000");
        load_module(&mut client, &options);
        wait_until("its first deadline has passed", || {
            client.run("LUA.ACQUIRE k b ENQUEUE PATIENCE 3000");
            client.int("ZSCORE redisson_lock_timeout:{k} b") > first + 3000
        });
        // Its turn ends by no stall.
        client.run("CONFIG SET fairlock.turn 60000");
        client.assert_reply("LUA.RELEASE k a", "0");
        client.int("LUA.ACQUIRE k b ENQUEUE");
    }
}

/// The module wakes who waits behind a silent head. A script that asks then is seen by the deadline that it sets.
#[test]
fn one_who_asks_by_script_behind_a_silent_head_keeps_its_place() {
    let server = Interception::On.server(&["--fairlock.turn", "6000"]);
    let mut client = server.connect();
    lua::load(&mut client);
    client.int("LUA.ACQUIRE k holder NOWAIT");
    for (position, waiter) in ["dead", "first", "living"].into_iter().enumerate() {
        let ask = format!("LUA.ACQUIRE k {waiter} ENQUEUE");
        client.assert_start(&ask, &format!("[{}, ", position + 1));
    }
    client.assert_reply("FAIRLOCK.CANCEL k first", "1");
    let woken = Listener::new(server.port, "redisson_lock__channel:{k}:living");
    client.assert_reply("FAIRLOCK.RELEASE k holder", "0");
    assert_eq!(woken.message(), "0");
    client.assert_start("LUA.ACQUIRE k living ENQUEUE", "[2, ");
    let mut queue = String::new();
    wait_until("the dead one is dropped", || {
        queue = client.run("LRANGE redisson_lock_queue:{k} 0 -1");
        !queue.contains("dead")
    });
    assert_eq!(queue, "[living]");
    client.int("LUA.ACQUIRE k living ENQUEUE");
}

#[test]
fn what_needs_the_module_is_refused_in_a_script() {
    let (_server, mut client) = lua::connected();
    for words in [
        "ACQUIRE k a",
        "ACQUIRE k a WAIT 5",
        "ACQUIRE k a ENQUEUE SESSION",
        "ACQUIRE k a ENQUEUE SHARED",
        "ACQUIRE k a NOWAIT SHARED 1",
        "ACQUIRE k * NOWAIT",
        "RELEASE k *",
        "RENEW k *",
        "CANCEL k *",
    ] {
        let reply = client.run(&format!("LUA.{words}"));
        assert!(reply.starts_with("(error) ERR "), "{words}: {reply}");
        let is_explained = reply.contains("needs the fairlock module") || words.contains('*');
        assert!(is_explained, "{words}: {reply}");
    }
    client.assert_reply("DBSIZE", "0");
}

/// A master of a cluster, alone: the head of the queue is woken by SPUBLISH, and no error is counted.
#[test]
fn scripts_wake_by_spublish_in_a_cluster() {
    let cluster = Cluster::without_module(1, &[]);
    let server = &cluster.masters[0];
    let mut client = server.connect();
    lua::load(&mut client);
    let mut waiter = server.wire("SSUBSCRIBE redisson_lock__channel:{k}:b");
    waiter.until("ssubscribe");
    // Before 7.2 a server has an error for what clients say of themselves.
    client.run("CONFIG RESETSTAT");
    client.int("LUA.ACQUIRE k a NOWAIT");
    client.assert_start("LUA.ACQUIRE k b ENQUEUE", "[1, ");
    client.assert_reply("LUA.RELEASE k a", "0");
    waiter.until("smessage");
    client.int("LUA.ACQUIRE k b ENQUEUE");
    assert!(!client.run("INFO errorstats").contains("errorstat_"));
}

/// The example of the scripts' page, as a shell runs it.
#[test]
fn the_example_of_the_scripts_page_runs() {
    let server = Server::without_module(&[]);
    let folder = fairlock_testing::paths::root().join("clients/lua");
    let page = std::fs::read_to_string(folder.join("README.md")).expect("the page");
    let (_, example) = page.split_once("```sh\n").expect("an example");
    let (example, _) = example.split_once("```").expect("its end");
    let port = format!(
        "redis-cli() {{ command redis-cli -p {} \"$@\"; }}\n",
        server.port
    );
    let shell = Command::new("bash")
        .args(["-euc", &(port + example)])
        .current_dir(&folder)
        .output();
    let said = String::from_utf8(shell.expect("a shell").stdout).expect("text");
    let numbers: Vec<i64> = said
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    let [first, position, retry_after, left, second] = numbers[..] else {
        panic!("{said}");
    };
    assert!(
        (position, left) == (1, 0) && (1..=30_000).contains(&retry_after),
        "{said}"
    );
    assert!(second > first && first > 0, "{said}");
}
