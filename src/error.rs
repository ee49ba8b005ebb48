//! The text of every error reply. Each is one line and begins with an upper-case code that clients can rely
//! on.

use std::fmt;

use crate::config::LONGEST_DURATION;
use crate::lock::Refusal;
use crate::server::{INTERNAL_ERROR, Reply};

/// Greatest limit of SHARED.
pub const MOST_HOLDERS: i64 = 1_000_000;

/// The whole numbers that an argument may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    name: &'static str,
    unit: &'static str,
    least: i64,
    most: i64,
    hint: &'static str,
}

impl Range {
    /// Of the argument of this name.
    pub const fn of(name: &'static str, least: i64, most: i64) -> Self {
        Self {
            name,
            unit: "",
            least,
            most,
            hint: "",
        }
    }

    /// A duration.
    pub const fn millis(name: &'static str) -> Self {
        Self {
            unit: " of milliseconds",
            ..Self::of(name, 1, LONGEST_DURATION)
        }
    }

    /// What is said besides to a caller that gives another number.
    #[must_use]
    pub const fn hint(self, hint: &'static str) -> Self {
        Self { hint, ..self }
    }

    /// Whether a number is one of them.
    pub fn contains(&self, number: i64) -> bool {
        (self.least..=self.most).contains(&number)
    }
}

impl fmt::Display for Range {
    /// The error of any other argument.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            unit,
            least,
            most,
            hint,
        } = self;
        write!(
            out,
            "ERR {name} is not a whole number{unit} from {least} to {most}{hint}"
        )
    }
}

