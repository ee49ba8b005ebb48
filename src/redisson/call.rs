//! One call of a script: its keys and arguments, and what can come of it.

use std::rc::Rc;

use crate::config::LONGEST_DURATION;
use crate::error::Error;
use crate::keyspace::number::number as whole;
use crate::keyspace::{Names, names};
use crate::lock::{Millis, Refusal, Wall};
use crate::server::{Args, Ctx, Reply};

/// The keys and arguments that a script is called with, borrowed from the server.
pub struct ScriptCall<'c> {
    pub ctx: &'c Ctx,
    /// KEYS, counted from 0.
    pub keys: Args<'c>,
    /// ARGV, counted from 0.
    pub arguments: Args<'c>,
}

/// What the native form does not cover is `None` here: the script itself must run, and nothing has changed.
impl<'c> ScriptCall<'c> {
    /// The script, the number of keys, KEYS and ARGV. `None` if the number is not one that a script can have.
    pub fn read(ctx: &'c Ctx, words: Args<'c>) -> Option<Self> {
        let number = usize::try_from(whole(words.get(1)?)?).ok()?;
        let (_script_and_number, words) = words.split(2)?;
        let (keys, arguments) = words.split(number)?;
        Some(Self {
            ctx,
            keys,
            arguments,
        })
    }

    /// An argument that is a whole number of milliseconds, not below 0.
    pub fn millis(&self, index: usize) -> Option<Millis> {
        let number = whole(self.arguments.get(index)?)?;
        Millis::try_from(number).ok()
    }

    /// An argument that is an instant, in milliseconds since the Unix epoch.
    pub fn instant(&self, index: usize) -> Option<Wall> {
        self.millis(index).map(Wall::of)
    }

    /// An argument that is a time to live. One that is too long is left to the script, for its own error.
    pub fn duration(&self, index: usize) -> Option<Millis> {
        let longest = LONGEST_DURATION.cast_unsigned();
        let duration = self.millis(index)?;
        (1..longest).contains(&duration).then_some(duration)
    }

    /// A lock, if these are the keys of its queue and its scores. Keys that do not belong together, as those of a
    /// client that maps names before Redisson 3.52.0, are left to the script.
    pub fn lock(&self, lock: &[u8], queue: usize, scores: usize) -> Option<Rc<Names>> {
        let names = Names::of(lock);
        let fits = self.keys.get(queue)? == names.queue.as_slice()
            && self.keys.get(scores)? == names.deadlines.as_slice();
        fits.then_some(names)
    }
}

/// Whether all keys are in the slot of the first, by which the server has routed the call.
pub fn share_a_slot(ctx: &Ctx, words: Args<'_>) -> bool {
    ScriptCall::read(ctx, words).is_none_or(|call| {
        let mut slots =
            (0..call.keys.len()).filter_map(|index| call.keys.get(index).map(names::slot));
        let first = slots.next();
        slots.all(|slot| Some(slot) == first)
    })
}

/// What a refusal becomes. Other errors than that of full memory are left to the script.
pub fn refused(refusal: Refusal) -> Option<Reply> {
    (refusal == Refusal::MemoryFull).then(|| Error::from(refusal).into())
}
