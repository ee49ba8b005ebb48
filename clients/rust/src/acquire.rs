//! An acquisition: asks until the lock is granted. One whose caller has gone leaves the queue in a task.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use redis::{Cmd, RedisResult, Value};
use tokio::sync::{OwnedMutexGuard, oneshot};
use tokio::time::{sleep, timeout};

use crate::caller::{Caller, FIRST_PAUSE, Reply, Tries};
use crate::core::Core;
use crate::error::{UNCONFIRMED, is_not_held, text_of};
use crate::hold::Hold;
use crate::lines::{Ear, locked};
use crate::options::{call, jitter, ms};
use crate::{Call, Error, Held, Kind, Options, Result};

/// The longest that a caller waits for its owner to leave the queue; it goes on in the background.
const LEAVE: Duration = Duration::from_secs(1);

impl Core {
    /// The lock, or once more the hold that this caller has already.
    pub async fn acquire(
        self: Arc<Self>,
        name: Vec<u8>,
        options: Options,
        caller: Option<String>,
    ) -> Result<Held> {
        options.check(&name)?;
        self.check_open()?;
        let mut entry = None;
        if options.reentrant {
            let refused = || Error::new(Kind::Argument, "reentrant: this is no task");
            let key = (caller.ok_or_else(refused)?, name.clone());
            let held = locked(&self.state)
                .entered
                .get(&key)
                .and_then(Weak::upgrade);
            if let Some(held) = held.map_or(Ok(None), Hold::enter)? {
                return Ok(held);
            }
            entry = Some(key);
        }
        let (_here, gone) = oneshot::channel();
        let ask = Ask::new(self.clone(), name, options);
        let asked = Call::new(&self, ask.run(gone));
        let held = asked.ended_by_a_task().await?;
        if let Some(entry) = entry {
            let entered = &mut locked(&self.state).entered;
            entered.retain(|_, hold| hold.strong_count() > 0);
            entered.insert(entry, Arc::downgrade(&held.hold));
        }
        Ok(held)
    }
}

/// One who asks for a lock.
pub struct Ask {
    pub caller: Caller,
    pub ear: Ear,
    pub start: Instant,
    /// Of the wait.
    end: Option<Instant>,
    /// Of the last grant, which too few replicas may have confirmed, and when it was asked for.
    pub token: i64,
    pub sent: Instant,
    is_unconfirmed: bool,
    /// It had to wait.
    is_told: bool,
}

impl Ask {
    fn new(core: Arc<Core>, name: Vec<u8>, options: Options) -> Self {
        let wait = match options.wait {
            Some(Duration::ZERO) => Some(core.options.command_timeout),
            wait => wait,
        };
        let start = Instant::now();
        let ear = core.ear(&name, options.owner.clone());
        Self {
            caller: Caller::new(core, name, ear.owner.clone(), options),
            ear,
            start,
            end: wait.map(|wait| start + wait),
            token: 0,
            sent: start,
            is_unconfirmed: false,
            is_told: false,
        }
    }

    async fn run(mut self, mut gone: oneshot::Receiver<()>) -> Result<Held> {
        let mut closing = self.caller.core.closing.subscribe();
        let granted = tokio::select! {
            biased;
            _ = closing.wait_for(|is_so| *is_so) => Err(Error::closed()),
            _ = &mut gone => Err(Error::closed()),
            granted = self.granted() => granted,
        };
        if let Err(error) = granted {
            let core = self.caller.core.clone();
            let leaving = Call::new(&core, async move {
                self.leave().await;
                drop(closing);
                Ok(())
            });
            drop(timeout(LEAVE, leaving.ended_by_a_task()).await);
            return Err(error);
        }
        Ok(Held::new(Hold::new(self)))
    }

