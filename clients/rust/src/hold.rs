//! A lock that is held: renewed, lost, released.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout_at;

use crate::core::{Busy, Core, Entry, Seat};
use crate::error::{Failure, Outcome};
use crate::lines::{Line, Work, locked};
use crate::options::call;
use crate::protocol::{Due, Keeping};
use crate::scripts::Terms;
use crate::{Cause, Error, Event, Kind, Options, Result};

pub(crate) struct Hold {
    pub(crate) core: Arc<Core>,
    terms: Arc<Terms>,
    pub(crate) token: i64,
    /// For hooks and people.
    pub(crate) event: Event,
    /// The connection of a session, and its number.
    own: Option<(Arc<Line>, u64)>,
    /// What the next wait may use, and whether all asks were answered.
    pub(crate) seat: Mutex<Option<(Seat, bool)>>,
    /// Renewals without an answer, which may still reach the server.
    unanswered: AtomicUsize,
    pub(crate) entry: Option<Entry>,
    acquired: Instant,
    keeping: Mutex<Keeping>,
    /// How many guards there are.
    holds: Mutex<usize>,
    lost: watch::Sender<Option<Cause>>,
    /// The lease was set by hand.
    changed: Notify,
    task: OnceLock<AbortHandle>,
}

impl Hold {
    pub(crate) async fn new(
        core: &Arc<Core>,
        terms: Arc<Terms>,
        token: i64,
        since: Instant,
        own: Option<Arc<Line>>,
    ) -> Self {
        let (token_of_event, is_renewed) = (Some(token), terms.options.renew || own.is_some());
        let own = match own {
            Some(line) => Some((line.clone(), line.number().await)),
            None => None,
        };
        Self {
            core: core.clone(),
            token,
            event: Event {
                token: token_of_event,
                ..terms.event()
            },
            own,
            seat: Mutex::default(),
            unanswered: AtomicUsize::new(0),
            entry: None,
            acquired: Instant::now(),
            keeping: Mutex::new(Keeping::new(terms.options.lease, is_renewed, since)),
            terms,
            holds: Mutex::new(1),
            lost: watch::Sender::new(None),
            changed: Notify::new(),
            task: OnceLock::new(),
        }
    }

    pub(crate) fn begin(self, busy: Option<Busy>) -> Arc<Self> {
        let hold = Arc::new(self);
        if let Some(entry) = hold.entry.clone() {
            locked(&hold.core.state)
                .entered
                .insert(entry, Arc::downgrade(&hold));
        }
        let task = tokio::spawn(keep(hold.clone(), busy));
        drop(hold.task.set(task.abort_handle()));
        hold
    }

    pub(crate) fn enter_again(self: Arc<Self>) -> Result<Arc<Self>> {
        if let Some(cause) = self.cause() {
            return Err(self.lost_by(cause));
        }
        *locked(&self.holds) += 1;
        Ok(self)
    }

    pub(crate) fn cause(&self) -> Option<Cause> {
        *self.lost.borrow()
    }

    fn lost_by(&self, cause: Cause) -> Error {
        let why = format!("{cause:?}").to_lowercase();
        let text = format!("{} was lost ({why})", self.event.name);
        Error::new(Kind::LockLost(cause), text)
    }

    pub(crate) async fn until_lost(&self) -> Error {
        let mut lost = self.lost.subscribe();
        let cause = lost.wait_for(Option::is_some).await.ok();
        self.lost_by(cause.and_then(|cause| *cause).unwrap_or(Cause::Closed))
    }

    fn own_line(&self) -> Option<&Arc<Line>> {
        self.own.as_ref().map(|(line, _)| line)
    }

    fn left(&self) -> Duration {
        let end = locked(&self.keeping).end;
        end.saturating_duration_since(Instant::now())
    }

    // --------------------------------------------------------------------- renewal

    /// Sends RENEW, for so long (zero: once). What it says of the lock is done; a failure is the caller's.
    async fn renew(&self, lease: Duration, longest: Duration) -> Outcome<()> {
        // Of several tries it may be the first that has set the lease.
        let sent = Instant::now();
        let way = self.core.way(&self.terms, self.own_line()).await?;
        let request = self.terms.renewal(lease);
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        let renewed = self.core.persist(&way, &self.terms, &request, longest);
        let (outcome, may_be_done) = renewed.await;
        if !may_be_done {
            self.unanswered.fetch_sub(1, Ordering::Relaxed);
        }
        let is_confirmed = outcome.and_then(|reply| reply.is_confirmed);
        let failure = match is_confirmed {
            Ok(true) => {
                locked(&self.keeping).renewed(sent, lease);
                return Ok(());
            }
            Ok(false) => Failure::Unconfirmed,
            Err(failure) => failure,
        };
        if failure.is("NOTHELD") {
            self.lose(Cause::NotHeld);
        }
        Err(failure)
    }

