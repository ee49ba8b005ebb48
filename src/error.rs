//! The text of every error reply. Each is one line and begins with an upper-case code that clients can rely
//! on.

use std::fmt;

use crate::config::LONGEST_DURATION;
use crate::lock::Refusal;
use crate::server::INTERNAL_ERROR;

/// Longest owner, in bytes.
pub const LONGEST_OWNER: usize = 256;

/// Greatest limit of SHARED.
pub const MOST_HOLDERS: i64 = 1_000_000;

/// Why a command was refused. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The lock's rules do not allow it.
    Refused(Refusal),
    /// The lock, queue or deadline key holds something else.
    WrongType,
    /// Too few or too many arguments for the command of this name.
    Arity(&'static str),
    /// An argument that is none of the command's options.
    UnknownOption(&'static str),
    /// An option was given twice.
    Twice(&'static str),
    /// An option came without its value.
    NoValue(&'static str),
    /// Options of which only one may be given.
    Contradiction,
    /// A duration that is no whole number in range.
    Duration(&'static str),
    /// WAIT with 0.
    WaitForNothing,
    /// SHARED's limit is no whole number in range.
    HolderLimit,
    /// A token that is no whole number in range.
    Token,
    /// LIMIT's offset or count is no whole number in range.
    Limit(&'static str),
    /// COUNT is no whole number in range.
    Count,
    /// AFTER's cursor is none of those that the command of this name replies, or was forgotten.
    After(&'static str),
    /// The server does not run this command of its own, which the reply needs.
    Renamed(&'static str),
    /// The owner has no bytes or too many.
    Owner,
    /// `*` where there is no connection that it could mean.
    OwnerInScript,
    /// SESSION where there is no connection that the lock could be bound to.
    SessionInScript,
    /// `*` from another module, which is no connection.
    OwnerOfModule,
    /// SESSION from another module.
    SessionOfModule,
    /// Another module calls from an event of a step that is not over.
    InsideStep,
    /// A panic: the log has its text.
    Internal,
    /// In a cluster: the keys of this lock would be in different slots.
    CrossSlot,
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
    /// The user may not use the lock that has the same queue.
    NoPermissionForTwin,
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

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => out.write_str(refused(*refusal)),
            // The server's own text.
            Self::WrongType => {
                out.write_str("WRONGTYPE Operation against a key holding the wrong kind of value")
            }
            Self::Arity(name) => {
                write!(out, "ERR wrong number of arguments for '{name}' command")
            }
            Self::UnknownOption(options) => {
                write!(out, "ERR syntax error: unknown option, expected {options}")
            }
            Self::Twice(option) => write!(out, "ERR syntax error: {option} is given twice"),
            Self::NoValue(option) => write!(out, "ERR syntax error: {option} needs a value"),
            Self::Contradiction => {
                out.write_str("ERR syntax error: only one of WAIT, NOWAIT and ENQUEUE can be given")
            }
            Self::Duration(option) => milliseconds(out, option, ""),
            Self::WaitForNothing => milliseconds(out, "WAIT", ": to try once say NOWAIT"),
            Self::HolderLimit => number(out, "SHARED limit", 1, MOST_HOLDERS, ""),
            Self::Token => number(out, "TOKEN", 1, i64::MAX, ""),
            Self::Limit("count") => number(out, "LIMIT count", 0, i64::MAX, ", or -1 for all"),
            Self::Limit(part) => number(out, &format!("LIMIT {part}"), 0, i64::MAX, ""),
            Self::Count => number(out, "COUNT", 0, i64::MAX, ", or -1 for all"),
            Self::After(name) => write!(
                out,
                "ERR AFTER is not a cursor that {name} has replied of late: begin without it"
            ),
            Self::Renamed(name) => write!(
                out,
                "ERR the server's configuration has renamed {name} (rename-command), which this \
                 needs"
            ),
            Self::Owner => write!(out, "ERR owner is not 1 to {LONGEST_OWNER} bytes long"),
            Self::OwnerInScript => out.write_str(
                "ERR owner '*' is the identity of a connection and cannot be used in a script",
            ),
            Self::SessionInScript => out.write_str(
                "ERR SESSION binds the lock to a connection and cannot be used in a script",
            ),
            Self::OwnerOfModule => out.write_str(
                "ERR owner '*' is the identity of a connection and cannot be used by another module",
            ),
            Self::SessionOfModule => out.write_str(
                "ERR SESSION binds the lock to a connection and cannot be used by another module",
            ),
            Self::InsideStep => out.write_str(
                "ERR FAIRLOCK commands cannot be called from a key event of a FAIRLOCK command: \
                 call them later, from a timer or a post-notification job",
            ),
            Self::Internal => out.write_str(INTERNAL_ERROR),
            Self::CrossSlot => out.write_str(
                "CROSSSLOT key has braces that would put the queue, deadlines and token of the \
                 lock in another slot; use none, or one pair around a part of the key",
            ),
            Self::UnknownScript => {
                out.write_str("ERR script is none of Redisson's fair-lock scripts, use EVAL")
            }
            Self::NoPermissionForTwin => out.write_str(
                "NOPERM the lock 'key' and the lock '{key}' have one queue: this user may not use \
                 both",
            ),
            // The server's own text.
            Self::NoPermission(name) => write!(
                out,
                "NOPERM this user has no permissions to run the '{name}' command"
            ),
            Self::PermissionGone => {
                out.write_str("NOPERM this user has lost the permission to acquire the lock")
            }
            Self::CannotBlock => out.write_str(
                "ERR the server does not let this connection wait, as where it has subscriptions: \
                 use ENQUEUE or another connection",
            ),
            // The server's own texts.
            Self::Unblocked => out.write_str(
                "UNBLOCKED force unblock from blocking operation, instance state changed \
                 (master -> replica?)",
            ),
            Self::ClusterDown => out.write_str("CLUSTERDOWN The cluster is down"),
            Self::Replica => out.write_str("READONLY this server is a replica: ask its master"),
            Self::TakenOver => {
                out.write_str("TAKENOVER another connection asks for the same owner")
            }
        }
    }
}

/// An argument is no whole number in this range.
fn number(
    out: &mut fmt::Formatter<'_>,
    argument: &str,
    least: i64,
    most: i64,
    hint: &str,
) -> fmt::Result {
    write!(
        out,
        "ERR {argument} is not a whole number from {least} to {most}{hint}"
    )
}

/// An argument is no duration in range.
fn milliseconds(out: &mut fmt::Formatter<'_>, option: &str, hint: &str) -> fmt::Result {
    write!(
        out,
        "ERR {option} is not a whole number of milliseconds from 1 to {LONGEST_DURATION}{hint}"
    )
}

/// The reply to a blocked client whose lock is at another node now: that of the server itself.
#[must_use]
pub fn moved(slot: u16, node: &str) -> String {
    format!("MOVED {slot} {node}")
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
            "NOTALOCK the hash has no expiry, so it may be somebody's data: say FORCE if it is a lock"
        }
        Refusal::HoldsOverflow => "ERR the hold count cannot grow beyond 9223372036854775807",
        // The server's own text.
        Refusal::MemoryFull => "OOM command not allowed when used memory > 'maxmemory'.",
        Refusal::Moving => "TRYAGAIN the lock is on its way to another node of the cluster",
    }
}
