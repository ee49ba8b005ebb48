//! A lock that is held: the task that has acquired it renews it until it is lost, or told to release it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use redis::RedisResult;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep_until, timeout_at};

use crate::caller::{Caller, FIRST_PAUSE, Reply};
use crate::core::Core;
use crate::error::{UNCONFIRMED, is_not_held};
use crate::options::{Hook, call, ms, tell};
use crate::{Cause, Error, Event, Held, Kind, Options, Result};

pub struct Hold {
    pub core: Arc<Core>,
    /// What hooks and people are told: the lock, its owner, the token.
    pub event: Event,
    pub acquired: Instant,
    pub lost: watch::Sender<Option<Error>>,
    /// How many times it is held.
    pub holds: AtomicUsize,
    pub orders: UnboundedSender<Order>,
    /// Its task is the package's own thread's.
    pub is_in_thread: bool,
}

/// A renewal with a lease, or its own, and where it is said what came of it.
type Asked = (Option<Duration>, oneshot::Sender<Result<Duration>>);

/// What the task is told to do.
pub enum Order {
    Renew(Asked),
    Release(oneshot::Sender<Result<()>>),
}

impl Hold {
    /// The error: it is known to be lost.
    pub fn check(&self) -> Result<()> {
        self.lost.borrow().clone().map_or(Ok(()), Err)
    }

    fn lost_by(&self, cause: Cause) -> Error {
        let why = format!("{cause:?}").to_lowercase();
        let text = format!("{} was lost ({why})", self.event.name);
        Error::new(Kind::LockLost(cause), text)
    }

    /// Nothing keeps it any more.
    pub fn gone(&self) -> Error {
        let lost = self.check().err();
        lost.unwrap_or_else(|| self.lost_by(Cause::NotHeld))
    }

    pub async fn renew(self: Arc<Self>, lease: Option<Duration>) -> Result<Duration> {
        let mut options = Options::default();
        options.lease = lease.unwrap_or(options.lease);
        options.check(b"any")?;
        let (reply, renewed) = oneshot::channel();
        drop(self.orders.send(Order::Renew((lease, reply))));
        renewed.await.unwrap_or_else(|_| Err(self.gone()))
    }

    /// Once more, unless it was released. The error: it is known to be lost.
    pub fn enter(self: Arc<Self>) -> Result<Option<Held>> {
        self.check()?;
        let more = |holds| (holds > 0).then_some(holds + 1);
        let order = Ordering::Relaxed;
        let entered = self.holds.fetch_update(order, order, more);
        Ok(entered.is_ok().then(|| Held::new(self)))
    }

    /// Calls a hook; how long it was held is told, and the cause.
    fn tell(&self, hook: Option<&Hook>, cause: Option<Cause>) {
        let mut event = self.event.clone();
        (event.held, event.cause) = (Some(self.acquired.elapsed()), cause);
        call(hook, &event);
    }
}

impl Caller {
    /// Until it is released or lost.
    pub async fn hold(
        mut self,
        hold: &Hold,
        mut orders: UnboundedReceiver<Order>,
        mut closing: watch::Receiver<bool>,
    ) {
        let (line, mut asked) = (self.line.clone(), VecDeque::new());
        let ended = tokio::select! {
            biased;
            ended = Box::pin(self.keep(&mut orders, &mut asked)) => ended,
            _ = closing.wait_for(|is_so| *is_so) => Err(Cause::Closed),
            () = line.ended(), if self.options.session => Err(Cause::Connection),
        };
        match ended {
            Ok(reply) => {
                let released = self.release_held(hold).await;
                self.ear.released = self.token;
                self.keep_ear(released.is_ok());
                drop(reply.send(released));
            }
            Err(cause) => {
                hold.lost.send_replace(Some(hold.lost_by(cause)));
                drop((orders, asked)); // Who waits for a renewal learns of the loss.
                hold.tell(self.core.options.on_lost.as_ref(), Some(cause));
                if cause == Cause::Lease {
                    // Perhaps by this side's clock alone.
                    drop(self.persist(&self.release(), Duration::ZERO).await);
                }
            }
        }
    }

