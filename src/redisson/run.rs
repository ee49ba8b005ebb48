//! One call of a script: its keys and arguments, and what it becomes.

use std::rc::Rc;

use crate::config::LONGEST_DURATION;
use crate::keyspace::number::number as whole;
use crate::keyspace::{Names, OpenLock};
use crate::lock::{Millis, Refusal, Step};
use crate::server::{Args, Ctx, Str, string};
use crate::waiting;

use super::table::{Form, Script};
use super::unlock::Unlocking;
use super::{leave, renew};

/// The keys and arguments that a script is called with, borrowed from the server.
#[derive(Debug)]
pub struct Call<'c> {
    /// The context of the call.
    pub ctx: &'c Ctx,
    /// KEYS.
    pub keys: Args<'c>,
    /// ARGV.
    pub arguments: Args<'c>,
}

/// What comes before KEYS: the script and their number.
const BEFORE_KEYS: usize = 2;

/// Number of KEYS of a script that is a command.
const KEYS_OF_COMMAND: usize = 4;

/// Where the arguments of the command are among the words of such a script: its key, and everything behind KEYS.
pub const WORDS_OF_COMMAND: (usize, usize) = (BEFORE_KEYS, BEFORE_KEYS + KEYS_OF_COMMAND);

/// The server's own error where memory is full.
const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// What a script replies.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    /// Nil.
    Nil,
    /// An integer.
    Number(i64),
    /// An array of integers.
    Numbers(Vec<i64>),
    /// An error.
    Error(&'static str),
}

/// How a script sends wake-ups.
#[derive(Clone, Copy, Debug)]
pub struct WakeUp<'c> {
    /// PUBLISH or SPUBLISH.
    pub command: &'static std::ffi::CStr,
    /// The channel, without the colon and the owner at its end.
    pub channel: &'c [u8],
    /// The message.
    pub message: &'c [u8],
}

/// The native form does not cover this case: the script itself must run. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftToLua;

impl<'c> Call<'c> {
    /// The script, the number of keys, KEYS and ARGV. `None` if the number is not one that a script can have.
    pub fn read(ctx: &'c Ctx, words: Args<'c>) -> Option<Self> {
        let number = usize::try_from(whole(words.get(1)?)?).ok()?;
        let (_, words) = words.split(BEFORE_KEYS)?;
        let (keys, arguments) = words.split(number)?;
        Some(Self {
            ctx,
            keys,
            arguments,
        })
    }

    /// KEYS, counted from 0.
    pub fn key(&self, index: usize) -> Result<&'c [u8], LeftToLua> {
        self.keys.get(index).ok_or(LeftToLua)
    }

    /// A key as a string of the server.
    pub(super) fn key_name(&self, index: usize) -> Result<Str, LeftToLua> {
        self.keys.string(index).ok_or(LeftToLua)
    }

    /// ARGV, counted from 0.
    pub fn argument(&self, index: usize) -> Result<&'c [u8], LeftToLua> {
        self.arguments.get(index).ok_or(LeftToLua)
    }

    /// An argument that is a whole number of milliseconds, not below 0.
    pub(super) fn millis(&self, index: usize) -> Result<Millis, LeftToLua> {
        let number = whole(self.argument(index)?).ok_or(LeftToLua)?;
        Millis::try_from(number).map_err(|_| LeftToLua)
    }

    /// An argument that is a time to live. One that is too long is left to the script, for its own error.
    pub(super) fn duration(&self, index: usize) -> Result<Millis, LeftToLua> {
        let longest = LONGEST_DURATION.cast_unsigned();
        let duration = self.millis(index)?;
        (1..longest)
            .contains(&duration)
            .then_some(duration)
            .ok_or(LeftToLua)
    }

    /// The lock to which these three keys belong. Keys that do not belong together, as those of a client that
    /// maps names before Redisson 3.52.0, are left to the script.
    fn lock(&self, lock: usize, queue: usize, scores: usize) -> Result<Rc<Names>, LeftToLua> {
        self.fits(Names::of(self.key(lock)?), queue, scores)
    }

    fn fits(&self, names: Rc<Names>, queue: usize, scores: usize) -> Result<Rc<Names>, LeftToLua> {
        let fits = self.key(queue)? == names.queue.as_slice()
            && self.key(scores)? == names.deadlines.as_slice();
        fits.then_some(names).ok_or(LeftToLua)
    }
}

