//! The command filter: which EVAL and EVALSHA are run natively.

use crate::config;
use crate::keyspace::names::SLOTS;
use crate::keyspace::number::number;
use crate::server::filter::{self, Filter, Incoming};
use crate::server::refusal::refuses_writes;
use crate::server::user::{User, user_of};
use crate::server::{Str, in_cluster, is_replica, string};
use crate::waiting;

use super::recognise::{by_digest, by_text};
use super::stats;
use super::table::Script;

/// The command that runs a script natively by its text, with the arguments of EVAL.
pub const EVAL: &str = "fairlock.eval";
/// As [`EVAL`], by the script's digest, with the arguments of EVALSHA.
pub const EVALSHA: &str = "fairlock.evalsha";

thread_local! {
    /// [`EVAL`] and [`EVALSHA`], as strings of the server.
    static NAMES: [Str; 2] = [EVAL, EVALSHA].map(|name| string(name.as_bytes()));
}

/// Looks for scripts, for commands that move slots or change permissions, and, on some servers, for those that may
/// change a client's database. A command may come from anybody, and be refused after this: so a look walks nothing, and
/// notes no more than the one before.
pub struct Scripts;

impl Filter for Scripts {
    /// Compares length and first letter first, because most commands are others.
    fn concerns(name: &[u8]) -> bool {
        match name {
            [b'a' | b'A', _, _] => is(name, b"acl"),
            [b'c' | b'C', _, _, _] => is(name, b"copy") && filter::may_move_clients(),
            [b'c' | b'C', _, _, _, _, _, _] => is(name, b"cluster") && in_cluster(),
            [b'e' | b'E', _, _, _] => is(name, b"eval") && config::intercept_eval(),
            [b'e' | b'E', _, _, _, _, _, _] => is(name, b"evalsha") && config::intercept_eval(),
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
            filter::before_copy(command);
        } else if is(name, b"cluster") {
            follow_slots(command);
        } else {
            follow_permissions(command);
        }
    }
}

/// A command that can bring a slot to this node, or begins to move one.
fn follow_slots(command: &Incoming) {
    if is(command.argument(1).unwrap_or_default(), b"setslot") {
        let slot = command.argument(2).and_then(number);
        let slot = slot.and_then(|slot| u16::try_from(slot).ok());
        if let Some(slot) = slot.filter(|slot| *slot < SLOTS) {
            let word = command.argument(3).unwrap_or_default();
            let leaves = is(word, b"migrating") || is(word, b"stable");
            waiting::slot_is_named(slot, !leaves);
        }
    }
}

/// A command that can take a waiter's permission to acquire its lock.
fn follow_permissions(command: &Incoming) {
    let word = command.argument(1).unwrap_or_default();
    if [&b"setuser"[..], b"deluser", b"load"]
        .iter()
        .any(|name| is(word, name))
    {
        waiting::permissions_change();
    }
}

fn is(name: &[u8], word: &[u8]) -> bool {
    name.eq_ignore_ascii_case(word)
}

fn intercept(command: &mut Incoming, recognise: fn(&[u8]) -> Option<&'static Script>, name: usize) {
    // Without the number of keys the server refuses the call. At a replica scripts write nothing.
    if command.argument(2).is_none() || is_replica() {
        return;
    }
    let Some(script) = command.argument(1).and_then(recognise) else {
        return;
    };
    NAMES.with(|names| {
        let Some(name) = names.get(name) else { return };
        // A script that writes nothing is not refused then, as the command would be.
        if !refuses_writes() && may_run(command, name) {
            command.rename(name);
        } else {
            stats::LEFT_TO_LUA.count(script.role);
        }
    });
}

/// Whether the caller may run the call as this command: if not, it passes untouched. Where the filter cannot know the
/// client, before Redis 7.2, the server refuses it. False for a caller without a connection.
fn may_run(call: &Incoming, command: &Str) -> bool {
    call.client().is_none_or(|client| {
        let user = user_of(client).and_then(|name| User::named(&name));
        user.is_some_and(|user| call.may_run_as(command, client, &user))
    })
}
