//! What callers use, for threads and for tokio: [`Locks`], [`Lock`] and [`Held`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};

use crate::core::{Caller, Core, closed};
use crate::hold::Hold;
use crate::lines::Work;
use crate::{Cause, Error, Info, Kind, Options, Result, Server};

/// How the work is done: by [`Tasks`] or by [`Threads`].
pub trait Flavour: Send + Sync + 'static {
    /// Does what a drop leaves to do.
    #[doc(hidden)]
    fn finish(&self, work: Work<'static, Result<()>>);
}

/// In tokio: what a drop leaves to do is done by a task. The runtime where a lock was acquired.
#[derive(Debug)]
pub struct Tasks(Option<Handle>);

/// In threads: tokio on a thread of the package's own, whose results are waited for.
#[derive(Debug, Clone)]
pub struct Threads(Arc<OwnRuntime>);

#[derive(Debug)]
struct OwnRuntime(Option<Runtime>);

impl Flavour for Tasks {
    fn finish(&self, work: Work<'static, Result<()>>) {
        let runtime = self.0.clone().or_else(|| Handle::try_current().ok());
        drop(runtime.map(|runtime| runtime.spawn(work)));
    }
}

impl Flavour for Threads {
    fn finish(&self, work: Work<'static, Result<()>>) {
        drop(self.run(work));
    }
}

impl Threads {
    /// Runs a future there, and waits for it here, even in a thread of another runtime.
    fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let (sender, result) = mpsc::channel();
        let runtime = self.0.0.as_ref().ok_or_else(closed)?;
        runtime.spawn(async move { drop(sender.send(work.await)) });
        result.recv().unwrap_or_else(|_| Err(closed()))
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background(); // A thread of another runtime must not wait for it.
        }
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
    /// Whether the server has the module, if it is known: otherwise locks are taken by scripts.
    #[must_use]
    pub fn native(&self) -> Option<bool> {
        self.core.native()
    }

    fn named(&self, name: impl AsRef<[u8]>, flavour: F) -> Lock<F> {
        Lock(
            self.core.clone(),
            name.as_ref().to_vec(),
            self.core.options.clone(),
            flavour,
        )
    }
}

impl Locks<Tasks> {
    /// With the default options.
    pub fn new(client: impl Into<Server>) -> Self {
        Self::with(client, Options::default())
    }

    /// With other options, for all its locks.
    pub fn with(client: impl Into<Server>, options: Options) -> Self {
        let (core, flavour) = (Core::new(client.into(), options), Tasks(None));
        Self { core, flavour }
    }

    /// A lock. Sends nothing yet.
    pub fn lock(&self, name: impl AsRef<[u8]>) -> Lock<Tasks> {
        self.named(name, Tasks(None))
    }

    /// A lock's holder, and how many wait for it.
    pub async fn info(&self, name: impl AsRef<[u8]>) -> Result<Info> {
        self.core.info(name.as_ref()).await
    }

    /// Ends all waits ([`Kind::Closed`]); locks that are held are lost.
    pub async fn close(&self) {
        drop(self.core.close().await);
    }
}

impl Locks<Threads> {
    /// With the default options.
    pub fn new(client: impl Into<Server>) -> Result<Self> {
        Self::with(client, Options::default())
    }

    /// With other options, for all its locks. Fails if no thread can be started.
    pub fn with(client: impl Into<Server>, options: Options) -> Result<Self> {
        let mut builder = Builder::new_multi_thread();
        let builder = builder.worker_threads(1).enable_all();
        let runtime = builder.thread_name("fairlock").build();
        let refused = |error| Error::new(Kind::Argument, format!("no thread to renew: {error}"));
        let runtime = runtime.map_err(refused)?;
        let flavour = Threads(Arc::new(OwnRuntime(Some(runtime))));
        let core = Core::new(client.into(), options);
        Ok(Self { core, flavour })
    }

    /// A lock. Sends nothing yet.
    pub fn lock(&self, name: impl AsRef<[u8]>) -> Lock<Threads> {
        self.named(name, self.flavour.clone())
    }

    /// A lock's holder, and how many wait for it.
    pub fn info(&self, name: impl AsRef<[u8]>) -> Result<Info> {
        let (core, name) = (self.core.clone(), name.as_ref().to_vec());
        self.flavour.run(async move { core.info(&name).await })
    }

    /// Ends all waits ([`Kind::Closed`]); locks that are held are lost.
    pub fn close(&self) {
        let core = self.core.clone();
        drop(self.flavour.run(async move { core.close().await }));
    }
}

impl<F: Flavour> Drop for Locks<F> {
    fn drop(&mut self) {
        self.core.closing.send_replace(true);
        let core = self.core.clone();
        self.flavour
            .finish(Box::pin(async move { core.close().await }));
    }
}

/// A lock to be acquired. Its methods are the options.
#[must_use = "nothing is sent before `acquire`"]
pub struct Lock<F>(Arc<Core>, Vec<u8>, Options, F);

/// Methods that set an option each.
macro_rules! options {
    ($($doc:literal $name:ident($($value:ident: $type:ty)?) $set:expr;)*) => {
        $(#[doc = $doc]
        pub fn $name(mut self, $($value: $type)?) -> Self {
            self.2.$name = $set;
            self
        })*
    };
}

