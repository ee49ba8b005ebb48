//! What callers use: [`Locks`], [`Held`], and their calls.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::core::Core;
use crate::hold::Hold;
use crate::keeper::Keeper;
use crate::lines::locked;
use crate::server::Server;
use crate::{Error, Info, Kind, Options, Result};

/// What is to be done: it is awaited in a task of tokio, or waited for in a thread.
#[must_use = "nothing is done until it is awaited, or waited for by wait()"]
pub struct Call<T: Send + 'static> {
    core: Arc<Core>,
    /// Until it is done.
    work: Option<Pin<Box<dyn Future<Output = Result<T>> + Send>>>,
    /// Whether a task ends it, if it is dropped before.
    is_ended: bool,
}

impl<T: Send + 'static> Call<T> {
    pub(crate) fn new(
        core: &Arc<Core>,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Self {
        Self {
            core: core.clone(),
            work: Some(Box::pin(work)),
            is_ended: false,
        }
    }

    pub(crate) fn ended_by_a_task(mut self) -> Self {
        self.is_ended = true;
        self
    }

    /// Waits for it here, even in a thread of a runtime. Where that is the runtime's only thread, connections that were
    /// opened there stand still meanwhile.
    pub fn wait(mut self) -> Result<T> {
        let own = &self.core.thread;
        if std::process::id() != own.1 {
            self.is_ended = false; // Nothing is sent.
            let text = "this Locks is the parent process's: make another after a fork";
            return Err(Error::new(Kind::Argument, text));
        }
        if Handle::try_current().is_ok_and(|here| here.id() == own.0.id()) {
            let text = "a hook cannot wait for the Locks that calls it: everything else would wait for the hook";
            return Err(Error::new(Kind::Argument, text));
        }
        let (sender, result) = mpsc::channel();
        if let Some(work) = self.work.take() {
            own.spawn(async move { drop(sender.send(work.await)) });
        }
        result.recv().unwrap_or_else(|_| Err(Error::closed()))
    }
}

impl<T: Send + 'static> Future for Call<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(work) = &mut self.work else {
            return Poll::Ready(Err(Error::closed()));
        };
        let polled = work.as_mut().poll(context);
        if polled.is_ready() {
            self.work = None;
        }
        polled
    }
}

impl<T: Send + 'static> Drop for Call<T> {
    fn drop(&mut self) {
        if let (true, Some(work)) = (self.is_ended, self.work.take()) {
            let runtime = Handle::try_current();
            let runtime = runtime.as_ref().unwrap_or(&self.core.thread.0);
            runtime.spawn(work);
        }
    }
}

/// Tokio on a thread of the package's own, which ends with this: it renews what is held, and works for those who wait in threads.
/// Only this process has it: a forked child does not.
pub struct Thread(Handle, u32, #[allow(dead_code)] watch::Sender<()>);

impl Thread {
    pub(crate) fn start(keeper: Arc<Keeper>) -> Result<Self> {
        let refused = |error| Error::new(Kind::Argument, format!("no thread to renew: {error}"));
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(refused)?;
        let (handle, alive) = (runtime.handle().clone(), watch::Sender::new(()));
        let mut over = alive.subscribe();
        let kept = async move {
            tokio::select! {
                _ = over.changed() => {}
                () = keeper.run() => {}
            }
        };
        let work = move || runtime.block_on(kept);
        let thread = thread::Builder::new().name("fairlock".to_owned());
        thread.spawn(work).map_err(refused)?;
        Ok(Self(handle, std::process::id(), alive))
    }

    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(work);
    }
}

/// Who may hold a lock again: the task, or outside of tokio the thread.
fn asker() -> Option<String> {
    let is_outside = Handle::try_current().is_err();
    let thread = is_outside.then(|| format!("{:?}", thread::current().id()));
    tokio::task::try_id().map(|id| id.to_string()).or(thread)
}

/// Takes fair locks at one server, Sentinel's master, or a cluster. Make one for the process, and keep it.
///
/// It is made of a client of the redis crate, which opens its connections: a [`redis::Client`], and with the features
/// `sentinel` and `cluster` a `SentinelClient` or `ClusterClient`. When it is dropped, waits end and locks that are held
/// are lost. Connections belong to the runtime of tokio where they were opened; threads have one of their own.
pub struct Locks(Arc<Core>);

impl Locks {
    /// With the default options.
    pub fn new(client: impl Into<Server>) -> Result<Self> {
        Self::with(client, Options::default())
    }

    /// With other options, for all its locks. Fails if one is out of range, or no thread can be had, which renews them.
    pub fn with(client: impl Into<Server>, options: Options) -> Result<Self> {
        options.check(b"any")?;
        Ok(Self(Core::new(client.into(), options)?))
    }

