//! A lock that is held: renewed, lost, released.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::sleep_until;

use crate::core::{Busy, Caller, Core, Seat};
use crate::error::{Failure, Outcome};
use crate::lines::{Line, Work, locked};
use crate::options::call;
use crate::protocol::{Due, Keeping, Reply, Request};
use crate::{Cause, Error, Event, Kind, Options, Result};

pub(crate) struct Hold {
    pub(crate) core: Arc<Core>,
    pub(crate) name: Vec<u8>,
    pub(crate) owner: Vec<u8>,
    pub(crate) options: Options,
    pub(crate) token: i64,
    /// For hooks and people.
    pub(crate) event: Event,
    /// The connection of a session, and its number.
    pub(crate) own: Option<(Arc<Line>, u64)>,
    /// What the next wait may use.
    pub(crate) seat: Mutex<Option<Seat>>,
    /// Asks and renewals without an answer, which may still reach the server.
    pub(crate) unanswered: AtomicUsize,
    pub(crate) key: Option<(Caller, Vec<u8>)>,
    pub(crate) acquired: Instant,
    pub(crate) keeping: Mutex<Keeping>,
    /// How many guards there are.
    pub(crate) holds: Mutex<usize>,
    pub(crate) lost: watch::Sender<Option<Cause>>,
    /// The lease was set by hand.
    pub(crate) changed: Notify,
    pub(crate) task: OnceLock<AbortHandle>,
}

impl Hold {
    pub(crate) fn begin(self: &Arc<Self>, busy: Option<Busy>) {
        if let Some(key) = &self.key {
            locked(&self.core.state)
                .entered
                .insert(key.clone(), Arc::downgrade(self));
        }
        let task = tokio::spawn(keep(self.clone(), busy));
        drop(self.task.set(task.abort_handle()));
    }

    pub(crate) fn enter_again(&self) -> Result<()> {
        if let Some(cause) = self.cause() {
            return Err(self.lost_by(cause));
        }
        *locked(&self.holds) += 1;
        Ok(())
    }

    pub(crate) fn cause(&self) -> Option<Cause> {
        *self.lost.borrow()
    }

    pub(crate) fn lost_by(&self, cause: Cause) -> Error {
        let why = format!("{cause:?}").to_lowercase();
        Error::new(
            Kind::LockLost(cause),
            format!("{} was lost ({why})", self.event.name),
        )
    }

    pub(crate) async fn until_lost(&self) -> Error {
        let mut lost = self.lost.subscribe();
        let cause = lost.wait_for(Option::is_some).await.ok();
        let cause = cause.and_then(|cause| *cause);
        self.lost_by(cause.unwrap_or(Cause::Closed))
    }

    pub(crate) fn end(&self) -> Instant {
        locked(&self.keeping).end
    }

    fn own_line(&self) -> Option<&Arc<Line>> {
        self.own.as_ref().map(|(line, _)| line)
    }

    fn left(&self) -> Duration {
        self.end().saturating_duration_since(Instant::now())
    }

    // --------------------------------------------------------------------- renewal

    /// Sends RENEW, for so long (zero: once). What it says of the lock is done; a failure is the caller's.
    async fn renew(&self, lease: Duration, longest: Duration) -> Outcome<()> {
        let sent = Instant::now();
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        let (outcome, may_be_done) = self.send_renewal(lease, longest).await;
        if !may_be_done && !matches!(outcome, Err(Failure::Broken(_))) {
            self.unanswered.fetch_sub(1, Ordering::Relaxed);
        }
        let failure = match outcome {
            Ok(Reply {
                is_confirmed: Ok(true),
                ..
            }) => {
                // Of several tries it may be the first that has set the lease.
                locked(&self.keeping).renewed(sent, lease);
                return Ok(());
            }
            Ok(Reply {
                is_confirmed: Ok(false),
                ..
            }) => Failure::Unconfirmed,
            Ok(Reply {
                is_confirmed: Err(failure),
                ..
            })
            | Err(failure) => failure,
        };
        if failure.is("NOTHELD") {
            self.lose(Cause::NotHeld);
        } else {
            locked(&self.keeping).failed(Instant::now());
        }
        Err(failure)
    }

    async fn send_renewal(&self, lease: Duration, longest: Duration) -> (Outcome<Reply>, bool) {
        match self
            .core
            .way(&self.name, &self.options, self.own_line())
            .await
        {
            Ok(way) => {
                let request = Request::renew(&self.owner, lease).with(&self.options);
                self.core.persist(&way, &self.name, &request, longest).await
            }
            Err(failure) => (Err(failure), false),
        }
    }

