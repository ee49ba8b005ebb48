//! The command filter: which EVAL and EVALSHA are run natively.

use std::cell::Cell;

use crate::server::filter::{self, Filter, Incoming};
use crate::server::{Ctx, Str, selected, string};

use super::recognise::{by_digest, by_text};
use super::table::{Form, Role, Script};
use super::{permission, renamed, stats};

/// Callbacks for what the filter sees.
#[derive(Clone, Copy, Debug)]
pub struct Hooks {
    /// Whether scripts run natively.
    pub intercepts: fn() -> bool,
    /// A client publishes on this channel.
    pub publishes: fn(&[u8]),
    /// A script that runs as Lua asks for a lock, for an owner with this patience.
    pub asks: fn(&[u8], &[u8], u64),
    /// A script is about to work on a lock as Lua, although scripts are intercepted.
    pub touches: fn(&[u8]),
    /// A client takes fields out of a hash: a lock's owner may be one of them.
    pub takes_fields: fn(&[u8]),
    /// A transaction is about to run.
    pub transaction_runs: fn(),
}

/// The commands that can take fields out of a hash: at once, or when the fields expire.
const TAKE_FIELDS: [&[u8]; 8] = [
    b"hdel",
    b"hgetdel",
    b"hexpire",
    b"hpexpire",
    b"hexpireat",
    b"hpexpireat",
    b"hsetex",
    b"hgetex",
];

fn takes_fields(name: &[u8]) -> bool {
    TAKE_FIELDS.iter().any(|word| is(name, word))
}

/// The command that runs a script natively by its text, with the arguments of EVAL.
pub const EVAL: &std::ffi::CStr = c"fairlock.eval";
/// As [`EVAL`], by the script's digest, with the arguments of EVALSHA.
pub const EVALSHA: &std::ffi::CStr = c"fairlock.evalsha";

thread_local! {
    static EVAL_NAME: Str = string(EVAL.to_bytes());
    static EVALSHA_NAME: Str = string(EVALSHA.to_bytes());
    /// Whether the server is a replica, where scripts are left alone: they write nothing there.
    static IS_REPLICA: Cell<bool> = const { Cell::new(false) };
    static HOOKS: Cell<Option<Hooks>> = const { Cell::new(None) };
}

/// Forgets what an earlier load of the module may have left.
pub fn start_afresh(ctx: &Ctx, hooks: Hooks) {
    HOOKS.set(Some(hooks));
    IS_REPLICA.set(ctx.flags().replica());
    permission::forget();
    stats::clear();
}

/// Registers the filters. False if the server refuses.
#[must_use]
pub fn register(ctx: &Ctx) -> bool {
    filter::register::<Scripts>(ctx) && renamed::register(ctx)
}

/// The server has become a replica, or the master.
pub fn role_changes(replica: bool) {
    IS_REPLICA.set(replica);
}

/// Looks for scripts and wake-ups, and for commands that may change permissions or, on some servers, a client's
/// database.
#[derive(Debug)]
pub struct Scripts;

impl Filter for Scripts {
    /// Compares length and first letter first, because most commands are none of these.
    fn concerns(name: &[u8]) -> bool {
        match name {
            [b'e' | b'E', _, _, _] => is(name, b"eval") || is(name, b"exec"),
            [b'c' | b'C', _, _, _] => is(name, b"copy"),
            [b'h' | b'H', ..] => takes_fields(name),
            [b'e' | b'E', _, _, _, _, _, _] => is(name, b"evalsha"),
            [b'a' | b'A', _, _] => is(name, b"acl"),
            [b'p' | b'P', _, _, _, _, _, _] => is(name, b"publish"),
            [b's' | b'S', _, _, _, _, _, _, _] => is(name, b"spublish"),
            _ => false,
        }
    }

    fn look(command: &mut Incoming) {
        let name = command.argument(0).unwrap_or_default();
        if is(name, b"evalsha") {
            permission::transaction_is_through();
            return intercept(command, by_digest, &EVALSHA_NAME);
        }
        if is(name, b"publish") || is(name, b"spublish") {
            return tell(command, |hooks| hooks.publishes);
        }
        if takes_fields(name) {
            return tell(command, |hooks| hooks.takes_fields);
        }
        permission::transaction_is_through();
        if is(name, b"eval") {
            intercept(command, by_text, &EVAL_NAME);
        } else if is(name, b"copy") {
            selected::before_copy(command);
        } else if is(name, b"exec") {
            permission::may_have_changed(true);
            if let Some(hooks) = HOOKS.get() {
                (hooks.transaction_runs)();
            }
        } else if command.argument(1).is_some_and(changes_users) {
            permission::may_have_changed(false);
        }
    }
}

/// Passes a command's first argument, a channel or a key, to a hook.
fn tell(command: &Incoming, hook: fn(Hooks) -> fn(&[u8])) {
    if let (Some(hooks), Some(argument)) = (HOOKS.get(), command.argument(1)) {
        hook(hooks)(argument);
    }
}

/// Whether an ACL command changes users, by its second word.
pub(super) fn changes_users(word: &[u8]) -> bool {
    is(word, b"setuser") || is(word, b"deluser") || is(word, b"load")
}

fn is(name: &[u8], word: &[u8]) -> bool {
    name.eq_ignore_ascii_case(word)
}

fn intercept(
    command: &mut Incoming,
    recognise: fn(&[u8]) -> Option<&'static Script>,
    own_name: &'static std::thread::LocalKey<Str>,
) {
    // Without the number of keys the server refuses the call.
    if IS_REPLICA.get() || command.argument(2).is_none() {
        return;
    }
    let Some(script) = command.argument(1).and_then(recognise) else {
        return;
    };
    // If the user's scripts have to run as Lua, the command passes untouched. Before Redis 7.2 the filter
    // cannot know the user, and `FAIRLOCK.EVAL` decides.
    let untouched = || {
        let client = command.client();
        client.is_some_and(|client| !permission::is_plain(client))
    };
    let Some(hooks) = HOOKS.get() else { return };
    let intercepts = (hooks.intercepts)();
    if intercepts && !untouched() {
        own_name.with(|name| command.rename(name));
        return;
    }
    stats::left_to_lua(script.role);
    if intercepts && !matches!(script.role, Role::Leave | Role::Renew) {
        command.argument(3).map(hooks.touches);
    }
    if let Form::TryLock(form) = &script.form
        && let Some((lock, owner, patience)) = form.asks(command)
    {
        (hooks.asks)(lock, owner, patience);
    }
}
