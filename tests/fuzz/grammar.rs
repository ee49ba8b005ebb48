//! The [forms] of commands.

use fairlock_testing::{Dice, forms};

use crate::words::{
    Words, any_key, bytes, count, derived, duration, lock, moment, number, owner, wild,
};

/// The module's commands.
pub const FAIRLOCK: &[&str] = &[
    "12 FAIRLOCK.ACQUIRE {lock} {owner} [LEASE {ms}] [ONCE] NOWAIT [SESSION]",
    "14 FAIRLOCK.ACQUIRE {lock} {owner} [LEASE {ms}] [PATIENCE {ms}] ENQUEUE [ONCE] [SESSION]",
    "14 FAIRLOCK.ACQUIRE {lock} {owner} [SESSION] [LEASE {ms}] WAIT {ms} [ONCE] [PATIENCE {ms}]",
    "4 FAIRLOCK.ACQUIRE {lock} {owner} [LEASE {ms}] [ONCE] [SESSION]",
    "12 FAIRLOCK.ACQUIRE {lock} {owner} SHARED [{small}] [LEASE {ms}] NOWAIT [SESSION] [ONCE]",
    "10 FAIRLOCK.ACQUIRE {lock} {owner} SHARED [{small}] ENQUEUE [LEASE {ms}]",
    "10 FAIRLOCK.ACQUIRE {lock} {owner} SHARED [{small}] WAIT {ms} [SESSION]",
    "1 FAIRLOCK.ACQUIRE {lock} {owner} SHARED {wild}",
    "16 FAIRLOCK.RELEASE {lock} {owner} [ALL]",
    "2 FAIRLOCK.RELEASE {lock} {owner} TOKEN {count} [ALL]",
    "6 FAIRLOCK.RENEW {lock} {owner} [LEASE {ms}]",
    "8 FAIRLOCK.CANCEL {lock} {owner}",
    "3 FAIRLOCK.BREAK {lock} [OWNER {owner}] [FORCE]",
    "5 FAIRLOCK.HOLDERS {lock}",
    "5 FAIRLOCK.QUEUE {lock} [LIMIT {count} {count}]",
    "5 FAIRLOCK.INFO {lock}",
    "3 FAIRLOCK.LOCKS [COUNT {count}]",
    "2 FAIRLOCK.LOCKS AFTER {count} [COUNT {count}]",
    "1 FAIRLOCK.LOCKS AFTER {bytes}",
    "1 FAIRLOCK.HELP",
    "1 FAIRLOCK.EVAL {bytes} {count} {lock} {owner}",
    "1 FAIRLOCK.EVALSHA {bytes} {count} {lock} {owner}",
];

/// What fills a lock's keys by the rules of their types, more or less.
pub const CONTENTS: &[&str] = &[
    "16 DEL {lock} {queue} {deadlines} {token} {shared}",
    "4 HSET {lock} {owner} {count}",
    "1 HSET {lock} {owner} {count} {owner} {count}",
    "1 HSET {lock} {bytes} {bytes}",
    "1 HDEL {lock} {owner}",
    "2 HSET {shared} {owner} {bytes}",
    "1 HSET {shared} {owner} {count}",
    "2 HDEL {shared} {owner}",
    "2 DEL {shared}",
    "1 PEXPIRE {shared} {ms}",
    "1 HINCRBY {lock} {owner} {count}",
    "1 HINCRBYFLOAT {lock} {owner} {wild}",
    "4 PEXPIRE {lock} {ms}",
    "1 PEXPIREAT {lock} {moment}",
    "1 PERSIST {lock}",
    "3 RPUSH {queue} {owner} [{owner}] [{owner}]",
    "2 LPUSH {queue} {owner} [{bytes}]",
    "2 LPOP {queue} [{count}]",
    "1 RPOP {queue}",
    "1 LREM {queue} {count} {owner}",
    "1 LSET {queue} {count} {owner}",
    "1 LTRIM {queue} {count} {count}",
    "1 LINSERT {queue} BEFORE {owner} {owner}",
    "1 LMOVE {queue} {queue} LEFT RIGHT",
    "3 ZADD {deadlines} {moment} {owner} [{moment} {owner}]",
    "1 ZADD {deadlines} {wild} {owner}",
    "1 ZADD {deadlines} {moment} {bytes}",
    "1 ZINCRBY {deadlines} {wild} {owner}",
    "2 ZREM {deadlines} {owner} [{owner}]",
    "1 ZPOPMIN {deadlines} [{count}]",
    "1 ZREMRANGEBYSCORE {deadlines} -inf {moment}",
    "2 SET {token} {count}",
    "1 SET {token} {wild}",
    "1 SET {token} {bytes} [PX {ms}]",
    "1 INCR {token}",
    "1 DECRBY {token} {count}",
    "1 PEXPIRE {token} {ms}",
    "1 APPEND {token} 1",
];

