//! The same keys, used by scripts in the manner of Redisson's: what one side leaves, the other
//! understands. The scripts are written for these tests from the algorithm's description.

use std::time::{SystemTime, UNIX_EPOCH};

use fairlock_testing::{Client, Server, show};
use redis::Value;

/// KEYS lock, queue, deadlines; ARGV lease, owner, wait, now. Nil when acquired, else ms to wait.
const TRY_LOCK: &str = "
    local lock, queue, deadlines = KEYS[1], KEYS[2], KEYS[3]
    local lease, owner, wait, now = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
    local head = redis.call('LINDEX', queue, 0)
    while head do
        local score = redis.call('ZSCORE', deadlines, head)
        if not score or tonumber(score) > now then break end
        redis.call('ZREM', deadlines, head)
        redis.call('LPOP', queue)
        head = redis.call('LINDEX', queue, 0)
    end
    local free = redis.call('EXISTS', lock) == 0
    if free and (not head or head == owner) then
        redis.call('LPOP', queue)
        redis.call('ZREM', deadlines, owner)
        for _, other in ipairs(redis.call('ZRANGE', deadlines, 0, -1)) do
            redis.call('ZINCRBY', deadlines, -wait, other)
        end
        redis.call('HSET', lock, owner, 1)
        redis.call('PEXPIRE', lock, lease)
        return nil
    end
    if redis.call('HEXISTS', lock, owner) == 1 then
        redis.call('HINCRBY', lock, owner, 1)
        redis.call('PEXPIRE', lock, lease)
        return nil
    end
    if redis.call('ZSCORE', deadlines, owner) then
        return math.max(0, redis.call('PTTL', lock))
    end
    local last = redis.call('LINDEX', queue, -1)
    local score = last and last ~= owner and redis.call('ZSCORE', deadlines, last)
    local left = score and (tonumber(score) - now) or redis.call('PTTL', lock)
    if redis.call('ZADD', deadlines, left + wait + now, owner) == 1 then
        redis.call('RPUSH', queue, owner)
    end
    return left";

/// KEYS lock, queue, deadlines, channel; ARGV owner, lease. Nil: not the holder, 0: still held.
const UNLOCK: &str = "
    local lock, queue, deadlines, channel = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
    if redis.call('HEXISTS', lock, ARGV[1]) == 0 then return nil end
    if redis.call('HINCRBY', lock, ARGV[1], -1) > 0 then
        redis.call('PEXPIRE', lock, ARGV[2])
        return 0
    end
    redis.call('DEL', lock)
    local head = redis.call('LINDEX', queue, 0)
    if head then redis.call('PUBLISH', channel .. ':' .. head, '0') end
    return 1";

fn now() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970")
        .as_millis()
}

/// Asks for `k` as a script does.
pub fn try_lock(client: &mut Client, owner: &str, wait: u64) -> String {
    try_lock_at(client, owner, wait, now())
}

/// As [`try_lock`], with the client's clock showing `now`.
pub fn try_lock_at(client: &mut Client, owner: &str, wait: u64, now: u128) -> String {
    let (wait, now) = (wait.to_string(), now.to_string());
    let reply = client.raw(&[
        b"EVAL",
        TRY_LOCK.as_bytes(),
        b"3",
        b"k",
        b"redisson_lock_queue:{k}",
        b"redisson_lock_timeout:{k}",
        b"30000",
        owner.as_bytes(),
        wait.as_bytes(),
        now.as_bytes(),
    ]);
    show(&reply.expect("a reply"))
}

/// Releases `k` as a script does.
pub fn unlock(client: &mut Client, owner: &str) -> Value {
    let reply = client.raw(&[
        b"EVAL",
        UNLOCK.as_bytes(),
        b"4",
        b"k",
        b"redisson_lock_queue:{k}",
        b"redisson_lock_timeout:{k}",
        b"redisson_lock__channel:{k}",
        owner.as_bytes(),
        b"30000",
    ]);
    reply.expect("a reply")
}

#[test]
fn waiters_that_a_script_drops_keep_their_places() {
    let (server, mut client) = Server::connected_with(&["--fairlock.turn", "60000"]);
    client.int("FAIRLOCK.ACQUIRE k a");
    let first = server.block("FAIRLOCK.ACQUIRE k b");
    client.run("FAIRLOCK.ACQUIRE k p ENQUEUE");
    let second = server.block("FAIRLOCK.ACQUIRE k c PATIENCE 7200000");
    // A client whose clock is an hour ahead purges waiters that seem dead to it, and joins.
    try_lock_at(&mut client, "u:1", 300_000, now() + 3_600_000);
    client.assert_reply("LRANGE redisson_lock_queue:{k} 0 -1", "[b, p, c, u:1]");
    client.int("FAIRLOCK.RELEASE k a");
    assert!(first.int() > 0);
    client.int("FAIRLOCK.RELEASE k b");
    assert!(client.int("FAIRLOCK.ACQUIRE k p ENQUEUE") > 0);
    client.int("FAIRLOCK.RELEASE k p");
    assert!(second.int() > 0);
}
