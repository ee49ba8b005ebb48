//! A held lock: its renewal, the detection of its loss, and its release.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use redis::Value;
use tokio::sync::{Notify, watch};

use crate::ask::{Ask, Grant};
use crate::core::{By, Caller, Core, words};
use crate::line::Line;
use crate::options::{Event, Hooks, ms};
use crate::{Cause, Error, Options, Result};

/// The shortest pause between tries to renew.
const SOON: Duration = Duration::from_millis(50);
/// The longest pause between tries to find out whether the lock is still there.
const DOUBTFUL: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Held,
    Lost,
    Released,
}

struct State {
    phase: Phase,
    holds: u32,
    lease: Duration,
    end: Instant,
    /// The lock must be looked up at once.
    is_doubtful: bool,
    number: u64,
    line: Option<Line>,
    renewal: Option<tokio::task::AbortHandle>,
}

/// What guards share.
pub(crate) struct Keep {
    core: Arc<Core>,
    pub(crate) name: String,
    pub(crate) owner: String,
    pub(crate) token: i64,
    options: Options,
    acquired: Instant,
    entered: Option<(Caller, String)>,
    state: Mutex<State>,
    /// The lease was set by hand, or the lock is in doubt.
    changed: Notify,
    pub(crate) lost: watch::Sender<Option<Cause>>,
    /// The runtime for the work that a dropped guard leaves.
    #[cfg_attr(not(feature = "tokio"), allow(dead_code))]
    pub(crate) runtime: tokio::runtime::Handle,
}