    pub(crate) async fn renew_by_hand(&self, lease: Option<Duration>) -> Result<Duration> {
        let lease = lease.unwrap_or(locked(&self.keeping).lease);
        let options = Options {
            lease,
            ..Options::default()
        };
        options.check(&self.terms.name)?;
        let longest = self.core.options.retry_timeout.min(self.left());
        let renewed = match self.cause() {
            None => self.renew(lease, longest).await,
            Some(_) => Ok(()),
        };
        match (self.cause(), renewed) {
            (Some(cause), _) => Err(self.lost_by(cause)),
            (None, Ok(())) => {
                self.changed.notify_one();
                Ok(lease)
            }
            (None, Err(Failure::Unconfirmed)) => {
                Err(self.core.error(&self.terms, Kind::NotReplicated, None))
            }
            (None, Err(failure)) => Err(self.refused(failure)),
        }
    }

    fn refused(&self, failure: Failure) -> Error {
        self.core.error(&self.terms, Kind::Refused, Some(failure))
    }

    /// A renewal by itself: once, but the lease may end while the answer does not come.
    async fn renew_in_time(&self) {
        let (lease, end) = {
            let keeping = locked(&self.keeping);
            (keeping.lease, keeping.end)
        };
        let renewed = timeout_at(end.into(), self.renew(lease, Duration::ZERO)).await;
        let Ok(Err(failure)) = renewed else { return };
        locked(&self.keeping).failed(Instant::now());
        if !failure.is_passing() && self.cause().is_none() {
            eprintln!("fairlock: {} cannot be renewed: {failure}", self.event.name);
        }
    }

    // ------------------------------------------------------------------------ loss

    fn lose(&self, cause: Cause) {
        let is_held = *locked(&self.holds) > 0;
        let is_first = self.lost.send_if_modified(|lost| {
            let is_first = is_held && lost.is_none();
            *lost = lost.or(is_held.then_some(cause));
            is_first
        });
        if is_first {
            let (held, cause) = (Some(self.acquired.elapsed()), Some(cause));
            let event = Event {
                held,
                cause,
                ..self.event.clone()
            };
            call(self.core.options.hooks.on_lost.as_ref(), &event);
        }
    }

    // --------------------------------------------------------------------- release

    /// The work when a guard lets go; `None`: other guards hold it.
    pub(crate) fn let_go(self: &Arc<Self>) -> Option<Work<'static, Result<()>>> {
        {
            let mut holds = locked(&self.holds);
            *holds -= 1;
            if *holds > 0 {
                return None;
            }
        }
        if let Some(task) = self.task.get() {
            task.abort();
        }
        if let Some(entry) = &self.entry {
            locked(&self.core.state).entered.remove(entry);
        }
        let (hold, busy) = (self.clone(), self.core.busy());
        Some(Box::pin(async move {
            let released = hold.release().await;
            if let Some(line) = hold.own_line() {
                line.close().await;
            }
            let seat = locked(&hold.seat).take();
            if let Some((seat, was_clean)) = seat {
                let is_clean = was_clean && hold.unanswered.load(Ordering::Relaxed) == 0;
                let is_clean = is_clean && released.is_ok();
                hold.core.give_seat(&hold.terms, seat, is_clean).await;
            }
            drop(busy);
            released
        }))
    }

    async fn release(&self) -> Result<()> {
        let cause = self.cause();
        // A lease that is over by this side's clock alone is worth one try.
        let longest = match cause {
            None => self.core.options.release_timeout.min(self.left()),
            Some(Cause::Lease) => Duration::ZERO,
            Some(cause) => return Err(self.lost_by(cause)),
        };
        let way = self.core.plain_way(self.own_line());
        let request = self.terms.release(Some(self.token));
        let released = self.core.persist(&way, &self.terms, &request, longest);
        let (outcome, may_be_done) = released.await;
        if let Some(cause) = cause {
            return Err(self.lost_by(cause));
        }
        match outcome {
            Ok(_) => {}
            // If only the reply was lost, an earlier try has released it.
            Err(failure) if failure.is("NOTHELD") && may_be_done => {}
            Err(failure) if failure.is("NOTHELD") => return Err(self.lost_by(Cause::NotHeld)),
            // The end of its connection frees the lock as well.
            Err(failure) if failure.is_passing() && self.own.is_some() => {}
            Err(failure) => return Err(self.refused(failure)),
        }
        let held = Some(self.acquired.elapsed());
        let event = Event {
            held,
            ..self.event.clone()
        };
        call(self.core.options.hooks.on_released.as_ref(), &event);
        Ok(())
    }
}

/// Renews the lock until it is lost. The release ends this.
async fn keep(held: Arc<Hold>, _busy: Option<Busy>) {
    let mut closing = held.core.closing.subscribe();
    while held.cause().is_none() {
        let due = locked(&held.keeping).next(Instant::now());
        let work = async {
            match due {
                Due::Lost(cause) => held.lose(cause),
                Due::Renewal => held.renew_in_time().await,
                Due::Later(when) => {
                    drop(timeout_at(when.into(), held.changed.notified()).await);
                }
            }
        };
        tokio::select! {
            biased;
            _ = closing.wait_for(|is_so| *is_so) => held.lose(Cause::Closed),
            () = ended(held.own.as_ref()) => held.lose(Cause::Connection),
            () = work => {}
        }
    }
}

async fn ended(own: Option<&(Arc<Line>, u64)>) {
    match own {
        Some((line, number)) => line.ended(*number).await,
        None => std::future::pending().await,
    }
}
