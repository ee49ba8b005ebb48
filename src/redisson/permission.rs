//! Which users' scripts may run natively.
//!
//! The server checks that a user may run `FAIRLOCK.EVAL` on the script's keys. For a script that runs as Lua
//! it also checks each command that the script calls. So if a user's permissions do not cover all of these
//! commands on any key and channel, its scripts run as Lua, with those checks. The answer is cached until
//! permissions may have changed: by the ACL command, which a transaction can defer until EXEC. Where the server's
//! configuration has renamed one of both, nothing is cached.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use foldhash::fast::RandomState;

use crate::server::Str;
use crate::server::user::{self, User, user_of};

/// The most users whose answers are cached.
const KEPT: usize = 1000;

/// The commands that Redisson's scripts call, those that clients call the scripts by, and those that the calls become,
/// each with as many arguments as it needs.
const SCRIPT_COMMANDS: [&str; 25] = [
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
    /// Whether a user may do everything that Redisson's scripts do, on any key and channel.
    static ANSWERS: RefCell<HashMap<Vec<u8>, bool, RandomState>> = RefCell::default();
}

/// Whether an ACL command may be queued in a transaction.
static PENDING: AtomicBool = AtomicBool::new(false);

/// Whether the log has said that the server does not answer.
static IS_TOLD: AtomicBool = AtomicBool::new(false);

/// An ACL command is about to run, or to be queued.
pub fn may_change() {
    PENDING.store(true, Ordering::Relaxed);
    forget();
}

/// A transaction is about to run, perhaps with such a command.
pub fn transaction_runs() {
    if PENDING.load(Ordering::Relaxed) {
        forget();
    }
}

fn forget() {
    user::may_have_changed();
    ANSWERS.with_borrow_mut(HashMap::clear);
}

/// Whether a connection's user may do everything that a script does, on any key and channel. False for a caller
/// without a connection.
pub fn is_plain(client: u64) -> bool {
    user_of(client).is_some_and(|name| answer(&name))
}

/// As [`is_plain`], in a transaction, in which permissions may have changed since it began.
pub fn is_plain_now(client: u64) -> bool {
    user_of(client).is_some_and(|name| ask(&name))
}

fn answer(name: &Str) -> bool {
    if !user::are_changes_seen() {
        return ask(name);
    }
    let known = ANSWERS.with_borrow(|answers| answers.get(name.as_slice()).copied());
    known.unwrap_or_else(|| {
        let answer = ask(name);
        ANSWERS.with_borrow_mut(|answers| {
            if answers.len() >= KEPT {
                answers.clear();
            }
            answers.insert(name.as_slice().to_vec(), answer);
        });
        answer
    })
}

fn ask(name: &Str) -> bool {
    let may = |user: User| {
        let mut commands = SCRIPT_COMMANDS.iter();
        may_use_all(&user) && commands.all(|command| may_run(&user, command))
    };
    User::named(name).is_some_and(may)
}

/// Whether a user may run a command. What this server does not answer is no refusal, and is told once in the log: all
/// scripts run as Lua then, and that would go unnoticed.
fn may_run(user: &User, command: &str) -> bool {
    user.may_run_words(command).unwrap_or_else(|| {
        if !IS_TOLD.swap(true, Ordering::Relaxed) {
            user::outside_calls(|ctx| {
                ctx.log_warning(&format!(
                    "fairlock: this server does not say who may run '{command}', so Redisson's scripts run as Lua"
                ));
            });
        }
        false
    })
}

/// Whether a user's commands are allowed on any key and channel.
fn may_use_all(user: &User) -> bool {
    let Some(rules) = user.rules() else {
        return false;
    };
    let rules: Vec<&[u8]> = rules.as_slice().split(|byte| *byte == b' ').collect();
    let has = |rule: &[u8]| rules.contains(&rule);
    // A selector, in parentheses, allows commands on some keys only.
    let is_plain = !rules.iter().any(|rule| rule.starts_with(b"("));
    is_plain && has(b"~*") && has(b"&*")
}
