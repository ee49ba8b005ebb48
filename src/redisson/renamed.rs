//! Commands that the filter finds by name, and that rename-command has given other names.
//!
//! A module cannot learn the new name. Changes of permissions must not go unnoticed. So if ACL or EXEC is
//! renamed, every command is checked for what cannot be renamed: the subcommand of ACL, or having no argument,
//! as EXEC. A command that only looks like one of these costs a repeated check of permissions, no more. The
//! other commands are not found under other names; the log says so.

use crate::server::Ctx;
use crate::server::filter::{self, Filter, Incoming};

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

/// Looks for ACL under another name.
#[derive(Debug)]
struct Acl;

impl Filter for Acl {
    fn concerns(_: &[u8]) -> bool {
        true
    }

    fn look(command: &mut Incoming) {
        if command.argument(1).is_some_and(changes_users) {
            permission::may_have_changed(false);
        }
    }
}

/// Looks for EXEC under another name.
#[derive(Debug)]
struct Exec;

impl Filter for Exec {
    fn concerns(_: &[u8]) -> bool {
        true
    }

    fn look(command: &mut Incoming) {
        if command.argument(1).is_none() {
            permission::may_have_changed(true);
        }
    }
}

/// Registers the filters that are needed. False if the server refuses.
#[must_use]
pub fn register(ctx: &Ctx) -> bool {
    (ctx.has_command("ACL") || filter::register::<Acl>(ctx))
        && (ctx.has_command("EXEC") || filter::register::<Exec>(ctx))
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
