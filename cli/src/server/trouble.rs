//! What a server's refusals mean, and what to do about them.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::failure::{Failure, NOT_ACQUIRED, UNAVAILABLE};

use super::Target;

/// Refusals that pass by themselves: a long script, a failover, a restart, a slot that is being moved.
const PASSING: &[&str] = &[
    "UNBLOCKED",
    "LOADING",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "ASK",
    "BUSY",
];

/// Why a server did not do what it was asked.
pub enum Trouble {
    /// The server refuses, which passes by itself.
    Passing(String),
    /// The server is not there, or is a replica: after a failover, or because the address is wrong.
    Gone(String),
    Elsewhere(Box<Target>),
    /// Would happen again; the code is the server's.
    Lasting(Option<String>, Failure),
}

impl Trouble {
    pub fn of(error: &RedisError, target: &Target) -> Self {
        if error.kind() == ErrorKind::Server(ServerErrorKind::Moved)
            && let Some((host, port)) = moved(error)
        {
            return Self::Elsewhere(Box::new(target.at(host, port)));
        }
        let address = target.address();
        let text = explain(error, &address);
        match error.code() {
            Some(code) if PASSING.contains(&code) || is_full(error) => Self::Passing(text),
            Some("READONLY") => Self::Gone(text),
            Some(code) => {
                let exit = match code {
                    "QUEUEFULL" | "TAKENOVER" => NOT_ACQUIRED,
                    _ => UNAVAILABLE,
                };
                Self::Lasting(Some(code.to_owned()), Failure::new(exit, text))
            }
            None if error.is_io_error() => Self::Gone(text),
            None => Self::Lasting(None, Failure::new(UNAVAILABLE, text)),
        }
    }

    pub fn silent(target: &Target) -> Self {
        Self::Gone(format!(
            "the server at {} does not reply: is it stopped, or busy with one long command?",
            target.address()
        ))
    }

    pub fn odd(target: &Target) -> Self {
        let text = format!(
            "the server at {} replied what this program does not understand: are they of the same release?",
            target.address()
        );
        Self::Lasting(None, Failure::new(UNAVAILABLE, text))
    }

    /// The server's code, if it refused for good.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Lasting(code, _) => code.as_deref(),
            _ => None,
        }
    }

    /// The message for an operator.
    pub fn text(&self) -> String {
        match self {
            Self::Passing(text) | Self::Gone(text) => text.clone(),
            Self::Elsewhere(target) => format!("{} has the key now", target.address()),
            Self::Lasting(_, failure) => failure.text.clone(),
        }
    }
}

/// As it ends the program.
impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Lasting(_, failure) => failure,
            other => Self::new(UNAVAILABLE, other.text()),
        }
    }
}

/// The server has as many clients as it takes.
fn is_full(error: &RedisError) -> bool {
    let detail = error.detail().unwrap_or_default();
    detail.starts_with("max number of clients")
}

/// The host and port that MOVED names.
fn moved(error: &RedisError) -> Option<(&str, u16)> {
    let (node, _) = error.redirect_node()?;
    let (host, port) = node.rsplit_once(':')?;
    Some((host, port.parse().ok()?))
}

fn explain(error: &RedisError, address: &str) -> String {
    let server_text = || {
        let code = error.code().unwrap_or_default();
        format!("{code} {}", error.detail().unwrap_or_default())
    };
    match error.code() {
        Some("NOAUTH" | "WRONGPASS") => needs_user(address),
        Some("ERR") if error.detail().is_some_and(|text| text.starts_with("unknown command") && text.to_ascii_lowercase().contains("fairlock.")) => format!(
            "the server at {address} does not have the fairlock module: load it, by `loadmodule /path/to/libfairlock.so` in its redis.conf"
        ),
        Some("NOPERM") => format!(
            "the user may not do this on the server at {address} ({}): see ACL WHOAMI and ACL GETUSER there",
            server_text()
        ),
        Some("READONLY") => format!(
            "the server at {address} is a replica: give its master's address, which `redis-cli INFO replication` shows there as master_host and master_port"
        ),
        Some("QUEUEFULL") => format!(
            "the lock's queue at {address} is full ({}): `fairlock top` shows who waits",
            server_text()
        ),
        Some("TAKENOVER") => {
            "another process waits for the lock as the same owner and has taken this one's place: give each its own --owner, or none".to_owned()
        }
        Some(_) => format!("the server at {address} refuses: {}", server_text()),
        None if error.kind() == ErrorKind::AuthenticationFailed => needs_user(address),
        None if let Some(hint) = super::tls::hint(error) => {
            format!("cannot talk to the server at {address} ({error}): {hint}")
        }
        None if error.is_io_error() => format!(
            "cannot reach the server at {address} ({error}): does it run, and is that the address? --url or FAIRLOCK_URL says where it is"
        ),
        None => format!("cannot talk to the server at {address}: {error}"),
    }
}

fn needs_user(address: &str) -> String {
    format!(
        "the server at {address} wants a password, or another one: give it in the URL, //USER:PASSWORD@{address} (the default user: //:PASSWORD@{address}), best by FAIRLOCK_URL"
    )
}
