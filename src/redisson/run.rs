//! One call of a script: its keys and arguments, and what it becomes.

use std::rc::Rc;

use crate::config::LONGEST_DURATION;
use crate::keyspace::Names;
use crate::keyspace::number::number as whole;
use crate::lock::{Millis, Refusal, State, Step};
use crate::server::{Args, Ctx, Str, string};
use crate::waiting;

use super::leave::Leave;
use super::table::{Form, Script};
use super::try_lock::Try;
use super::unlock::Unlocking;

/// The keys and arguments that a script is called with, borrowed from the server.
#[derive(Debug)]
pub struct Call<'c> {
    /// The context of the call.
    pub ctx: &'c Ctx,
    /// The script, the number of keys, KEYS and ARGV.
    words: Args<'c>,
    /// Number of KEYS.
    pub keys: usize,
    /// Number of ARGV.
    pub arguments: usize,
}

/// What comes before KEYS: the script and their number.
const BEFORE_KEYS: usize = 2;

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

/// What a call becomes.
enum Native<'c> {
    /// It is done: it does not concern the lock's queue.
    Done(Reply),
    /// A step of the rules on the lock of these names.
    Step(Rc<Names>, Kind<'c>),
}

#[derive(Debug)]
enum Kind<'c> {
    Try(Try<'c>),
    Unlock(Unlocking<'c>),
    Leave(&'c [u8]),
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

/// The native form does not know this case: the script itself is to be run. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftToLua;

impl<'c> Call<'c> {
    /// What follows the command's name. `None` if the number of keys is not one that a script can have.
    #[must_use]
    pub fn read(ctx: &'c Ctx, words: Args<'c>) -> Option<Self> {
        let keys = usize::try_from(whole(words.get(1)?)?).ok()?;
        let arguments = words.len().checked_sub(keys.checked_add(BEFORE_KEYS)?)?;
        Some(Self {
            ctx,
            words,
            keys,
            arguments,
        })
    }

    /// A key's index among the words.
    fn place_of_key(&self, index: usize) -> Result<usize, LeftToLua> {
        let is_there = index < self.keys;
        is_there.then_some(BEFORE_KEYS + index).ok_or(LeftToLua)
    }

    /// KEYS, counted from 0.
    pub fn key(&self, index: usize) -> Result<&'c [u8], LeftToLua> {
        self.words.get(self.place_of_key(index)?).ok_or(LeftToLua)
    }

    /// A key as a string of the server.
    pub(super) fn key_name(&self, index: usize) -> Result<Str, LeftToLua> {
        let place = self.place_of_key(index)?;
        self.words.string(place).ok_or(LeftToLua)
    }

    /// An argument's index among the words; beyond their end, if there is no such argument.
    fn place_of_argument(&self, index: usize) -> usize {
        BEFORE_KEYS + self.keys + index
    }

    /// ARGV, counted from 0.
    pub fn argument(&self, index: usize) -> Result<&'c [u8], LeftToLua> {
        self.words
            .get(self.place_of_argument(index))
            .ok_or(LeftToLua)
    }

    /// An argument as a string of the server.
    pub(super) fn argument_name(&self, index: usize) -> Result<Str, LeftToLua> {
        self.words
            .string(self.place_of_argument(index))
            .ok_or(LeftToLua)
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

/// Runs the native form of a script that a user may run natively. `None` if the script itself is to be run; nothing has
/// changed then.
#[must_use]
pub fn run(ctx: &Ctx, script: &Script, words: Args<'_>) -> Option<Reply> {
    let call = Call::read(ctx, words)?;
    let native = native(script, &call);
    // The events of what it wrote without a step.
    ctx.raise_events_to_all();
    match native.ok()? {
        Native::Done(reply) => Some(reply),
        Native::Step(names, kind) => take(&call, script, &names, kind),
    }
}

/// What a script becomes.
fn native<'c>(script: &Script, call: &Call<'c>) -> Result<Native<'c>, LeftToLua> {
    let fits = match script.keys {
        Some(keys) => call.keys == keys && call.arguments == script.arguments,
        None => call.keys > 0 && call.arguments == call.keys + 1,
    };
    if !fits {
        return Err(LeftToLua);
    }
    let (names, kind) = match &script.form {
        Form::TryLock(form) => (call.lock(0, 1, 2)?, Kind::Try(form.read(call)?)),
        Form::Unlock(form) => {
            let names = call.lock(0, 1, 2)?;
            let unlocking = form.read(call)?;
            if let Some(reply) = unlocking.kept_reply() {
                return Ok(Native::Done(Reply::Number(reply)));
            }
            (names, Kind::Unlock(unlocking))
        }
        Form::Leave(Leave) => {
            let names = Names::of(Leave::lock(call)?);
            (call.fits(names, 0, 1)?, Kind::Leave(Leave::read(call)?))
        }
        Form::Renew(form) => return form.run(call).map(Native::Done),
    };
    Ok(Native::Step(names, kind))
}

/// Takes the step. Its wake-ups go out as the script says.
fn take(call: &Call<'_>, script: &Script, names: &Names, mut kind: Kind<'_>) -> Option<Reply> {
    let wake_up = match &kind {
        Kind::Unlock(unlocking) => Some(unlocking.wake_up),
        Kind::Try(_) | Kind::Leave(_) => None,
    };
    let wake = |ctx: &Ctx, owner: &[u8]| {
        let Some(how) = wake_up else {
            return false;
        };
        let channel = [how.channel, b":", owner].concat();
        ctx.publish(how.command, &string(&channel), &string(how.message));
        true
    };
    let owner = script.form.owner();
    let owner = owner.and_then(|index| call.argument_name(index).ok());
    let decided = waiting::step_of_script(call.ctx, names, &wake, |step| {
        step.state.learn_name(owner);
        kind.decide(step)
    });
    // A key of another type: the script has its own error for that.
    let reply = decided.ok()?.ok()?;
    if let (Kind::Unlock(unlocking), Reply::Number(reply)) = (&mut kind, &reply) {
        unlocking.keep(*reply);
        // The event of the latch, which was written beside the step.
        call.ctx.raise_events_to_all();
    }
    Some(reply)
}

impl Kind<'_> {
    fn decide<S: State>(&self, step: &mut Step<'_, S>) -> Result<Reply, LeftToLua> {
        match self {
            Self::Try(asked) => asked.decide(step),
            Self::Unlock(unlocking) => unlocking.decide(step),
            Self::Leave(owner) => {
                step.leave_by_script(owner);
                Ok(Reply::Nil)
            }
        }
    }
}

/// What a refusal becomes. Other errors than that of full memory are left to the script.
pub(super) fn refused(refusal: Refusal) -> Result<Reply, LeftToLua> {
    match refusal {
        Refusal::MemoryFull => Ok(Reply::Error(OUT_OF_MEMORY)),
        _ => Err(LeftToLua),
    }
}