impl Keep {
    pub(crate) fn begin(
        core: &Arc<Core>,
        ask: &mut Ask,
        grant: Grant,
        entered: Option<(Caller, String)>,
    ) -> Arc<Self> {
        let lease = ask.options.lease;
        let keep = Arc::new(Self {
            core: core.clone(),
            name: ask.name.clone(),
            owner: ask.owner.clone(),
            token: grant.token,
            options: ask.options.clone(),
            acquired: Instant::now(),
            entered,
            state: Mutex::new(State {
                phase: Phase::Held,
                holds: 1,
                lease,
                end: later(grant.from, lease),
                is_doubtful: false,
                number: 0,
                line: grant.line,
                renewal: None,
            }),
            changed: Notify::new(),
            lost: watch::Sender::new(None),
            runtime: tokio::runtime::Handle::current(),
        });
        let number = core.keep(&keep);
        keep.state().number = number;
        ask.may_be_known = false; // From now on it is given back by a release.
        let weak = Arc::downgrade(&keep);
        let task = match keep.state().line.clone() {
            Some(line) => tokio::spawn(watch_session(weak, line)),
            None => tokio::spawn(renew_leases(weak, later(grant.from, lease / 3))),
        };
        keep.state().renewal = Some(task.abort_handle());
        let waited = Some(keep.acquired - ask.started);
        Hooks::call(
            keep.options.hooks.on_acquired.as_ref(),
            &Event {
                waited,
                ..keep.event()
            },
        );
        keep
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn event(&self) -> Event {
        let (name, owner, token) = (self.name.clone(), self.owner.clone(), Some(self.token));
        Event {
            name,
            owner,
            token,
            waited: None,
            held: None,
            cause: None,
        }
    }

    fn until(&self) -> (Instant, Duration) {
        let state = self.state();
        (state.end, state.lease)
    }

    pub(crate) fn enter_again(&self) -> Result<()> {
        let mut state = self.state();
        if state.phase == Phase::Lost {
            drop(state);
            return Err(self.loss());
        }
        state.holds += 1;
        Ok(())
    }

    pub(crate) fn cause(&self) -> Option<Cause> {
        *self.lost.borrow()
    }

    fn loss(&self) -> Error {
        self.lost_by(self.cause().unwrap_or(Cause::NotHeld))
    }

    pub(crate) fn lost_by(&self, cause: Cause) -> Error {
        Error::LockLost(cause, self.name.clone())
    }

    /// Renewal stops, and the thread or task no longer holds it.
    fn leave(&self) {
        let (number, renewal) = {
            let mut state = self.state();
            (state.number, state.renewal.take())
        };
        self.core.unkeep(number, self.entered.as_ref());
        if let Some(renewal) = renewal {
            renewal.abort();
        }
    }

    // ---------------------------------------------------------------------------- renewal

    /// Sets the lease anew; only this moves the end that the client knows, and only if replicas confirm it.
    async fn renew(&self, lease: Option<Duration>) -> Result<Duration> {
        let lease = {
            let state = self.state();
            match state.phase {
                Phase::Held => lease.unwrap_or(state.lease),
                Phase::Lost => {
                    drop(state);
                    return Err(self.loss());
                }
                Phase::Released => return Err(Error::Argument("the lock was released".to_owned())),
            }
        };
        let sent = Instant::now();
        let all = renewal(&self.name, &self.owner, lease);
        let by = By::Renewals(self.core.sync(&self.name, &self.options));
        match self
            .core
            .control(&self.name, &all, by, Duration::ZERO)
            .await
        {
            Ok(reply) => {
                let mut state = self.state();
                state.is_doubtful = false;
                state.lease = lease;
                if reply.is_confirmed != Ok(true) {
                    let text = format!("{} not renewed, for want of replicas", self.name);
                    return Err(Error::NotReplicated(text, None));
                }
                state.end = later(sent, lease);
                Ok(match reply.value {
                    Value::Int(now) => Duration::from_millis(now.try_into().unwrap_or_default()),
                    _ => lease,
                })
            }
            Err(failed) if failed.failure.is("NOTHELD") => {
                self.lose(Cause::NotHeld);
                Err(self.loss())
            }
            Err(failed) => Err(failed.error),
        }
    }

    /// Looks up whether the lock is still there, without renewing it. INFO may show another holder.
    async fn look(&self) -> Result<()> {
        let info = self.core.info(&self.name).await?;
        let is_mine = info.owner.as_ref() == Some(&self.owner) && info.token == Some(self.token);
        let is_shared = self.options.shared || self.options.limit.is_some();
        if is_mine || (is_shared && info.owner.is_some() && info.limit != Some(1)) {
            self.state().is_doubtful = false;
            return Ok(());
        }
        self.lose(Cause::NotHeld);
        Err(self.loss())
    }

    /// The master may have changed. If the lock was in doubt before, it is being looked up already.
    pub(crate) fn doubt(&self) {
        if !std::mem::replace(&mut self.state().is_doubtful, true) {
            self.changed.notify_one();
        }
    }

    pub(crate) async fn renew_by_hand(&self, lease: Option<Duration>) -> Result<Duration> {
        Options {
            lease: lease.unwrap_or(self.options.lease),
            ..self.options.clone()
        }
        .check(&self.name)?;
        let set = self.renew(lease).await?;
        self.changed.notify_one();
        Ok(set)
    }

    // ------------------------------------------------------------------------------- loss

    pub(crate) fn lose(&self, cause: Cause) {
        let line = {
            let mut state = self.state();
            if state.phase != Phase::Held {
                return;
            }
            state.phase = Phase::Lost;
            state.line.take()
        };
        self.lost.send_replace(Some(cause));
        let held = Some(self.acquired.elapsed());
        Hooks::call(
            self.options.hooks.on_lost.as_ref(),
            &Event {
                held,
                cause: Some(cause),
                ..self.event()
            },
        );
        drop(line);
        self.leave();
    }

    // ---------------------------------------------------------------------------- release

    /// The work when a guard lets go; `None`: other guards hold it, or it is done.
    pub(crate) fn let_go(
        self: &Arc<Self>,
    ) -> Option<impl Future<Output = Result<()>> + Send + 'static> {
        let was_lost = {
            let mut state = self.state();
            state.holds -= 1;
            if state.holds > 0 {
                return None;
            }
            let was_lost = state.phase == Phase::Lost;
            state.phase = Phase::Released;
            was_lost
        };
        self.leave();
        let keep = self.clone();
        Some(async move {
            if was_lost {
                keep.release_lost().await
            } else {
                keep.release().await
            }
        })
    }

    fn words(&self) -> Vec<String> {
        words([
            "FAIRLOCK.RELEASE",
            &self.name,
            &self.owner,
            "TOKEN",
            &self.token.to_string(),
        ])
    }