/// Whether a script that is a command is called with the four keys of one lock: itself, queue, deadlines and token.
pub fn has_keys_of_command(ctx: &Ctx, words: Args<'_>) -> bool {
    let fits = |call: &Call<'_>| {
        let names = call.lock(0, 1, 2).ok()?;
        (call.keys.len() == KEYS_OF_COMMAND && call.key(3) == Ok(names.token.as_slice()))
            .then_some(())
    };
    Call::read(ctx, words).as_ref().and_then(fits).is_some()
}

/// Runs the native form of a script that a user may run natively. `None` if the script itself must run; nothing has
/// changed then.
pub fn run(ctx: &Ctx, script: &Script, words: Args<'_>) -> Option<Reply> {
    let call = Call::read(ctx, words)?;
    let fits = match script.keys {
        Some(keys) => call.keys.len() == keys && call.arguments.len() == script.arguments,
        None => !call.keys.is_empty() && call.arguments.len() == call.keys.len() + 1,
    };
    if !fits {
        return None;
    }
    match script.form {
        Form::TryLock(form) => {
            let names = call.lock(0, 1, 2).ok()?;
            let asked = form.read(&call).ok()?;
            take(&call, script, &names, None, |step| asked.decide(step))
        }
        Form::Unlock { forced } => {
            let names = call.lock(0, 1, 2).ok()?;
            let mut unlocking = Unlocking::read(&call, forced).ok()?;
            if let Some(reply) = unlocking.kept_reply() {
                return Some(Reply::Number(reply));
            }
            let wake_up = Some(unlocking.wake_up);
            let reply = take(&call, script, &names, wake_up, |step| {
                unlocking.decide(step)
            })?;
            if let Reply::Number(reply) = reply {
                unlocking.keep(reply);
                // The event of the latch, which was written beside the step.
                ctx.raise_events_to_all();
            }
            Some(reply)
        }
        Form::Leave => {
            let names = Names::of(leave::lock(&call).ok()?);
            let names = call.fits(names, 0, 1).ok()?;
            let owner = leave::read(&call).ok()?;
            take(&call, script, &names, None, |step| {
                step.leave_by_script(owner);
                Ok(Reply::Nil)
            })
        }
        Form::Renew => {
            let renewed = renew::run(&call);
            // The events of what it wrote without a step.
            ctx.raise_events_to_all();
            renewed.ok().map(|renewed| match renewed.as_slice() {
                [one] if script.keys.is_some() => Reply::Number(*one),
                _ => Reply::Numbers(renewed),
            })
        }
        Form::Command(_) => None,
    }
}

/// Takes the step. Its wake-ups go out as the script says.
fn take(
    call: &Call<'_>,
    script: &Script,
    names: &Names,
    wake_up: Option<WakeUp<'_>>,
    decide: impl FnOnce(&mut Step<'_, OpenLock<'_>>) -> Result<Reply, LeftToLua>,
) -> Option<Reply> {
    let wake = |ctx: &Ctx, owner: &[u8]| {
        let Some(how) = wake_up else {
            return false;
        };
        let channel = [how.channel, b":", owner].concat();
        ctx.publish(how.command, &string(&channel), &string(how.message));
        true
    };
    let owner = script.form.owner();
    let owner = owner.and_then(|index| call.arguments.string(index));
    let decided = waiting::step_of_script(call.ctx, names, &wake, |step| {
        step.state.learn_name(owner);
        decide(step)
    });
    // A key of another type: the script has its own error for that.
    decided.ok()?.ok()
}

/// What a refusal becomes. Other errors than that of full memory are left to the script.
pub(super) fn refused(refusal: Refusal) -> Result<Reply, LeftToLua> {
    match refusal {
        Refusal::MemoryFull => Ok(Reply::Error(OUT_OF_MEMORY)),
        _ => Err(LeftToLua),
    }
}
