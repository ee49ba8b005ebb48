//! A lock that is held: the task that has acquired it renews it until it is lost, or told to release it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use redis::RedisResult;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout_at;

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
    /// To have it released, or renewed with a lease, or its own; and where it is said what came of that.
    pub release: UnboundedSender<oneshot::Sender<Result<()>>>,
    renewal: UnboundedSender<Asked>,
    /// Its task is the package's own thread's.
    pub is_in_thread: bool,
}

type Asked = (Option<Duration>, oneshot::Sender<Result<Duration>>);

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
        drop(self.renewal.send((lease, reply)));
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
    /// From the grant until it is released or lost.
    pub async fn hold(
        mut self,
        asker: oneshot::Sender<Result<Held>>,
        mut closing: watch::Receiver<bool>,
    ) {
        let (release, mut to_release) = mpsc::unbounded_channel();
        let (renewal, mut to_renew) = mpsc::unbounded_channel();
        self.event.token = Some(self.token);
        let hold = Arc::new(Hold {
            is_in_thread: matches!(self.core.thread.get(), Some(Ok(thread)) if thread.is_here()),
            core: self.core.clone(),
            event: self.event.clone(),
            acquired: Instant::now(),
            lost: watch::Sender::default(),
            holds: 1.into(),
            release,
            renewal,
        });
        self.event.waited = Some(self.start.elapsed());
        call(self.core.options.on_acquired.as_ref(), &self.event);
        drop(asker.send(Ok(Held::new(hold.clone())))); // Without an asker it is released.
        let (line, mut renewing) = (self.line.clone(), None);
        let ended = tokio::select! {
            biased;
            Some(reply) = to_release.recv() => Ok(reply),
            cause = Box::pin(self.keep(&mut to_renew, &mut renewing)) => Err(cause),
            _ = closing.wait_for(|is_so| *is_so) => Err(Cause::Closed),
            () = line.ended(), if self.options.session => Err(Cause::Connection),
        };
        match ended {
            Ok(reply) => {
                let released = self.release_held(&hold).await;
                self.ear.released = self.token;
                self.keep_ear(released.is_ok());
                drop(reply.send(released));
            }
            Err(cause) => {
                hold.lost.send_replace(Some(hold.lost_by(cause)));
                drop((to_release, to_renew, renewing)); // Who waits for a renewal learns of the loss.
                hold.tell(self.core.options.on_lost.as_ref(), Some(cause));
                if cause == Cause::Lease {
                    // Perhaps by this side's clock alone.
                    let (line, release) = (&self.core.plain, self.release());
                    drop(self.persist(line, &release, Duration::ZERO).await);
                }
            }
        }
    }

    /// Renews when it is asked for, until that succeeds or fails, and when it is due, once; until the lock is lost.
    async fn keep(
        &mut self,
        renewals: &mut UnboundedReceiver<Asked>,
        renewing: &mut Option<Asked>,
    ) -> Cause {
        loop {
            let end = self.end.unwrap_or_else(Instant::now);
            let due = self.due.map_or(end, |due| due.min(end));
            *renewing = timeout_at(due.into(), renewals.recv())
                .await
                .unwrap_or_default();
            if Instant::now() >= end {
                return Cause::Lease;
            }
            let (mut lease, mut longest) = (self.options.lease, Duration::ZERO);
            if let Some((given, _)) = renewing {
                lease = given.unwrap_or(lease);
                longest = self.core.options.retry_timeout;
            }
            // The lease may end while the answer does not come.
            let renewed = timeout_at(end.into(), self.renew(lease, longest));
            let Ok(renewed) = renewed.await else {
                return Cause::Lease;
            };
            let renewed = match renewed {
                Ok(true) => Ok(lease),
                Ok(false) => Err(self.error(Kind::NotReplicated, UNCONFIRMED, None)),
                Err(failure) if is_not_held(&failure) => return Cause::NotHeld,
                Err(failure) => Err(self.refused(failure)),
            };
            if renewed.is_err() {
                let pause = (self.options.lease / 10).max(FIRST_PAUSE);
                self.due = self.due.map(|_| Instant::now() + pause);
            }
            let passes = |kind| matches!(kind, Kind::Unavailable | Kind::NotReplicated);
            match (renewing.take(), renewed) {
                (Some((_, reply)), renewed) => drop(reply.send(renewed)),
                (None, Err(error)) if !passes(error.kind) => {
                    tell(format_args!("cannot be renewed: {error}"));
                }
                _ => {}
            }
        }
    }

    /// Sends RENEW, for so long (zero: once). Whether replicas have confirmed it.
    async fn renew(&mut self, lease: Duration, longest: Duration) -> RedisResult<bool> {
        let sent = Instant::now();
        let mut renew = self.command("FAIRLOCK.RENEW");
        renew.arg("LEASE").arg(ms(lease));
        // Of several tries it may be the first that has set the lease.
        let Reply(_, is_confirmed) = self.persist(&self.line, &renew, longest).await?;
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
        let (line, release) = (&self.core.plain, self.release());
        match self.persist(line, &release, longest).await {
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
