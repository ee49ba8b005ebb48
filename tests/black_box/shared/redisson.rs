//! Redisson's scripts on a lock that is held SHARED: they are exclusive, wait behind its holders, and are waited for
//! in their turn. Both as Lua and intercepted.

use fairlock_testing::{Client, Server, wait_until};

/// Takes the lock, as Redisson's script without a queue does when it is free, and counts holds of the same owner.
const TRY: &str = "if (redis.call('exists', KEYS[1]) == 0) or (redis.call('hexists', KEYS[1], ARGV[2]) == 1) then \
    redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end; \
    return redis.call('pttl', KEYS[1]);";

fn try_by_lua(client: &mut Client, owner: &str) -> String {
    let words: [&[u8]; 6] = [
        b"EVAL",
        TRY.as_bytes(),
        b"1",
        b"k",
        b"600000",
        owner.as_bytes(),
    ];
    let reply = client.raw(&words);
    reply.map_or_else(|error| error, |value| fairlock_testing::show(&value))
}

#[test]
fn a_script_sees_a_held_lock_until_the_last_holder_is_gone() {
    let (_server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a SHARED LEASE 600000");
    client.int("FAIRLOCK.ACQUIRE k b SHARED LEASE 900000");
    let left: i64 = try_by_lua(&mut client, "x").parse().expect("PTTL");
    assert!((600_001..=900_000).contains(&left), "{left}");
    client.run("FAIRLOCK.RELEASE k a");
    assert_ne!(try_by_lua(&mut client, "x"), "(nil)");
    client.run("FAIRLOCK.RELEASE k b");
    assert_eq!(try_by_lua(&mut client, "x"), "(nil)");
    client.assert_reply("FAIRLOCK.ACQUIRE k c SHARED NOWAIT", "(nil)");
    assert_eq!(client.run("FAIRLOCK.HOLDERS k").matches("x, 1").count(), 1);
}

#[test]
fn a_holder_that_comes_again_by_a_script_keeps_its_holds_apart() {
    let (_server, mut client) = Server::connected();
    client.int("FAIRLOCK.ACQUIRE k a SHARED LEASE 100000");
    client.int("FAIRLOCK.ACQUIRE k b SHARED LEASE 100000");
    // The script counts a hold and gives the key another expiry.
    assert_eq!(try_by_lua(&mut client, "a"), "(nil)");
    client.assert_reply("HGET k a", "2");
    wait_until("the expiry is some holder's lease", || {
        client.run("FAIRLOCK.HOLDERS k").contains(", 59")
    });
    client.assert_reply("FAIRLOCK.RELEASE k b", "0");
    client.assert_reply("FAIRLOCK.RELEASE k a ALL", "0");
    client.assert_reply("DBSIZE", "0");
}
