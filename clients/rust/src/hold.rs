//! A lock that is held: renewed, lost, released.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout_at;

use crate::core::Entry;
use crate::lines::{Work, locked};
use crate::options::{Hook, call, ms};
use crate::protocol::{Due, Keeping, Reply};
use crate::terms::Terms;
use crate::{Cause, Error, Event, Kind, Result};

pub struct Hold {
    terms: Arc<Terms>,
    pub runtime: Handle,
    pub token: i64,
    /// For hooks and people.
    pub event: Event,
    entry: Option<Entry>,
    acquired: Instant,
    state: watch::Sender<State>,
}

struct State {
    keeping: Keeping,
    /// How many guards there are.
    holds: usize,
    lost: Option<Cause>,
}

impl Hold {
    pub fn begin(
        terms: &Arc<Terms>,
        entry: Option<Entry>,
        token: i64,
        since: Instant,
    ) -> Arc<Self> {
        let is_renewed = terms.options.renew || terms.own.is_some();
        let hold = Arc::new(Self {
            terms: terms.clone(),
            runtime: Handle::current(),
            token,
            event: Event {
                token: Some(token),
                ..terms.event()
            },
            entry: entry.clone(),
            acquired: Instant::now(),
            state: watch::Sender::new(State {
                keeping: Keeping::new(terms.options.lease, is_renewed, since),
                holds: 1,
                lost: None,
            }),
        });
        if let Some(entry) = entry {
            let entered = &mut locked(&terms.core.state).entered;
            entered.insert(entry, Arc::downgrade(&hold));
        }
        tokio::spawn(keep(hold.clone(), terms.core.closing.subscribe()));
        hold
    }

    pub fn enter_again(self: Arc<Self>) -> Result<Arc<Self>> {
        self.check()?;
        self.state.send_modify(|state| state.holds += 1);
        Ok(self)
    }

    pub fn cause(&self) -> Option<Cause> {
        self.state.borrow().lost
    }

    fn check(&self) -> Result<()> {
        self.cause()
            .map_or(Ok(()), |cause| Err(self.lost_by(cause)))
    }

    fn lost_by(&self, cause: Cause) -> Error {
        let why = format!("{cause:?}").to_lowercase();
        let text = format!("{} was lost ({why})", self.event.name);
        Error::new(Kind::LockLost(cause), text)
    }

    pub async fn until_lost(&self) -> Result<()> {
        let mut state = self.state.subscribe();
        drop(state.wait_for(|state| state.lost.is_some()).await);
        self.check()
    }

    /// The lease, and when it is over.
    fn lease(&self) -> (Duration, Instant) {
        let keeping = &self.state.borrow().keeping;
        (keeping.lease, keeping.end)
    }

    /// Calls a hook; how long it was held is told, and the cause.
    fn tell(&self, hook: Option<&Hook>, cause: Option<Cause>) {
        let mut event = self.event.clone();
        (event.held, event.cause) = (Some(self.acquired.elapsed()), cause);
        call(hook, &event);
    }

    fn refused(&self, failure: Error) -> Error {
        self.terms.error(Kind::Unavailable, Some(failure))
    }

    // --------------------------------------------------------------------- renewal

    /// Sends RENEW, for so long (zero: once); whether replicas have confirmed it. NOTHELD: the lock is lost.
    async fn renew_for(&self, lease: Duration, longest: Duration) -> Result<bool> {
        // Of several tries it may be the first that has set the lease.
        let sent = Instant::now();
        let way = self.terms.way().await?;
        let words = format!("LEASE {}", ms(lease));
        let request = self.terms.request("FAIRLOCK.RENEW", &words);
        let renewed = self.terms.persist(&way, &request, longest).await;
        match &renewed {
            Ok(Reply(_, true)) => {
                let renew = |state: &mut State| state.keeping.renewed(sent, lease);
                self.state.send_modify(renew);
            }
            Err(failure) if failure.is("NOTHELD") => self.lose(Cause::NotHeld),
            _ => {}
        }
        renewed.map(|Reply(_, is_confirmed)| is_confirmed)
    }

    pub async fn renew(&self, lease: Option<Duration>) -> Result<Duration> {
        let (same, end) = self.lease();
        let lease = lease.unwrap_or(same);
        let mut options = self.terms.options.clone();
        options.lease = lease;
        options.check(&self.terms.name)?;
        self.check()?;
        let left = end.saturating_duration_since(Instant::now());
        let longest = self.terms.core.options.retry_timeout.min(left);
        let renewed = self.renew_for(lease, longest).await;
        self.check()?;
        match renewed {
            Ok(true) => Ok(lease),
            Ok(false) => Err(self.terms.error(Kind::NotReplicated, None)),
            Err(failure) => Err(self.refused(failure)),
        }
    }

