//! The scripts that take the lock: with a queue behind it, and without.

use crate::keyspace::write;
use crate::lock::Owner;
use crate::server::{Str, string};

use super::keys::{Waiters, changed, hash, lease, pttl, set_holds};
use super::number;
use super::run::{Call, LeftToLua, Outcome, Reply};

/// One such script. Keys: lock, queue, scores. Arguments: lease, owner, and others.
#[derive(Clone, Copy, Debug)]
pub struct TryLock {
    /// Which argument is the client's time.
    now: usize,
    /// Which argument is subtracted from everybody's score when the lock is taken.
    wait: Option<usize>,
    /// A head without a score is an error.
    strict: bool,
    /// A holder that asks again is refused, with an error that servers word differently: by Lua.
    refuses_holder: bool,
    /// How it joins the queue.
    queue: Option<Queue>,
}

/// How a script joins the queue, and what it replies to whoever waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Each time it asks, a waiter's score is the head's, with 5 s from the client's time added.
    BehindHead,
    /// A newcomer's score is the tail's and its own wait; whoever has one is told what is left of
    /// it.
    OwnScore,
    /// As before, but whoever has a score is told what is left of the lease.
    Lease,
    /// As before; behind a tail without a score, a newcomer goes by the lease.
    LeaseIfTailHasNoScore,
}

impl TryLock {
    /// That of the first releases.
    pub const OLDEST: Self = Self {
        now: 2,
        wait: None,
        strict: true,
        refuses_holder: false,
        queue: None,
    };

    pub const fn subtracting(mut self, wait: usize) -> Self {
        self.wait = Some(wait);
        self
    }

    pub const fn lenient(mut self) -> Self {
        self.strict = false;
        self
    }

    pub const fn non_reentrant(mut self) -> Self {
        self.refuses_holder = true;
        self
    }

    pub const fn queueing(mut self, queue: Queue) -> Self {
        self.queue = Some(queue);
        self.now = 3;
        self
    }

    pub fn run(&self, call: &Call<'_>) -> Result<Outcome, LeftToLua> {
        let lease_time = call.duration(0)?;
        let owner = string(call.argument(1)?);
        let now = call.number(self.now)?;
        let wait = self.wait.map(|index| call.number(index)).transpose()?;
        let mut lock = hash(call, 0)?;
        let mut waiters = Waiters::open(call, 1, 2)?;

        waiters.drop_dead(now, self.strict)?;
        let head = waiters.head();
        let is_next = head.is_none_or(|head| head.as_slice() == owner.as_slice());
        if lock.is_empty() && is_next {
            if let Some(refusal) = call.out_of_memory() {
                return Ok(refusal);
            }
            waiters.pop();
            waiters.remove_score(&owner);
            if let Some(wait) = wait {
                waiters.subtract_from_all(wait);
            }
            write::set_field(&mut lock, &owner, 1, c"hset");
            lease(&mut lock, lease_time);
            return Ok(Reply::Nil.into());
        }
        if let Some(held) = lock.hash_get(&owner) {
            if self.refuses_holder {
                return Err(LeftToLua);
            }
            if let Some(refusal) = call.out_of_memory() {
                return Ok(refusal);
            }
            let holds = changed(&held, 1)?;
            set_holds(&mut lock, &owner, holds);
            lease(&mut lock, lease_time);
            return Ok(Reply::Nil.into());
        }
        match self.queue {
            None => Ok(Reply::Number(1).into()),
            Some(queue) => queue.wait(call, &mut waiters, &owner, pttl(&lock), now),
        }
    }
}

impl Queue {
    /// Joins the queue or stays there, and replies for how long.
    fn wait(
        self,
        call: &Call<'_>,
        waiters: &mut Waiters<'_>,
        owner: &Str,
        pttl: f64,
        now: f64,
    ) -> Result<Outcome, LeftToLua> {
        let wait = call.number(2)?;
        if (self == Self::BehindHead || waiters.score(owner).is_none())
            && let Some(refusal) = call.out_of_memory()
        {
            return Ok(refusal);
        }
        let reply = if self == Self::BehindHead {
            let head = waiters.head();
            let ttl = self.behind(waiters, head, owner, pttl, now)?;
            waiters.join(owner, finite(ttl + wait)?);
            ttl
        } else if let Some(score) = waiters.score(owner) {
            match self {
                Self::OwnScore => score - wait - now,
                _ => pttl.max(0.0),
            }
        } else {
            let tail = waiters.tail();
            let ttl = self.behind(waiters, tail, owner, pttl, now)?;
            waiters.join(owner, finite(ttl + wait + now)?);
            ttl
        };
        let alive = match self {
            Self::BehindHead => reply.max(0.0) + wait - now,
            // A client of these releases that is told less than nothing waits for its wake-up,
            // however long, and asks no more before it.
            Self::OwnScore if reply < 0.0 => f64::INFINITY,
            _ => reply.max(0.0) + wait,
        };
        Ok(Outcome {
            reply: Reply::Number(number::reply(reply)),
            asked: Some((Owner::from(owner.as_slice()), number::duration(alive))),
        })
    }

    /// How long it takes until the owner's turn comes: as long as the waiter before it has, or the
    /// lease.
    fn behind(
        self,
        waiters: &Waiters<'_>,
        before: Option<Str>,
        owner: &Str,
        pttl: f64,
        now: f64,
    ) -> Result<f64, LeftToLua> {
        let Some(before) = before.filter(|before| before.as_slice() != owner.as_slice()) else {
            return Ok(pttl);
        };
        match waiters.score(&before) {
            Some(score) => Ok(score - now),
            None if self == Self::LeaseIfTailHasNoScore => Ok(pttl),
            None => Err(LeftToLua),
        }
    }
}

/// The server refuses a score that is no number, and the script with it.
fn finite(score: f64) -> Result<f64, LeftToLua> {
    (!score.is_nan()).then_some(score).ok_or(LeftToLua)
}
