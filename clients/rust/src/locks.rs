//! What callers use, for threads and for tokio: [`Locks`] and [`Held`].

use std::sync::{Arc, mpsc};
use std::thread::{self, ThreadId};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::core::Core;
use crate::hold::Guard;
use crate::lines::{Work, locked};
use crate::server::Server;
use crate::{Error, Info, Kind, Options, Result};

/// How the calls are carried out: for [`Threads`] or for [`Tasks`].
pub trait Flavour: Clone + Send + Sync + 'static {
    /// What a call returns: for threads the [`Result`], for tasks a future of it.
    type Of<T: Send + 'static>;
    #[doc(hidden)]
    fn new() -> Result<Self>;
    #[doc(hidden)]
    fn caller() -> Option<String>;
    #[doc(hidden)]
    fn run<T: Send + 'static>(&self, work: Work<Result<T>>) -> Self::Of<T>;
}

/// For tokio.
#[derive(Debug, Clone)]
pub struct Tasks;

impl Flavour for Tasks {
    type Of<T: Send + 'static> = Work<Result<T>>;

    fn new() -> Result<Self> {
        Ok(Self)
    }

    fn caller() -> Option<String> {
        tokio::task::try_id().map(|id| id.to_string())
    }

    fn run<T: Send + 'static>(&self, work: Work<Result<T>>) -> Self::Of<T> {
        work
    }
}

/// For threads: tokio on a thread of the package's own, which ends with the last of these; its results are waited for.
#[derive(Debug, Clone)]
pub struct Threads(Handle, ThreadId, #[allow(dead_code)] watch::Sender<()>);

impl Flavour for Threads {
    type Of<T: Send + 'static> = Result<T>;

    fn new() -> Result<Self> {
        let refused = |error| Error::new(Kind::Argument, format!("no thread to renew: {error}"));
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(refused)?;
        let (handle, alive) = (runtime.handle().clone(), watch::Sender::new(()));
        let mut over = alive.subscribe();
        let work = move || drop(runtime.block_on(over.changed()));
        let thread = thread::Builder::new().name("fairlock".to_owned());
        let own = thread.spawn(work).map_err(refused)?.thread().id();
        Ok(Self(handle, own, alive))
    }

    fn caller() -> Option<String> {
        Some(format!("{:?}", thread::current().id()))
    }

    /// Waits here, even in a thread of another runtime.
    fn run<T: Send + 'static>(&self, work: Work<Result<T>>) -> Self::Of<T> {
        if thread::current().id() == self.1 {
            let text = "a hook cannot wait for the Locks that calls it: everything else would wait for the hook";
            return Err(Error::new(Kind::Argument, text));
        }
        let (sender, result) = mpsc::channel();
        self.0.spawn(async move { drop(sender.send(work.await)) });
        result.recv().unwrap_or_else(|_| Err(Error::closed()))
    }
}

/// Takes fair locks at one server, Sentinel's master, or a cluster. Make one for the process, and keep it.
///
/// It is made of a client of the redis crate, which opens its connections: a [`redis::Client`], and with the features
/// `sentinel` and `cluster` a `SentinelClient` or `ClusterClient`. When it is dropped, waits end and locks that are held
/// are lost. Connections for tokio belong to the runtime where they were opened.
pub struct Locks<F: Flavour> {
    core: Arc<Core>,
    flavour: F,
}

impl<F: Flavour> Locks<F> {
    /// With the default options.
    pub fn new(client: impl Into<Server>) -> Result<Self> {
        Self::with(client, Options::default())
    }

    /// With other options, for all its locks. Fails if one is out of range, or if no thread can be started.
    pub fn with(client: impl Into<Server>, options: Options) -> Result<Self> {
        options.check(b"any")?;
        let (core, flavour) = (Core::new(client.into(), options), F::new()?);
        Ok(Self { core, flavour })
    }

    /// Those of all its locks. One lock can have others; what is for Locks only is ignored there.
    pub fn options(&self) -> Options {
        self.core.options.clone()
    }

    /// Waits for the lock. [`Kind::NotInTime`]: not within the wait. A future that is dropped leaves the queue, and
    /// releases a lock that was granted in between.
    #[must_use = "dropped, the lock is released at once"]
    pub fn acquire(
        &self,
        name: impl AsRef<[u8]>,
        options: impl Into<Option<Options>>,
    ) -> F::Of<Held<F>> {
        let options = options.into().unwrap_or_else(|| self.options());
        self.flavour.run(self.held(name.as_ref(), options))
    }

