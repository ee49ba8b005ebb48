//! `FAIRLOCK.EVAL script numkeys [key ...] [arg ...]` and
//! `FAIRLOCK.EVALSHA sha1 numkeys [key ...] [arg ...]`
//!
//! What an intercepted EVAL or EVALSHA of one of Redisson's fair-lock scripts becomes, as MONITOR,
//! SLOWLOG and commandstats show it. Nobody needs to send it.

use std::ffi::CStr;

use crate::error::Error;
use crate::lock::Owner;
use crate::redisson::table::{Role, Script};
use crate::redisson::{Call, Outcome, Reply, filter, permission, recognise, run, stats};
use crate::server::docs::{Argument, Docs, Keys};
use crate::server::{Args, Command, Ctx, Str};
use crate::waiting::redisson as waiters;

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
        complexity:
            c"O(1), and O(N) in the number of waiters where the script changes all their scores",
        since: c"0.1.0",
        arity: -3,
        keys: Some(Keys::Numbered),
        arguments: script,
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
        let script = arguments.get(0).and_then(recognise::by_text);
        eval(ctx, arguments, script.ok_or(Error::UnknownScript)?, c"EVAL");
        Ok(())
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
        let script = arguments.get(0).and_then(recognise::by_digest);
        eval(
            ctx,
            arguments,
            script.ok_or(Error::UnknownScript)?,
            c"EVALSHA",
        );
        Ok(())
    }
}

/// Runs a script, natively if that may be.
fn eval(ctx: &Ctx, arguments: &Args<'_>, script: &Script, command: &CStr) {
    let call = call(ctx, arguments);
    if script.role == Role::Leave
        && let Some(call) = &call
        && let (Some(queue), Some(owner)) = (call.keys.first(), call.arguments.first())
    {
        waiters::leaves(ctx, queue, owner);
    }
    let outcome = call
        .filter(|_| permission::is_plain(ctx.client_id()))
        .and_then(|call| {
            let outcome = run(script, &call).ok()?;
            Some((outcome, call.keys))
        });
    let Some((outcome, keys)) = outcome else {
        stats::left_to_lua(script.role);
        let words: Vec<Str> = (0..arguments.len())
            .filter_map(|index| arguments.string(index))
            .collect();
        ctx.run_for_caller(command, &words);
        waiters::script_is_through(ctx);
        return;
    };
    stats::intercepted(script.role);
    if let (Some((owner, alive)), Some(lock)) = (outcome.asked.as_ref(), keys.first()) {
        waiters::asks(ctx, lock, Owner::clone(owner), *alive);
    }
    reply(ctx, &outcome);
    waiters::script_is_through(ctx);
}

/// Keys and arguments. `None` if their number is not one that a script can have.
fn call<'c>(ctx: &'c Ctx, arguments: &Args<'c>) -> Option<Call<'c>> {
    let number = std::str::from_utf8(arguments.get(1)?).ok()?;
    let number: usize = number.parse().ok()?;
    let first_argument = number.checked_add(2)?;
    let others = arguments.len().checked_sub(first_argument)?;
    let mut call = Call {
        ctx,
        keys: Vec::with_capacity(number),
        arguments: Vec::with_capacity(others),
    };
    call.keys
        .extend((2..first_argument).filter_map(|index| arguments.string(index)));
    let others = first_argument..arguments.len();
    call.arguments
        .extend(others.filter_map(|index| arguments.get(index)));
    Some(call)
}

fn reply(ctx: &Ctx, outcome: &Outcome) {
    match &outcome.reply {
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
