//! What is done when it is time to: holds are renewed, and idle owners given up, all by one task. A task for each hold would
//! cost more than its release.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::Cause;
use crate::core::Core;
use crate::hold::Hold;
use crate::lines::{Ear, locked};

/// How long an owner's name and channel are kept for the next wait.
const IDLE: Duration = Duration::from_mins(1);

#[derive(Default)]
pub struct Kept {
    /// By their addresses.
    holds: HashMap<usize, Arc<Hold>>,
    /// For each lock, owners that have ended cleanly and are listened for, and since when.
    idle: HashMap<Vec<u8>, Vec<(Instant, Ear)>>,
    /// When the task looks next. It stays as it is when a hold ends, so that the task is seldom woken.
    next: Option<Instant>,
    sooner: Arc<Notify>,
}

impl Kept {
    /// Gives up owners that are idle for too long. The holds whose time has come, and when to look next.
    fn look(&mut self, now: Instant) -> (Vec<Arc<Hold>>, Instant) {
        if let Some(next) = self.next.filter(|next| now < *next) {
            return (Vec::new(), next);
        }
        let mut next = now + IDLE;
        let mut is_due = |time: Instant, early| {
            let is_due = time <= now + early;
            if !is_due {
                next = time.min(next);
            }
            is_due
        };
        self.idle.retain(|_, ears| {
            ears.retain(|(since, _)| !is_due(*since + IDLE, Duration::ZERO));
            !ears.is_empty()
        });
        let due = self.holds.values();
        let due = due.filter(|hold| is_due(hold.next().into(), hold.early()));
        let due = due.cloned().collect();
        self.next = Some(next);
        (due, next)
    }
}

impl Core {
    /// An owner that is listened for, if there is one.
    pub fn idle(&self, name: &[u8]) -> Option<Ear> {
        let idle = &mut locked(&self.state).kept.idle;
        idle.get_mut(name)?.pop().map(|(_, ear)| ear)
    }

    /// The next wait may use it, for a minute.
    pub fn keep_idle(&self, name: Vec<u8>, ear: Ear) {
        let idle = &mut locked(&self.state).kept.idle;
        idle.entry(name).or_default().push((Instant::now(), ear));
    }

    pub fn keep_hold(&self, hold: &Arc<Hold>) {
        let place = Arc::as_ptr(hold).addr();
        locked(&self.state).kept.holds.insert(place, hold.clone());
        self.look_at(hold);
        if *self.closing.borrow() {
            hold.lose(Cause::Closed);
        }
    }

    /// Waits end, and what is held is lost.
    pub fn end(&self) {
        self.closing.send_replace(true);
        let kept = std::mem::take(&mut locked(&self.state).kept);
        let holds = kept.holds.values();
        holds.for_each(|hold| hold.lose(Cause::Closed));
    }

    /// Its time has changed.
    pub fn look_at(&self, hold: &Hold) {
        let (next, kept) = (hold.next().into(), &mut locked(&self.state).kept);
        if kept.next.is_none_or(|known| next < known) {
            kept.next = Some(next);
            kept.sooner.notify_one();
        }
    }

    /// It is over.
    pub fn forget(&self, hold: &Hold) {
        let place = std::ptr::from_ref(hold).addr();
        locked(&self.state).kept.holds.remove(&place);
    }
}

/// The task, as long as there is something to keep it for.
pub async fn keep(core: Weak<Core>) {
    while let Some(core) = core.upgrade() {
        let ((due, next), sooner) = {
            let kept = &mut locked(&core.state).kept;
            (kept.look(Instant::now()), kept.sooner.clone())
        };
        drop(core);
        if due.is_empty() {
            drop(timeout_at(next, sooner.notified()).await);
        }
        due.into_iter().for_each(Hold::attend);
    }
}

#[cfg(test)]
#[tokio::test(start_paused = true)]
#[allow(clippy::unwrap_used)]
async fn an_owner_is_given_up_after_an_idle_minute_in_which_nothing_happens() {
    let client = redis::Client::open("redis://127.0.0.1").unwrap();
    let core = Core::new(client.into(), crate::Options::default()).unwrap();
    tokio::spawn(keep(Arc::downgrade(&core)));
    core.keep_idle(b"orders".to_vec(), core.ear(b"orders", None));
    tokio::time::sleep(IDLE / 2).await;
    assert!(!locked(&core.state).kept.idle.is_empty());
    tokio::time::sleep(IDLE).await;
    assert!(locked(&core.state).kept.idle.is_empty());
}
