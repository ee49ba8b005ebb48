//! The options, checked before anything is sent.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use crate::{Cause, Error, Module, Result};

const MAX_LIMIT: u32 = 1_000_000;
const MAX_OWNER: usize = 256;
/// The server's greatest number of milliseconds.
const MAX_MS: u128 = 4_503_599_627_370_496;

/// The argument of a hook; fields that do not apply are `None`.
#[derive(Debug, Clone)]
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

impl std::fmt::Debug for Hooks {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("Hooks")
    }
}

impl Hooks {
    pub(crate) fn call(hook: Option<&Hook>, event: &Event) {
        let Some(hook) = hook else { return };
        if catch_unwind(AssertUnwindSafe(|| hook(event))).is_err() {
            eprintln!("fairlock: a hook has failed for {}", event.name);
        }
    }
}

/// All options of a lock, and of a Locks.
#[allow(clippy::struct_excessive_bools)] // Which is what they are.
#[derive(Debug, Clone)]
pub struct Options {
    /// The longest wait; zero: try once; `None`: no limit.
    pub wait: Option<Duration>,
    /// The lease of the acquisition and of each renewal.
    pub lease: Duration,
    /// Whether the lease is renewed in the background, every third of it.
    pub renew: bool,
    /// Whether the server renews the lease, as long as a connection of the lock's own is open.
    pub session: bool,
    /// The owner; `None`: `host:pid:uuid`, new for each acquisition.
    pub owner: Option<String>,
    /// Whether the same thread or task holds the lock again at once.
    pub reentrant: bool,
    /// Whether the lock is held together with others that are shared.
    pub shared: bool,
    /// The most holders of the lock; implies `shared`.
    pub limit: Option<u32>,
    /// The longest wait for replicas to confirm an acquisition; zero: they are not asked.
    pub sync_timeout: Duration,
    /// How many replicas must confirm an acquisition or a renewal; `None`: one if Sentinels or the cluster know any. If
    /// any is connected, at least one must confirm in any case.
    pub min_replicas: Option<usize>,
    /// How long a waiter that does not block keeps its place after its last ask, as one does without the module.
    pub patience: Duration,
    /// For Locks only: how long a server that cannot be reached is asked again.
    pub retry_timeout: Duration,
    /// For Locks only: the longest time for an answer to a command that does not block.
    pub command_timeout: Duration,
    /// For Locks only: how long a release is sent again if its connection fails.
    pub release_timeout: Duration,
    /// For Locks only: what to do if the server does not have the module.
    pub module: Module,
    /// For Locks only: functions for tracing and metrics.
    pub hooks: Hooks,
}

impl Default for Options {
    fn default() -> Self {
        let (some, one, half) = (
            Duration::from_secs(5),
            Duration::from_secs(1),
            Duration::from_secs(30),
        );
        Self {
            wait: None,
            lease: half,
            renew: true,
            session: false,
            owner: None,
            reentrant: false,
            shared: false,
            limit: None,
            sync_timeout: one,
            min_replicas: None,
            patience: half,
            retry_timeout: half,
            command_timeout: some,
            release_timeout: some,
            module: Module::default(),
            hooks: Hooks::default(),
        }
    }
}

impl Options {
    pub(crate) fn check(&self, name: &str) -> Result<()> {
        if name.is_empty() {
            return Err(Error::Argument("the name of the lock is empty".to_owned()));
        }
        let least = Duration::from_millis(1);
        for (name, value, least) in [
            ("wait", self.wait.unwrap_or_default(), Duration::ZERO),
            ("lease", self.lease, least),
            ("sync_timeout", self.sync_timeout, Duration::ZERO),
            ("patience", self.patience, least),
            ("retry_timeout", self.retry_timeout, Duration::ZERO),
            ("command_timeout", self.command_timeout, least),
            ("release_timeout", self.release_timeout, Duration::ZERO),
        ] {
            if value < least || value.as_millis() > MAX_MS {
                return Err(Error::Argument(format!(
                    "{name} is not from {least:?} to {MAX_MS} ms: {value:?}"
                )));
            }
        }
        if self
            .limit
            .is_some_and(|limit| !(1..=MAX_LIMIT).contains(&limit))
        {
            return Err(Error::Argument(format!(
                "limit is not from 1 to {MAX_LIMIT}"
            )));
        }
        let owner = self.owner.as_deref().unwrap_or("x");
        if owner == "*" || !(1..=MAX_OWNER).contains(&owner.len()) {
            return Err(Error::Argument(format!(
                "owner is not 1 to {MAX_OWNER} bytes, or is *"
            )));
        }
        Ok(())
    }

    pub(crate) fn is_patient(&self) -> bool {
        self.wait != Some(Duration::ZERO)
    }

    /// The arguments of ACQUIRE in every ask, after name and owner.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut words = Vec::new();
        if self.shared || self.limit.is_some() {
            words.push("SHARED".to_owned());
        }
        words.extend(self.limit.map(|limit| limit.to_string()));
        words.extend(["LEASE".to_owned(), ms(self.lease), "ONCE".to_owned()]);
        if self.session {
            words.push("SESSION".to_owned());
        }
        words
    }
}

/// For people: as seconds.
pub(crate) fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}

/// Whole milliseconds, rounded up, for the server.
pub(crate) fn ms(duration: Duration) -> String {
    duration.as_nanos().div_ceil(1_000_000).max(1).to_string()
}

/// A unique owner that names the machine.
pub(crate) fn new_owner() -> String {
    format!("{}:{}:{}", *HOST, std::process::id(), uuid())
}

static HOST: LazyLock<String> = LazyLock::new(|| {
    let named = std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| {
        let output = std::process::Command::new("hostname").output()?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&output.stdout).into_owned())
    });
    let name = named.unwrap_or_else(|_| "unknown".to_owned());
    let kept = name
        .trim()
        .chars()
        .map(|each| if is_plain(each) { each } else { '-' });
    kept.take(200).collect()
});

fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "._-".contains(letter)
}

/// A random part of the owner.
pub(crate) fn jitter(longest: Duration) -> Duration {
    let [byte, ..] = RandomState::new().build_hasher().finish().to_ne_bytes();
    longest * u32::from(byte) / 256
}

/// Random bits from the standard library: it seeds a hasher from the system, and changes the seed for each.
fn uuid() -> String {
    let bits = || {
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u32(std::process::id());
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        hasher.write_u128(since.unwrap_or_default().as_nanos());
        hasher.finish()
    };
    let (high, low) = (bits(), bits());
    let text = format!(
        "{:016x}{:016x}",
        high & !0xf000 | 0x4000,
        low & !(3 << 62) | 1 << 63
    );
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &text[part]);
    parts.join("-")
}