    /// Until it is to be released, and who waits for that; or until it is lost.
    async fn keep(
        &mut self,
        orders: &mut UnboundedReceiver<Order>,
        asked: &mut VecDeque<Asked>,
    ) -> std::result::Result<oneshot::Sender<Result<()>>, Cause> {
        loop {
            // An order ends a renewal that is under way.
            let order = tokio::select! {
                biased;
                Some(order) = orders.recv() => order,
                cause = self.renew_in_time(asked) => return Err(cause),
            };
            match order {
                Order::Release(reply) => return Ok(reply),
                Order::Renew(asks) => asked.push_back(asks),
            }
        }
    }

    /// Renews when it is asked for or due, until the lock is lost.
    async fn renew_in_time(&mut self, asked: &mut VecDeque<Asked>) -> Cause {
        loop {
            while let Some((lease, _)) = asked.front() {
                let lease = lease.unwrap_or(self.options.lease);
                let longest = self.at_most(self.core.options.retry_timeout);
                let renewed = match self.renew(lease, longest).await {
                    Ok(true) => Ok(lease),
                    Ok(false) => Err(self.error(Kind::NotReplicated, UNCONFIRMED, None)),
                    Err(failure) if is_not_held(&failure) => return Cause::NotHeld,
                    Err(failure) => Err(self.refused(failure)),
                };
                if let Some((_, reply)) = asked.pop_front() {
                    drop(reply.send(renewed));
                }
            }
            let end = self.end.unwrap_or_else(Instant::now);
            let due = self.due.map_or(end, |due| due.min(end));
            sleep_until(due.into()).await;
            if Instant::now() >= end {
                return Cause::Lease;
            }
            // The lease may end while the answer does not come.
            let renewed = self.renew(self.options.lease, Duration::ZERO);
            match timeout_at(end.into(), renewed).await {
                Ok(Ok(true)) => continue,
                Ok(Err(failure)) if is_not_held(&failure) => return Cause::NotHeld,
                Ok(Err(failure)) if Kind::of(&failure) != Kind::Unavailable => {
                    tell(format_args!("cannot be renewed: {}", self.refused(failure)));
                }
                _ => {}
            }
            let pause = (self.options.lease / 10).max(FIRST_PAUSE);
            self.due = Some(Instant::now() + pause);
        }
    }

    /// Sends RENEW, for so long (zero: once). Whether replicas have confirmed it.
    async fn renew(&mut self, lease: Duration, longest: Duration) -> RedisResult<bool> {
        let sent = Instant::now();
        let words = format!("LEASE {}", ms(lease));
        let request = self.request("FAIRLOCK.RENEW", &words, &self.line);
        // Of several tries it may be the first that has set the lease.
        let Reply(_, is_confirmed) = self.persist(&request, longest).await?;
        if is_confirmed {
            self.options.lease = lease;
            self.granted_from(sent);
        }
        Ok(is_confirmed)
    }

    /// The lease counts from then.
    pub fn granted_from(&mut self, sent: Instant) {
        let (options, lease) = (&self.options, self.options.lease);
        self.end = Some(sent + lease);
        self.due = (options.renew || options.session).then(|| sent + lease / 3);
    }

    async fn release_held(&self, hold: &Hold) -> Result<()> {
        let unanswered = self.unanswered();
        let longest = self.at_most(self.core.options.release_timeout);
        match self.persist(&self.release(), longest).await {
            Ok(_) => {}
            // If only the reply was lost, an earlier try has released it.
            Err(failure) if is_not_held(&failure) && self.unanswered() > unanswered => {}
            Err(failure) if is_not_held(&failure) => return Err(hold.lost_by(Cause::NotHeld)),
            // The end of its connection frees the lock as well.
            Err(failure) if Kind::of(&failure) == Kind::Unavailable && self.options.session => {}
            Err(failure) => return Err(self.refused(failure)),
        }
        hold.tell(self.core.options.on_released.as_ref(), None);
        Ok(())
    }
}
