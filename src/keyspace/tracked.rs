//! What this server knows of a lock beyond its keys, and how it is lent to a step.

use foldhash::fast::RandomState;

use crate::lock::{Event, Session, SharedHolders, Turn, Wall};
use crate::server::{Key, Kind};

use super::write;

pub type Line = crate::lock::line::Line<RandomState>;

/// What this server knows of a lock beyond its keys: the clients blocked here, each waiter's position,
/// and the waiter whose turn it is. Lost in a restart, and rebuilt from the keys.
#[derive(Default)]
pub struct Tracked {
    pub line: Line,
    pub turn: Option<Turn>,
    /// The connections that an exclusive holder's lock is bound to.
    pub session: Option<Session>,
    pub shared: Option<Box<SharedHolders>>,
    /// The server keeps the lock and the shared-holders key in the form for many elements, most likely (see `wide.rs`).
    pub has_wide_holders: bool,
    /// It keeps the deadlines in that form.
    pub has_wide_scores: bool,
    /// A command has named the lock: a queue that was found is this lock's, and not its twin's.
    pub is_named: bool,
}

impl Tracked {
    /// Whether nothing is known beyond the keys.
    pub fn is_empty(&self) -> bool {
        self.line.is_empty() && self.session.is_none() && self.shared.is_none()
    }

    /// Whether a FAIRLOCK client relies on it: one waits, shares the lock, or holds it with a session.
    pub fn is_relied_on(&self) -> bool {
        self.session.is_some() || self.shared.is_some() || self.line.has_commanding()
    }

    pub fn session_of(&self, owner: &[u8]) -> Option<&Session> {
        match &self.shared {
            Some(shared) => shared.get(owner)?.session.as_ref(),
            None => self.session.as_ref().filter(|of| *of.owner == *owner),
        }
    }

    pub fn sessions(&self) -> impl Iterator<Item = &Session> {
        let shared = self.shared.iter().flat_map(|shared| shared.iter());
        let sessions = shared.filter_map(|(_, holder)| holder.session.as_ref());
        self.session.iter().chain(sessions)
    }
}

/// How a step treats a lock's queue and deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueueView {
    /// As this server left them, most likely.
    AsLeft,
    /// They were touched from outside the module, and are repaired.
    Touched,
    /// As `Touched`: they were loaded, or were there before the module, and some waiters may be fairlock's own.
    Loaded,
    /// Some keys may be at another node of the cluster. To the rules there are no waiters, and what is
    /// tracked of the queue stays as it is; holder and token are those that are here.
    Hidden,
}

impl QueueView {
    pub fn is_touched(self) -> bool {
        matches!(self, Self::Touched | Self::Loaded)
    }
}

/// A lock with a key of another type.
pub struct Unusable {
    /// When the first of its keys expires.
    pub expires: Option<Wall>,
}

/// Refuses keys of other types than these.
pub fn require_kinds(keys: &[(&Key<'_>, Kind)]) -> Result<(), Unusable> {
    if keys.iter().all(|(key, kind)| key.fits(kind)) {
        return Ok(());
    }
    let expiries = keys.iter().filter_map(|(key, _)| write::expiry(key));
    Err(Unusable {
        expires: expiries.min(),
    })
}

const EVENTS_KEPT: usize = 1024;

/// What a step changes beyond the keys. [`OpenLock`] only borrows it, so it survives a step that panics.
#[derive(Default)]
pub struct Taken {
    pub tracked: Tracked,
    /// The greatest token that was given since the server started.
    pub greatest: i64,
    pub events: Vec<Event>,
}

impl Taken {
    /// Makes it as new, but for the room for events: most steps leave nothing to be cleared.
    pub fn clear(&mut self) {
        // Without a waiter there was no turn either.
        if !(self.tracked.is_empty() && self.tracked.line.is_new()) {
            self.tracked = Tracked::default();
        }
        self.tracked.is_named = false;
        self.events.clear();
        // A step that dropped a hundred thousand waiters needed more than is worth keeping.
        if self.events.capacity() > EVENTS_KEPT {
            self.events = Vec::new();
        }
    }
}
