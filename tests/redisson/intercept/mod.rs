//! Interception as clients and operators see it: which scripts run natively, and which as Lua.

mod users;

use fairlock_testing::redisson;
use fairlock_testing::redisson::harvest::{SCRIPTS, script};
use fairlock_testing::{Client, Server, follow, show, wait_until};

use crate::hand::{Hand, now};
use crate::interception::Interception;

fn intercepting(options: &[&str]) -> Server {
    Interception::On.server(options)
}

/// Both settings: the same calls must have the same results.
fn both(options: &[&str]) -> [Server; 2] {
    [Interception::Off.server(options), intercepting(options)]
}

/// The call of a script by owner `a:1` on lock `k`, by digest.
fn call(role: &str) -> Vec<String> {
    call_by(role, "k", "a:1")
}

fn call_by(role: &str, lock: &str, owner: &str) -> Vec<String> {
    redisson::call_by_digest(role, (lock, owner), "1f", [30_000, 300_000, now()])
}

fn by_text(role: &str) -> Vec<String> {
    redisson::call(role, ("k", "a:1"), "1f", [30_000, 300_000, now()])
}

/// A client of a server that has the scripts.
fn with_scripts(server: &Server) -> Client {
    let mut client = server.connect();
    for script in SCRIPTS.iter() {
        client
            .raw(&[b"SCRIPT", b"LOAD", &script.text])
            .expect("loaded");
    }
    client
}

/// The first word of an error, or the reply.
fn code(reply: &str) -> &str {
    let error = reply.strip_prefix("(error) ");
    error.map_or(reply, |error| error.split(' ').next().expect("a word"))
}

fn counters(server: &Server, kind: &str) -> Vec<String> {
    let info = server.connect().run("INFO fairlock");
    let prefix = format!("fairlock_scripts_{kind}_");
    let lines = info.lines().filter_map(|line| line.strip_prefix(&prefix));
    let counted = lines.filter(|line| !line.ends_with(":0"));
    counted.map(str::to_owned).collect()
}

#[test]
fn a_known_script_runs_natively_though_it_was_never_loaded() {
    let server = intercepting(&[]);
    let mut client = server.connect();
    assert_eq!(client.run_words(&call("try-lock")), "(nil)");
    assert_eq!(client.run_words(&by_text("lock")), "(nil)");
    assert_eq!(client.holders("k"), "[a:1, 2]");
    assert_eq!(client.run_words(&call("renew")), "[1]");
    assert_eq!(client.run_words(&by_text("unlock")), "0");
    client.run("DEL redisson_unlock_latch:{k}:1f");
    assert_eq!(client.run_words(&call("unlock")), "1");
    assert_eq!(client.run_words(&call("leave")), "(nil)");
    assert_eq!(client.run_words(&call("force-unlock")), "0");
    let statistics = client.run("INFO commandstats");
    for name in ["eval", "evalsha"] {
        assert!(!statistics.contains(&format!("cmdstat_{name}:")));
        assert!(statistics.contains(&format!("cmdstat_fairlock.{name}:")));
    }
    let native = counters(&server, "intercepted");
    let expected = [
        "try_lock:1",
        "lock:1",
        "unlock:2",
        "force_unlock:1",
        "leave:1",
        "renew:1",
    ];
    assert_eq!(native, expected);
    assert_eq!(counters(&server, "lua"), [""; 0]);
}

#[test]
fn an_argument_that_is_no_number_or_no_time_to_live_is_left_to_lua() {
    let server = intercepting(&[]);
    let mut client = with_scripts(&server);
    // Each counted from the last one.
    for (role, argument, word) in [
        ("try-lock", 4, "0"),
        ("try-lock", 1, "x"),
        ("leave", 1, "x"),
    ] {
        let mut words = call(role);
        let at = words.len() - argument;
        words[at] = word.into();
        client.run_words(&words);
    }
    assert_eq!(counters(&server, "intercepted"), [""; 0]);
    assert_eq!(counters(&server, "lua"), ["try_lock:2", "leave:1"]);
}

