//! How a lock's keys were touched from outside the module, and what that means for its queue.

use crate::keyspace::QueueView;

/// How a lock's keys were touched from outside the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Touch {
    /// Its queue or scores.
    pub queue: bool,
    /// A script of Redisson's did, which ran as Lua although scripts are intercepted.
    by_script: bool,
    /// They were loaded, or were there before the module.
    pub loaded: bool,
}

impl Touch {
    /// Its hash was touched, or its slot has moved.
    pub const LOCK: Self = Self {
        queue: false,
        by_script: false,
        loaded: false,
    };
    /// Its queue or scores were touched.
    pub const QUEUE: Self = Self {
        queue: true,
        ..Self::LOCK
    };
    /// As before, by a script that ran as Lua although scripts are intercepted.
    pub const BY_SCRIPT: Self = Self {
        by_script: true,
        ..Self::QUEUE
    };
    /// They were loaded, or were there before the module.
    pub const LOADED: Self = Self {
        loaded: true,
        ..Self::QUEUE
    };

    /// It was touched in this way as well.
    pub fn add(&mut self, other: Self) {
        self.queue |= other.queue;
        self.by_script |= other.by_script;
        self.loaded |= other.loaded;
    }

    /// How the next step is to treat the queue.
    pub fn state(self) -> QueueView {
        match self {
            Self {
                by_script: true, ..
            } => QueueView::TouchedByScript,
            Self { queue: true, .. } => QueueView::Touched,
            _ => QueueView::AsLeft,
        }
    }
}
