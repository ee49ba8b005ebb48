//! The errors, by the server's codes.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use redis::{ErrorKind, RedisError};

/// How a lock was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The lease is over by this process's clock, without a renewal.
    Lease,
    /// The server says so: BREAK, DEL, the lease over there, a master without the lock.
    NotHeld,
    /// The connection of a session has ended.
    Connection,
    /// Locks was closed.
    Closed,
}

/// What kind of error it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// An option that is out of range. Nothing was sent.
    Argument,
    /// The lock did not become available within the wait.
    NotInTime,
    /// No replica confirmed the acquisition within the wait; or a renewal.
    NotReplicated,
    /// The holder has lost the lock.
    LockLost(Cause),
    /// The lock has as many waiters as the server allows.
    QueueFull,
    /// The key holds a hash that is not a lock.
    NotALock,
    /// One of the lock's keys holds something else.
    WrongType,
    /// In a cluster: the braces in the name would put the lock's keys in different slots.
    CrossSlot,
    /// An option needs the module, which the server lacks.
    NoModule,
    /// Any other refusal of the server: NOPERM, NOAUTH, WRONGPASS, OOM, ...
    Refused,
    /// The server could not be reached, or refused for the time being, for `retry_timeout`.
    Unavailable,
    /// Locks was closed.
    Closed,
}

/// An error: its text names the lock and the server. The source is what the server or the library said, if it was that.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Error {
    /// What kind of error it is.
    pub kind: Kind,
    /// The first word of the server's error, if it was one.
    pub code: Option<String>,
    text: String,
    source: Option<Arc<Error>>,
    /// Of a command: the server may have got it, now or in an earlier try.
    pub(crate) may_be_done: bool,
}

impl Error {
    pub(crate) fn new(kind: Kind, text: impl Into<String>) -> Self {
        let is_code = kind == Kind::LockLost(Cause::NotHeld);
        Self {
            kind,
            code: is_code.then(|| "NOTHELD".to_owned()),
            text: text.into(),
            source: None,
            may_be_done: false,
        }
    }

    pub(crate) fn closed() -> Self {
        Self::new(Kind::Closed, "Locks is closed")
    }

    pub(crate) fn unconfirmed() -> Self {
        Self::new(Kind::NotReplicated, "no replica has confirmed it in time")
    }

    /// With the failure that it comes of.
    pub(crate) fn because(mut self, source: Self) -> Self {
        self.code.clone_from(&source.code);
        self.source = Some(Arc::new(source));
        self
    }

    /// For the caller: with the lock and its server, and advice. What the server or the library has said is the source.
    pub(crate) fn of_lock(self, name: &str, address: &str) -> Self {
        let mut told = self.clone();
        told.text = format!("{name} at {address}: {self}{}", self.hint());
        let is_theirs = !matches!(self.kind, Kind::NotInTime | Kind::NotReplicated);
        if is_theirs && self.source.is_none() {
            told.source = Some(Arc::new(self));
        }
        told
    }

    // ----------------------------------------------------------------- of a command

    /// There was no answer: the server may have got the command.
    pub(crate) fn silent(text: impl Into<String>) -> Self {
        Self::new(Kind::Unavailable, text).in_doubt()
    }

    pub(crate) fn in_doubt(mut self) -> Self {
        self.may_be_done = true;
        self
    }

    pub(crate) fn unsent(mut self) -> Self {
        self.may_be_done = false;
        self
    }

    /// What the library says of this address. `Unavailable`: it may help to try again a little later.
    pub(crate) fn of(error: &RedisError, address: &str) -> Self {
        let (code, text) = match (error.code(), error.kind()) {
            (Some(code), _) => (
                code,
                format!("{code} {}", error.detail().unwrap_or_default()),
            ),
            (_, ErrorKind::InvalidClientConfig | ErrorKind::RESP3NotSupported) => {
                ("ERR", format!("ERR {error}"))
            }
            _ => return Self::silent(format!("{address}: {error}")),
        };
        let kind = match code {
            "ASK" | "BUSY" | "CLUSTERDOWN" | "LOADING" | "MASTERDOWN" | "MOVED" | "NOREPLICAS"
            | "READONLY" | "TRYAGAIN" | "UNBLOCKED" => Kind::Unavailable,
            _ if text.contains("max number of clients") => Kind::Unavailable,
            "QUEUEFULL" => Kind::QueueFull,
            "NOTALOCK" => Kind::NotALock,
            "WRONGTYPE" => Kind::WrongType,
            "CROSSSLOT" => Kind::CrossSlot,
            _ => Kind::Refused,
        };
        let mut refusal = Self::new(kind, text);
        refusal.code = Some(code.to_owned());
        refusal
    }

    pub(crate) fn is(&self, code: &str) -> bool {
        self.code.as_deref() == Some(code)
    }

    fn says(&self, part: &str) -> bool {
        self.text.to_lowercase().contains(part)
    }

    /// Whether the server does not know a command; the second text is that of Upstash.
    pub(crate) fn is_unknown(&self) -> bool {
        self.says("unknown command") || self.says("command is not available")
    }

    /// Whether the server lacks the module.
    pub(crate) fn is_no_module(&self) -> bool {
        self.is_unknown() && self.says("fairlock.")
    }

    /// Whether the user may not run a command of the module.
    pub(crate) fn is_denied(&self) -> bool {
        self.is("NOPERM") && self.says("'fairlock.")
    }

    /// Whether the server will not do it, at least not soon.
    pub(crate) fn is_refusal(&self) -> bool {
        self.code.is_some() && !matches!(self.kind, Kind::Unavailable | Kind::LockLost(_))
    }

    fn hint(&self) -> &'static str {
        match self.code.as_deref() {
            Some("NOAUTH") => ". Give the client a password",
            Some("WRONGPASS") => ". Check the client's user and password",
            Some("NOPERM") if self.says("'role'") || self.says("'wait'") => {
                ". Allow both ROLE and WAIT, or set sync_timeout to zero: see SECURITY.md at https://fairlock.example"
            }
            Some("NOPERM") => {
                ". The user `packages` has all that is needed: see SECURITY.md at https://fairlock.example"
            }
            _ => "",
        }
    }

    /// The server lacks the module, which this option needs.
    pub(crate) fn no_module(self, option: Option<&str>) -> Self {
        let what = match option {
            Some(option) => {
                format!("{option} needs the fairlock module, which the server does not have")
            }
            None => "the server does not have the fairlock module".to_owned(),
        };
        let text = format!(
            "{what} (unknown command 'FAIRLOCK.ACQUIRE'). Load it: \"loadmodule /path/to/libfairlock.so\" in its redis.conf, or MODULE LOAD. See docs/operations.md at https://fairlock.example"
        );
        Self::new(Kind::NoModule, text).because(self)
    }
}

impl Display for Error {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        to.write_str(&self.text)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
