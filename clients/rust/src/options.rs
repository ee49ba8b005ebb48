//! The options, checked before anything is sent.

use std::fmt::Display;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use uuid::Uuid;

use crate::{Cause, Error, Kind, Result};

const MAX_LIMIT: u32 = 1_000_000;
const MAX_OWNER: usize = 256;
/// The server's greatest number of milliseconds.
const MAX_MS: u64 = 4_503_599_627_370_496;

/// The argument of a hook; fields that do not apply are `None`.
#[derive(Debug, Clone, Default)]
pub struct Event {
    /// Of the lock.
    pub name: String,
    /// The owner that asks for it, or holds it.
    pub owner: String,
    /// The fencing token.
    pub token: Option<i64>,
    /// From the call to the acquisition.
    pub waited: Option<Duration>,
    /// From the acquisition to the release or the loss.
    pub held: Option<Duration>,
    /// Of the loss.
    pub cause: Option<Cause>,
}

/// A function for tracing and metrics. A panic in it has no other effect. All waits for a hook, so that it has to be short, and
/// cannot wait for its Locks.
pub type Hook = Arc<dyn Fn(&Event) + Send + Sync>;

pub(crate) fn call(hook: Option<&Hook>, event: &Event) {
    if hook.is_some_and(|hook| catch_unwind(AssertUnwindSafe(|| hook(event))).is_err()) {
        tell(format_args!("a hook has failed for {}", event.name));
    }
}

/// On standard error. Where nobody reads that, `eprintln!` would panic, and end the task that renews a lock.
pub(crate) fn tell(what: impl Display) {
    let _ = writeln!(io::stderr(), "fairlock: {what}");
}

/// Each option: what it is, its type, its default.
macro_rules! options {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $default:expr,)*) => {
        /// All options of a lock, and of a Locks.
        #[allow(clippy::struct_excessive_bools)] // Which is what they are.
        #[derive(Clone)]
        pub struct Options {
            $($(#[$doc])* pub $name: $type,)*
        }

        impl Default for Options {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }
    };
}

options! {
    /// The longest wait; zero: try once; `None`: no limit.
    wait: Option<Duration> = None,
    /// The lease of the acquisition and of each renewal.
    lease: Duration = Duration::from_secs(30),
    /// Whether the lease is renewed in the background, every third of it.
    renew: bool = true,
    /// Whether the lock is bound to a connection of its own: the server frees it when that closes.
    session: bool = false,
    /// The owner, 1 to 256 bytes; `None`: `host:pid:uuid`, the package's choice.
    owner: Option<Vec<u8>> = None,
    /// Whether the same thread or task holds the lock again at once.
    reentrant: bool = false,
    /// Whether the lock is held together with others that are shared.
    shared: bool = false,
    /// The most holders of the lock, 1 to 1,000,000; implies `shared`.
    limit: Option<u32> = None,
    /// The longest wait for replicas to confirm an acquisition; zero: they are not asked.
    sync_timeout: Duration = Duration::from_secs(1),
    /// How many replicas must confirm an acquisition or a renewal; `None`: one if the master had any when it was first
    /// asked.
    min_replicas: Option<usize> = None,
    /// How long a waiter that has gone keeps its place.
    patience: Duration = Duration::from_secs(10),
    /// For Locks only: how long a server that cannot be reached is asked again.
    retry_timeout: Duration = Duration::from_secs(30),
    /// For Locks only: the longest time for an answer.
    command_timeout: Duration = Duration::from_secs(5),
    /// For Locks only: how long a release is sent again if it fails.
    release_timeout: Duration = Duration::from_secs(5),
    /// For Locks only: whether acquisitions fail with [`NoModule`](crate::Kind::NoModule) where the server does not have the
    /// module. Otherwise locks are taken by scripts there, and a warning goes to standard error the first time.
    require_module: bool = false,
    /// For Locks only: called once for each acquisition that has to wait.
    on_wait: Option<Hook> = None,
    /// For Locks only: the lock is held; not for a hold that is added to another.
    on_acquired: Option<Hook> = None,
    /// For Locks only: a lock that was held is lost.
    on_lost: Option<Hook> = None,
    /// For Locks only: the lock was released; not after `on_lost`.
    on_released: Option<Hook> = None,
}

impl Options {
    pub(crate) fn check(&self, name: &[u8]) -> Result<()> {
        let (any, least) = (Duration::ZERO, Duration::from_millis(1));
        let most = Duration::from_millis(MAX_MS);
        let refused = |text: String| Err(Error::new(Kind::Argument, text));
        for (option, value, least) in [
            ("wait", self.wait.unwrap_or_default(), any),
            ("lease", self.lease, least),
            ("sync_timeout", self.sync_timeout, any),
            ("patience", self.patience, least),
            ("retry_timeout", self.retry_timeout, any),
            ("command_timeout", self.command_timeout, least),
            ("release_timeout", self.release_timeout, any),
        ] {
            if value < least || value > most {
                return refused(format!(
                    "{option} is from {least:?} to {most:?}, not {value:?}"
                ));
            }
        }
        let owner = self.owner.as_deref().unwrap_or(b"x");
        if name.is_empty() {
            refused("the name of the lock is empty".to_owned())
        } else if !(1..=MAX_LIMIT).contains(&self.limit.unwrap_or(1)) {
            refused(format!("limit is from 1 to {MAX_LIMIT}"))
        } else if owner == b"*" || !(1..=MAX_OWNER).contains(&owner.len()) {
            refused(format!("owner is 1 to {MAX_OWNER} bytes, and not *"))
        } else {
            Ok(())
        }
    }

    /// The option that only the module has.
    pub(crate) fn needs(&self) -> Option<&'static str> {
        let is_shared = self.shared || self.limit.is_some();
        let shared = is_shared.then_some("shared or limit");
        self.session.then_some("session").or(shared)
    }
}

/// Whole milliseconds, rounded up, for the server.
pub(crate) fn ms(duration: Duration) -> String {
    duration.as_nanos().div_ceil(1_000_000).max(1).to_string()
}

/// A random part. (The system is asked for the first one only.)
pub(crate) fn jitter(longest: Duration) -> Duration {
    let [byte, ..] = RandomState::new().hash_one(()).to_ne_bytes();
    longest / 256 * u32::from(byte)
}

/// A unique owner that names the machine.
pub(crate) fn new_owner() -> Vec<u8> {
    let (process, unique) = (std::process::id(), Uuid::new_v4());
    format!("{}:{process}:{unique}", *HOST).into_bytes()
}

static HOST: LazyLock<String> = LazyLock::new(|| {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let name = name.or_else(|_| std::env::var("HOSTNAME"));
    let name = name.unwrap_or_else(|_| "unknown".to_owned());
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let name = name.trim().replace(|letter| !is_plain(letter), "-");
    name.chars().take(200).collect()
});
