//! Renews all holds, at the time of each, by one task: a task for each hold would cost more than its release.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::hold::Hold;
use crate::lines::locked;

/// How long it sleeps if there is no hold.
const IDLE: Duration = Duration::from_mins(1);

#[derive(Default)]
pub struct Keeper {
    kept: Mutex<Kept>,
    sooner: Notify,
}

#[derive(Default)]
struct Kept {
    /// By when they are attended to, and by their addresses.
    holds: BTreeMap<(Instant, usize), Arc<Hold>>,
    /// When the task looks next. It stays as it is when a hold ends, so that the task is seldom woken.
    next: Option<Instant>,
}

impl Keeper {
    /// Attends to a hold then, and not at the time that was set before.
    pub fn set(&self, hold: &Arc<Hold>, before: Option<Instant>, time: Option<Instant>) {
        let (place, kept) = (Arc::as_ptr(hold).addr(), &mut *locked(&self.kept));
        before.and_then(|before| kept.holds.remove(&(before, place)));
        let Some(time) = time else {
            return;
        };
        kept.holds.insert((time, place), hold.clone());
        if kept.next.is_some_and(|next| time < next) {
            kept.next = Some(time);
            self.sooner.notify_one();
        }
    }

    /// Those whose time has come, and how long there is none.
    fn due(&self) -> (Vec<Arc<Hold>>, Duration) {
        let (now, kept) = (Instant::now(), &mut *locked(&self.kept));
        if let Some(next) = kept.next.filter(|next| now < *next) {
            return (Vec::new(), next - now);
        }
        let later = kept.holds.split_off(&(now, usize::MAX));
        let due = std::mem::replace(&mut kept.holds, later).into_values();
        let first = kept.holds.keys().next();
        let next = first.map_or(now + IDLE, |(time, _)| *time);
        kept.next = Some(next);
        (due.collect(), next - now)
    }

    pub async fn run(&self) {
        loop {
            let (due, pause) = self.due();
            due.into_iter().for_each(Hold::attend);
            drop(timeout(pause, self.sooner.notified()).await);
        }
    }

    /// Those that are held.
    pub fn all(&self) -> Vec<Arc<Hold>> {
        locked(&self.kept).holds.values().cloned().collect()
    }
}
