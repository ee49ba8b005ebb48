//! `FAIRLOCK.EVAL script numkeys [key ...] [arg ...]` and
//! `FAIRLOCK.EVALSHA sha1 numkeys [key ...] [arg ...]`
//!
//! An intercepted EVAL or EVALSHA of one of Redisson's fair-lock scripts becomes this command; MONITOR,
//! SLOWLOG and commandstats show it. Clients never send it.

use std::ffi::CStr;

use crate::error::Error;
use crate::redisson::table::Script;
use crate::redisson::{Reply, filter, permission, recognise, run, stats};
use crate::server::docs::{Argument, Docs, Keys};
use crate::server::{Args, Command, Ctx, Str};
use crate::waiting;

/// By the script's text.
#[derive(Debug)]
pub struct Eval;

/// By the script's SHA-1.
#[derive(Debug)]
pub struct EvalSha;

const FLAGS: &CStr = c"write deny-script no-mandatory-keys";
const CATEGORIES: &CStr = c"scripting slow";

const fn docs(script: &'static [Argument]) -> Docs {
    Docs {
        summary:
            c"Runs one of Redisson's fair-lock scripts natively. An intercepted EVAL becomes this.",
        complexity: c"O(log(N)) with N the number of waiters",
        since: c"0.1.0",
        arity: -3,
        keys: Some(Keys::Numbered),
        arguments: script,
        reply: &[],
    }
}

impl Command for Eval {
    const NAME: &'static CStr = filter::EVAL;
    const FLAGS: &'static CStr = FLAGS;
    const DOCS: Docs = docs(&[
        Argument::text(c"script"),
        Argument::number(c"numkeys"),
        Argument::key(c"key").optional().repeated(),
        Argument::text(c"arg").optional().repeated(),
    ]);
    const CATEGORIES: &'static CStr = CATEGORIES;
    type Error = Error;

    fn run(ctx: &Ctx, arguments: &Args<'_>) -> Result<(), Error> {
        eval(ctx, arguments, recognise::by_text, c"EVAL")
    }
}

impl Command for EvalSha {
    const NAME: &'static CStr = filter::EVALSHA;
    const FLAGS: &'static CStr = FLAGS;
    const DOCS: Docs = docs(&[
        Argument::text(c"sha1"),
        Argument::number(c"numkeys"),
        Argument::key(c"key").optional().repeated(),
        Argument::text(c"arg").optional().repeated(),
    ]);
    const CATEGORIES: &'static CStr = CATEGORIES;
    type Error = Error;

    fn run(ctx: &Ctx, arguments: &Args<'_>) -> Result<(), Error> {
        eval(ctx, arguments, recognise::by_digest, c"EVALSHA")
    }
}

/// Runs a script, natively if possible. What the filter has recognised, and allowed, is not looked at again.
///
/// # Errors
/// [`Error::UnknownScript`], [`Error::InsideStep`].
fn eval(
    ctx: &Ctx,
    arguments: &Args<'_>,
    recognise: fn(&[u8]) -> Option<&'static Script>,
    command: &CStr,
) -> Result<(), Error> {
    let client = ctx.client_id();
    let passed = filter::passed(client);
    let script = passed.or_else(|| arguments.get(0).and_then(recognise));
    let script = script.ok_or(Error::UnknownScript)?;
    waiting::require_rest()?;
    let may_run = passed.is_some() || permission::is_plain(client);
    let done = may_run.then(|| run(ctx, script, *arguments)).flatten();
    if let Some(done) = done {
        stats::intercepted(script.role);
        reply(ctx, &done);
        return Ok(());
    }
    stats::left_to_lua(script.role);
    let words: Vec<Str> = (0..arguments.len())
        .filter_map(|index| arguments.string(index))
        .collect();
    ctx.run_for_caller(command, &words);
    Ok(())
}

fn reply(ctx: &Ctx, reply: &Reply) {
    match reply {
        Reply::Nil => ctx.reply_nil(),
        Reply::Number(number) => ctx.reply_integer(*number),
        Reply::Error(text) => ctx.reply_error(text),
        Reply::Numbers(numbers) => {
            ctx.reply_array(numbers.len());
            for number in numbers {
                ctx.reply_integer(*number);
            }
        }
    }
}