/// Called by their digests alone: what is left to Lua is not known there.
#[test]
fn the_oldest_forms_reply_as_the_oldest_scripts() {
    let server = intercepting(&[]);
    let mut hand = Hand::of(&server);
    let mut client = server.connect();
    let renew = "EVALSHA 8e19a1ddbdee9138df9f32a480c57addab4353d1 1 k 30000 a:1";
    client.assert_reply(renew, "0");
    client.int("FAIRLOCK.ACQUIRE k a:1");
    client.assert_reply(renew, "1");
    // Its patience ends at an instant, which is not before that of the call.
    let keys = "k redisson_lock_queue:{k} redisson_lock_timeout:{k}";
    let lock = format!("EVALSHA c10436d1a94338a33b5ca6ac6f483f6b92193d48 3 {keys} 30000 b:1");
    assert_eq!(code(&client.run(&format!("{lock} 999 1000"))), "NOSCRIPT");
    assert!(client.int(&format!("{lock} 1000 1000")) > 0);
    client.int(&format!("{lock} 301000 1000"));
    // The newest passes the patience itself.
    hand.waits(["c:1"]);
    for (owner, patience) in [("b:1", 300_000), ("c:1", 2 * 300_000)] {
        let of_lease = hand.patience_left(owner) - patience;
        assert!((0..=30_000).contains(&of_lease), "{owner}: {of_lease}");
    }
}

/// `k` and `{k}` have one queue.
#[test]
fn scripts_on_a_lock_run_as_lua_while_its_twin_is_in_use() {
    let server = intercepting(&[]);
    let mut client = with_scripts(&server);
    client.int("FAIRLOCK.ACQUIRE {k} holder SESSION");
    let roles = ["try-lock", "lock", "renew", "unlock", "force-unlock"];
    for role in roles {
        client.run_words(&call(role));
    }
    assert_eq!(counters(&server, "intercepted"), [""; 0]);
    assert_eq!(counters(&server, "lua").len(), roles.len());
    // Whose queue it is does not show in the keys of this one.
    client.run_words(&call("leave"));
    assert_eq!(counters(&server, "intercepted"), ["leave:1"]);
    assert_eq!(client.holders("{k}"), "[holder, 1]");
    client.int("FAIRLOCK.RELEASE {k} holder");
    assert_eq!(client.run_words(&call("try-lock")), "(nil)");
    assert!(counters(&server, "intercepted").contains(&"try_lock:1".to_owned()));
}

#[test]
fn a_script_renews_the_lease_of_a_shared_holder_alone() {
    let server = intercepting(&[]);
    let mut client = server.connect();
    // The first test that asks for a script waits for its client to be built, for longer than a lease.
    let renew = call("renew");
    for owner in ["a:1", "b:1"] {
        client.int(&format!("FAIRLOCK.ACQUIRE k {owner} SHARED 2 LEASE 10000"));
    }
    assert_eq!(client.run_words(&renew), "[1]");
    client.int("FAIRLOCK.RELEASE k b:1");
    let holders = client.run("FAIRLOCK.HOLDERS k");
    let lease = holders.split(", ").nth(2).expect("a lease");
    assert!(
        lease.parse::<u64>().expect("a number") > 10_000,
        "{holders}"
    );
}

#[test]
fn a_renewal_that_is_left_to_lua_has_changed_nothing_before() {
    let server = intercepting(&["--notify-keyspace-events", "KEA"]);
    let mut client = server.connect();
    // The first test that asks for a script waits for its client to be built, for longer than a lease.
    let renew = &script("renew").text;
    client.int("FAIRLOCK.ACQUIRE k a:1");
    client.run("SET other x");
    let events = Client::events(server.port, || {
        let words: [&[u8]; 6] = [b"2", b"k", b"other", b"600000", b"a:1", b"a:1"];
        let reply = client.raw(&[&[b"EVAL", &renew[..]], &words[..]].concat());
        let error = reply.expect_err("no hash");
        assert!(error.starts_with("WRONGTYPE"), "{error}");
        client.int("FAIRLOCK.ACQUIRE next me");
    });
    // Lua has renewed the first before it came to the second.
    let expected = [
        "expire k",
        "hset next",
        "expire next",
        "fairlock.acquire next",
    ];
    assert_eq!(events, expected);
    assert!(client.int("PTTL k") > 60_000);
}

