//! The module's commands as scripts, for servers that do not have it. See "Without the module" in clients/behaviours.md.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use redis::Script;

use crate::error::{Failure, NO_MODULE, PAGES};

/// Whether locks may be taken by scripts where the server does not have the module.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Module {
    /// They may; a warning goes to standard error the first time.
    #[default]
    Auto,
    /// [`Error::NoModule`](crate::Error::NoModule) there.
    Required,
}

/// Whether the servers of a Locks have the module.
#[derive(Default)]
pub(crate) struct Native {
    is_required: AtomicBool,
    has_warned: AtomicBool,
    /// The last answer: none yet, without the module, with it.
    last: AtomicU8,
}

const WITHOUT: u8 = 1;
const WITH: u8 = 2;

/// How the connections to one server send commands. A connection that is new asks whether the server has the module; if
/// it has, connections that use scripts go back to commands, because no script can renew a shared lock.
#[derive(Default)]
pub(crate) struct Server {
    /// How often the module was found after it had been missing.
    loads: AtomicUsize,
    is_missed: AtomicBool,
}

impl Server {
    pub(crate) fn found(&self) {
        if self.is_missed.swap(false, Ordering::Relaxed) {
            self.loads.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The value of [`Self::loads`] while connections without the module use scripts.
    pub(crate) fn missed(&self) -> usize {
        self.is_missed.store(true, Ordering::Relaxed);
        self.loads()
    }

    pub(crate) fn loads(&self) -> usize {
        self.loads.load(Ordering::Relaxed)
    }
}

impl Native {
    pub(crate) fn require(&self, module: Module) {
        self.is_required
            .store(module == Module::Required, Ordering::Relaxed);
    }

    pub(crate) fn is(&self) -> Option<bool> {
        match self.last.load(Ordering::Relaxed) {
            0 => None,
            last => Some(last == WITH),
        }
    }

    pub(crate) fn found(&self) {
        self.last.store(WITH, Ordering::Relaxed);
    }

    /// Whether to use scripts at this address, which does not have the module, or denies it to the user.
    pub(crate) fn missed(&self, address: &str, is_denied: bool) -> bool {
        self.last.store(WITHOUT, Ordering::Relaxed);
        if self.is_required.load(Ordering::Relaxed) {
            return false;
        }
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            let [why, cure] = if is_denied {
                [
                    "the user may not run the commands of the fairlock module",
                    "Allow them",
                ]
            } else {
                ["the server does not have the fairlock module", "Load it"]
            };
            eprintln!(
                "fairlock: {address}: {why}: locks are taken by scripts. \
                 {cure} for hand-off, sessions and shared locks, or set module to Required to refuse"
            );
        }
        true
    }
}

/// A script of clients/lua, by its command.
static SCRIPTS: LazyLock<[(&str, Script, &str); 4]> = LazyLock::new(|| {
    [
        ("FAIRLOCK.ACQUIRE", include_str!("../lua/acquire.lua")),
        ("FAIRLOCK.RELEASE", include_str!("../lua/release.lua")),
        ("FAIRLOCK.RENEW", include_str!("../lua/renew.lua")),
        ("FAIRLOCK.CANCEL", include_str!("../lua/cancel.lua")),
    ]
    .map(|(command, text)| (command, Script::new(text), text))
});

/// The script that reads a lock's state from its keys: hash, time to live, length of the queue.
const LOOK: &str = "return {redis.call('HGETALL', KEYS[1]), redis.call('PTTL', KEYS[1]), redis.call('LLEN', KEYS[2])}";

/// A key or channel of a lock: its name, in braces if it has none.
pub(crate) fn key(prefix: &str, name: &str) -> String {
    if name.contains('{') {
        format!("{prefix}:{name}")
    } else {
        format!("{prefix}:{{{name}}}")
    }
}

/// The channel on which an owner is woken.
pub(crate) fn channel(name: &str, owner: &str) -> String {
    format!("{}:{owner}", key("redisson_lock__channel", name))
}

pub(crate) fn is_command(words: &[String]) -> bool {
    words
        .first()
        .is_some_and(|word| word.starts_with("FAIRLOCK."))
}

/// A command of the module as a call of its script; anything else as it is.
pub(crate) fn translated(words: &[String]) -> Result<Vec<String>, Failure> {
    let [command, name, arguments @ ..] = words else {
        return Ok(words.to_vec());
    };
    let queue = key("redisson_lock_queue", name);
    if command == "FAIRLOCK.INFO" {
        return Ok(crate::core::words(["EVAL", LOOK, "2", name, &queue]));
    }
    let Some((_, script, _)) = SCRIPTS.iter().find(|(each, ..)| each == command) else {
        return Ok(words.to_vec());
    };
    // The owner may have any name.
    let options = arguments.get(1..).unwrap_or_default();
    let needs = [("SESSION", "session"), ("SHARED", "shared or limit")];
    let needs = needs
        .iter()
        .find(|(word, _)| options.iter().any(|option| option == word));
    if let Some((_, option)) = needs {
        return Err(Failure::Refusal(format!("{NO_MODULE} {option}")));
    }
    let (deadlines, token) = (
        key("redisson_lock_timeout", name),
        key("fairlock_token", name),
    );
    let keys = [
        "EVALSHA",
        script.get_hash(),
        "4",
        name,
        &queue,
        &deadlines,
        &token,
    ];
    let mut words = crate::core::words(keys);
    words.extend_from_slice(arguments);
    Ok(words)
}

/// The same call with the text of the script, for a server that does not know it yet.
pub(crate) fn with_text(mut words: Vec<String>) -> Vec<String> {
    let script = SCRIPTS
        .iter()
        .find(|(_, script, _)| words.get(1).is_some_and(|hash| hash == script.get_hash()));
    if let Some((_, _, text)) = script {
        words.splice(..2, ["EVAL".to_owned(), (*text).to_owned()]);
    }
    words
}

/// For people: the option that needs the module.
pub(crate) fn no_module(address: &str, option: &str) -> String {
    format!(
        "{address}: {option} needs the fairlock module, which the server does not have. \
         Load it: \"loadmodule /path/to/libfairlock.so\" in its redis.conf, or MODULE LOAD. See docs/operations.md at {PAGES}"
    )
}
