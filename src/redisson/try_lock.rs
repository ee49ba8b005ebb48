//! The scripts that take the lock: with a queue behind it, and without.

use crate::lock::scripts::{Told, Tried, TryLock as Request, Wait};
use crate::lock::{Holds, State, Step};

use super::run::{Call, LeftToLua, Reply, refused};

/// One such script. Keys: lock, queue, scores. Arguments: lease, owner, and others.
#[derive(Clone, Copy, Debug)]
pub struct TryLock {
    /// Which argument is the client's time.
    now: usize,
    /// Whether a holder that asks again is refused. Servers word that error differently, so it is left to Lua.
    refuses_holder: bool,
    /// What it replies to an owner that has to wait; `None` if it does not join the queue.
    told: Option<Told>,
}

/// A call of such a script.
#[derive(Debug)]
pub struct Try<'c> {
    request: Request<'c>,
    refuses_holder: bool,
}

impl TryLock {
    /// Which argument is the owner.
    pub const OWNER: usize = 1;

    /// One that does not wait.
    pub const WITHOUT_QUEUE: Self = Self {
        now: 2,
        refuses_holder: false,
        told: None,
    };

    pub const fn non_reentrant(mut self) -> Self {
        self.refuses_holder = true;
        self
    }

    pub const fn queueing(mut self, told: Told) -> Self {
        self.told = Some(told);
        self.now = 3;
        self
    }

    /// Reads a call.
    pub fn read<'c>(&self, call: &Call<'c>) -> Result<Try<'c>, LeftToLua> {
        let client = call.millis(self.now)?;
        if self.told.is_none() && call.arguments > 3 {
            // The time that the script subtracts from scores: not used here, but it must be a number.
            call.millis(3)?;
        }
        let wait = self.told.map(|told| {
            let patience = match told {
                // The oldest form passes the instant at which the patience ends, by the client's clock.
                Told::BehindHead => call.millis(2)?.checked_sub(client).ok_or(LeftToLua)?,
                _ => call.millis(2)?,
            };
            Ok(Wait { patience, told })
        });
        let request = Request {
            owner: call.argument(Self::OWNER)?,
            lease: call.duration(0)?,
            client,
            wait: wait.transpose()?,
            memory_is_full: call.ctx.flags().out_of_memory(),
        };
        Ok(Try {
            request,
            refuses_holder: self.refuses_holder,
        })
    }
}

impl Try<'_> {
    /// Takes the step.
    pub fn decide<S: State>(&self, step: &mut Step<'_, S>) -> Result<Reply, LeftToLua> {
        if self.refuses_holder && step.state.holds(self.request.owner) != Holds::None {
            return Err(LeftToLua);
        }
        match step.try_lock(&self.request) {
            Ok(Tried::Acquired) => Ok(Reply::Nil),
            Ok(Tried::Refused) => Ok(Reply::Number(1)),
            Ok(Tried::Waits(told)) => Ok(Reply::Number(told)),
            Err(refusal) => refused(refusal),
        }
    }
}