/// What makes any key anything.
pub const ANYTHING: &[&str] = &[
    "16 DEL {lock} {queue} {deadlines} {token} {shared}",
    "4 DEL {any} [{any}]",
    "2 UNLINK {any} [{any}]",
    "1 SET {any} {bytes} [PX {ms}]",
    "1 SET {any} {count} [KEEPTTL]",
    "1 HSET {any} {owner} {count}",
    "1 RPUSH {any} {owner} {bytes}",
    "1 ZADD {any} {moment} {owner}",
    "1 SADD {any} {owner} {count}",
    "1 XADD {any} * {owner} {bytes}",
    "1 PFADD {any} {owner}",
    "1 SETBIT {any} 70 1",
    "1 GEOADD {any} 1 1 {owner}",
    "1 GETDEL {any}",
    "2 RENAME {any} {any}",
    "1 RENAMENX {any} {any}",
    "1 RENAME {any} {else}",
    "1 RENAME {else} {any}",
    "2 MOVE {any} {db}",
    "1 COPY {any} {any} [REPLACE]",
    "1 COPY {any} {any} DB {db} [REPLACE]",
    "1 SWAPDB {db} {db}",
    "1 EXPIRE {any} {count}",
    "2 PEXPIRE {any} {ms} [GT]",
    "1 PEXPIREAT {any} {moment}",
    "1 PERSIST {any}",
    "3 RESTORE {any} 0 {dump} REPLACE",
    "1 RESTORE {any} {ms} {dump} REPLACE",
    "1 RESTORE {any} {moment} {dump} REPLACE ABSTTL",
    "1 RESTORE {any} {count} {bytes}",
    "1 SORT {any} ALPHA STORE {any}",
    "1 SORT {any} BY nosort STORE {any}",
    "1 ZUNIONSTORE {any} 2 {any} {any}",
    "1 ZRANGESTORE {any} {any} 0 -1",
    "1 SUNIONSTORE {any} {any} {any}",
    "1 DUMP {any}",
    "1 OBJECT ENCODING {any}",
    "1 MEMORY USAGE {any}",
    "1 TOUCH {any}",
    "1 SCAN 0",
];

