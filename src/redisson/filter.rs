//! The command filter: which EVAL and EVALSHA are run natively.

use std::cell::Cell;

use crate::config;
use crate::server::filter::{self, Filter, Incoming};
use crate::server::{Ctx, Str, is_replica, selected, string, user};

use super::permission;
use super::recognise::{by_digest, by_text};
use super::stats;
use super::table::Script;
use crate::waiting;

/// The command that runs a script natively by its text, with the arguments of EVAL.
pub const EVAL: &str = "fairlock.eval";
/// As [`EVAL`], by the script's digest, with the arguments of EVALSHA.
pub const EVALSHA: &str = "fairlock.evalsha";

/// A call that the filter has let become a command of the module's. The server runs it right behind the filter, or
/// queues it for a transaction.
#[derive(Clone, Copy)]
struct Passed {
    /// The client, whose user may run scripts natively.
    client: u64,
    /// How often permissions had changed: the server may run the command later (CLIENT PAUSE).
    changes: u64,
    script: &'static Script,
}

thread_local! {
    /// [`EVAL`] and [`EVALSHA`], as strings of the server.
    static NAMES: [Str; 2] = [EVAL, EVALSHA].map(|name| string(name.as_bytes()));
    static PASSED: Cell<Option<Passed>> = const { Cell::new(None) };
}

/// The script that a client calls by a command that runs now, if the filter has just recognised it and found that the
/// client's user may run it natively. Then both are done.
pub fn passed(client: u64) -> Option<&'static Script> {
    let passed = PASSED.take()?;
    let holds = passed.client == client && passed.changes == user::changes();
    holds.then_some(passed.script)
}

/// The commands that the filter has to see, and the consequence if rename-command has given one another name.
const SEEN: [(&str, &str); 3] = [
    ("EVAL", "scripts run as Lua"),
    ("EVALSHA", "scripts run as Lua"),
    (
        "COPY",
        "a client of Valkey 8.1 or 9.0 that copies to another database may stay there",
    ),
];

/// Registers the filter. False if the server refuses.
pub fn register(ctx: &Ctx) -> bool {
    user::watch_changes(ctx);
    filter::register::<Scripts>(ctx)
}

/// Logs which commands the filter does not see.
pub fn tell_of_renamed(ctx: &Ctx) {
    for (command, effect) in SEEN {
        if !ctx.has_command(command) {
            ctx.log_warning(&format!(
                "fairlock does not see the command {command}, which this server's configuration has renamed or \
                 removed (rename-command): under another name, {effect}"
            ));
        }
    }
}

/// Looks for scripts, and for commands that may change permissions or, on some servers, a client's database. A command
/// may come from anybody, and be refused after this: so a look walks nothing, and notes no more than the one before.
#[derive(Debug)]
pub struct Scripts;

impl Filter for Scripts {
    /// Compares length and first letter first, because most commands are others.
    fn concerns(name: &[u8]) -> bool {
        match name {
            [b'e' | b'E', _, _, _] => is(name, b"exec") || is(name, b"eval") && looks_at_scripts(),
            [b'c' | b'C', _, _, _] => is(name, b"copy"),
            [b'e' | b'E', _, _, _, _, _, _] => is(name, b"evalsha") && looks_at_scripts(),
            [b'a' | b'A', _, _] => is(name, b"acl"),
            [b'f' | b'F', ..] => is_own(name),
            _ => false,
        }
    }

    fn look(command: &mut Incoming) {
        let name = command.argument(0).unwrap_or_default();
        if is(name, b"evalsha") {
            intercept(command, by_digest, 1);
        } else if is(name, b"eval") {
            intercept(command, by_text, 0);
        } else if is(name, b"copy") {
            selected::before_copy(command);
        } else if is(name, b"exec") {
            PASSED.set(None);
            permission::transaction_runs();
        } else if is(name, b"acl") {
            if command.argument(1).is_some_and(changes_users) {
                permission::may_change();
            }
        } else if is_own(name) {
            // A client sends it itself.
            PASSED.set(None);
        }
    }
}

fn is_own(name: &[u8]) -> bool {
    is(name, EVAL.as_bytes()) || is(name, EVALSHA.as_bytes())
}

/// Whether scripts run natively, or did until just now: they do until the end of the iteration in which interception is
/// switched off.
fn looks_at_scripts() -> bool {
    config::intercept_eval() || waiting::intercepts()
}

/// Whether an ACL command changes users, by its second word.
fn changes_users(word: &[u8]) -> bool {
    is(word, b"setuser") || is(word, b"deluser") || is(word, b"load")
}

fn is(name: &[u8], word: &[u8]) -> bool {
    name.eq_ignore_ascii_case(word)
}

fn intercept(command: &mut Incoming, recognise: fn(&[u8]) -> Option<&'static Script>, name: usize) {
    // Without the number of keys the server refuses the call. At a replica scripts write nothing.
    if command.argument(2).is_none() || is_replica() || !waiting::intercepts() {
        return;
    }
    let Some(script) = command.argument(1).and_then(recognise) else {
        return;
    };
    // If the user's scripts have to run as Lua, the command passes untouched. Before Redis 7.2 the filter
    // cannot know the user, and `FAIRLOCK.EVAL` decides.
    let client = command.client();
    if client.is_some_and(|client| !permission::is_plain(client)) {
        stats::left_to_lua(script.role);
        return;
    }
    PASSED.set(client.map(|client| Passed {
        client,
        changes: user::changes(),
        script,
    }));
    NAMES.with(|names| names.get(name).map(|name| command.rename(name)));
}