    pub(crate) async fn renew_by_hand(&self, lease: Option<Duration>) -> Result<Duration> {
        let lease = lease.unwrap_or(locked(&self.keeping).lease);
        Options {
            lease,
            ..self.options.clone()
        }
        .check(&self.name)?;
        if let Some(cause) = self.cause() {
            return Err(self.lost_by(cause));
        }
        let longest = self.core.options.retry_timeout.min(self.left());
        let failed = match self.renew(lease, longest).await {
            Ok(()) => {
                self.changed.notify_one();
                return Ok(lease);
            }
            Err(failure) => failure,
        };
        Err(match (self.cause(), failed) {
            (Some(cause), _) => self.lost_by(cause),
            (None, Failure::Unconfirmed) => Error::new(
                Kind::NotReplicated,
                format!("{}: {}", self.event.name, Failure::Unconfirmed),
            ),
            (None, failure) => self.core.error(&self.name, failure, None),
        })
    }

    // ------------------------------------------------------------------------ loss

    fn lose(&self, cause: Cause) {
        let is_first = *locked(&self.holds) > 0 && {
            self.lost.send_if_modified(|lost| {
                let is_first = lost.is_none();
                *lost = lost.or(Some(cause));
                is_first
            })
        };
        if is_first {
            let held = Some(self.acquired.elapsed());
            let event = Event {
                held,
                cause: Some(cause),
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
        if let Some(key) = &self.key {
            locked(&self.core.state).entered.remove(key);
        }
        let (hold, busy, mut undone) = (self.clone(), self.core.busy(), Undone(Some(self.clone())));
        Some(Box::pin(async move {
            let released = hold.release().await;
            if let Some(line) = hold.own_line() {
                line.close().await;
            }
            let seat = locked(&hold.seat).take();
            if let Some(seat) = seat {
                let is_clean = hold.unanswered.load(Ordering::Relaxed) == 0;
                if released.is_ok() && is_clean && hold.options.owner.is_none() {
                    hold.core.give_seat(&hold.name, seat);
                } else {
                    hold.core.ears.forget(&seat.channel).await;
                }
            }
            drop((busy, undone.0.take()));
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
        let own = self.own_line();
        let options = Options {
            sync_timeout: Duration::ZERO,
            ..self.options.clone()
        };
        let request = Request::release(&self.owner, self.token).with(&options);
        let way = self.core.way(&self.name, &options, own).await;
        let (outcome, may_be_done) = match way {
            Ok(way) => self.core.persist(&way, &self.name, &request, longest).await,
            Err(failure) => (Err(failure), false),
        };
        if let Some(cause) = cause {
            return Err(self.lost_by(cause));
        }
        match outcome {
            Ok(_) => {}
            Err(failure) if failure.is("NOTHELD") && !may_be_done => {
                return Err(self.lost_by(Cause::NotHeld));
            }
            // If only the reply was lost, an earlier try has released it.
            Err(failure) if failure.is("NOTHELD") => {}
            // The end of its connection frees the lock as well.
            Err(failure) if failure.is_passing() && own.is_some() => {}
            Err(failure) => return Err(self.core.error(&self.name, failure, None)),
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
                Due::Later(when) => tokio::select! {
                    () = sleep_until(when.into()) => {}
                    () = held.changed.notified() => {}
                },
                Due::Renewal => {
                    let (lease, end) = {
                        let keeping = locked(&held.keeping);
                        (keeping.lease, keeping.end)
                    };
                    // The lease may end while the answer does not come.
                    let renewed =
                        tokio::time::timeout_at(end.into(), held.renew(lease, Duration::ZERO))
                            .await;
                    if let Ok(Err(failure)) = renewed
                        && !failure.is_passing()
                        && held.cause().is_none()
                    {
                        eprintln!("fairlock: {} cannot be renewed: {failure}", held.event.name);
                    }
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

/// A release that the runtime did not finish before it ended.
struct Undone(Option<Arc<Hold>>);

impl Drop for Undone {
    fn drop(&mut self) {
        if let Some(hold) = &self.0 {
            eprintln!(
                "fairlock: {} was dropped as its runtime ended, and may stay taken until its lease is over: release() it before",
                hold.event.name
            );
        }
    }
}
