//! What is asked for as commands: the module's, or the same as scripts, for servers that do not have it.

use std::sync::LazyLock;
use std::time::Duration;

use redis::{Cmd, Script};

use crate::error::PAGES;
use crate::options::ms;
use crate::protocol::Message;
use crate::{Event, Options};

/// Whether locks may be taken by scripts where the server does not have the module.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Module {
    /// They may; a warning goes to standard error the first time.
    #[default]
    Auto,
    /// Acquisitions fail with [`NoModule`](crate::Kind::NoModule) there.
    Required,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    Acquire,
    Release,
    Renew,
    Cancel,
    Info,
}

/// What is asked for, and by whom.
pub(crate) struct Terms {
    pub(crate) name: Vec<u8>,
    pub(crate) owner: Vec<u8>,
    pub(crate) options: Options,
}

/// A command, with its arguments after the lock's name.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) command: Command,
    pub(crate) words: Vec<Vec<u8>>,
}

impl Terms {
    fn request(&self, command: Command, more: &[&str]) -> Request {
        let mut words = vec![self.owner.clone()];
        words.extend(more.iter().map(|word| word.as_bytes().to_vec()));
        Request { command, words }
    }

    fn ask(&self) -> Request {
        let options = &self.options;
        let (lease, patience) = (ms(options.lease), ms(options.patience));
        let limit = options.limit.map(|limit| limit.to_string());
        let mut words = Vec::new();
        words.extend(options.is_shared().then_some("SHARED"));
        words.extend(limit.as_deref());
        words.extend(["LEASE", &lease]);
        if options.wait == Some(Duration::ZERO) {
            words.push("NOWAIT");
        } else {
            words.extend(["ENQUEUE", "PATIENCE", &patience]);
        }
        words.extend(options.session.then_some("SESSION"));
        words.push("ONCE");
        self.request(Command::Acquire, &words)
    }

    pub(crate) fn renewal(&self, lease: Duration) -> Request {
        self.request(Command::Renew, &["LEASE", &ms(lease)])
    }

    pub(crate) fn release(&self, token: Option<i64>) -> Request {
        let token = token.map(|token| token.to_string());
        let words: Vec<_> = token.iter().flat_map(|token| ["TOKEN", token]).collect();
        self.request(Command::Release, &words)
    }

    pub(crate) fn cancel(&self) -> Request {
        self.request(Command::Cancel, &[])
    }

    /// A message of an acquisition.
    pub(crate) fn message(&self, message: Message) -> Request {
        match message {
            Message::Ask => self.ask(),
            Message::GiveBack(token) => self.release(Some(token)),
        }
    }

    /// For hooks and people.
    pub(crate) fn event(&self) -> Event {
        Event {
            name: String::from_utf8_lossy(&self.name).into_owned(),
            owner: String::from_utf8_lossy(&self.owner).into_owned(),
            ..Event::default()
        }
    }
}

/// How a command is sent: as the module's, as a script that the server knows, or with the script's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Native,
    Hash,
    Text,
}

/// Reads a lock's state, as FAIRLOCK.INFO does.
const LOOK: &str = "local lock, owner, holds, token = redis.call('HGETALL', KEYS[1]), false, 0, false
for i = 1, #lock, 2 do
  if lock[i] == '' then token = tonumber(lock[i + 1]) else owner, holds = lock[i], tonumber(lock[i + 1]) end
end
local held = owner and 1 or 0
return {'owner', owner, 'holds', holds, 'lease', redis.call('PTTL', KEYS[1]), 'token', token, 'session', 0,
  'waiting', redis.call('LLEN', KEYS[2]), 'holders', held, 'limit', held}";

static SCRIPTS: LazyLock<[(&str, &str, Script); 5]> = LazyLock::new(|| {
    [
        ("FAIRLOCK.ACQUIRE", include_str!("../lua/acquire.lua")),
        ("FAIRLOCK.RELEASE", include_str!("../lua/release.lua")),
        ("FAIRLOCK.RENEW", include_str!("../lua/renew.lua")),
        ("FAIRLOCK.CANCEL", include_str!("../lua/cancel.lua")),
        ("FAIRLOCK.INFO", LOOK),
    ]
    .map(|(name, text)| (name, text, Script::new(text)))
});

impl Request {
    pub(crate) fn command(&self, name: &[u8], form: Form) -> Cmd {
        let [acquire, release, renew, cancel, info] = &*SCRIPTS;
        let (native, text, script) = match self.command {
            Command::Acquire => acquire,
            Command::Release => release,
            Command::Renew => renew,
            Command::Cancel => cancel,
            Command::Info => info,
        };
        let mut command = match form {
            Form::Native => redis::cmd(native),
            Form::Hash => redis::cmd("EVALSHA"),
            Form::Text => redis::cmd("EVAL"),
        };
        match form {
            Form::Native => command.arg(name),
            Form::Hash => command.arg(script.get_hash()).arg(4).arg(name),
            Form::Text => command.arg(text).arg(4).arg(name),
        };
        if form != Form::Native {
            for prefix in [
                "redisson_lock_queue",
                "redisson_lock_timeout",
                "fairlock_token",
            ] {
                command.arg(key(prefix, name));
            }
        }
        command.arg(&self.words);
        command
    }
}

/// A key or channel of a lock: its name, in braces if it has none.
fn key(prefix: &str, name: &[u8]) -> Vec<u8> {
    let (open, close): (&[u8], &[u8]) = if name.contains(&b'{') {
        (b":", b"")
    } else {
        (b":{", b"}")
    };
    [prefix.as_bytes(), open, name, close].concat()
}

/// The channel on which an owner is woken.
pub(crate) fn channel(name: &[u8], owner: &[u8]) -> Vec<u8> {
    [&key("redisson_lock__channel", name), &b":"[..], owner].concat()
}

/// For people: what is missing at this address. `option` is the one that needs it.
pub(crate) fn no_module(address: &str, option: Option<&str>) -> String {
    let what = match option {
        Some(option) => {
            format!("{option} needs the fairlock module, which the server does not have")
        }
        None => "the server does not have the fairlock module (unknown command 'FAIRLOCK.ACQUIRE')"
            .to_owned(),
    };
    format!(
        "{address}: {what}. Load it: \"loadmodule /path/to/libfairlock.so\" in its redis.conf, or MODULE LOAD. See docs/operations.md at {PAGES}"
    )
}

/// The one warning, for people.
pub(crate) fn warning(address: &str, is_denied: bool) -> String {
    let [why, cure] = if is_denied {
        [
            "the user may not run the commands of the fairlock module",
            "Allow them",
        ]
    } else {
        ["the server does not have the fairlock module", "Load it"]
    };
    format!(
        "fairlock: {address}: {why}: locks are taken by scripts. {cure} for hand-off, sessions and shared locks, or set module to Required to refuse"
    )
}