    async fn release(&self) -> Result<()> {
        let (left, line) = {
            let mut state = self.state();
            (
                state.end.saturating_duration_since(Instant::now()),
                state.line.take(),
            )
        };
        let longest = self.options.release_timeout.min(left);
        let words = self.words();
        let done = self
            .core
            .control(&self.name, &words, By::Control, longest)
            .await;
        match done {
            Ok(_) => (),
            Err(failed) if failed.failure.is("NOTHELD") => {
                // If only the reply was lost, the first try has released it.
                if !failed.may_be_done {
                    return Err(self.lost_by(Cause::NotHeld));
                }
            }
            // The end of its connection frees the lock as well.
            Err(failed) if failed.failure.is_passing() && line.is_some() => (),
            Err(failed) => return Err(failed.error),
        }
        let held = Some(self.acquired.elapsed());
        Hooks::call(
            self.options.hooks.on_released.as_ref(),
            &Event {
                held,
                ..self.event()
            },
        );
        Ok(())
    }

    async fn release_lost(&self) -> Result<()> {
        if self.cause() == Some(Cause::Lease) {
            // Perhaps over only by this side's clock.
            let words = self.words();
            let done = self
                .core
                .control(&self.name, &words, By::Control, Duration::ZERO);
            drop(done.await);
        }
        Err(self.loss())
    }
}

pub(crate) fn renewal(name: &str, owner: &str, lease: Duration) -> Vec<String> {
    words(["FAIRLOCK.RENEW", name, owner, "LEASE", &ms(lease)])
}

/// Longer times are cut to one that no process lives to see.
fn later(from: Instant, duration: Duration) -> Instant {
    from.checked_add(duration)
        .unwrap_or_else(|| from + Duration::from_secs(1 << 32))
}

/// Has only a weak reference to the lock: the guards own it.
async fn renew_leases(keep: Weak<Keep>, mut due: Instant) {
    loop {
        let Some(held) = keep.upgrade() else { return };
        let (end, is_doubtful) = {
            let state = held.state();
            (state.end, state.is_doubtful)
        };
        let is_asked = held.options.renew || is_doubtful;
        let next = if is_asked { due.min(end) } else { end };
        tokio::select! {
            () = tokio::time::sleep_until(next.into()) => (),
            () = held.changed.notified() => {
                let state = held.state();
                let pause = if state.is_doubtful { Duration::ZERO } else { state.lease / 3 };
                due = later(Instant::now(), pause);
                continue;
            }
        }
        let (end, lease) = held.until();
        if Instant::now() >= end {
            return held.lose(Cause::Lease);
        }
        if !is_asked {
            continue;
        }
        let asked = async {
            if held.options.renew {
                held.renew(None).await.map(drop)
            } else {
                held.look().await
            }
        };
        // The lease may end while the answer does not come.
        let Ok(outcome) = tokio::time::timeout_at(end.into(), asked).await else {
            return held.lose(Cause::Lease);
        };
        let (phase, is_doubtful) = {
            let state = held.state();
            (state.phase, state.is_doubtful)
        };
        if phase != Phase::Held {
            return;
        }
        let Err(error) = outcome else {
            due = later(Instant::now(), lease / 3);
            continue;
        };
        if !matches!(error, Error::Unavailable(..) | Error::NotReplicated(..)) {
            eprintln!("fairlock: {} cannot be renewed: {error}", held.name);
        }
        let longest = if is_doubtful { DOUBTFUL } else { Duration::MAX };
        due = later(Instant::now(), (lease / 10).min(longest).max(SOON));
    }
}

/// A session lives as long as its connection, which is asked now and then whether the lock is still there.
async fn watch_session(keep: Weak<Keep>, mut line: Line) {
    loop {
        let Some(held) = keep.upgrade() else { return };
        let lease = held.state().lease;
        tokio::select! {
            () = line.ended() => return held.lose(Cause::Connection),
            () = tokio::time::sleep(lease / 3) => (),
        }
        let sent = Instant::now();
        let left = held.state().end.saturating_duration_since(sent).max(SOON);
        let all = renewal(&held.name, &held.owner, lease);
        match line.call(&all, Some(left)).await {
            Ok(_) => held.state().end = later(sent, lease),
            Err(failure) if failure.is("NOTHELD") => return held.lose(Cause::NotHeld),
            Err(_) => return held.lose(Cause::Connection),
        }
    }
}