#[test]
fn scripts_of_others_pass_untouched() {
    let server = intercepting(&[]);
    let mut client = server.connect();
    let known = &script("lock").text;
    // As long as a known one, and another.
    let mut other = b"return KEYS[1] --".to_vec();
    other.resize(known.len(), b'x');
    let length = other.len();
    for _ in 0..3 {
        let reply = client.raw(&[b"EVAL", &other, b"1", b"k"]);
        assert_eq!(show(&reply.expect("a reply")), "k", "{length}");
    }
    client.assert_reply("EVAL return{1,2} 0", "[1, 2]");
    let unknown = client.run(&format!("EVALSHA {} 0", "0".repeat(40)));
    assert_eq!(code(&unknown), "NOSCRIPT");
    for wrong in ["EVAL", "EVALSHA", "EVAL x", "EVALSHA x 0"] {
        let reply = client.run(wrong);
        assert!(!reply.contains("fairlock"), "{reply}");
    }
    let few = format!("EVALSHA {}", script("lock").sha1);
    client.assert_has(&few, "'evalsha' command");
    assert_eq!(counters(&server, "intercepted"), [""; 0]);
    client.assert_reply("DBSIZE", "0");
    client.assert_has("FAIRLOCK.EVAL return 0", "script is not one of Redisson's");
}

#[test]
fn it_is_switched_on_and_off_while_clients_go_on() {
    let server = Interception::Off.server(&[]);
    let mut client = with_scripts(&server);
    assert_eq!(client.run_words(&call("lock")), "(nil)");
    client.run("CONFIG SET fairlock.intercept-eval yes");
    assert_eq!(client.run_words(&call("lock")), "(nil)");
    assert_eq!(counters(&server, "intercepted"), ["lock:1"]);
    // A call that was queued while it was on runs as Lua, and the next one is not looked at.
    client.run("MULTI");
    assert_eq!(client.run_words(&call("lock")), "QUEUED");
    let off = "CONFIG SET fairlock.intercept-eval no";
    assert_eq!(server.connect().run(off), "OK");
    client.assert_reply("EXEC", "[(nil)]");
    assert_eq!(client.run_words(&call("lock")), "(nil)");
    assert_eq!(counters(&server, "intercepted"), ["lock:1"]);
    assert_eq!(counters(&server, "lua"), ["lock:1"]);
    assert_eq!(client.holders("k"), "[a:1, 4]");
    let error = client.run("CONFIG SET fairlock.intercept-eval maybe");
    assert_eq!(code(&error), "ERR");
}

#[test]
fn events_are_those_of_the_script() {
    let [lua, native] = both(&["--notify-keyspace-events", "KEA"]);
    let [of_lua, of_native] = [lua, native].map(|server| {
        let mut client = with_scripts(&server);
        let log = Client::events(server.port, || {
            for (role, owner) in [
                ("try-lock", "a:1"),
                ("lock", "a:1"),
                ("renew", "a:1"),
                ("lock", "b:1"),
                ("lock", "c:1"),
                ("leave", "c:1"),
                ("leave", "b:1"),
                ("unlock", "a:1"),
            ] {
                client.run_words(&call_by(role, "k", owner));
            }
            client.run("DEL redisson_unlock_latch:{k}:1f");
            client.run_words(&call("unlock"));
            client.run_words(&call("force-unlock"));
        });
        let theirs = log
            .into_iter()
            .filter(|event| !event.starts_with("fairlock."));
        theirs.collect::<Vec<_>>()
    });
    assert_eq!(of_native, of_lua);
    assert!(of_native.len() > 15, "{of_native:?}");
}

#[test]
fn full_memory_refuses_the_lock_and_lets_it_be_given_up() {
    let server = intercepting(&[]);
    let mut client = with_scripts(&server);
    assert_eq!(client.run_words(&call("lock")), "(nil)");
    client.run("CONFIG SET maxmemory 1");
    let of_other = call_by("lock", "other", "a:1");
    assert_eq!(code(&client.run_words(&of_other)), "OOM");
    // With one key more than the native form has, it runs as Lua.
    let mut as_lua = call_by("lock", "k", "b:1");
    as_lua[2] = "4".to_owned();
    as_lua.insert(6, "more".to_owned());
    assert_eq!(code(&client.run_words(&as_lua)), "OOM");
    assert_eq!(client.run_words(&call("unlock")), "1");
    client.assert_reply("EXISTS k other redisson_lock_queue:{k}", "0");
}

