//! The errors, by the server's codes; and what the library says, which they are made of.

use std::io;

use redis::{ErrorKind, RedisError};

pub(crate) const UNCONFIRMED: &str = "no replica has confirmed it in time";

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

/// An error: its text names the lock and the server. The source is what the library said, if it was that.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{text}")]
#[non_exhaustive]
pub struct Error {
    /// What kind of error it is.
    pub kind: Kind,
    /// The first word of the server's error, if it was one.
    pub code: Option<String>,
    pub(crate) text: String,
    pub(crate) source: Option<RedisError>,
}

impl Error {
    pub(crate) fn new(kind: Kind, text: impl Into<String>) -> Self {
        let is_code = kind == Kind::LockLost(Cause::NotHeld);
        Self {
            kind,
            code: is_code.then(|| "NOTHELD".to_owned()),
            text: text.into(),
            source: None,
        }
    }

    pub(crate) fn closed() -> Self {
        Self::new(Kind::Closed, "Locks is closed")
    }
}

// ------------------------------------------------------------------- of a command

/// Refusals that may pass.
const PASSING: &str =
    "ASK BUSY CLUSTERDOWN LOADING MASTERDOWN MOVED NOREPLICAS READONLY TRYAGAIN UNBLOCKED";

impl Kind {
    /// `Unavailable`: it may help to try again a little later.
    pub(crate) fn of(failure: &RedisError) -> Self {
        match failure.code() {
            Some(code) if PASSING.split(' ').any(|it| it == code) => Self::Unavailable,
            Some("QUEUEFULL") => Self::QueueFull,
            Some("NOTALOCK") => Self::NotALock,
            Some("WRONGTYPE") => Self::WrongType,
            Some("CROSSSLOT") => Self::CrossSlot,
            Some(_) if says(failure, "max number of clients") => Self::Unavailable,
            Some(_) if lacks_module(failure) => Self::NoModule,
            Some(_) => Self::Refused,
            None => match failure.kind() {
                ErrorKind::InvalidClientConfig | ErrorKind::RESP3NotSupported => Self::Refused,
                _ => Self::Unavailable,
            },
        }
    }
}

/// There was no answer: the server may have got the command.
pub(crate) fn silence() -> RedisError {
    io::Error::new(io::ErrorKind::TimedOut, "no answer in time").into()
}

pub(crate) fn text_of(failure: &RedisError) -> String {
    match failure.code() {
        Some(code) => format!("{code} {}", failure.detail().unwrap_or_default()),
        None => failure.to_string(),
    }
}

fn says(failure: &RedisError, part: &str) -> bool {
    text_of(failure).to_lowercase().contains(part)
}

pub(crate) fn is_not_held(failure: &RedisError) -> bool {
    failure.code() == Some("NOTHELD")
}

/// Whether the server does not know a command; the second text is that of Upstash.
pub(crate) fn is_unknown(failure: &RedisError) -> bool {
    says(failure, "unknown command") || says(failure, "command is not available")
}

pub(crate) fn lacks_module(failure: &RedisError) -> bool {
    is_unknown(failure) && says(failure, "fairlock.")
}

/// Whether the user may not run a command of the module.
pub(crate) fn is_denied(failure: &RedisError) -> bool {
    failure.code() == Some("NOPERM") && says(failure, "'fairlock.")
}

/// Advice.
pub(crate) fn hint(failure: &RedisError) -> &'static str {
    match failure.code() {
        Some("NOAUTH") => ". Give the client a password",
        Some("WRONGPASS") => ". Check the client's user and password",
        Some("NOPERM") if says(failure, "'role'") || says(failure, "'wait'") => {
            ". Allow both ROLE and WAIT, or set sync_timeout to zero: see SECURITY.md at https://fairlock.example"
        }
        Some("NOPERM") => {
            ". The user `packages` has all that is needed: see SECURITY.md at https://fairlock.example"
        }
        _ if lacks_module(failure) => {
            " (unknown command 'FAIRLOCK.ACQUIRE'). Load it: \"loadmodule /path/to/libfairlock.so\" in its redis.conf, or MODULE LOAD. See docs/operations.md at https://fairlock.example"
        }
        _ => "",
    }
}