/// Why a command was refused. Nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The lock's rules do not allow it.
    Refused(Refusal),
    /// The lock, queue or deadline key holds something else.
    WrongType,
    /// Too few or too many arguments for the command of this name.
    Arity(&'static str),
    /// An argument that is not one of these options.
    UnknownOption(&'static [&'static str]),
    /// An option was given twice.
    Twice(&'static str),
    /// An option came without its value.
    NoValue(&'static str),
    /// Options of which only one may be given.
    Contradiction,
    /// An argument that is not a whole number in this range.
    Number(&'static Range),
    /// AFTER's cursor did not come from the command of this name.
    After(&'static str),
    /// The server does not run this command of its own, which the reply needs.
    Renamed(&'static str),
    /// The argument of this name has no bytes, or more than this.
    Length(&'static str, usize),
    /// `*` from a caller of this kind, which has no connection that it could mean.
    OwnerOf(&'static str),
    /// SESSION from a caller of this kind, which has no connection that the lock could be bound to.
    SessionOf(&'static str),
    /// Another module calls from an event of a step that is not over.
    InsideStep,
    /// A panic: the log has its text.
    Internal,
    /// In a cluster: the keys of this lock would be in different slots.
    CrossSlot,
    /// In a cluster: the keys of a script are in different slots.
    KeysApart,
    /// The server cannot block the client.
    CannotBlock,
    /// The server has become a replica while the client waited.
    Unblocked,
    /// The cluster is down for this node.
    ClusterDown,
    /// The server is a replica, though one that takes writes.
    Replica,
    /// Another connection asks for the same owner and has taken its place.
    TakenOver,
    /// No script of Redisson's fair lock.
    UnknownScript,
    /// The lock that has the same queue is in use: both names.
    TwinInUse(Box<[Box<[u8]>; 2]>),
    /// The user may not run the command of this name.
    NoPermission(&'static str),
    /// The user has lost the permission to acquire the lock, while its connection waited for it.
    PermissionGone,
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Error> for Reply {
    fn from(error: Error) -> Self {
        Self::Error(error.text())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text())
    }
}

impl Error {
    fn text(&self) -> String {
        match self {
            Self::Refused(refusal) => refused(*refusal).to_owned(),
            // The server's own text.
            Self::WrongType => {
                "WRONGTYPE Operation against a key holding the wrong kind of value".to_owned()
            }
            Self::Arity(name) => {
                format!("ERR wrong number of arguments for '{name}' command")
            }
            Self::UnknownOption(options) => {
                let options = one_of(options);
                format!("ERR syntax error: unknown option, expected {options}")
            }
            Self::Twice(option) => format!("ERR syntax error: {option} is given twice"),
            Self::NoValue(option) => format!("ERR syntax error: {option} needs a value"),
            Self::Contradiction => {
                "ERR syntax error: only one of WAIT, NOWAIT and ENQUEUE can be given".to_owned()
            }
            Self::Number(range) => range.to_string(),
            Self::After(name) => {
                format!("ERR AFTER is not a cursor from {name}: start again without AFTER")
            }
            Self::Renamed(name) => format!(
                "ERR the server's configuration has renamed {name} (rename-command), which this \
                 needs"
            ),
            Self::Length(name, most) => format!("ERR {name} is not 1 to {most} bytes long"),
            Self::OwnerOf(caller) => {
                format!("ERR owner '*' is the identity of a connection and cannot be used {caller}")
            }
            Self::SessionOf(caller) => {
                format!("ERR SESSION binds the lock to a connection and cannot be used {caller}")
            }
            Self::InsideStep => {
                "ERR FAIRLOCK commands cannot be called from a key event of a FAIRLOCK command: \
                 call them later, from a timer or a post-notification job"
                    .to_owned()
            }
            Self::Internal => INTERNAL_ERROR.to_owned(),
            Self::CrossSlot => {
                "CROSSSLOT key has braces that would put the queue, deadlines and token of the \
                 lock in another slot; use none, or one pair around a part of the key"
                    .to_owned()
            }
            // The server's own text.
            Self::KeysApart => "CROSSSLOT Keys in request don't hash to the same slot".to_owned(),
            Self::UnknownScript => {
                "ERR script is not one of Redisson's fair-lock scripts, use EVAL".to_owned()
            }
            Self::TwinInUse(names) => {
                let [asked, used] = names.each_ref().map(|name| shown(name));
                format!(
                    "ERR the lock '{asked}' cannot be used while '{used}' has waiters, a session or SHARED \
                     holders: they have one queue"
                )
            }
            // The server's own text.
            Self::NoPermission(name) => {
                format!("NOPERM this user has no permissions to run the '{name}' command")
            }
            Self::PermissionGone => {
                "NOPERM this user has lost the permission to acquire the lock".to_owned()
            }
            Self::CannotBlock => {
                "ERR the server does not let this connection wait (it may have subscriptions): \
                 use ENQUEUE or another connection"
                    .to_owned()
            }
            // The server's own texts.
            Self::Unblocked => {
                "UNBLOCKED force unblock from blocking operation, instance state changed \
                 (master -> replica?)"
                    .to_owned()
            }
            Self::ClusterDown => "CLUSTERDOWN The cluster is down".to_owned(),
            Self::Replica => "READONLY this server is a replica: ask its master".to_owned(),
            Self::TakenOver => "TAKENOVER another connection asks for the same owner".to_owned(),
        }
    }
}

/// A name as part of one line: a long one is cut, as in the server's own errors.
fn shown(name: &[u8]) -> String {
    let first = name.get(..128).unwrap_or(name);
    first.escape_ascii().to_string()
}

/// Words as a sentence lists them.
fn one_of(words: &[&str]) -> String {
    match words {
        [many @ .., last] if !many.is_empty() => format!("{} or {last}", many.join(", ")),
        _ => words.concat(),
    }
}

fn refused(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::NotHeld => "NOTHELD the owner does not hold the lock",
        Refusal::OtherToken => "NOTHELD the owner holds the lock by another token",
        Refusal::OtherLimit => {
            "ERR the owner holds the lock SHARED with another limit: release it before asking anew"
        }
        Refusal::QueueFull => "QUEUEFULL the lock has fairlock.max-waiters waiters",
        Refusal::NotALock => "NOTALOCK the key holds a hash that is no lock: it is left as it is",
        Refusal::NoLease => {
            "NOTALOCK the hash has no expiry, so it may not be a lock: add FORCE if it is one"
        }
        Refusal::HoldsOverflow => "ERR the hold count cannot grow beyond 9223372036854775807",
        // The server's own text.
        Refusal::MemoryFull => "OOM command not allowed when used memory > 'maxmemory'.",
        Refusal::Moving => "TRYAGAIN the lock is on its way to another node of the cluster",
    }
}
