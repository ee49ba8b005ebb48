//! Which users' scripts may run natively.
//!
//! The server checks that a user may run `FAIRLOCK.EVAL` on the script's keys. For a script that runs as Lua
//! it also checks each command that the script calls. So if a user's permissions do not cover all of these
//! commands on any key and channel, its scripts run as Lua, with those checks. The answer is cached until
//! permissions may have changed: by the ACL command, which a transaction can defer until EXEC.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use foldhash::fast::RandomState;

use crate::server::Str;
use crate::server::user::{self, User, user_of};

/// The most users whose answers are cached.
const KEPT: usize = 1000;

/// The commands that the scripts call, those that clients call the scripts by, and those that the calls become, each
/// with as many arguments as it needs.
const COMMANDS: [&str; 25] = [
    "fairlock.eval script 0",
    "fairlock.evalsha digest 0",
    "spublish channel message",
    "eval script 0",
    "evalsha digest 0",
    "exists key",
    "get key",
    "set key value",
    "del key",
    "hexists key field",
    "hset key field value",
    "hincrby key field 1",
    "pexpire key 1",
    "pttl key",
    "lindex key 0",
    "lrange key 0 0",
    "lpop key",
    "lrem key 0 element",
    "rpush key element",
    "zscore key member",
    "zadd key 1 member",
    "zrem key member",
    "zrange key 0 0",
    "zincrby key 1 member",
    "publish channel message",
];

thread_local! {
    static ANSWERS: RefCell<HashMap<Vec<u8>, bool, RandomState>> = RefCell::default();
}

/// Whether an ACL command may be queued in a transaction.
static PENDING: AtomicBool = AtomicBool::new(false);
/// Whether such a transaction may be running.
static EXECUTING: AtomicBool = AtomicBool::new(false);

/// Permissions may be about to change: by an ACL command, or (`exec`) by a transaction.
pub fn may_have_changed(exec: bool) {
    if exec && !PENDING.load(Ordering::Relaxed) {
        return;
    }
    PENDING.store(true, Ordering::Relaxed);
    EXECUTING.store(exec, Ordering::Relaxed);
    user::may_have_changed();
    ANSWERS.with_borrow_mut(HashMap::clear);
}

/// A script arrives, so the transaction before it has ended. Answers that were cached between its commands may
/// be out of date.
pub fn transaction_is_through() {
    if EXECUTING.swap(false, Ordering::Relaxed) {
        ANSWERS.with_borrow_mut(HashMap::clear);
    }
}

/// Clears the cache.
pub fn forget() {
    PENDING.store(false, Ordering::Relaxed);
    EXECUTING.store(false, Ordering::Relaxed);
    ANSWERS.with_borrow_mut(HashMap::clear);
}

/// Whether a connection's user may do everything that scripts do, on any key and channel. False for a caller
/// without a connection.
#[must_use]
pub fn is_plain(client: u64) -> bool {
    let Some(name) = user_of(client) else {
        return false;
    };
    if EXECUTING.load(Ordering::Relaxed) {
        return may_do_all(&name);
    }
    let known = ANSWERS.with_borrow(|answers| answers.get(name.as_slice()).copied());
    known.unwrap_or_else(|| {
        let answer = may_do_all(&name);
        ANSWERS.with_borrow_mut(|answers| {
            if answers.len() >= KEPT {
                answers.clear();
            }
            answers.insert(name.as_slice().to_vec(), answer);
        });
        answer
    })
}

fn may_do_all(name: &Str) -> bool {
    let Some(user) = User::named(name) else {
        return false;
    };
    let Some(rules) = user.rules() else {
        return false;
    };
    let rules: Vec<&[u8]> = rules.as_slice().split(|byte| *byte == b' ').collect();
    let has = |rule: &[u8]| rules.contains(&rule);
    // A selector, in parentheses, allows commands on some keys only.
    let is_plain = !rules.iter().any(|rule| rule.starts_with(b"("));
    let commands = || {
        let mut commands = COMMANDS.iter().copied();
        commands.all(|command| user.may_run_words(command) == Some(true))
    };
    is_plain && has(b"~*") && has(b"&*") && commands()
}
