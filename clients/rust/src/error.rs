//! The errors of the package, by the server's codes.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use redis::{ErrorKind, RedisError};

use crate::options::seconds;
use crate::scripts::no_module;

pub(crate) type Outcome<T> = std::result::Result<T, Failure>;

/// The start of the package's own refusal when the module is missing.
pub(crate) const NO_MODULE: &str = "ERR without the module no";

pub(crate) const PAGES: &str = "https://fairlock.example";

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

/// All errors. Texts say what happened, for which lock and at which address; those of the server begin with its code.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// An option that is out of range. Nothing was sent.
    Argument(String),
    /// The lock did not become available within the wait; with the last failure, if the server could not be reached at
    /// its end.
    NotInTime(String, Option<Failure>),
    /// No replica confirmed the acquisition within the wait; or a renewal.
    NotReplicated(String, Option<Failure>),
    /// The holder has lost the lock: the cause, and its name.
    LockLost(Cause, String),
    /// The same owner asks elsewhere, and has the place in the queue now.
    TakenOver(String),
    /// The lock has as many waiters as the server allows.
    QueueFull(String),
    /// The key holds a hash that is not a lock.
    NotALock(String),
    /// One of the lock's keys holds something else.
    WrongType(String),
    /// In a cluster: the braces in the name would put the lock's keys in different slots.
    CrossSlot(String),
    /// The server does not have the fairlock module.
    NoModule(String),
    /// Any other refusal of the server: NOPERM, NOAUTH, WRONGPASS, OOM, ERR, ...
    Refused(String),
    /// The server could not be reached, or refused temporarily: how long, and the last failure.
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

    /// Whether the wait ran out, for the lock or for a replica.
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

    /// How the lock was lost, if this is that error.
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

/// Why a command failed.
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

/// Temporary refusals: the same owner asks again, and still has its place.
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

    /// The library's error for a connection to this address.
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

    /// Whether the server does not know a command; the second text is that of Upstash.
    pub(crate) fn is_unknown(&self) -> bool {
        let Self::Refusal(said) = self else {
            return false;
        };
        let said = said.to_lowercase();
        said.contains("unknown command") || said.contains("command is not available")
    }

    /// Whether the server does not know a command of the module.
    pub(crate) fn is_no_module(&self) -> bool {
        self.is_unknown()
            && matches!(self, Self::Refusal(said) if said.to_lowercase().contains("fairlock."))
    }

    /// Whether the user may not run a command of the module.
    pub(crate) fn is_denied(&self) -> bool {
        self.is("NOPERM")
            && matches!(self, Self::Refusal(said) if said.to_lowercase().contains("'fairlock."))
    }

    /// Whether trying again a little later may help.
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
            "ERR" if said.starts_with(NO_MODULE) => {
                let option = said.get(NO_MODULE.len() + 1..).unwrap_or_default();
                Error::NoModule(no_module(address, option))
            }
            "ERR" if self.is_no_module() => Error::NoModule(format!(
                "{address}: the server does not have the fairlock module (unknown command 'FAIRLOCK.ACQUIRE'). \
                 Load it: \"loadmodule /path/to/libfairlock.so\" in its redis.conf, or MODULE LOAD. \
                 See docs/operations.md at {PAGES}"
            )),
            "TAKENOVER" => Error::TakenOver(text),
            "QUEUEFULL" => Error::QueueFull(text),
            "NOTALOCK" => Error::NotALock(text),
            "WRONGTYPE" => Error::WrongType(text),
            "CROSSSLOT" => Error::CrossSlot(text),
            _ => Error::Refused(text),
        }
    }
}

/// Advice about a refusal, if there is any.
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

/// Tries to open a file, because the error of a name lookup does not tell that descriptors ran out.
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
