//! The errors of the package, and what the server's codes become.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use redis::{ErrorKind, RedisError};

use crate::options::seconds;

pub(crate) type Outcome<T> = std::result::Result<T, Failure>;

const PAGES: &str = "https://fairlock.example";

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

/// What can go wrong. Texts say what happened, for which lock and at which address; those of the server begin with its
/// code.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// An option that is out of range. Nothing was sent.
    Argument(String),
    /// The lock was not to be had within the wait; and the last failure, if the server could not be reached at its end.
    NotInTime(String, Option<Failure>),
    /// No replica confirmed the acquisition within the wait; or a renewal.
    NotReplicated(String, Option<Failure>),
    /// The lock is not its holder's any more: how it was lost, and its name.
    LockLost(Cause, String),
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
    /// Any other refusal of the server: NOPERM, NOAUTH, WRONGPASS, OOM, ERR, ...
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
            Self::LockLost(Cause::NotHeld, _) => Some("NOTHELD"),
            Self::TakenOver(text)
            | Self::QueueFull(text)
            | Self::NotALock(text)
            | Self::WrongType(text)
            | Self::CrossSlot(text)
            | Self::Refused(text) => text.split(' ').next(),
            Self::NoModule(_) => Some("ERR"),
            Self::Unavailable(_, failure)
            | Self::NotInTime(_, Some(failure))
            | Self::NotReplicated(_, Some(failure)) => failure.code(),
            _ => None,
        }
    }

    /// Whether the wait was over, for want of the lock or of a replica.
    #[must_use]
    pub fn is_not_in_time(&self) -> bool {
        matches!(self, Self::NotInTime(..) | Self::NotReplicated(..))
    }

    pub(crate) fn unavailable(name: &str, longest: Duration, failure: &Failure) -> Self {
        let longest = if longest.is_zero() {
            String::new()
        } else {
            format!(" for {}", seconds(longest))
        };
        Self::Unavailable(format!("{name} not available{longest}"), failure.clone())
    }

    /// How the lock was lost, if that is what it says.
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        match self {
            Self::LockLost(cause, _) => Some(*cause),
            _ => None,
        }
    }
}

impl Display for Error {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::LockLost(cause, name) => {
                let cause = format!("{cause:?}").to_lowercase();
                write!(to, "{name} was lost ({cause})")
            }
            Self::Unavailable(text, failure)
            | Self::NotInTime(text, Some(failure))
            | Self::NotReplicated(text, Some(failure)) => write!(to, "{text}: {failure}"),
            Self::Closed => to.write_str("Locks is closed"),
            Self::Argument(text)
            | Self::NotInTime(text, None)
            | Self::NotReplicated(text, None)
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
            Self::Unavailable(_, failure)
            | Self::NotInTime(_, Some(failure))
            | Self::NotReplicated(_, Some(failure)) => Some(failure),
            _ => None,
        }
    }
}

/// What a command failed with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The server's own text.
    Refusal(String),
    /// The connection could not be made, has ended, or did not answer in time: to which address, and how.
    Broken(String),
    /// The process has no descriptor left for a connection.
    NoDescriptor(String),
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
            Self::Broken(_) | Self::NoDescriptor(_) => None,
        }
    }

    /// What the library says of a connection to this address.
    pub(crate) fn of(error: &RedisError, address: &str) -> Self {
        match (error.kind(), error.code()) {
            (ErrorKind::Io, _) if is_out_of_descriptors() => {
                Self::NoDescriptor(format!("{address}: {error}"))
            }
            (ErrorKind::Io, _) => Self::Broken(format!("{address}: {error}")),
            (_, Some(code)) => {
                Self::Refusal(format!("{code} {}", error.detail().unwrap_or_default()))
            }
            (ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig, None) => {
                Self::Refusal(format!("ERR {error}"))
            }
            _ => Self::Broken(format!("{address}: {error}")),
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

    /// The package's error for a refusal that the server at this address gave for this lock.
    pub(crate) fn translated(&self, name: &str, address: &str) -> Error {
        let Self::Refusal(said) = self else {
            return Error::unavailable(name, Duration::ZERO, self);
        };
        let lower = said.to_lowercase();
        let hint = hint(self.code().unwrap_or_default(), &lower);
        let text = format!("{said} (lock {name} at {address}){hint}");
        match self.code().unwrap_or_default() {
            "ERR" if lower.contains("unknown command") && lower.contains("fairlock.") => {
                Error::NoModule(format!(
                    "{address}: the server does not have the fairlock module (unknown command 'FAIRLOCK.ACQUIRE'). \
                 Load it: \"loadmodule /path/to/libfairlock.so\" in its redis.conf, or MODULE LOAD. \
                 See docs/operations.md at {PAGES}"
                ))
            }
            "TAKENOVER" => Error::TakenOver(text),
            "QUEUEFULL" => Error::QueueFull(text),
            "NOTALOCK" => Error::NotALock(text),
            "WRONGTYPE" => Error::WrongType(text),
            "CROSSSLOT" => Error::CrossSlot(text),
            _ => Error::Refused(text),
        }
    }
}

/// What to do about a refusal, where that is known.
fn hint(code: &str, said: &str) -> String {
    match code {
        "NOAUTH" => ". Give the client a password".to_owned(),
        "WRONGPASS" => ". Check the client's user and password".to_owned(),
        "NOPERM" if said.contains("'role'") || said.contains("'wait'") => format!(
            ". ROLE and WAIT confirm that a replica has the lock: allow both, or set sync_timeout to zero. \
             See SECURITY.md at {PAGES}"
        ),
        "NOPERM" => {
            format!(". The user `packages` in SECURITY.md at {PAGES} has all that is needed")
        }
        _ => String::new(),
    }
}

/// Asked because a name that cannot be resolved for want of a descriptor does not say so.
fn is_out_of_descriptors() -> bool {
    let tried = std::fs::File::open(".");
    tried.is_err_and(|error| matches!(error.raw_os_error(), Some(23 | 24))) // ENFILE, EMFILE
}

impl Display for Failure {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refusal(text) | Self::Broken(text) | Self::NoDescriptor(text) => {
                to.write_str(text)
            }
        }
    }
}

impl std::error::Error for Failure {}