    /// Renews until the lease is over.
    async fn renew_in_time(&self) {
        let mut state = self.state.subscribe();
        loop {
            let (lease, end) = self.lease();
            let due = state.borrow_and_update().keeping.next(Instant::now());
            match due {
                Due::Over => return,
                Due::Later(when) => drop(timeout_at(when.into(), state.changed()).await),
                Due::Renewal => {
                    // The lease may end while the answer does not come.
                    let renewed = self.renew_for(lease, Duration::ZERO);
                    let renewed = timeout_at(end.into(), renewed).await;
                    if let Ok(Ok(true)) = renewed {
                        continue;
                    }
                    let fail = |state: &mut State| state.keeping.failed(Instant::now());
                    self.state.send_modify(fail);
                    let is_told = |failure: &Error| failure.kind != Kind::Unavailable;
                    if let Ok(Err(failure)) = renewed
                        && is_told(&failure)
                        && self.cause().is_none()
                    {
                        eprintln!("fairlock: {} cannot be renewed: {failure}", self.event.name);
                    }
                }
            }
        }
    }

    fn lose(&self, cause: Cause) {
        let is_first = self.state.send_if_modified(|state| {
            let is_first = state.holds > 0 && state.lost.is_none();
            if is_first {
                state.lost = Some(cause);
            }
            is_first
        });
        if is_first {
            self.tell(self.terms.core.options.on_lost.as_ref(), Some(cause));
        }
    }

    // --------------------------------------------------------------------- release

    /// The work when a guard lets go; `None`: other guards hold it.
    pub fn let_go(self: &Arc<Self>) -> Option<Work<Result<()>>> {
        let mut left = 0;
        self.state.send_modify(|state| {
            state.holds -= 1;
            left = state.holds;
        });
        if left > 0 {
            return None;
        }
        if let Some(entry) = &self.entry {
            locked(&self.terms.core.state).entered.remove(entry);
        }
        let (hold, closing) = (self.clone(), self.terms.core.closing.subscribe());
        Some(Box::pin(async move {
            let released = hold.release().await;
            if let Some(line) = &hold.terms.own {
                line.close();
            }
            hold.terms.end(released.is_ok()).await;
            drop(closing);
            released
        }))
    }

    async fn release(&self) -> Result<()> {
        let (terms, (_, end)) = (&self.terms, self.lease());
        let left = end.saturating_duration_since(Instant::now());
        // A lease that is over by this side's clock alone is worth one try.
        let longest = match self.cause() {
            None => terms.core.options.release_timeout.min(left),
            Some(Cause::Lease) => Duration::ZERO,
            Some(cause) => return Err(self.lost_by(cause)),
        };
        let token = format!("TOKEN {}", self.token);
        let request = terms.request("FAIRLOCK.RELEASE", &token);
        let released = terms.persist(&terms.plain_way(), &request, longest).await;
        self.check()?;
        match released {
            Ok(_) => {}
            // If only the reply was lost, an earlier try has released it.
            Err(failure) if failure.is("NOTHELD") && failure.may_be_done => {}
            Err(failure) if failure.is("NOTHELD") => return Err(self.lost_by(Cause::NotHeld)),
            // The end of its connection frees the lock as well.
            Err(failure) if failure.kind == Kind::Unavailable && terms.own.is_some() => {}
            Err(failure) => return Err(self.refused(failure)),
        }
        self.tell(terms.core.options.on_released.as_ref(), None);
        Ok(())
    }
}

/// Renews the lock until it is released or lost.
async fn keep(hold: Arc<Hold>, mut closing: watch::Receiver<bool>) {
    let mut state = hold.state.subscribe();
    let over = async {
        match &hold.terms.own {
            Some(line) => line.ended().await,
            None => pending().await,
        }
    };
    let cause = tokio::select! {
        biased;
        _ = state.wait_for(|state| state.holds == 0 || state.lost.is_some()) => return,
        _ = closing.wait_for(|is_so| *is_so) => Cause::Closed,
        () = over => Cause::Connection,
        () = hold.renew_in_time() => Cause::Lease,
    };
    hold.lose(cause);
}
