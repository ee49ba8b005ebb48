//! Locks for tokio.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use redis::{IntoConnectionInfo, RedisConnectionInfo};

use crate::blocking::{held, options};
use crate::core::{Caller, Core};
use crate::keep::Keep;
use crate::route::Source;
use crate::{Error, Info, Options, Result};

/// Takes fair locks at one server, Sentinel's master, or a cluster. Make one for the process, and keep it.
///
/// It has connections of its own, which belong to the runtime where they were opened. When it is dropped, waits end and
/// locks that are held are lost; [`Locks::close`] waits for that.
pub struct Locks {
    core: Arc<Core>,
}

impl Locks {
    /// At the server of a client: takes its address and credentials.
    pub fn new(client: &redis::Client) -> Result<Self> {
        Ok(Self::at(Source::One(client.get_connection_info().clone())))
    }

    /// At the master that sentinels name; `node` has its credentials and database.
    pub fn sentinel<T: IntoConnectionInfo>(
        sentinels: impl IntoIterator<Item = T>,
        master: &str,
        node: Option<RedisConnectionInfo>,
    ) -> Result<Self> {
        Ok(Self::at(Source::sentinel(sentinels, master, node)?))
    }

    /// At a cluster that has these nodes.
    pub fn cluster<T: IntoConnectionInfo>(nodes: impl IntoIterator<Item = T>) -> Result<Self> {
        Ok(Self::at(Source::cluster(nodes)?))
    }

    pub(crate) fn at(source: Source) -> Self {
        Self {
            core: Core::new(source, Options::default()),
        }
    }

    /// The same with other default options for its locks. Must be called first.
    #[must_use]
    pub fn with(mut self, options: Options) -> Self {
        if let Some(core) = Arc::get_mut(&mut self.core) {
            core.set_options(options);
        }
        self
    }

    /// A lock. Sends nothing yet.
    pub fn lock(&self, name: &str) -> Lock {
        Lock {
            core: self.core.clone(),
            name: name.to_owned(),
            options: self.core.options.clone(),
        }
    }

    /// Whether the server has the module, if it is known: otherwise locks are taken by scripts.
    #[must_use]
    pub fn native(&self) -> Option<bool> {
        self.core.route.native.is()
    }

    /// A lock's holder, and how many wait for it.
    pub async fn info(&self, name: &str) -> Result<Info> {
        self.core.info(name).await
    }

    /// Ends all waits ([`Error::Closed`]); locks that are held are lost.
    pub async fn close(&self) {
        self.core.close().await;
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        self.core.begin_to_close();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let core = self.core.clone();
            runtime.spawn(async move { core.close().await });
        }
    }
}

/// A lock to be acquired.
#[must_use = "nothing is sent before `acquire`"]
pub struct Lock {
    core: Arc<Core>,
    name: String,
    options: Options,
}

impl Lock {
    options!();

    /// Waits for the lock. [`Error::NotInTime`]: not within the wait. If the future is dropped, a task leaves the
    /// queue, and releases a lock that was granted in between.
    #[must_use = "dropped, the lock is released at once"]
    pub async fn acquire(self) -> Result<Held> {
        let caller = tokio::task::try_id().map(Caller::Task);
        let keep = self.core.acquire(&self.name, self.options, caller).await?;
        Ok(Held {
            keep,
            is_released: AtomicBool::new(false),
        })
    }

    /// The lock if it is available at once.
    pub async fn try_acquire(self) -> Result<Option<Held>> {
        match self.wait(Duration::ZERO).acquire().await {
            Err(Error::NotInTime(..)) => Ok(None),
            other => other.map(Some),
        }
    }
}

/// A lock that is held. When it is dropped, a task releases it; only [`Held::release`] tells that it was lost, or that
/// the release has failed. A runtime that ends does not finish that task, and a line on standard error says so: release
/// held locks at the end of `main`.
#[must_use = "dropped, it is released at once: give it a name, such as `held`"]
pub struct Held {
    keep: Arc<Keep>,
    is_released: AtomicBool,
}

impl Held {
    held!();

    /// Waits until the lock is known to be lost; returns the cause.
    pub async fn lost(&self) -> Error {
        let mut lost = self.keep.lost.subscribe();
        let cause = lost
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|cause| *cause);
        self.keep.lost_by(cause.unwrap_or(crate::Cause::Closed))
    }

    /// Sets the lease anew; returns the new lease.
    pub async fn renew(&self) -> Result<Duration> {
        self.keep.renew_by_hand(None).await
    }

    /// Sets another lease, for later renewals as well; returns the new lease.
    pub async fn renew_for(&self, lease: Duration) -> Result<Duration> {
        self.keep.renew_by_hand(Some(lease)).await
    }

    /// Gives up the lock, even if this future is dropped early. [`Error::LockLost`]: it was lost before. Releasing
    /// again does nothing.
    pub async fn release(&self) -> Result<()> {
        let Some(work) = self.let_go() else {
            return Ok(());
        };
        let done = self.keep.runtime.spawn(work).await;
        done.unwrap_or(Err(Error::Closed))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(work) = self.let_go() {
            let mut undone = Undone(Some(self.keep.clone()));
            self.keep.runtime.spawn(async move {
                drop(work.await);
                drop(undone.0.take());
            });
        }
    }
}

/// A release that the runtime did not finish before it ended.
struct Undone(Option<Arc<Keep>>);

impl Drop for Undone {
    fn drop(&mut self) {
        if let Some(keep) = &self.0 {
            eprintln!(
                "fairlock: {} was dropped as its runtime ended, and may stay taken until its lease is over: \
                 release() it before",
                keep.name
            );
        }
    }
}