    /// The lock if it is available at once.
    #[must_use = "dropped, the lock is released at once"]
    pub fn try_acquire(
        &self,
        name: impl AsRef<[u8]>,
        options: impl Into<Option<Options>>,
    ) -> F::Of<Option<Held<F>>> {
        let mut options = options.into().unwrap_or_else(|| self.options());
        options.wait = Some(Duration::ZERO);
        let held = self.held(name.as_ref(), options);
        self.flavour.run(Box::pin(async {
            match held.await {
                Err(error) if error.kind == Kind::NotInTime => Ok(None),
                other => other.map(Some),
            }
        }))
    }

    fn held(&self, name: &[u8], options: Options) -> Work<Result<Held<F>>> {
        let (core, flavour) = (self.core.clone(), self.flavour.clone());
        let (name, caller) = (name.to_vec(), F::caller());
        Box::pin(async move {
            let guard = core.acquire(name, options, caller).await?;
            Ok(Held(guard, flavour))
        })
    }

    /// A lock's holder, and how many wait for it.
    pub fn info(&self, name: impl AsRef<[u8]>) -> F::Of<Info> {
        let (core, name) = (self.core.clone(), name.as_ref().to_vec());
        let info = async move { core.info(name).await };
        self.flavour.run(Box::pin(info))
    }

    /// Whether the server has the module, if it is known: otherwise locks are taken by scripts.
    pub fn native(&self) -> Option<bool> {
        locked(&self.core.state).native
    }

    /// Ends all waits ([`Kind::Closed`]); locks that are held are lost.
    pub fn close(&self) -> F::Of<()> {
        let core = self.core.clone();
        let closed = async move { core.close().await };
        self.flavour.run(Box::pin(closed))
    }
}

impl<F: Flavour> Drop for Locks<F> {
    fn drop(&mut self) {
        self.core.closing.send_replace(true);
    }
}

/// A lock that is held. Dropped, it is released: in threads at once, in tokio by a task, which a runtime that ends does not
/// finish. Only `release()` tells that the lock was lost, or that the release has
/// failed. A guard without a name is dropped at once:
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let locks = fairlock_client::Locks::new(redis::Client::open("redis://localhost")?)?;
/// locks.acquire("orders", None)?; // Released before the next line.
/// # Ok(()) }
/// ```
#[must_use = "dropped, it is released at once: give it a name, such as `held`"]
pub struct Held<F: Flavour>(Guard, F);

impl<F: Flavour> Held<F> {
    /// The name of the lock.
    pub fn name(&self) -> &str {
        &self.0.0.event.name
    }

    /// The owner's name at the server.
    pub fn owner(&self) -> &str {
        &self.0.0.event.owner
    }

    /// The fencing token: above 0, and greater than those of all earlier acquisitions.
    pub fn token(&self) -> i64 {
        self.0.0.token
    }

    /// Whether the lock is known to be lost.
    pub fn is_lost(&self) -> bool {
        self.0.0.check().is_err()
    }

    /// Waits until the lock is known to be lost, which is the error, [`Kind::LockLost`] with its cause; `Ok` after a time
    /// limit, if there is one.
    pub fn lost(&self, longest: impl Into<Option<Duration>>) -> F::Of<()> {
        let hold = self.0.0.clone();
        let longest = longest.into().unwrap_or(Duration::MAX);
        let lost = async move { timeout(longest, hold.until_lost()).await };
        let lost = async { lost.await.unwrap_or(Ok(())) };
        self.1.run(Box::pin(lost))
    }

    /// Sets the lease anew, or another one for later renewals as well; returns it.
    pub fn renew(&self, lease: impl Into<Option<Duration>>) -> F::Of<Duration> {
        let (hold, lease) = (self.0.0.clone(), lease.into());
        let renewed = async move { hold.renew(lease).await };
        self.1.run(Box::pin(renewed))
    }

    /// Gives up the lock, even if a future of it is dropped. [`Kind::LockLost`]: it was lost before. Releasing again does
    /// nothing.
    pub fn release(&self) -> F::Of<()> {
        self.1.run(self.0.release())
    }
}

impl<F: Flavour> Drop for Held<F> {
    fn drop(&mut self) {
        drop(self.release());
    }
}