impl<F> Lock<F> {
    options! {
        "The longest wait; zero: try once." wait(longest: Duration) Some(longest);
        "The lease of the acquisition and of each renewal." lease(lease: Duration) lease;
        "Whether the lease is renewed in the background, every third of it." renew(is_on: bool) is_on;
        "The lock is bound to a connection of its own." session() true;
        "The owner, 1 to 256 bytes." owner(owner: impl AsRef<[u8]>) Some(owner.as_ref().to_vec());
        "The same thread or task holds the lock again at once." reentrant() true;
        "The lock is held together with others that are shared." shared() true;
        "The most holders of the lock, 1 to 1,000,000." limit(limit: u32) Some(limit);
    }

    /// All options at once; those of Locks only stay.
    pub fn options(mut self, options: Options) -> Self {
        self.2 = options;
        self
    }
}

impl Lock<Tasks> {
    /// Waits for the lock. [`Kind::NotInTime`]: not within the wait. If the future is dropped, a task leaves the queue,
    /// and releases a lock that was granted in between.
    #[must_use = "dropped, the lock is released at once"]
    pub async fn acquire(self) -> Result<Held<Tasks>> {
        let caller = tokio::task::try_id().map(Caller::Task);
        let hold = self.0.acquire(&self.1, self.2, caller).await?;
        Ok(Held(hold, Tasks(Some(Handle::current())), false.into()))
    }

    /// The lock if it is available at once.
    pub async fn try_acquire(self) -> Result<Option<Held<Tasks>>> {
        available(self.wait(Duration::ZERO).acquire().await)
    }
}

impl Lock<Threads> {
    /// Waits for the lock. [`Kind::NotInTime`]: not within the wait.
    #[must_use = "dropped, the lock is released at once"]
    pub fn acquire(self) -> Result<Held<Threads>> {
        let Self(core, name, options, threads) = self;
        let caller = Some(Caller::Thread(std::thread::current().id()));
        let hold = threads.run(async move { core.acquire(&name, options, caller).await })?;
        Ok(Held(hold, threads, false.into()))
    }

    /// The lock if it is available at once.
    pub fn try_acquire(self) -> Result<Option<Held<Threads>>> {
        available(self.wait(Duration::ZERO).acquire())
    }
}

fn available<T>(acquired: Result<T>) -> Result<Option<T>> {
    match acquired {
        Err(error) if error.kind() == Kind::NotInTime => Ok(None),
        other => other.map(Some),
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
/// locks.lock("orders").acquire()?; // Released before the next line.
/// # Ok(()) }
/// ```
#[must_use = "dropped, it is released at once: give it a name, such as `held`"]
pub struct Held<F: Flavour>(Arc<Hold>, F, AtomicBool);

impl<F: Flavour> Held<F> {
    /// The name of the lock.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.event.name
    }

    /// The owner's name at the server.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.0.event.owner
    }

    /// The fencing token: above 0, and greater than those of all earlier acquisitions.
    #[must_use]
    pub fn token(&self) -> i64 {
        self.0.token
    }

    /// Whether the lock is known to be lost.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.0.cause().is_some()
    }

    /// The work to do when the guard lets go, the first time.
    fn let_go(&self) -> Option<Work<'static, Result<()>>> {
        let was_released = self.2.swap(true, Ordering::Relaxed);
        if was_released { None } else { self.0.let_go() }
    }
}

impl Held<Tasks> {
    /// Waits until the lock is known to be lost; the error has the cause.
    pub async fn lost(&self) -> Error {
        self.0.until_lost().await
    }

    /// Sets the lease anew, or another one for later renewals as well; returns it.
    pub async fn renew(&self, lease: impl Into<Option<Duration>>) -> Result<Duration> {
        self.0.renew_by_hand(lease.into()).await
    }

    /// Gives up the lock, even if this future is dropped early. [`Kind::LockLost`]: it was lost before. Releasing again
    /// does nothing.
    pub async fn release(&self) -> Result<()> {
        match (self.let_go(), &self.1.0) {
            (Some(work), Some(runtime)) => {
                let done = runtime.spawn(work).await;
                done.unwrap_or_else(|_| Err(closed()))
            }
            _ => Ok(()),
        }
    }
}

impl Held<Threads> {
    /// Waits until the lock is known to be lost, up to a time limit; the cause.
    #[must_use]
    pub fn wait_lost(&self, longest: Duration) -> Option<Cause> {
        let hold = self.0.clone();
        let lost = async move { tokio::time::timeout(longest, hold.until_lost()).await };
        let lost = self.1.run(async move { Ok(lost.await.ok()) });
        lost.ok()?.and_then(|error| error.cause())
    }

    /// Sets the lease anew, or another one for later renewals as well; returns it.
    pub fn renew(&self, lease: impl Into<Option<Duration>>) -> Result<Duration> {
        let (hold, lease) = (self.0.clone(), lease.into());
        self.1.run(async move { hold.renew_by_hand(lease).await })
    }

    /// Gives up the lock. [`Kind::LockLost`]: it was lost before. Releasing again does nothing.
    pub fn release(&self) -> Result<()> {
        self.let_go().map_or(Ok(()), |work| self.1.run(work))
    }
}

impl<F: Flavour> Drop for Held<F> {
    fn drop(&mut self) {
        if let Some(work) = self.let_go() {
            self.1.finish(work);
        }
    }
}
