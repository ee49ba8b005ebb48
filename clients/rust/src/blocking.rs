//! Locks for threads: the code for tokio on a thread of its own.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use redis::{IntoConnectionInfo, RedisConnectionInfo};
use tokio::runtime::{Builder, Runtime};

use crate::core::{Caller, Core};
use crate::keep::Keep;
use crate::route::Source;
use crate::{Cause, Error, Info, Options, Result};

/// Takes fair locks at one server, Sentinel's master, or a cluster. Make one for the process, and keep it.
///
/// It has connections of its own, which are closed when it is dropped; locks that are held then are lost.
pub struct Locks {
    core: Arc<Core>,
    engine: Arc<Engine>,
}

/// The thread that waits and renews.
struct Engine(Option<Runtime>);

impl Engine {
    /// Runs a future on that thread, and waits for it here, even in a thread of another runtime.
    fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let (sender, result) = mpsc::channel();
        self.0
            .as_ref()?
            .spawn(async move { drop(sender.send(work.await)) });
        result.recv().ok()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background(); // A thread of another runtime must not wait for it.
        }
    }
}

impl Locks {
    /// At the server of a client: takes its address and credentials.
    pub fn new(client: &redis::Client) -> Result<Self> {
        Self::at(Source::One(client.get_connection_info().clone()))
    }

    /// At the master that sentinels name; `node` has its credentials and database.
    pub fn sentinel<T: IntoConnectionInfo>(
        sentinels: impl IntoIterator<Item = T>,
        master: &str,
        node: Option<RedisConnectionInfo>,
    ) -> Result<Self> {
        Self::at(Source::sentinel(sentinels, master, node)?)
    }

    /// At a cluster that has these nodes.
    pub fn cluster<T: IntoConnectionInfo>(nodes: impl IntoIterator<Item = T>) -> Result<Self> {
        Self::at(Source::cluster(nodes)?)
    }

    pub(crate) fn at(source: Source) -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .thread_name("fairlock")
            .build();
        let runtime = runtime
            .map_err(|error| Error::Argument(format!("no thread to wait and renew: {error}")))?;
        Ok(Self {
            core: Core::new(source, Options::default()),
            engine: Arc::new(Engine(Some(runtime))),
        })
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
    pub fn lock(&self, name: &str) -> Lock<'_> {
        Lock {
            locks: self,
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
    pub fn info(&self, name: &str) -> Result<Info> {
        let (core, name) = (self.core.clone(), name.to_owned());
        let asked = self.engine.run(async move { core.info(&name).await });
        asked.unwrap_or(Err(Error::Closed))
    }

    /// Ends all waits ([`Error::Closed`]); locks that are held are lost.
    pub fn close(&self) {
        let core = self.core.clone();
        self.engine.run(async move { core.close().await });
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        self.close();
    }
}

/// A lock to be acquired.
#[must_use = "nothing is sent before `acquire`"]
pub struct Lock<'a> {
    locks: &'a Locks,
    name: String,
    options: Options,
}

/// The options of a lock, for both kinds.
macro_rules! options {
    () => {
        /// The longest wait; zero: try once.
        pub fn wait(mut self, longest: Duration) -> Self {
            self.options.wait = Some(longest);
            self
        }

        /// The lease of the acquisition and of each renewal.
        pub fn lease(mut self, lease: Duration) -> Self {
            self.options.lease = lease;
            self
        }

        /// Whether the lease is renewed in the background, every third of it.
        pub fn renew(mut self, is_on: bool) -> Self {
            self.options.renew = is_on;
            self
        }

        /// The server renews the lease as long as a connection of the lock's own is open.
        pub fn session(mut self) -> Self {
            self.options.session = true;
            self
        }

        /// The owner, 1 to 256 bytes.
        pub fn owner(mut self, owner: &str) -> Self {
            self.options.owner = Some(owner.to_owned());
            self
        }

        /// The same thread or task holds the lock again at once.
        pub fn reentrant(mut self) -> Self {
            self.options.reentrant = true;
            self
        }

        /// The lock is held together with others that are shared.
        pub fn shared(mut self) -> Self {
            self.options.shared = true;
            self
        }

        /// The most holders of the lock, 1 to 1,000,000.
        pub fn limit(mut self, limit: u32) -> Self {
            self.options.limit = Some(limit);
            self
        }

        /// The longest wait for replicas to confirm the acquisition; zero: they are not asked.
        pub fn sync_timeout(mut self, longest: Duration) -> Self {
            self.options.sync_timeout = longest;
            self
        }

        /// How many replicas must confirm an acquisition or a renewal; zero: none needs to be connected.
        pub fn min_replicas(mut self, count: usize) -> Self {
            self.options.min_replicas = Some(count);
            self
        }

        /// All options at once.
        pub fn options(mut self, options: Options) -> Self {
            self.options = options;
            self
        }
    };
}
#[cfg(feature = "tokio")]
pub(crate) use options;

