//! What is done when it is time to: holds are renewed, and idle owners given up, all those of one runtime by one task. A task for
//! each hold would cost more than its release.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::Cause;
use crate::core::Core;
use crate::hold::Hold;
use crate::lines::{Ear, locked};

/// How long an owner's name and channel are kept for the next wait.
const IDLE: Duration = Duration::from_mins(1);

/// Of one runtime.
pub struct Kept {
    /// By their addresses.
    holds: HashMap<usize, Arc<Hold>>,
    /// For each lock, owners that have ended cleanly and are listened for, and since when.
    idle: HashMap<Vec<u8>, Vec<(Instant, Ear)>>,
    /// When the task looks next. It stays as it is when a hold ends, so that the task is seldom woken.
    next: Instant,
    sooner: Arc<Notify>,
}

impl Kept {
    /// Gives up owners that are idle for too long. The holds whose time has come.
    fn look(&mut self) -> Vec<Arc<Hold>> {
        let now = Instant::now();
        if now < self.next {
            return Vec::new();
        }
        self.next = now + IDLE;
        let next = &mut self.next;
        let mut is_due = |time: Instant, early| {
            let is_due = time <= now + early;
            if !is_due {
                *next = time.min(*next);
            }
            is_due
        };
        self.idle.retain(|_, ears| {
            ears.retain(|(since, _)| !is_due(*since + IDLE, Duration::ZERO));
            !ears.is_empty()
        });
        let due = self.holds.values();
        let due = due.filter(|hold| is_due(hold.next().into(), hold.early()));
        due.cloned().collect()
    }

    fn lose(&self) {
        let holds = self.holds.values();
        holds.for_each(|hold| hold.lose(Cause::Closed));
    }
}

impl Core {
    /// What this runtime keeps.
    fn kept<T>(self: &Arc<Self>, work: impl FnOnce(&mut Kept) -> T) -> T {
        let (runtime, mut new) = (Handle::current().id(), None);
        let done = work(locked(&self.state).kept.entry(runtime).or_insert_with(|| {
            new = Some(Keeper {
                core: Arc::downgrade(self),
                runtime,
            });
            Kept {
                holds: HashMap::new(),
                idle: HashMap::new(),
                next: Instant::now(),
                sooner: Arc::default(),
            }
        }));
        // A runtime that is ending drops it at once.
        new.map(|keeper| tokio::spawn(keeper.run()));
        done
    }

    /// An owner that is listened for, if there is one.
    pub fn idle(self: &Arc<Self>, name: &[u8]) -> Option<Ear> {
        let ear = self.kept(|kept| kept.idle.get_mut(name)?.pop());
        ear.map(|(_, ear)| ear)
    }

    /// The next wait may use it, for a minute, and as long as this runtime goes on.
    pub fn keep_idle(self: &Arc<Self>, name: Vec<u8>, ear: Ear) {
        self.kept(|kept| {
            let ears = kept.idle.entry(name).or_default();
            ears.push((Instant::now(), ear));
        });
    }

    pub fn keep_hold(self: &Arc<Self>, hold: &Arc<Hold>) {
        let place = Arc::as_ptr(hold).addr();
        self.kept(|kept| kept.holds.insert(place, hold.clone()));
        self.look_at(hold);
        if *self.closing.borrow() {
            hold.lose(Cause::Closed);
        }
    }

    /// Waits end, and what is held is lost.
    pub fn end(&self) {
        self.closing.send_replace(true);
        let kept = std::mem::take(&mut locked(&self.state).kept);
        kept.values().for_each(Kept::lose);
    }

    /// Its time has changed.
    pub fn look_at(&self, hold: &Hold) {
        let next = hold.next().into();
        if let Some(kept) = locked(&self.state).kept.get_mut(&hold.runtime.id())
            && next < kept.next
        {
            kept.next = next;
            kept.sooner.notify_one();
        }
    }

    /// It is over.
    pub fn forget(&self, hold: &Hold) {
        let place = std::ptr::from_ref(hold).addr();
        let state = &mut *locked(&self.state);
        let kept = state.kept.get_mut(&hold.runtime.id());
        kept.and_then(|kept| kept.holds.remove(&place));
    }
}

/// The task. All that it keeps ends with it, as its runtime does.
struct Keeper {
    core: Weak<Core>,
    runtime: Id,
}

impl Keeper {
    async fn run(self) {
        loop {
            let Some((due, next, sooner)) = self.core.upgrade().and_then(|core| {
                let state = &mut *locked(&core.state);
                let kept = state.kept.get_mut(&self.runtime)?;
                Some((kept.look(), kept.next, kept.sooner.clone()))
            }) else {
                return;
            };
            if due.is_empty() {
                drop(timeout_at(next, sooner.notified()).await);
            }
            due.into_iter().for_each(Hold::attend);
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(core) = self.core.upgrade() {
            let kept = locked(&core.state).kept.remove(&self.runtime);
            kept.iter().for_each(Kept::lose);
        }
    }
}