    /// Those of all its locks. One lock can have others; what is for Locks only is ignored there.
    pub fn options(&self) -> Options {
        self.0.options.clone()
    }

    /// Waits for the lock. [`Kind::NotInTime`]: not within the wait. A future that is dropped leaves the queue, and
    /// releases a lock that was granted in between.
    pub fn acquire(
        &self,
        name: impl AsRef<[u8]>,
        options: impl Into<Option<Options>>,
    ) -> Call<Held> {
        let options = options.into().unwrap_or_else(|| self.options());
        let (core, name) = (self.0.clone(), name.as_ref().to_vec());
        Call::new(&self.0, core.acquire(name, options, asker()))
    }

    /// The lock if it is available at once, `None` if it is not. [`Kind::NotInTime`]: the server could not be reached.
    pub fn try_acquire(
        &self,
        name: impl AsRef<[u8]>,
        options: impl Into<Option<Options>>,
    ) -> Call<Option<Held>> {
        let mut options = options.into().unwrap_or_else(|| self.options());
        options.wait = Some(Duration::ZERO);
        let held = self.acquire(name, options);
        Call::new(&self.0, async {
            match held.await {
                Err(error) if error.kind == Kind::NotInTime && error.source.is_none() => Ok(None),
                other => other.map(Some),
            }
        })
    }

    /// A lock's holder, and how many wait for it.
    pub fn info(&self, name: impl AsRef<[u8]>) -> Call<Info> {
        let (core, name) = (self.0.clone(), name.as_ref().to_vec());
        Call::new(&self.0, core.info(name))
    }

    /// Whether the server has the module, if it is known: otherwise locks are taken by scripts.
    pub fn native(&self) -> Option<bool> {
        locked(&self.0.state).native
    }

    /// Ends all waits ([`Kind::Closed`]); locks that are held are lost.
    pub fn close(&self) -> Call<()> {
        Call::new(&self.0, self.0.clone().close())
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A lock that is held. Dropped, it is released: in a thread at once, in tokio by a task, which a runtime that ends does not
/// finish. Only `release()` tells that the lock was lost, or that the release has
/// failed. A guard without a name is dropped at once:
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let locks = fairlock_client::Locks::new(redis::Client::open("redis://localhost")?)?;
/// locks.acquire("orders", None).wait()?; // Released before the next line.
/// # Ok(()) }
/// ```
#[must_use = "dropped, it is released at once: give it a name, such as `held`"]
pub struct Held {
    pub(crate) hold: Arc<Hold>,
    was_released: AtomicBool,
}

impl Held {
    pub(crate) fn new(hold: Arc<Hold>) -> Self {
        let was_released = AtomicBool::new(false);
        Self { hold, was_released }
    }

    /// The name of the lock.
    pub fn name(&self) -> &str {
        &self.hold.caller.event.name
    }

    /// The owner's name at the server.
    pub fn owner(&self) -> &str {
        &self.hold.caller.event.owner
    }

    /// The fencing token: above 0, and greater than those of all earlier acquisitions.
    pub fn token(&self) -> i64 {
        self.hold.caller.event.token.unwrap_or_default()
    }

    /// Whether the lock is known to be lost.
    pub fn is_lost(&self) -> bool {
        self.hold.check().is_err()
    }

    /// Waits until the lock is known to be lost, which is the error, [`Kind::LockLost`] with its cause; `Ok` after a time
    /// limit, if there is one.
    pub fn lost(&self, longest: impl Into<Option<Duration>>) -> Call<()> {
        let (hold, longest) = (self.hold.clone(), longest.into());
        Call::new(&self.hold.caller.core, async move {
            let mut state = hold.state.subscribe();
            let lost = state.wait_for(|state| state.lost.is_some());
            drop(timeout(longest.unwrap_or(Duration::MAX), lost).await);
            hold.check()
        })
    }

    /// Sets the lease anew, or another one for later renewals as well; returns it.
    pub fn renew(&self, lease: impl Into<Option<Duration>>) -> Call<Duration> {
        let renewed = self.hold.clone().renew(lease.into());
        Call::new(&self.hold.caller.core, renewed)
    }

    /// Gives up the lock, even if a future of it is dropped. [`Kind::LockLost`]: it was lost before. Releasing again does
    /// nothing.
    pub fn release(&self) -> Call<()> {
        let was_released = self.was_released.swap(true, Ordering::Relaxed);
        let last = (!was_released).then(|| self.hold.clone().release());
        let nothing = || Call::new(&self.hold.caller.core, async { Ok(()) });
        last.flatten().unwrap_or_else(nothing)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let is_held = !*self.was_released.get_mut();
        let released = self.release();
        if is_held && Handle::try_current().is_err() {
            drop(released.wait());
        }
    }
}
