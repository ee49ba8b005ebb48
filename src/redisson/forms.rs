//! The forms of scripts: how each reads its keys and arguments, and the step that it takes.

use std::borrow::Cow;
use std::ffi::CStr;
use std::rc::Rc;

use crate::error::Error;
use crate::keyspace::number::number as whole;
use crate::keyspace::{Names, names, write};
use crate::lock::scripts::{ScriptWait, Sleep, Tried, TryLock, Unlocked};
use crate::lock::{Holds, Millis, Refusal, State, Step, Wall};
use crate::server::{Access, Key, Kind, Reply};
use crate::waiting::{self, WAKE_UP};

use super::call::{ScriptCall, refused};

/// What a script does.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// It takes the lock: with a queue behind it, or without.
    TryLock(TryLockForm),
    Unlock {
        /// It frees the lock from its holder, whoever that is.
        forced: bool,
    },
    /// A waiter leaves the queue. As Lua these differ in which waiters' scores they lower; natively no score changes.
    Leave,
    Renew,
}

/// A script that takes the lock. Keys: lock, queue, scores. Arguments: lease, owner, and others.
#[derive(Clone, Copy, Debug)]
pub struct TryLockForm {
    /// Whether a holder that asks again is refused. Servers word that error differently, so it is left to Lua.
    pub refuses_holder: bool,
    /// What it replies to an owner that has to wait; `None` if it does not join the queue.
    pub sleep: Option<Sleep>,
}

impl TryLockForm {
    pub fn read<'c>(self, call: &ScriptCall<'c>) -> Option<TryLock<'c>> {
        // Behind the wait, if it waits.
        let client = call.instant(if self.sleep.is_some() { 3 } else { 2 })?;
        if self.sleep.is_none() && call.arguments.len() > 3 {
            // The time that the script subtracts from scores: not used here, but it must be a number.
            call.millis(3)?;
        }
        let wait = match self.sleep {
            None => None,
            Some(sleep) => {
                // The oldest form passes the instant at which the patience ends, by the client's clock.
                let is_instant = sleep == Sleep::BehindHead;
                let begins = if is_instant { client.millis() } else { 0 };
                let patience = call.millis(2)?.checked_sub(begins)?;
                Some(ScriptWait { patience, sleep })
            }
        };
        Some(TryLock {
            owner: call.arguments.get(1)?,
            lease: call.duration(0)?,
            client,
            wait,
            memory_is_full: call.ctx.memory_is_full(&call.keys.string(2)?),
        })
    }

    pub fn decide<S: State>(self, request: &TryLock<'_>, step: &mut Step<'_, S>) -> Option<Reply> {
        if self.refuses_holder && step.state.holds(request.owner) != Holds::None {
            return None;
        }
        match step.try_lock(request) {
            Ok(Tried::Acquired) => Some(Reply::Nil),
            Ok(Tried::Refused) => Some(Reply::Integer(1)),
            Ok(Tried::Waits(sleep)) => Some(Reply::Integer(sleep)),
            Err(refusal) => refused(refusal),
        }
    }
}

/// A call of a script that gives up a hold. Keys: lock, queue, scores, channel; in newer releases also the latch, a key
/// that keeps the reply for a while, so that a repeated call gets the same. Arguments: message, lease, owner, the
/// client's time, in newer releases the command that publishes, and the time of the latch. A forced unlock has no
/// lease, owner and latch.
pub struct Unlocking<'c> {
    /// The owner that gives up a hold, and the lease for the holds that remain; `None` where forced.
    holder: Option<(&'c [u8], Millis)>,
    client: Wall,
    latch: Option<OpenLatch<'c>>,
    /// The command that wakes the head.
    pub wake_by: &'static CStr,
}

impl<'c> Unlocking<'c> {
    /// Reads a call on this lock. Another channel than the lock's own, another message or another latch is left to the
    /// script: nobody has checked whether the user may publish that, or write strings.
    pub fn read(call: &ScriptCall<'c>, names: &Names, forced: bool) -> Option<Self> {
        if call.keys.get(3)? != names.channels() || call.arguments.get(0)? != WAKE_UP {
            return None;
        }
        let (holder, client) = if forced {
            (None, 1)
        } else {
            (Some((call.arguments.get(2)?, call.duration(1)?)), 3)
        };
        let latch = if call.keys.len() > OpenLatch::KEY {
            Some(OpenLatch::open(call, names)?)
        } else {
            None
        };
        Some(Self {
            holder,
            client: call.instant(client)?,
            latch,
            wake_by: publish_command(call.arguments.get(client + 1))?,
        })
    }
}

