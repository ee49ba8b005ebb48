//! The options, checked before anything is sent.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crate::{Cause, Error, Kind, Module, Result};

const MAX_LIMIT: u32 = 1_000_000;
const MAX_OWNER: usize = 256;
/// The server's greatest number of milliseconds.
const MAX_MS: u128 = 4_503_599_627_370_496;

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

/// A function that is called with an event.
pub type Hook = Arc<dyn Fn(&Event) + Send + Sync>;

/// Functions for tracing and metrics. A panic in one has no other effect.
#[derive(Clone, Default)]
pub struct Hooks {
    /// Once for each acquisition that has to wait.
    pub on_wait: Option<Hook>,
    /// The lock is held; not for a hold that is added to another.
    pub on_acquired: Option<Hook>,
    /// A lock that was held is lost.
    pub on_lost: Option<Hook>,
    /// The lock was released; not after `on_lost`.
    pub on_released: Option<Hook>,
}

pub(crate) fn call(hook: Option<&Hook>, event: &Event) {
    if hook.is_some_and(|hook| catch_unwind(AssertUnwindSafe(|| hook(event))).is_err()) {
        eprintln!("fairlock: a hook has failed for {}", event.name);
    }
}

/// All options of a lock, and of a Locks.
#[allow(clippy::struct_excessive_bools)] // Which is what they are.
#[derive(Clone)]
pub struct Options {
    /// The longest wait; zero: try once; `None`: no limit.
    pub wait: Option<Duration>,
    /// The lease of the acquisition and of each renewal.
    pub lease: Duration,
    /// Whether the lease is renewed in the background, every third of it.
    pub renew: bool,
    /// Whether the lock is bound to a connection of its own: the server frees it when that closes.
    pub session: bool,
    /// The owner, 1 to 256 bytes; `None`: `host:pid:uuid`, the package's choice.
    pub owner: Option<Vec<u8>>,
    /// Whether the same thread or task holds the lock again at once.
    pub reentrant: bool,
    /// Whether the lock is held together with others that are shared.
    pub shared: bool,
    /// The most holders of the lock, 1 to 1,000,000; implies `shared`.
    pub limit: Option<u32>,
    /// The longest wait for replicas to confirm an acquisition; zero: they are not asked.
    pub sync_timeout: Duration,
    /// How many replicas must confirm an acquisition or a renewal; `None`: one if the master had any when it was first
    /// asked.
    pub min_replicas: Option<usize>,
    /// How long a waiter that has gone keeps its place.
    pub patience: Duration,
    /// For Locks only: how long a server that cannot be reached is asked again.
    pub retry_timeout: Duration,
    /// For Locks only: the longest time for an answer.
    pub command_timeout: Duration,
    /// For Locks only: how long a release is sent again if it fails.
    pub release_timeout: Duration,
    /// For Locks only: what to do if the server does not have the module.
    pub module: Module,
    /// For Locks only: functions for tracing and metrics.
    pub hooks: Hooks,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            wait: None,
            lease: Duration::from_secs(30),
            renew: true,
            session: false,
            owner: None,
            reentrant: false,
            shared: false,
            limit: None,
            sync_timeout: Duration::from_secs(1),
            min_replicas: None,
            patience: Duration::from_secs(10),
            retry_timeout: Duration::from_secs(30),
            command_timeout: Duration::from_secs(5),
            release_timeout: Duration::from_secs(5),
            module: Module::default(),
            hooks: Hooks::default(),
        }
    }
}

impl Options {
    pub(crate) fn check(&self, name: &[u8]) -> Result<()> {
        let refused = |text: String| Err(Error::new(Kind::Argument, text));
        let least = Duration::from_millis(1);
        for (option, value, least) in [
            ("wait", self.wait.unwrap_or_default(), Duration::ZERO),
            ("lease", self.lease, least),
            ("sync_timeout", self.sync_timeout, Duration::ZERO),
            ("patience", self.patience, least),
            ("retry_timeout", self.retry_timeout, Duration::ZERO),
            ("command_timeout", self.command_timeout, least),
            ("release_timeout", self.release_timeout, Duration::ZERO),
        ] {
            if value < least || value.as_millis() > MAX_MS {
                return refused(format!(
                    "{option} is not from {least:?} to {MAX_MS} ms: {value:?}"
                ));
            }
        }
        let owner = self.owner.as_deref().unwrap_or(b"x");
        if name.is_empty() {
            refused("the name of the lock is empty".to_owned())
        } else if !(1..=MAX_LIMIT).contains(&self.limit.unwrap_or(1)) {
            refused(format!("limit is not from 1 to {MAX_LIMIT}"))
        } else if owner == b"*" || !(1..=MAX_OWNER).contains(&owner.len()) {
            refused(format!("owner is not 1 to {MAX_OWNER} bytes, or is *"))
        } else {
            Ok(())
        }
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.shared || self.limit.is_some()
    }

    /// The option that only the module has.
    pub(crate) fn needs(&self) -> Option<&'static str> {
        if self.session {
            Some("session")
        } else {
            self.is_shared().then_some("shared or limit")
        }
    }
}

/// Whole milliseconds, rounded up, for the server.
pub(crate) fn ms(duration: Duration) -> String {
    duration.as_nanos().div_ceil(1_000_000).max(1).to_string()
}

/// A random part.
pub(crate) fn jitter(longest: Duration) -> Duration {
    let [byte, ..] = RandomState::new().build_hasher().finish().to_ne_bytes();
    longest / 256 * u32::from(byte)
}

/// A unique owner that names the machine.
pub(crate) fn new_owner() -> Vec<u8> {
    let (process, unique) = (std::process::id(), uuid::Uuid::new_v4());
    format!("{}:{process}:{unique}", *HOST).into_bytes()
}

static HOST: LazyLock<String> = LazyLock::new(|| {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let name = name.or_else(|_| std::env::var("HOSTNAME"));
    let is_plain = |letter: &char| letter.is_ascii_alphanumeric() || "._-".contains(*letter);
    let name = name.unwrap_or_else(|_| "unknown".to_owned());
    let kept = name.trim().chars().take(200);
    kept.map(|each| if is_plain(&each) { each } else { '-' })
        .collect()
});