    /// Until the lock is held.
    async fn granted(&mut self) -> Result<()> {
        let turn = self.caller.core.turn(&self.caller.name).lock_owned();
        let mut turn = timeout(self.at_most(Duration::MAX), turn).await.ok();
        let longest = self.caller.core.options.retry_timeout;
        let mut tries = Tries::default();
        while !self.at_most(Duration::MAX).is_zero() {
            match self.asked(turn.take(), &mut tries).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(failure) => {
                    if self.caller.options.session {
                        self.caller.line.hang_up().await; // Perhaps it is half open.
                    }
                    match tries.failed(failure, longest) {
                        Ok(pause) => sleep(self.at_most(pause)).await,
                        Err(failure) => return Err(self.caller.refused(failure)),
                    }
                }
            }
        }
        let (mut kind, mut text) = (Kind::NotInTime, "not acquired in time".to_owned());
        if self.is_unconfirmed {
            (kind, text) = (Kind::NotReplicated, UNCONFIRMED.to_owned());
        }
        let first = tries.since.map(|(_, first)| first);
        if let Some(first) = &first {
            text = format!("{text}: {}", text_of(first));
        }
        Err(self.caller.error(kind, text, first))
    }

    /// Asks. Whether the lock is held then; if not, it returns when it is time to ask again.
    async fn asked(
        &mut self,
        turn: Option<OwnedMutexGuard<()>>,
        tries: &mut Tries,
    ) -> RedisResult<bool> {
        let caller = &self.caller;
        let longest = self.at_most(caller.core.options.command_timeout);
        self.sent = Instant::now();
        // To release. The nodes by which a cluster's client finds the others may be down later.
        caller.core.plain.link(longest).await?;
        let reply = caller.send(&caller.line, &self.ask(), longest).await;
        drop(turn);
        let Reply(value, is_confirmed) = reply?;
        *tries = Tries::default();
        match value {
            Value::Int(token) => {
                let (late, lease) = (self.sent.elapsed(), self.caller.options.lease);
                let is_new = token != std::mem::replace(&mut self.token, token);
                if token <= self.ear.released || !is_confirmed {
                    return self.give_back().await.map(|()| false);
                }
                // Asking again (ONCE) renews it, or finds that it is lost. Once, since it may be as slow again.
                Ok(late < lease && (!is_new || late < lease / 3))
            }
            Value::Array(place) => {
                let retry_after = match place.get(1) {
                    Some(Value::Int(ms)) => ms.unsigned_abs(),
                    _ => 1000,
                };
                let pause = Duration::from_millis(retry_after);
                self.listen(pause + jitter(pause / 10))
                    .await
                    .map(|()| false)
            }
            _ => {
                self.end = Some(self.sent);
                Ok(false)
            }
        }
    }

    /// Too few replicas have the grant, or a new master does not know that it was released.
    async fn give_back(&mut self) -> RedisResult<()> {
        let (caller, plain) = (&self.caller, &self.caller.core.plain);
        let longest = self.at_most(caller.core.options.command_timeout);
        match caller
            .send(plain, &caller.release(self.token), longest)
            .await
        {
            Err(failure) if !is_not_held(&failure) => return Err(failure),
            _ => {}
        }
        let token = std::mem::take(&mut self.token);
        if token <= self.ear.released {
            self.ear.released = 0; // A server that was told once knows.
        } else {
            self.ear.released = token;
            self.is_unconfirmed = true;
            sleep(self.at_most(FIRST_PAUSE)).await;
        }
        Ok(())
    }

    /// Until a message, or for so long; or until the owner is listened for, if it was not.
    async fn listen(&mut self, longest: Duration) -> RedisResult<()> {
        let longest = self.at_most(longest);
        if !std::mem::replace(&mut self.is_told, true) {
            call(
                self.caller.core.options.on_wait.as_ref(),
                &self.caller.event,
            );
        }
        if !self.ear.hears(longest).await {
            // Silence may be that of a dead connection: then it does not confirm this either.
            let left = self.at_most(Duration::MAX);
            let listened = timeout(left, self.ear.listen()).await;
            return listened.unwrap_or(Ok(()));
        }
        Ok(())
    }

    /// This time, or what is left of the wait.
    fn at_most(&self, longest: Duration) -> Duration {
        let left = self
            .end
            .map(|end| end.saturating_duration_since(Instant::now()));
        longest.min(left.unwrap_or(Duration::MAX))
    }

    fn ask(&self) -> Cmd {
        let options = &self.caller.options;
        let is_shared = options.shared || options.limit.is_some();
        let mut ask = self.caller.command("FAIRLOCK.ACQUIRE");
        ask.arg(is_shared.then_some("SHARED")).arg(options.limit);
        ask.arg("LEASE").arg(ms(options.lease)).arg("ONCE");
        ask.arg(options.session.then_some("SESSION"));
        match options.wait {
            Some(Duration::ZERO) => ask.arg("NOWAIT"),
            _ => ask.arg("ENQUEUE").arg("PATIENCE").arg(ms(options.patience)),
        };
        ask
    }

    /// Leaves the queue, or gives up what was granted meanwhile, if the owner may be there. Behind its last ask, on the same
    /// connection.
    async fn leave(mut self) {
        let caller = &self.caller;
        let mut is_clean = caller.unanswered.load(Ordering::Relaxed) == 0;
        let is_known = self.is_told || self.token != 0 || !is_clean;
        {
            // While others with its owner stay, the place, or the lock, is theirs, too, and the last one gives it up.
            let _one_at_a_time = locked(&caller.core.state);
            let common = std::mem::take(&mut self.ear.common);
            is_clean &= !common.fetch_or(is_known, Ordering::Relaxed);
            if Arc::strong_count(&common) > 1 {
                return;
            }
        }
        let options = &caller.options;
        let send = async |command| {
            let longest = options.lease.max(options.patience);
            let command = caller.command(command);
            caller.persist(&caller.line, &command, longest).await
        };
        let mut is_left = true;
        if is_known || !is_clean {
            let cancelled = send("FAIRLOCK.CANCEL").await;
            is_left = matches!(cancelled, Ok(Reply(Value::Int(1), _)));
            // Another caller may hold the lock by an owner that was given, unless a grant may be this one's.
            let may_hold = !is_clean || self.token != 0 || options.owner.is_none();
            if cancelled.is_ok() && !is_left && may_hold {
                drop(send("FAIRLOCK.RELEASE").await);
            }
        }
        caller.keep_ear(self.ear, is_left);
    }
}
