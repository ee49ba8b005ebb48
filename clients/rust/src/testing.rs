//! Locks without a server, for the tests of programs that use locks.
//!
//! They are [`Locks`](crate::Locks) with a server in this process behind: queue, waits, errors and hooks are the real
//! ones. Leases do not end by themselves: `expire` ends them.

use std::ops::Deref;
use std::sync::Arc;

use crate::core::Core;
use crate::fake::FakeServer;
use crate::route::Source;
use crate::{Cause, Options, Result};

/// What a test can do to, and see of, the locks of a fake.
#[derive(Clone)]
pub struct Control {
    server: Arc<FakeServer>,
    core: Arc<Core>,
}

impl Control {
    /// Ends the leases of all that hold the lock.
    pub fn expire(&self, name: &str) {
        self.core.lose(&self.server.free(name), Cause::Lease);
    }

    /// Frees the lock, as FAIRLOCK.BREAK does.
    pub fn break_lock(&self, name: &str) {
        self.core.lose(&self.server.free(name), Cause::NotHeld);
    }

    /// The owners that hold the lock.
    #[must_use]
    pub fn holders(&self, name: &str) -> Vec<String> {
        self.server.holders(name)
    }

    /// The owners that wait for it, in their order.
    #[must_use]
    pub fn waiting(&self, name: &str) -> Vec<String> {
        self.server.waiting(name)
    }
}

/// [`Locks`](crate::Locks) without a server: it derefs to one. Two of these share no locks.
pub struct FakeLocks {
    locks: crate::Locks,
    /// What a test can do to them.
    pub control: Control,
}

impl FakeLocks {
    /// With these options.
    pub fn new(options: Options) -> Result<Self> {
        let server = FakeServer::new();
        let locks = crate::Locks::at(Source::Fake(server.clone()))?.with(options);
        let control = Control {
            server,
            core: locks.core().clone(),
        };
        Ok(Self { locks, control })
    }
}

impl Deref for FakeLocks {
    type Target = crate::Locks;

    fn deref(&self) -> &Self::Target {
        &self.locks
    }
}

/// [`aio::Locks`](crate::aio::Locks) without a server: it derefs to one.
#[cfg(feature = "tokio")]
pub struct FakeAioLocks {
    locks: crate::aio::Locks,
    /// What a test can do to them.
    pub control: Control,
}

#[cfg(feature = "tokio")]
impl FakeAioLocks {
    /// With these options.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let server = FakeServer::new();
        let locks = crate::aio::Locks::at(Source::Fake(server.clone())).with(options);
        let control = Control {
            server,
            core: locks.core().clone(),
        };
        Self { locks, control }
    }
}

#[cfg(feature = "tokio")]
impl Deref for FakeAioLocks {
    type Target = crate::aio::Locks;

    fn deref(&self) -> &Self::Target {
        &self.locks
    }
}
