//! One call of a script: its keys and arguments, and what comes of it.

use crate::config::LONGEST;
use crate::lock::{Millis, Owner};
use crate::server::{Ctx, Str};

use super::number::{double, whole};
use super::table::{Form, Script};

/// The keys and arguments that a script is called with.
#[derive(Debug)]
pub struct Call<'c> {
    /// The context of the call.
    pub ctx: &'c Ctx,
    /// KEYS.
    pub keys: Vec<Str>,
    /// ARGV.
    pub arguments: Vec<&'c [u8]>,
}

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

/// What has come of a script.
#[derive(Debug)]
pub struct Outcome {
    /// Its reply.
    pub reply: Reply,
    /// Who has asked for the lock and is in its queue, and for how long that is a sign of life.
    pub asked: Option<(Owner, Millis)>,
}

impl From<Reply> for Outcome {
    fn from(reply: Reply) -> Self {
        Self { reply, asked: None }
    }
}

/// The native form does not know this case: the script itself is to be run. What the native form
/// has done by then the script would have done as well, and goes on from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftToLua;

impl Call<'_> {
    /// The refusal of a script that would need more memory than there may be.
    pub(super) fn out_of_memory(&self) -> Option<Outcome> {
        let full = self.ctx.flags().out_of_memory();
        full.then(|| Reply::Error(OUT_OF_MEMORY).into())
    }

    /// KEYS, counted from 0.
    pub(super) fn key(&self, index: usize) -> Result<&Str, LeftToLua> {
        self.keys.get(index).ok_or(LeftToLua)
    }

    /// ARGV, counted from 0.
    pub(super) fn argument(&self, index: usize) -> Result<&[u8], LeftToLua> {
        self.arguments.get(index).copied().ok_or(LeftToLua)
    }

    /// An argument that is a whole number, as Lua holds it.
    pub(super) fn number(&self, index: usize) -> Result<f64, LeftToLua> {
        let number = whole(self.argument(index)?).ok_or(LeftToLua)?;
        Ok(double(number))
    }

    /// An argument that is a time to live. Beyond the longest, the script's own error is wanted.
    pub(super) fn duration(&self, index: usize) -> Result<Millis, LeftToLua> {
        let number = whole(self.argument(index)?).filter(|number| (1..LONGEST).contains(number));
        number
            .and_then(|number| Millis::try_from(number).ok())
            .ok_or(LeftToLua)
    }
}

/// Runs the native form of a script.
///
/// # Errors
/// [`LeftToLua`] if the script itself is to be run.
pub fn run(script: &Script, call: &Call<'_>) -> Result<Outcome, LeftToLua> {
    let fits = match script.keys {
        Some(keys) => call.keys.len() == keys && call.arguments.len() == script.arguments,
        None => !call.keys.is_empty() && call.arguments.len() == call.keys.len() + 1,
    };
    if !fits || names_a_key_twice(script, call) {
        return Err(LeftToLua);
    }
    match &script.form {
        Form::TryLock(form) => form.run(call),
        Form::Unlock(form) => form.run(call).map(Outcome::from),
        Form::Leave(form) => form.run(call).map(Outcome::from),
        Form::Renew(form) => form.run(call).map(Outcome::from),
    }
}

/// One key under two names is nothing that a native form looks out for. Only for a call with as
/// many keys as the script has: a client can send a million.
fn names_a_key_twice(script: &Script, call: &Call<'_>) -> bool {
    let mut one_by_one = call.keys.iter().enumerate();
    script.keys.is_some()
        && one_by_one.any(|(index, key)| {
            let mut earlier = call.keys.iter().take(index);
            earlier.any(|other| other.as_slice() == key.as_slice())
        })
}
