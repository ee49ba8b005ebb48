//! Commands that the filter finds by name, and that rename-command has given other names.
//!
//! A module cannot learn the new name. Changes of permissions must not go unnoticed. So if ACL or EXEC is
//! renamed, every command is checked for what cannot be renamed: the subcommand of ACL, or having no argument,
//! as EXEC. A command that only looks like one of these costs a repeated check of permissions, no more. The
//! other commands are not found under other names; the log says so.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::server::Ctx;
use crate::server::filter::Incoming;

use super::filter::changes_users;
use super::permission;

/// The other commands that the filter looks for, and the consequence if it does not see them.
const UNSEEN: [(&str, &str); 3] = [
    ("EVAL", "scripts run as Lua"),
    ("EVALSHA", "scripts run as Lua"),
    (
        "COPY",
        "a client of Valkey 8.1 or 9.0 that copies to another database may stay there",
    ),
];

/// Whether ACL, and whether EXEC, has another name.
static ACL: AtomicBool = AtomicBool::new(false);
static EXEC: AtomicBool = AtomicBool::new(false);

/// Asks the server for both.
pub fn start_afresh(ctx: &Ctx) {
    ACL.store(!ctx.has_command("ACL"), Ordering::Relaxed);
    EXEC.store(!ctx.has_command("EXEC"), Ordering::Relaxed);
}

/// Whether every command is to be checked.
pub fn are_some() -> bool {
    ACL.load(Ordering::Relaxed) || EXEC.load(Ordering::Relaxed)
}

/// Checks any command.
pub fn look(command: &Incoming) {
    match command.argument(1) {
        Some(word) if ACL.load(Ordering::Relaxed) && changes_users(word) => {
            permission::may_have_changed(false);
        }
        None if EXEC.load(Ordering::Relaxed) => permission::may_have_changed(true),
        _ => (),
    }
}

/// Logs which commands are not seen.
pub fn tell(ctx: &Ctx) {
    for (command, effect) in UNSEEN {
        if !ctx.has_command(command) {
            ctx.log_warning(&format!(
                "fairlock does not see the command {command}, which this server's configuration has renamed or \
                 removed (rename-command): under another name, {effect}"
            ));
        }
    }
}
