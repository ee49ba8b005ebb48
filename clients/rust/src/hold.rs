//! A lock that is held: renewed, lost, released.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout_at;

use crate::core::Entry;
use crate::lines::{Work, locked};
use crate::options::{Hook, call, ms, tell};
use crate::protocol::{Keeping, Reply};
use crate::terms::Terms;
use crate::{Cause, Error, Event, Kind, Result};

pub struct Hold {
    terms: Arc<Terms>,
    runtime: Handle,
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
    lost: Option<Error>,
}

/// One of those who hold it. Dropped, it lets go.
pub struct Guard(pub Arc<Hold>, AtomicBool);

impl Hold {
    pub fn begin(terms: &Arc<Terms>, entry: Option<Entry>, token: i64, since: Instant) -> Guard {
        let is_renewed = terms.options.renew || terms.options.session;
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
        tokio::spawn(hold.clone().keep(terms.core.closing.subscribe()));
        Guard(hold, false.into())
    }

    pub fn enter_again(self: Arc<Self>) -> Result<Guard> {
        self.check()?;
        self.state.send_modify(|state| state.holds += 1);
        Ok(Guard(self, false.into()))
    }

    /// The error: it is known to be lost.
    pub fn check(&self) -> Result<()> {
        self.state.borrow().lost.clone().map_or(Ok(()), Err)
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

    // --------------------------------------------------------------------- renewal

    /// Sends RENEW, for so long (zero: once). NOTHELD: the lock is lost.
    async fn renew_for(&self, lease: Duration, longest: Duration) -> Result<()> {
        let (terms, sent) = (&self.terms, Instant::now());
        let words = format!("LEASE {}", ms(lease));
        let request = terms.request("FAIRLOCK.RENEW", &words);
        match terms.persist(&request, longest).await {
            // Of several tries it may be the first that has set the lease.
            Ok(Reply(_, true)) => {
                let renew = |state: &mut State| state.keeping.renewed(sent, lease);
                self.state.send_modify(renew);
                Ok(())
            }
            Ok(_) => Err(Error::unconfirmed()),
            Err(failure) if failure.is("NOTHELD") => {
                self.lose(Cause::NotHeld);
                Err(self.lost_by(Cause::NotHeld))
            }
            Err(failure) => Err(failure),
        }
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
        let told = renewed.map_err(|failure| self.terms.error(failure));
        told.map(|()| lease)
    }

    /// Renews until the lease is over.
    async fn renew_in_time(&self) {
        let mut state = self.state.subscribe();
        loop {
            let (lease, end) = self.lease();
            let due = state.borrow_and_update().keeping.next(Instant::now());
            let Some(due) = due else { return };
            if Instant::now() < due {
                drop(timeout_at(due.into(), state.changed()).await);
                continue;
            }
            // The lease may end while the answer does not come.
            let renewed = self.renew_for(lease, Duration::ZERO);
            let renewed = timeout_at(end.into(), renewed).await;
            if !matches!(renewed, Ok(Ok(()))) {
                let fail = |state: &mut State| state.keeping.failed(Instant::now());
                self.state.send_modify(fail);
            }
            if let Ok(Err(failure)) = renewed
                && failure.is_refusal()
            {
                let name = &self.event.name;
                tell(format_args!("{name} cannot be renewed: {failure}"));
            }
        }
    }

    /// Renews the lock until it is released or lost.
    async fn keep(self: Arc<Self>, mut closing: watch::Receiver<bool>) {
        let (mut state, is_session) = (self.state.subscribe(), self.terms.options.session);
        let cause = tokio::select! {
            biased;
            _ = state.wait_for(|state| state.holds == 0 || state.lost.is_some()) => return,
            _ = closing.wait_for(|is_so| *is_so) => Cause::Closed,
            () = self.terms.line.ended(), if is_session => Cause::Connection,
            () = self.renew_in_time() => Cause::Lease,
        };
        self.lose(cause);
    }

    fn lose(&self, cause: Cause) {
        let is_first = self.state.send_if_modified(|state| {
            let is_first = state.holds > 0 && state.lost.is_none();
            if is_first {
                state.lost = Some(self.lost_by(cause));
            }
            is_first
        });
        if is_first {
            self.tell(self.terms.core.options.on_lost.as_ref(), Some(cause));
        }
    }

    // --------------------------------------------------------------------- release

    async fn release(&self) -> Result<()> {
        let (terms, (_, end)) = (&self.terms, self.lease());
        let left = end.saturating_duration_since(Instant::now());
        let longest = match self.check() {
            Ok(()) => terms.core.options.release_timeout.min(left),
            // A lease that is over by this side's clock alone is worth one try.
            Err(lost) if lost.kind == Kind::LockLost(Cause::Lease) => Duration::ZERO,
            lost => return lost,
        };
        let released = terms.persist(&terms.release(self.token), longest).await;
        self.check()?;
        match released {
            Ok(_) => {}
            // If only the reply was lost, an earlier try has released it.
            Err(failure) if failure.is("NOTHELD") && failure.may_be_done => {}
            Err(failure) if failure.is("NOTHELD") => return Err(self.lost_by(Cause::NotHeld)),
            // The end of its connection frees the lock as well.
            Err(failure) if failure.kind == Kind::Unavailable && terms.options.session => {}
            Err(failure) => return Err(terms.error(failure)),
        }
        self.tell(terms.core.options.on_released.as_ref(), None);
        Ok(())
    }
}

impl Guard {
    /// Gives up the lock, if it is the last of its guards: in the background, of which it is the result.
    pub fn release(&self) -> Work<Result<()>> {
        let (hold, closing) = (self.0.clone(), self.0.terms.core.closing.subscribe());
        let was_released = self.1.swap(true, Ordering::Relaxed);
        let is_last = hold.state.send_if_modified(|state| {
            state.holds -= usize::from(!was_released);
            !was_released && state.holds == 0
        });
        if !is_last {
            return Box::pin(async { Ok(()) });
        }
        if let Some(entry) = &hold.entry {
            locked(&hold.terms.core.state).entered.remove(entry);
        }
        let done = self.0.runtime.spawn(async move {
            let released = hold.release().await;
            if hold.terms.options.session {
                hold.terms.line.close();
            }
            hold.terms.ear.released.store(hold.token, Ordering::Relaxed);
            hold.terms.end(released.is_ok()).await;
            drop(closing);
            released
        });
        Box::pin(async { done.await.unwrap_or_else(|_| Err(Error::closed())) })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.release());
    }
}