impl Lock<'_> {
    options!();

    /// Waits for the lock. [`Error::NotInTime`]: not within the wait.
    #[must_use = "dropped, the lock is released at once"]
    pub fn acquire(self) -> Result<Held> {
        let (core, engine) = (self.locks.core.clone(), self.locks.engine.clone());
        let caller = Caller::Thread(std::thread::current().id());
        let work = async move { core.acquire(&self.name, self.options, Some(caller)).await };
        let keep = engine.run(work).unwrap_or(Err(Error::Closed))?;
        Ok(Held {
            keep,
            engine,
            is_released: false.into(),
        })
    }

    /// The lock if it is available at once.
    pub fn try_acquire(self) -> Result<Option<Held>> {
        match self.wait(Duration::ZERO).acquire() {
            Err(Error::NotInTime(..)) => Ok(None),
            other => other.map(Some),
        }
    }
}

/// A lock that is held. A drop releases it, which takes at most `release_timeout`; only [`Held::release`] tells that it
/// was lost, or that the release has failed. A guard without a name is dropped at once:
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # fn main() -> fairlock::Result<()> {
/// # let locks = fairlock::Locks::cluster(["redis://localhost"])?;
/// locks.lock("orders").acquire()?; // Released before the next line.
/// # Ok(()) }
/// ```
#[must_use = "dropped, it is released at once: give it a name, such as `held`"]
pub struct Held {
    keep: Arc<Keep>,
    engine: Arc<Engine>,
    is_released: std::sync::atomic::AtomicBool,
}

/// The methods of both kinds of guards.
macro_rules! held {
    () => {
        /// The name of the lock.
        #[must_use]
        pub fn name(&self) -> &str {
            &self.keep.name
        }

        /// The owner's name at the server.
        #[must_use]
        pub fn owner(&self) -> &str {
            &self.keep.owner
        }

        /// The fencing token: above 0, and greater than those of all earlier acquisitions.
        #[must_use]
        pub fn token(&self) -> i64 {
            self.keep.token
        }

        /// Whether the lock is known to be lost.
        #[must_use]
        pub fn is_lost(&self) -> bool {
            self.keep.cause().is_some()
        }

        /// Takes the work to do when a guard lets go; `None` the second time.
        fn let_go(&self) -> Option<impl Future<Output = Result<()>> + Send + 'static> {
            let was_released = self
                .is_released
                .swap(true, std::sync::atomic::Ordering::Relaxed);
            if was_released {
                None
            } else {
                self.keep.let_go()
            }
        }
    };
}
#[cfg(feature = "tokio")]
pub(crate) use held;

impl Held {
    held!();

    /// How it was lost, if it is known to be.
    #[must_use]
    pub fn lost(&self) -> Option<Error> {
        self.keep.cause().map(|cause| self.keep.lost_by(cause))
    }

    /// Waits until the lock is known to be lost, up to a time limit.
    #[must_use]
    pub fn wait_lost(&self, longest: Duration) -> Option<Cause> {
        let end = Instant::now() + longest;
        let mut lost = self.keep.lost.subscribe();
        let waiting = async move {
            lost.wait_for(Option::is_some)
                .await
                .ok()
                .and_then(|cause| *cause)
        };
        self.engine.run(async move {
            tokio::time::timeout_at(end.into(), waiting)
                .await
                .ok()
                .flatten()
        })?
    }

    /// Sets the lease anew; returns the new lease.
    pub fn renew(&self) -> Result<Duration> {
        self.renew_by_hand(None)
    }

    /// Sets another lease, for later renewals as well; returns the new lease.
    pub fn renew_for(&self, lease: Duration) -> Result<Duration> {
        self.renew_by_hand(Some(lease))
    }

    fn renew_by_hand(&self, lease: Option<Duration>) -> Result<Duration> {
        let keep = self.keep.clone();
        self.engine
            .run(async move { keep.renew_by_hand(lease).await })
            .unwrap_or(Err(Error::Closed))
    }

    /// Gives up the lock. [`Error::LockLost`]: it was lost before. Releasing again does nothing.
    pub fn release(&self) -> Result<()> {
        let Some(work) = self.let_go() else {
            return Ok(());
        };
        self.engine.run(work).unwrap_or(Err(Error::Closed))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.release());
    }
}
