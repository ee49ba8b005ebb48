//! The scripts that give up a hold, or free the lock from its holder.

use std::borrow::Cow;
use std::ffi::CStr;

use crate::keyspace::number::number as whole;
use crate::keyspace::write;
use crate::lock::scripts::Unlocked;
use crate::lock::{Millis, State, Step};
use crate::server::{Access, Key, Kind, clock};

use super::run::{Call, LeftToLua, Reply, WakeUp, refused};

/// One such script. Keys: lock, queue, scores, channel, and the latch if it has one.
/// Arguments: message, lease, owner, the client's time, and others. A forced unlock has message and time only.
#[derive(Clone, Copy, Debug)]
pub struct Unlock {
    /// It frees the lock from its holder.
    forced: bool,
    /// Which argument says PUBLISH or SPUBLISH.
    publish: Option<usize>,
    /// The key that keeps its reply, so that a repeated call gets the same reply.
    latch: Option<Latch>,
}

/// A key that keeps the reply of an unlock for a while.
#[derive(Clone, Copy, Debug)]
pub struct Latch {
    key: usize,
    time: usize,
}

impl Latch {
    pub const OF_UNLOCK: Self = Self { key: 4, time: 5 };
}

/// A call of such a script.
#[derive(Debug)]
pub struct Unlocking<'c> {
    /// The owner that gives up a hold, and the lease for the holds that remain; `None` where forced.
    holder: Option<(&'c [u8], Millis)>,
    client: Millis,
    latch: Option<OpenLatch<'c>>,
    /// How the head is woken.
    pub wake_up: WakeUp<'c>,
}

impl Unlock {
    /// The script of the first releases.
    pub const OLDEST: Self = Self {
        forced: false,
        publish: None,
        latch: None,
    };

    /// Which argument is the owner, unless the unlock is forced.
    const OWNER: usize = 2;

    /// Which argument is the owner, if one is.
    pub fn owner(&self) -> Option<usize> {
        (!self.forced).then_some(Self::OWNER)
    }

    pub const fn forced(mut self) -> Self {
        self.forced = true;
        self
    }

    pub const fn publishing(mut self, command: usize) -> Self {
        self.publish = Some(command);
        self
    }

    pub const fn latched(mut self, latch: Latch) -> Self {
        self.latch = Some(latch);
        self
    }

    /// Reads a call.
    pub fn read<'c>(&self, call: &Call<'c>) -> Result<Unlocking<'c>, LeftToLua> {
        let client = call.millis(if self.forced { 1 } else { 3 })?;
        let holder = if self.forced {
            None
        } else {
            Some((call.argument(Self::OWNER)?, call.duration(1)?))
        };
        let latch = self.latch.map(|latch| OpenLatch::open(call, latch));
        Ok(Unlocking {
            holder,
            client,
            latch: latch.transpose()?,
            wake_up: WakeUp {
                command: self.publish_command(call)?,
                channel: call.key(3)?,
                message: call.argument(0)?,
            },
        })
    }

    /// The command by which it publishes.
    fn publish_command(&self, call: &Call<'_>) -> Result<&'static CStr, LeftToLua> {
        let Some(index) = self.publish else {
            return Ok(c"PUBLISH");
        };
        let name = call.argument(index)?;
        if name.eq_ignore_ascii_case(b"PUBLISH") {
            Ok(c"PUBLISH")
        } else if name.eq_ignore_ascii_case(b"SPUBLISH") {
            Ok(c"SPUBLISH")
        } else {
            Err(LeftToLua)
        }
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
            let freed = step.force_unlock(self.client);
            return Ok(Reply::Number(freed.into()));
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
    fn open(call: &Call<'c>, latch: Latch) -> Result<Self, LeftToLua> {
        let name = call.key(latch.key)?;
        // A latch that is also one of the other keys is left to the script.
        if (0..latch.key).any(|other| call.key(other) == Ok(name)) {
            return Err(LeftToLua);
        }
        let name = Cow::Owned(call.key_name(latch.key)?);
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
            time: call.duration(latch.time)?,
            reply,
        })
    }
}
