//! `FAIRLOCK.HELP`: the commands with their arguments, as COMMAND DOCS has them too, and what they reply.

use crate::server::command::Listed;
use crate::server::docs::Docs;
use crate::server::{Args, Command, Ctx, Reply};

use super::COMMANDS;

pub struct Help;

impl Command for Help {
    const NAME: &'static str = "fairlock.help";
    const DOCS: Docs = Docs {
        flags: c"fast allow-loading allow-stale",
        categories: c"fast connection",
        syntax: "",
        summary: c"Shows the commands with their arguments.",
        complexity: c"O(1)",
        keys: None,
        reply: &[],
    };

    fn run(_: &Ctx, _: &Args<'_>) -> Result<Reply, Reply> {
        let lines = COMMANDS.iter().flat_map(lines);
        let lines = lines.map(|line| Reply::Bytes(line.into_bytes()));
        Ok(Reply::Array(lines.collect()))
    }
}

fn lines(command: &Listed) -> Vec<String> {
    let Listed { name, docs, .. } = command;
    let call = [&name.to_uppercase(), docs.syntax].join(" ");
    let summary = docs.summary.to_string_lossy();
    let about = std::iter::once(&*summary).chain(docs.reply.iter().copied());
    let about = about.map(|line| format!("    {line}"));
    std::iter::once(call.trim_end().to_owned())
        .chain(about)
        .collect()
}
