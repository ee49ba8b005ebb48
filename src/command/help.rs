//! `FAIRLOCK.HELP`
//!
//! The commands with their arguments, as COMMAND DOCS has them too, and what they reply.

use std::ffi::CStr;

use crate::error::Error;
use crate::server::docs::Docs;
use crate::server::{Args, Command, Ctx};

use super::args::Cursor;
use super::{acquire, break_lock, cancel, holders, info, locks, queue, release, renew};

/// The command.
#[derive(Debug)]
pub struct Help;

/// The commands that users type.
const COMMANDS: [(&CStr, &Docs); 10] = [
    shown::<acquire::Acquire>(),
    shown::<release::Release>(),
    shown::<renew::Renew>(),
    shown::<cancel::Cancel>(),
    shown::<break_lock::Break>(),
    shown::<queue::Queue>(),
    shown::<holders::Holders>(),
    shown::<info::Info>(),
    shown::<locks::Locks>(),
    shown::<Help>(),
];

const fn shown<C: Command>() -> (&'static CStr, &'static Docs) {
    (C::NAME, &C::DOCS)
}

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
        reply: &[],
    };
    const CATEGORIES: &'static CStr = c"fast connection";
    type Error = Error;

    fn run(ctx: &Ctx, arguments: &Args<'_>) -> Result<(), Error> {
        Cursor::new(ctx, *arguments, "fairlock.help").finish()?;
        let lines: Vec<String> = COMMANDS.into_iter().flat_map(lines).collect();
        ctx.reply_array(lines.len());
        for line in lines {
            ctx.reply_bytes(line.as_bytes());
        }
        Ok(())
    }
}

/// What is said of a command.
fn lines((name, docs): (&CStr, &Docs)) -> Vec<String> {
    let summary = docs.summary.to_string_lossy();
    let about = std::iter::once(&*summary).chain(docs.reply.iter().copied());
    let mut lines = vec![docs.syntax(name)];
    lines.extend(about.map(|line| format!("    {line}")));
    lines
}
