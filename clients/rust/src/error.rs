//! The errors of the package, and what the server's codes become.

use std::fmt::{self, Display, Formatter};

use redis::{ErrorKind, RedisError};

/// How a lock was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The lease is over by this process's clock, without a renewal.
    Lease,
    /// The server says so: BREAK, DEL, the lease over there, a restart without the data.
    NotHeld,
    /// The connection of a session has closed.
    Connection,
    /// Locks was closed.
    Closed,
}

/// What can go wrong; texts of the server begin with its code.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// An option that is out of range. Nothing was sent.
    Argument(String),
    /// The lock was not to be had within the wait.
    NotInTime(String),
    /// No replica confirmed the acquisition within the wait.
    NotReplicated(String),
    /// The lock is not its holder's any more.
    LockLost(Cause),
    /// The same owner asks elsewhere, and has the place in the queue now.
    TakenOver(String),
    /// The lock has as many waiters as the server allows.
    QueueFull(String),
    /// The key holds a hash that is no lock.
    NotALock(String),
    /// One of the lock's keys holds something else.
    WrongType(String),
    /// In a cluster: the braces in the name would put the lock's keys in different slots.
    CrossSlot(String),
    /// The server does not have the fairlock module.
    NoModule(String),
    /// Any other refusal of the server: NOPERM, OOM, ERR, ...
    Refused(String),
    /// The server could not be reached, or refused for the time being: how long, and the last failure.
    Unavailable(String, Failure),
    /// Locks was closed.
    Closed,
}

impl Error {
    /// The first word of the server's error, if it was one.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::LockLost(Cause::NotHeld) => Some("NOTHELD"),
            Self::TakenOver(text)
            | Self::QueueFull(text)
            | Self::NotALock(text)
            | Self::WrongType(text)
            | Self::CrossSlot(text)
            | Self::Refused(text) => text.split(' ').next(),
            Self::NoModule(_) => Some("ERR"),
            Self::Unavailable(_, failure) => failure.code(),
            _ => None,
        }
    }

    /// Whether the wait was over, for want of the lock or of a replica.
    #[must_use]
    pub fn is_not_in_time(&self) -> bool {
        matches!(self, Self::NotInTime(_) | Self::NotReplicated(_))
    }
}

impl Display for Error {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::LockLost(cause) => {
                let cause = format!("{cause:?}").to_lowercase();
                write!(to, "the lock was lost ({cause})")
            }
            Self::Unavailable(text, failure) => write!(to, "{text}: {failure}"),
            Self::Closed => to.write_str("Locks is closed"),
            Self::Argument(text)
            | Self::NotInTime(text)
            | Self::NotReplicated(text)
            | Self::TakenOver(text)
            | Self::QueueFull(text)
            | Self::NotALock(text)
            | Self::WrongType(text)
            | Self::CrossSlot(text)
            | Self::NoModule(text)
            | Self::Refused(text) => to.write_str(text),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unavailable(_, failure) => Some(failure),
            _ => None,
        }
    }
}

/// What a command failed with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The server's own text.
    Refusal(String),
    /// The connection could not be made, has ended, or did not answer in time.
    Broken(String),
}

/// Refusals that say that the owner neither waits nor holds, or that another caller has its place.
const SETTLED: [&str; 5] = [
    "TAKENOVER",
    "QUEUEFULL",
    "NOTALOCK",
    "WRONGTYPE",
    "CROSSSLOT",
];

/// Refusals that pass: the same owner asks again, and has its place still.
const PASSING: [&str; 9] = [
    "CLUSTERDOWN",
    "TRYAGAIN",
    "LOADING",
    "READONLY",
    "MASTERDOWN",
    "NOREPLICAS",
    "UNBLOCKED",
    "MOVED",
    "ASK",
];

impl Failure {
    /// The first word of a refusal.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refusal(text) => text.split(' ').next(),
            Self::Broken(_) => None,
        }
    }

    pub(crate) fn is(&self, code: &str) -> bool {
        self.code() == Some(code)
    }

    pub(crate) fn is_broken(&self) -> bool {
        matches!(self, Self::Broken(_))
    }

    /// Whether it is worth trying again a little later.
    pub(crate) fn is_passing(&self) -> bool {
        self.code().is_none_or(|code| PASSING.contains(&code))
    }

    /// Whether it says that the owner neither waits nor holds, or that another caller has its place.
    pub(crate) fn is_settled(&self) -> bool {
        self.code().is_some_and(|code| SETTLED.contains(&code))
    }

    /// The package's error for a refusal of the server at this address.
    pub(crate) fn translated(&self, address: &str) -> Error {
        let Self::Refusal(text) = self else {
            return Error::Unavailable("not available".to_owned(), self.clone());
        };
        let lower = text.to_lowercase();
        let text = text.clone();
        match self.code().unwrap_or_default() {
            "ERR" if lower.contains("unknown command") && lower.contains("fairlock.") => {
                Error::NoModule(format!(
                    "{address}: the server does not have the fairlock module (unknown command 'FAIRLOCK.ACQUIRE'). \
                 Load it: \"loadmodule /path/to/libfairlock.so\" in its redis.conf, or MODULE LOAD. \
                 See docs/operations.md at https://fairlock.example"
                ))
            }
            "TAKENOVER" => Error::TakenOver(text),
            "QUEUEFULL" => Error::QueueFull(text),
            "NOTALOCK" => Error::NotALock(text),
            "WRONGTYPE" => Error::WrongType(text),
            "CROSSSLOT" => Error::CrossSlot(text),
            "NOPERM" if lower.contains("'info'") || lower.contains("'wait'") => {
                Error::Refused(format!(
                    "{text} (fairlock: allow INFO and WAIT, which confirm that a replica has the lock, or set sync_timeout to zero)"
                ))
            }
            _ => Error::Refused(text),
        }
    }
}

impl Display for Failure {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refusal(text) | Self::Broken(text) => to.write_str(text),
        }
    }
}

impl std::error::Error for Failure {}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        match (error.kind(), error.code()) {
            (ErrorKind::Io, _) => Self::Broken(error.to_string()),
            (_, Some(code)) => {
                Self::Refusal(format!("{code} {}", error.detail().unwrap_or_default()))
            }
            (ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig, None) => {
                Self::Refusal(format!("ERR {error}"))
            }
            _ => Self::Broken(error.to_string()),
        }
    }
}
