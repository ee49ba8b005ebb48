//! A lock that is held: it is renewed until it is released or lost.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::acquire::Ask;
use crate::caller::{Caller, FIRST_PAUSE, Reply};
use crate::error::{UNCONFIRMED, is_not_held};
use crate::lines::{Ear, locked};
use crate::options::{Hook, call, ms, tell};
use crate::{Call, Cause, Error, Held, Kind, Options, Result};

pub struct Hold {
    /// Its event tells hooks and people the lock, its owner, the token.
    pub caller: Caller,
    /// Until it is over.
    ear: Mutex<Option<Ear>>,
    token: i64,
    acquired: Instant,
    pub state: watch::Sender<State>,
}

pub struct State {
    lease: Duration,
    /// Of the lease, by this process's clock, counted from before the ask or the renewal.
    end: Instant,
    /// When to renew next; `None`: never.
    due: Option<Instant>,
    /// When the keeper attends to it.
    next: Option<Instant>,
    /// How many times it is held; 0: it is released.
    holds: usize,
    pub lost: Option<Cause>,
}

impl State {
    fn is_over(&self) -> bool {
        self.holds == 0 || self.lost.is_some()
    }
}

impl Hold {
    pub fn new(ask: Ask) -> Arc<Self> {
        let mut caller = ask.caller;
        caller.event.token = Some(ask.token);
        let hold = Arc::new(Self {
            ear: Mutex::new(Some(ask.ear)),
            token: ask.token,
            acquired: Instant::now(),
            state: watch::Sender::new(State {
                lease: caller.options.lease,
                end: ask.sent,
                due: None,
                next: None,
                holds: 1,
                lost: None,
            }),
            caller,
        });
        hold.granted(hold.caller.options.lease, ask.sent);
        if hold.caller.options.session {
            let its = hold.clone();
            hold.caller.core.thread.spawn(async move {
                its.caller.line.ended().await;
                its.lose(Cause::Connection);
            });
        }
        let mut event = hold.caller.event.clone();
        event.waited = Some(hold.acquired - ask.start);
        call(hold.caller.core.options.on_acquired.as_ref(), &event);
        hold
    }

    /// The lease counts from then.
    fn granted(self: &Arc<Self>, lease: Duration, sent: Instant) {
        let options = &self.caller.options;
        self.state.send_modify(|state| {
            (state.lease, state.end) = (lease, sent + lease);
            state.due = (options.renew || options.session).then(|| sent + lease / 3);
        });
        self.set_keeper();
    }

    /// The keeper attends to it when it is to be renewed, or its lease is over.
    fn set_keeper(self: &Arc<Self>) {
        let core = &self.caller.core;
        self.state.send_if_modified(|state| {
            let next = state.due.map_or(state.end, |due| due.min(state.end));
            let next = (!state.is_over()).then_some(next);
            let before = std::mem::replace(&mut state.next, next);
            core.keeper.set(self, before, next);
            false // Nobody waits for this.
        });
        if *core.closing.borrow() {
            self.lose(Cause::Closed);
        }
    }

    /// It is time to renew it, once, or its lease is over.
    pub fn attend(self: Arc<Self>) {
        if Instant::now() >= self.state.borrow().end {
            return self.lose(Cause::Lease);
        }
        self.state.send_modify(|state| state.due = None);
        self.set_keeper(); // The lease may end while no answer comes.
        tokio::spawn(async move {
            let Err(error) = self.renewed(None, Duration::ZERO).await else {
                return;
            };
            let pause = (self.caller.options.lease / 10).max(FIRST_PAUSE);
            self.state
                .send_modify(|state| state.due = Some(Instant::now() + pause));
            self.set_keeper();
            let passes = [Kind::Unavailable, Kind::NotReplicated].contains(&error.kind);
            if !passes && self.check().is_ok() {
                tell(format_args!("cannot be renewed: {error}"));
            }
        });
    }

    /// The error: it is known to be lost. Its runtime's only thread may be too busy to notice the end of the lease.
    pub fn check(self: &Arc<Self>) -> Result<()> {
        let end = self.state.borrow().end;
        if Instant::now() >= end {
            self.lose(Cause::Lease);
        }
        let is_lost = self.state.borrow().lost.is_some();
        if is_lost { Err(self.gone()) } else { Ok(()) }
    }

    /// Nothing keeps it any more.
    fn gone(&self) -> Error {
        let cause = self.state.borrow().lost.unwrap_or(Cause::NotHeld);
        let why = format!("{cause:?}").to_lowercase();
        let text = format!("{} was lost ({why})", self.caller.event.name);
        Error::new(Kind::LockLost(cause), text)
    }