/// The command of this name; PUBLISH where the script says none.
fn publish_command(name: Option<&[u8]>) -> Option<&'static CStr> {
    match name {
        None => Some(c"PUBLISH"),
        Some(name) if name.eq_ignore_ascii_case(b"PUBLISH") => Some(c"PUBLISH"),
        Some(name) if name.eq_ignore_ascii_case(b"SPUBLISH") => Some(c"SPUBLISH"),
        Some(_) => None,
    }
}

impl Unlocking<'_> {
    /// The reply to an earlier call of the same unlock.
    pub fn kept_reply(&self) -> Option<i64> {
        self.latch.as_ref()?.reply
    }

    /// Takes the step, and keeps the reply. With this the latch is closed.
    pub fn decide<S: State>(self, step: &mut Step<'_, S>) -> Option<Reply> {
        let freed = match self.holder {
            None => step.force_unlock(self.client),
            Some((owner, lease)) => match step.unlock(owner, lease, self.client) {
                Ok(Unlocked::NotHeld) => return Some(Reply::Nil),
                Ok(Unlocked::HeldStill) => Ok(false),
                Ok(Unlocked::Freed) => Ok(true),
                Err(refusal) => Err(refusal),
            },
        };
        let reply = match freed {
            Ok(freed) => freed.into(),
            Err(refusal) => return refused(refusal),
        };
        if let Some(mut latch) = self.latch {
            write::set_number(&mut latch.key, reply, step.now.after(latch.time));
        }
        Some(Reply::Integer(reply))
    }
}

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

    fn open(call: &ScriptCall<'c>, names: &Names) -> Option<Self> {
        let name = call.keys.get(Self::KEY)?;
        if !names.is_latch(name) {
            return None;
        }
        let name = Cow::Owned(call.keys.string(Self::KEY)?);
        let key = call.ctx.open_named(name, Access::Write);
        let reply = match key.kind() {
            Kind::Empty => None,
            Kind::String => Some(key.read(whole).flatten()?),
            _ => return None,
        };
        Some(Self {
            key,
            time: call.duration(Self::TIME)?,
            reply,
        })
    }
}

/// The lock whose queue an owner leaves. Keys: queue, scores. Arguments: owner, and since 3.5.5 the wait to subtract.
/// The lock is not among the script's keys, so the server has not checked whether the user may change it.
pub fn left_lock(call: &ScriptCall<'_>) -> Option<Rc<Names>> {
    if call.arguments.len() > 1 {
        call.millis(1)?;
    }
    let locks = names::locks_of(call.keys.get(0)?)?;
    let mut locks = locks.into_iter().flatten();
    let lock = locks.find(|lock| waiting::has_queue(call.ctx, lock))?;
    let names = call.lock(lock, 0, 1)?;
    call.ctx.may_update(&names.lock).then_some(names)
}

/// Renews leases, each in a step of its own. Keys: locks. Arguments: lease, and an owner for each lock. Returns 1 for
/// each that was renewed, and 0 for the others. A hash that is no lock is left to the script, which renews once more
/// what was renewed before it.
pub fn renew(call: &ScriptCall<'_>) -> Option<Vec<i64>> {
    let lease = call.duration(0)?;
    for index in 0..call.keys.len() {
        let names = Names::of(call.keys.get(index)?);
        waiting::require_own_queue(call.ctx, names.name()).ok()?;
        if !call.ctx.open(&names.lock, Access::Read).fits(&Kind::Hash) {
            return None;
        }
    }
    let renew = |index| {
        let owner = call.arguments.get(index + 1)?;
        let renewed = waiting::step(call.ctx, call.keys.get(index)?, |step| {
            step.state.require_holders()?;
            step.state.learn_name(call.arguments.string(index + 1));
            Ok(step.renew(owner, lease)?)
        });
        match renewed {
            Ok(_) => Some(1),
            Err(Error::Refused(Refusal::NotHeld)) => Some(0),
            Err(_) => None,
        }
    };
    (0..call.keys.len()).map(renew).collect()
}
