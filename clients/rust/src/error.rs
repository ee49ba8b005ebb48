//! The errors, by the server's codes.

use std::fmt::{self, Display, Formatter};

use redis::{ErrorKind, RedisError};

pub(crate) type Outcome<T> = std::result::Result<T, Failure>;

pub(crate) const PAGES: &str = "https://fairlock.example";

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

/// An error: its text names the lock and the server. The source is the first failure of the connection, if there was one.
#[derive(Debug, Clone)]
pub struct Error {
    kind: Kind,
    text: String,
    failure: Option<Failure>,
}

impl Error {
    pub(crate) fn new(kind: Kind, text: impl Into<String>) -> Self {
        let (text, failure) = (text.into(), None);
        Self {
            kind,
            text,
            failure,
        }
    }

    pub(crate) fn because(mut self, failure: Option<Failure>) -> Self {
        self.failure = failure;
        self
    }

    /// What kind of error it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// How the lock was lost, if this is that error.
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        match self.kind {
            Kind::LockLost(cause) => Some(cause),
            _ => None,
        }
    }

    /// The first word of the server's error, if it was one.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self.kind {
            Kind::LockLost(Cause::NotHeld) => Some("NOTHELD"),
            Kind::QueueFull
            | Kind::NotALock
            | Kind::WrongType
            | Kind::CrossSlot
            | Kind::Refused => self.text.split(' ').next(),
            _ => self.failure.as_ref().and_then(Failure::code),
        }
    }
}

impl Display for Error {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        match &self.failure {
            Some(failure) => write!(to, "{}: {failure}", self.text),
            None => to.write_str(&self.text),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let failure = self.failure.as_ref();
        failure.map(|failure| failure as &dyn std::error::Error)
    }
}

/// Why a command failed.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    /// The server's own text.
    Refusal(String),
    /// There was no connection: nothing was sent.
    Unsent(String),
    /// The connection has ended, or there was no answer in time: the server may have got the command.
    Broken(String),
    /// It was done, but too few replicas have it.
    Unconfirmed,
}

/// Refusals that pass.
const PASSING: [&str; 10] = [
    "CLUSTERDOWN",
    "TRYAGAIN",
    "LOADING",
    "READONLY",
    "MASTERDOWN",
    "NOREPLICAS",
    "UNBLOCKED",
    "MOVED",
    "ASK",
    "BUSY",
];

impl Failure {
    /// The library's error at this address.
    pub(crate) fn of(error: &RedisError, address: &str) -> Self {
        match (error.code(), error.kind()) {
            (Some(code), _) => {
                Self::Refusal(format!("{code} {}", error.detail().unwrap_or_default()))
            }
            (None, ErrorKind::InvalidClientConfig | ErrorKind::RESP3NotSupported) => {
                Self::Refusal(format!("ERR {error}"))
            }
            _ => Self::Broken(format!("{address}: {error}")),
        }
    }

    pub(crate) fn unsent(self) -> Self {
        match self {
            Self::Broken(text) => Self::Unsent(text),
            other => other,
        }
    }

    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            Self::Refusal(text) => text.split(' ').next(),
            _ => None,
        }
    }

    pub(crate) fn is(&self, code: &str) -> bool {
        self.code() == Some(code)
    }

    fn says(&self, part: &str) -> bool {
        matches!(self, Self::Refusal(said) if said.to_lowercase().contains(part))
    }

    /// Whether trying again a little later may help.
    pub(crate) fn is_passing(&self) -> bool {
        self.code().is_none_or(|code| PASSING.contains(&code)) || self.says("max number of clients")
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

    /// The error for a refusal that the server at this address gave for this lock.
    pub(crate) fn translated(&self, name: &str, address: &str) -> Error {
        let kind = match self.code().unwrap_or_default() {
            "QUEUEFULL" => Kind::QueueFull,
            "NOTALOCK" => Kind::NotALock,
            "WRONGTYPE" => Kind::WrongType,
            "CROSSSLOT" => Kind::CrossSlot,
            _ => Kind::Refused,
        };
        Error::new(
            kind,
            format!("{self} (lock {name} at {address}){}", self.hint()),
        )
    }

    /// Advice, if there is any.
    fn hint(&self) -> String {
        match self.code().unwrap_or_default() {
            "NOAUTH" => ". Give the client a password".to_owned(),
            "WRONGPASS" => ". Check the client's user and password".to_owned(),
            "NOPERM" if self.says("'role'") || self.says("'wait'") => format!(
                ". ROLE and WAIT confirm that a replica has the lock: allow both, or set sync_timeout to zero. See SECURITY.md at {PAGES}"
            ),
            "NOPERM" => {
                format!(". The user `packages` in SECURITY.md at {PAGES} has all that is needed")
            }
            _ => String::new(),
        }
    }
}

impl Display for Failure {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refusal(text) | Self::Unsent(text) | Self::Broken(text) => to.write_str(text),
            Self::Unconfirmed => to.write_str("no replica has confirmed it"),
        }
    }
}

impl std::error::Error for Failure {}
