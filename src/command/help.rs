//! `FAIRLOCK.HELP`
//!
//! The commands with their arguments, one line each.

use std::ffi::CStr;

use crate::error::Error;
use crate::server::docs::Docs;
use crate::server::{Args, Command, Ctx};

use super::args::Cursor;

/// The command.
#[derive(Debug)]
pub struct Help;

const LINES: [&str; 22] = [
    "FAIRLOCK.ACQUIRE key owner [LEASE ms] [WAIT ms | NOWAIT | ENQUEUE] [PATIENCE ms]",
    "    [SESSION] [ONCE]",
    "    Take the lock, or wait in its queue. Replies the fencing token, nil if not in time, or",
    "    with ENQUEUE [position, retry-after]. owner '*' is this connection. SESSION: the lock",
    "    lives as long as this connection. ONCE: the holder asking again adds no hold.",
    "FAIRLOCK.RELEASE key owner [TOKEN token] [ALL]",
    "    Give up one hold, or all. Replies the holds that remain; NOTHELD if not the holder.",
    "FAIRLOCK.RENEW key owner [LEASE ms]",
    "    Start the lease anew. Replies the lease in ms; NOTHELD if not the holder.",
    "FAIRLOCK.CANCEL key owner",
    "    Leave the queue. Replies 1, or 0 if not in it.",
    "FAIRLOCK.BREAK key [FORCE]",
    "    Free the lock whoever holds it. Replies 1, or 0 if it was free. FORCE: also without a lease.",
    "FAIRLOCK.QUEUE key [LIMIT offset count]",
    "    The waiters in order: owner, blocked or polling, ms to its deadline (-1 if blocked).",
    "FAIRLOCK.INFO key",
    "    The lock: owner, holds, lease, token, session, waiting, next.",
    "FAIRLOCK.LOCKS [COUNT count] [AFTER cursor]",
    "    The locks with waiters or a session, most waiters first: what INFO says, the lock's name,",
    "    and held: ms since the holder got it (-1: not known). Last, if there are more: the cursor.",
    "FAIRLOCK.HELP",
    "    This text.",
];

impl Command for Help {
    const NAME: &'static CStr = c"fairlock.help";
    const FLAGS: &'static CStr = c"fast allow-loading allow-stale";
    const DOCS: Docs = Docs {
        summary: c"Shows the commands with their arguments.",
        complexity: c"O(1)",
        since: c"0.1.0",
        arity: 1,
        keys: None,
        arguments: &[],
    };
    const CATEGORIES: &'static CStr = c"fast connection";
    type Error = Error;

    fn run(ctx: &Ctx, arguments: &Args<'_>) -> Result<(), Error> {
        Cursor::new(ctx, *arguments, "fairlock.help").finish()?;
        ctx.reply_array(LINES.len());
        for line in LINES {
            ctx.reply_bytes(line.as_bytes());
        }
        Ok(())
    }
}
