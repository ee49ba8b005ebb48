//! How a lock's keys were touched from outside the module, and what that means for its queue.

use crate::keyspace::QueueView;

/// How a lock's keys were touched from outside the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Touch {
    /// Its queue or scores.
    pub queue: bool,
    /// They were loaded, or were there before the module.
    pub loaded: bool,
}

impl Touch {
    /// Its hash was touched, or its slot has moved.
    pub const LOCK: Self = Self {
        queue: false,
        loaded: false,
    };
    /// Its queue or scores were touched.
    pub const QUEUE: Self = Self {
        queue: true,
        ..Self::LOCK
    };
    /// They were loaded, or were there before the module.
    pub const LOADED: Self = Self {
        loaded: true,
        ..Self::QUEUE
    };

    /// It was touched in this way as well.
    pub fn add(&mut self, other: Self) {
        self.queue |= other.queue;
        self.loaded |= other.loaded;
    }

    /// How the next step is to treat the queue.
    pub fn state(self) -> QueueView {
        match self {
            Self { loaded: true, .. } => QueueView::Loaded,
            Self { queue: true, .. } => QueueView::Touched,
            _ => QueueView::AsLeft,
        }
    }
}