    /// Until it succeeds or fails, or the lock is lost.
    pub async fn renew(self: Arc<Self>, lease: Option<Duration>) -> Result<Duration> {
        let mut options = Options::default();
        options.lease = lease.unwrap_or(options.lease);
        options.check(b"any")?;
        let longest = self.caller.core.options.retry_timeout;
        let mut state = self.state.subscribe();
        tokio::select! {
            biased;
            _ = state.wait_for(State::is_over) => Err(self.gone()),
            renewed = self.renewed(lease, longest) => renewed,
        }
    }

    /// Sends RENEW, for so long (zero: once).
    async fn renewed(
        self: &Arc<Self>,
        lease: Option<Duration>,
        longest: Duration,
    ) -> Result<Duration> {
        let (caller, sent) = (&self.caller, Instant::now());
        let lease = lease.unwrap_or_else(|| self.state.borrow().lease);
        let mut renew = caller.command("FAIRLOCK.RENEW");
        renew.arg("LEASE").arg(ms(lease));
        match caller.persist(&caller.line, &renew, longest).await {
            Ok(Reply(_, true)) => {
                // Of several tries it may be the first that has set the lease.
                self.granted(lease, sent);
                Ok(lease)
            }
            Ok(_) => Err(caller.error(Kind::NotReplicated, UNCONFIRMED, None)),
            Err(failure) if is_not_held(&failure) => {
                self.lose(Cause::NotHeld);
                Err(self.gone())
            }
            Err(failure) => Err(caller.refused(failure)),
        }
    }

    /// Once more, unless it was released. The error: it is known to be lost.
    pub fn enter(self: Arc<Self>) -> Result<Option<Held>> {
        self.check()?;
        let is_held = self.state.send_if_modified(|state| {
            state.holds += usize::from(state.holds > 0);
            state.holds > 0
        });
        Ok(is_held.then(|| Held::new(self)))
    }

    /// It is known to be lost, unless it is over already.
    pub fn lose(self: &Arc<Self>, cause: Cause) {
        let closing = self.caller.core.closing.subscribe();
        let is_news = self.state.send_if_modified(|state| {
            let is_news = !state.is_over();
            if is_news {
                state.lost = Some(cause);
            }
            is_news
        });
        if !is_news {
            return;
        }
        self.set_keeper();
        self.tell(self.caller.core.options.on_lost.as_ref(), Some(cause));
        let its = self.clone();
        self.caller.core.thread.spawn(async move {
            if cause == Cause::Lease {
                // Perhaps by this side's clock alone.
                let (plain, release) = (&its.caller.core.plain, its.caller.release(its.token));
                drop(its.caller.persist(plain, &release, Duration::ZERO).await);
            }
            its.end(false).await;
            drop(closing);
        });
    }

    /// Gives up one of its holds; with the last one it is released, which ends in a task if it is dropped.
    pub fn release(self: Arc<Self>) -> Option<Call<()>> {
        let closing = self.caller.core.closing.subscribe();
        let is_last = self.state.send_if_modified(|state| {
            state.holds -= 1;
            state.holds == 0
        });
        if !is_last {
            return None;
        }
        self.set_keeper();
        let its = self.clone();
        let released = Call::new(&self.caller.core, async move {
            its.check()?;
            let released = its.released().await;
            its.end(released.is_ok()).await;
            drop(closing);
            released
        });
        Some(released.ended_by_a_task())
    }

    async fn released(&self) -> Result<()> {
        let caller = &self.caller;
        let unanswered = caller.unanswered.load(Ordering::Relaxed);
        let end = self.state.borrow().end;
        let left = end.saturating_duration_since(Instant::now());
        let longest = caller.core.options.release_timeout.min(left);
        let (plain, release) = (&caller.core.plain, caller.release(self.token));
        match caller.persist(plain, &release, longest).await {
            Ok(_) => {}
            // If only the reply was lost, an earlier try has released it.
            Err(failure)
                if is_not_held(&failure)
                    && caller.unanswered.load(Ordering::Relaxed) > unanswered => {}
            Err(failure) if is_not_held(&failure) => return Err(self.gone()),
            // The end of its connection frees the lock as well.
            Err(failure) if Kind::of(&failure) == Kind::Unavailable && caller.options.session => {}
            Err(failure) => return Err(caller.refused(failure)),
        }
        self.tell(caller.core.options.on_released.as_ref(), None);
        Ok(())
    }

    /// It is over: nothing is listened for, and a session has no connection any more.
    async fn end(&self, is_clean: bool) {
        let ear = locked(&self.ear).take();
        if let Some(mut ear) = ear {
            ear.released = self.token;
            self.caller.keep_ear(ear, is_clean);
        }
        if self.caller.options.session {
            self.caller.line.close().await;
        }
    }

    /// Calls a hook; how long it was held is told, and the cause.
    fn tell(&self, hook: Option<&Hook>, cause: Option<Cause>) {
        let mut event = self.caller.event.clone();
        (event.held, event.cause) = (Some(self.acquired.elapsed()), cause);
        call(hook, &event);
    }
}
