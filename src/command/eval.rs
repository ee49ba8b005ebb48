//! `FAIRLOCK.EVAL script numkeys [key ...] [arg ...]` and
//! `FAIRLOCK.EVALSHA sha1 numkeys [key ...] [arg ...]`
//!
//! An intercepted EVAL or EVALSHA of one of Redisson's fair-lock scripts becomes this command; MONITOR,
//! SLOWLOG and commandstats show it. Clients never send it.

use std::ffi::CStr;

use crate::error::Error;
use crate::redisson::table::Script;
use crate::redisson::{
    Call, Native, NativeStep, Reply, filter, native, permission, recognise, stats,
};
use crate::server::docs::{Argument, Docs, Keys};
use crate::server::{Args, Command, Ctx, Str, string};
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
        let script = arguments.get(0).and_then(recognise::by_text);
        let script = script.ok_or(Error::UnknownScript)?;
        eval(ctx, arguments, script, c"EVAL")
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
        let script = script.ok_or(Error::UnknownScript)?;
        eval(ctx, arguments, script, c"EVALSHA")
    }
}

/// Runs a script, natively if possible.
///
/// # Errors
/// [`Error::InsideStep`].
fn eval(ctx: &Ctx, arguments: &Args<'_>, script: &Script, command: &CStr) -> Result<(), Error> {
    waiting::require_rest()?;
    let call = Call::read(ctx, *arguments);
    if let Some(native_reply) = call.as_ref().and_then(|call| run(ctx, script, call)) {
        stats::intercepted(script.role);
        reply(ctx, &native_reply);
        return Ok(());
    }
    stats::left_to_lua(script.role);
    let words: Vec<Str> = (0..arguments.len())
        .filter_map(|index| arguments.string(index))
        .collect();
    ctx.run_for_caller(command, &words);
    Ok(())
}

/// Runs the native form of a script. `None` if the script itself is to be run.
fn run(ctx: &Ctx, script: &Script, call: &Call<'_>) -> Option<Reply> {
    if !permission::is_plain(ctx.client_id()) {
        return None;
    }
    let native = native(script, call);
    // The events of what it wrote without a step.
    ctx.raise_events_to_all();
    match native.ok()? {
        Native::Done(reply) => Some(reply),
        Native::Step(step) => take(ctx, step),
    }
}

/// Takes a step of the rules. Its wake-ups go out as the script says.
fn take(ctx: &Ctx, mut native: NativeStep<'_>) -> Option<Reply> {
    let (owner, wake_up) = (native.owner.take(), native.wake_up());
    let wake = |ctx: &Ctx, owner: &[u8]| {
        let Some(how) = wake_up else {
            return false;
        };
        let channel = [how.channel, b":", owner].concat();
        ctx.publish(how.command, &string(&channel), &string(how.message));
        true
    };
    let decided = waiting::step_of_script(ctx, &native.names, &wake, |step| {
        step.state.learn_name(owner);
        native.decide(step)
    });
    // A key of another type: the script has its own error for that.
    let reply = decided.ok()?.ok()?;
    native.finish(&reply);
    // The events of what it wrote beside the step: the latch.
    ctx.raise_events_to_all();
    Some(reply)
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