/// What changes the server, or asks about it.
pub const SERVER: &[&str] = &[
    "2 CONFIG SET fairlock.lease {ms}",
    "2 CONFIG SET fairlock.patience {ms}",
    "3 CONFIG SET fairlock.turn {ms}",
    "1 CONFIG SET fairlock.clock-skew {ms}",
    "2 CONFIG SET fairlock.max-waiters {count}",
    "1 CONFIG SET fairlock.max-waiters 1000",
    "2 CONFIG SET fairlock.intercept-eval yes",
    "2 CONFIG SET fairlock.intercept-eval no",
    "1 CONFIG SET fairlock.intercept-eval {bytes}",
    "1 CONFIG SET fairlock.pubsub auto",
    "1 CONFIG SET fairlock.pubsub both",
    "1 CONFIG SET fairlock.pubsub {wild}",
    "1 CONFIG SET fairlock.lease {ms} fairlock.turn {ms}",
    "1 CONFIG GET fairlock.*",
    "1 CONFIG SET notify-keyspace-events KEA",
    "1 CONFIG SET notify-keyspace-events Ed",
    "1 CONFIG SET notify-keyspace-events {empty}",
    "1 CONFIG SET hash-max-listpack-entries {small}",
    "1 CONFIG SET list-max-listpack-size {small}",
    "1 CONFIG SET zset-max-listpack-entries {small}",
    "1 CONFIG SET lazyfree-lazy-user-del yes lazyfree-lazy-expire yes",
    "1 CONFIG SET lazyfree-lazy-user-del no lazyfree-lazy-expire no",
    "1 DEBUG SET-ACTIVE-EXPIRE 0",
    "2 DEBUG SET-ACTIVE-EXPIRE 1",
    "1 DEBUG SLEEP 0.001",
    // Without BLPOP and its like: Redis 7.0 stops, with the module or without, when a transaction
    // that pauses clients serves one of theirs.
    "1 CLIENT PAUSE {small} WRITE",
    "1 CLIENT PAUSE {small} ALL",
    "1 CLIENT UNPAUSE",
    "2 CLIENT TRACKING ON [BCAST]",
    "1 CLIENT TRACKING OFF",
    "1 CLIENT NO-EVICT ON",
    "1 CLIENT LIST",
    "1 CLIENT SETNAME {small}",
    "2 HELLO 2",
    "2 HELLO 3",
    "2 RESET",
    "3 SELECT {db}",
    "3 SELECT 0",
    "1 WAIT 0 1",
    "2 INFO fairlock",
    "1 INFO everything",
    "1 COMMAND INFO fairlock.acquire fairlock.evalsha",
    "1 COMMAND DOCS fairlock.queue",
    "1 COMMAND GETKEYS FAIRLOCK.ACQUIRE {lock} {owner}",
    "1 COMMAND GETKEYSANDFLAGS FAIRLOCK.EVAL {bytes} {count} {lock} {owner}",
    "1 COMMAND GETKEYS FAIRLOCK.EVALSHA {bytes} {count} {lock} {owner}",
    "1 MODULE LIST",
    "1 MODULE UNLOAD fairlock.no",
    "1 SCRIPT FLUSH",
    "1 ACL CAT scripting",
    // Redis from 7.4 to 8.0.5 does not survive that a client is unblocked that waits for its own FLUSHALL, with the
    // module or without. In a transaction, as at the end of a round, nothing waits.
    "1 FLUSHALL ASYNC",
    "1 FLUSHDB ASYNC",
];

/// Values of keys as DUMP tells them.
pub type Dumps = Vec<Vec<u8>>;

/// Fills a form in; all its keys are mostly of one lock.
pub fn fill(dice: &mut Dice, form: &str, dumps: &Dumps) -> Words {
    let name = lock(dice);
    forms::fill(dice, form, |dice, word| stand_in(dice, word, &name, dumps))
}

fn stand_in(dice: &mut Dice, word: &str, name: &[u8], dumps: &Dumps) -> Vec<u8> {
    match word {
        "{lock}" => name.to_vec(),
        "{queue}" => derived("redisson_lock_queue", name),
        "{deadlines}" => derived("redisson_lock_timeout", name),
        "{token}" => derived("fairlock_token", name),
        "{shared}" => derived("redisson_lock_shared", name),
        "{channel}" => derived("redisson_lock__channel", name),
        "{latch}" => [&derived("redisson_unlock_latch", name)[..], b":1f"].concat(),
        "{publish}" => dice.pick(&["PUBLISH", "SPUBLISH", "publish", "SET"]).into(),
        "{any}" => {
            let other = dice.one_in(8).then(|| lock(dice));
            any_key(dice, other.as_deref().unwrap_or(name))
        }
        "{else}" => b"else".to_vec(),
        "{owner}" => owner(dice),
        "{ms}" => duration(dice),
        "{moment}" => moment(dice),
        "{count}" => count(dice),
        "{small}" => number(dice.u64(1..20)),
        "{wild}" => wild(dice),
        "{db}" => number(dice.u64(..4)),
        "{bytes}" => bytes(dice),
        "{empty}" => Vec::new(),
        "{dump}" => dumps[dice.usize(..dumps.len())].clone(),
        _ => panic!("nothing is known of {word}"),
    }
}

/// Makes a command a nearly right one.
pub fn spoil(dice: &mut Dice, words: &mut Words) {
    // The name stays: without it, the command is of no interest.
    let at = dice.usize(1..=words.len());
    match dice.usize(..6) {
        0 if at < words.len() => drop(words.remove(at)),
        1 if at < words.len() => words.insert(at, words[at].clone()),
        2 if at < words.len() => words[at] = wild(dice),
        3 if at < words.len() => words[at] = bytes(dice),
        4 if at + 1 < words.len() => words.swap(at, at + 1),
        _ => words.push(bytes(dice)),
    }
}