#[test]
fn a_server_that_is_evicting_grants_the_lock() {
    // Each command evicts only a few of the keys.
    let tenacity = ["--maxmemory-eviction-tenacity", "0"];
    let options = [
        "--maxmemory-policy",
        "allkeys-lru",
        "--enable-debug-command",
        "yes",
    ];
    let server = intercepting(&[&options[..], &tenacity].concat());
    let mut client = with_scripts(&server);
    client.run("DEBUG POPULATE 100000");
    let used = || {
        server
            .info("memory", "used_memory")
            .parse::<u64>()
            .expect("a number")
    };
    let half = used() / 2;
    client.run(&format!("CONFIG SET maxmemory {half}"));
    assert_eq!(client.run_words(&call("lock")), "(nil)");
    assert!(used() > half, "it has evicted all that it had to");
}

/// A script ends at its first write then.
#[test]
fn a_server_that_refuses_writes_refuses_no_call_that_makes_none() {
    for server in &both(&["--save", "900 1", "--dbfilename", "taken"]) {
        let mut client = with_scripts(server);
        let mut run = |role, owner| client.run_words(&call_by(role, "k", owner));
        run("lock", "a:1");
        run("lock", "b:1");
        let mut assert_refused = |writes| {
            wait_until("the module has asked the server again", || {
                run("unlock", "c:1") == "(nil)"
            });
            for reply in [run("lock", "b:1"), run("try-lock", "c:1")] {
                assert!(reply.parse::<u64>().is_ok(), "{reply}");
            }
            assert_eq!(code(&run("lock", "c:1")), writes);
            assert_eq!(code(&run("unlock", "a:1")), writes);
        };
        server.connect().run("CONFIG SET min-replicas-to-write 1");
        assert_refused("NOREPLICAS");
        server.connect().run("CONFIG SET min-replicas-to-write 0");
        // A snapshot cannot take the place of a directory.
        std::fs::create_dir_all(server.dir().join("taken/full")).expect("a directory");
        server.connect().run("BGSAVE");
        wait_until("it has failed", || {
            server.info("persistence", "rdb_last_bgsave_status") == "err"
        });
        assert_refused("MISCONF");
    }
}

/// As before Redisson 3.52.0, where a name mapper maps the lock's name and not its queue's. That queue is `k`'s, which
/// is free.
#[test]
fn waiters_for_a_lock_of_a_mapped_name_keep_their_places() {
    let server = intercepting(&["--fairlock.turn", "100"]);
    let mut client = with_scripts(&server);
    let owner = |number| format!("01234567-89ab-4def-8123-456789abcdef:{number}");
    for number in 1..=3 {
        let mut mapped = call_by("lock", "k", &owner(number));
        mapped[3] = "app:k".to_owned();
        client.run_words(&mapped);
    }
    let waiting = client.run("LRANGE redisson_lock_queue:{k} 0 -1");
    assert_eq!(waiting, format!("[{}, {}]", owner(2), owner(3)));
    // Meanwhile a dead waiter of another lock has its turn.
    for (role, number) in [("lock", 1), ("lock", 2), ("unlock", 1)] {
        client.run_words(&call_by(role, "other", &owner(number)));
    }
    wait_until("the turn is over", || {
        client.run("EXISTS redisson_lock_queue:{other}") == "0"
    });
    client.assert_reply("LRANGE redisson_lock_queue:{k} 0 -1", &waiting);
}

#[test]
fn a_replica_leaves_scripts_alone() {
    let master = Server::start();
    let replica = intercepting(&[]);
    let mut client = with_scripts(&replica);
    follow(&replica, &master);
    let reply = client.run_words(&call("lock"));
    assert_eq!(code(&reply), "READONLY");
    assert!(reply.contains("script"), "{reply}");
    client.run("REPLICAOF NO ONE");
    assert_eq!(client.run_words(&call("lock")), "(nil)");
    assert_eq!(counters(&replica, "intercepted"), ["lock:1"]);
}

#[test]
fn a_cluster_sends_scripts_where_their_keys_are() {
    let server = intercepting(&["--cluster-enabled", "yes"]);
    let mut client = server.connect();
    let reply = client.run_words(&call("lock"));
    assert_eq!(code(&reply), "CLUSTERDOWN");
    client.run("CLUSTER ADDSLOTSRANGE 0 16383");
    wait_until("it is up", || {
        client.run("CLUSTER INFO").contains("cluster_state:ok")
    });
    assert_eq!(client.run_words(&call("lock")), "(nil)");
    let mut apart = call("lock");
    apart[4] = "redisson_lock_queue:{elsewhere}".to_owned();
    assert_eq!(code(&client.run_words(&apart)), "CROSSSLOT");
    assert_eq!(counters(&server, "intercepted"), ["lock:1"]);
}
