//! The scripts that give up a hold, or free the lock whoever holds it.

use crate::keyspace::write;
use crate::server::{Access, Key, Kind, string};

use super::keys::{Waiters, changed, hash, lease, now, set_holds};
use super::number::whole;
use super::run::{Call, LeftToLua, Reply};

/// One such script. Keys: lock, queue, scores, channel, and the latch where there is one.
/// Arguments: message, lease, owner, the client's time, and others; where forced message and time.
#[derive(Clone, Copy, Debug)]
pub struct Unlock {
    /// It frees the lock whoever holds it.
    forced: bool,
    /// Which argument says PUBLISH or SPUBLISH.
    publish: Option<usize>,
    /// Where its reply is kept, so that asking again gives it again.
    latch: Option<Latch>,
    /// A head without a score is an error.
    strict: bool,
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

impl Unlock {
    /// That of the first releases.
    pub const OLDEST: Self = Self {
        forced: false,
        publish: None,
        latch: None,
        strict: true,
    };

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

    pub const fn lenient(mut self) -> Self {
        self.strict = false;
        self
    }

    pub fn run(&self, call: &Call<'_>) -> Result<Reply, LeftToLua> {
        let time = call.number(if self.forced { 1 } else { 3 })?;
        self.publish_command(call)?;
        let latch = self.latch.map(|latch| OpenLatch::open(call, latch));
        let mut latch = latch.transpose()?;
        if let Some(reply) = latch.as_ref().and_then(|latch| latch.reply) {
            return Ok(Reply::Number(reply));
        }
        let mut lock = hash(call, 0)?;
        let mut waiters = Waiters::open(call, 1, 2)?;
        if self.forced {
            waiters.drop_dead(time, self.strict)?;
            if lock.is_empty() {
                return Ok(Reply::Number(0));
            }
            write::delete(&mut lock);
            self.wake_head(call, &mut waiters)?;
            return Ok(Reply::Number(1));
        }
        let lease_time = call.duration(1)?;
        let owner = string(call.argument(2)?);
        waiters.drop_dead(time, self.strict)?;
        if lock.is_empty() {
            self.wake_head(call, &mut waiters)?;
            keep(&mut latch, 1);
            return Ok(Reply::Number(1));
        }
        let Some(held) = lock.hash_get(&owner) else {
            return Ok(Reply::Nil);
        };
        let holds = changed(&held, -1)?;
        if holds > 0 {
            set_holds(&mut lock, &owner, holds);
            lease(&mut lock, lease_time);
            keep(&mut latch, 0);
            return Ok(Reply::Number(0));
        }
        // The script counts to 0 and deletes what it has counted in: only the event shows.
        write::announce_field(&lock, c"hincrby");
        write::delete(&mut lock);
        keep(&mut latch, 1);
        self.wake_head(call, &mut waiters)?;
        Ok(Reply::Number(1))
    }

    /// With which command it publishes.
    fn publish_command(&self, call: &Call<'_>) -> Result<&'static std::ffi::CStr, LeftToLua> {
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

    fn wake_head(&self, call: &Call<'_>, waiters: &mut Waiters<'_>) -> Result<(), LeftToLua> {
        if let Some(head) = waiters.head() {
            let channel = call.key(3)?.as_slice();
            let channel = string(&[channel, b":", head.as_slice()].concat());
            let message = string(call.argument(0)?);
            call.ctx
                .publish(self.publish_command(call)?, &channel, &message);
        }
        Ok(())
    }
}

struct OpenLatch<'c> {
    key: Key<'c>,
    time: u64,
    reply: Option<i64>,
}

impl<'c> OpenLatch<'c> {
    fn open(call: &Call<'c>, latch: Latch) -> Result<Self, LeftToLua> {
        let key = call.ctx.open(call.key(latch.key)?, Access::Write);
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

/// Keeps the reply.
fn keep(latch: &mut Option<OpenLatch<'_>>, reply: i64) {
    if let Some(latch) = latch {
        let expires = now().saturating_add(latch.time);
        write::set_number(&mut latch.key, reply, expires);
    }
}
