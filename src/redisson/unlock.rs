//! The scripts that give up a hold, or free the lock from its holder.

use std::borrow::Cow;
use std::ffi::CStr;

use crate::keyspace::number::number as whole;
use crate::keyspace::{Names, write};
use crate::lock::scripts::Unlocked;
use crate::lock::{Millis, State, Step};
use crate::server::{Access, Key, Kind, clock};
use crate::waiting::WakeUp;

use super::call::{LeftToLua, Reply, ScriptCall, refused};

/// A call of such a script. Keys: lock, queue, scores, channel; in newer releases also the latch, a key that keeps the
/// reply for a while, so that a repeated call gets the same. Arguments: message, lease, owner, the client's time, in
/// newer releases the command that publishes, and the time of the latch. A forced unlock has no lease, owner and latch.
#[derive(Debug)]
pub struct Unlocking<'c> {
    /// The owner that gives up a hold, and the lease for the holds that remain; `None` where forced.
    holder: Option<(&'c [u8], Millis)>,
    client: Millis,
    latch: Option<OpenLatch<'c>>,
    /// The command that wakes the head, and its message.
    pub wake_up: WakeUp<'c>,
}

/// Which argument is the owner, unless the unlock is forced.
pub const OWNER: usize = 2;

impl<'c> Unlocking<'c> {
    /// Reads a call on this lock. Another channel than the lock's own, or another latch, is left to the script: nobody
    /// has checked whether the user may publish there, or write strings.
    pub fn read(call: &ScriptCall<'c>, names: &Names, forced: bool) -> Result<Self, LeftToLua> {
        if call.key(3)? != names.channels() {
            return Err(LeftToLua);
        }
        let (holder, client) = if forced {
            (None, 1)
        } else {
            (Some((call.argument(OWNER)?, call.duration(1)?)), 3)
        };
        let has_latch = call.keys.len() > OpenLatch::KEY;
        Ok(Self {
            holder,
            client: call.millis(client)?,
            latch: has_latch
                .then(|| OpenLatch::open(call, names))
                .transpose()?,
            wake_up: (
                publish_command(call.arguments.get(client + 1))?,
                call.argument(0)?,
            ),
        })
    }
}

/// The command of this name; PUBLISH where the script says none.
fn publish_command(name: Option<&[u8]>) -> Result<&'static CStr, LeftToLua> {
    match name {
        None => Ok(c"PUBLISH"),
        Some(name) if name.eq_ignore_ascii_case(b"PUBLISH") => Ok(c"PUBLISH"),
        Some(name) if name.eq_ignore_ascii_case(b"SPUBLISH") => Ok(c"SPUBLISH"),
        Some(_) => Err(LeftToLua),
    }
}

impl Unlocking<'_> {
    /// The reply to an earlier call of the same unlock.
    pub fn kept_reply(&self) -> Option<i64> {
        self.latch.as_ref()?.reply
    }

    /// Takes the step.
    pub fn decide<S: State>(&self, step: &mut Step<'_, S>) -> Result<Reply, LeftToLua> {
        let Some((owner, lease)) = self.holder else {
            return match step.force_unlock(self.client) {
                Ok(freed) => Ok(Reply::Number(freed.into())),
                Err(refusal) => refused(refusal),
            };
        };
        match step.unlock(owner, lease, self.client) {
            Ok(Unlocked::NotHeld) => Ok(Reply::Nil),
            Ok(Unlocked::HeldStill) => Ok(Reply::Number(0)),
            Ok(Unlocked::Freed) => Ok(Reply::Number(1)),
            Err(refusal) => refused(refusal),
        }
    }

    /// Keeps the reply.
    pub fn keep(&mut self, reply: i64) {
        if let Some(latch) = &mut self.latch {
            let expires = (clock::wall_micros() / 1000).saturating_add(latch.time);
            write::set_number(&mut latch.key, reply, expires);
        }
    }
}

#[derive(Debug)]
struct OpenLatch<'c> {
    key: Key<'c>,
    time: Millis,
    reply: Option<i64>,
}

impl<'c> OpenLatch<'c> {
    /// Which key it is.
    const KEY: usize = 4;
    /// Which argument says for how long it is kept.
    const TIME: usize = 5;

    fn open(call: &ScriptCall<'c>, names: &Names) -> Result<Self, LeftToLua> {
        let name = call.key(Self::KEY)?;
        if !names.is_latch(name) {
            return Err(LeftToLua);
        }
        let name = Cow::Owned(call.key_name(Self::KEY)?);
        let key = call.ctx.open_named(name, Access::Write);
        let reply = match key.kind() {
            Kind::Empty => None,
            Kind::String => {
                let reply = key.read(whole).flatten();
                Some(reply.ok_or(LeftToLua)?)
            }
            _ => return Err(LeftToLua),
        };
        Ok(Self {
            key,
            time: call.duration(Self::TIME)?,
            reply,
        })
    }
}
