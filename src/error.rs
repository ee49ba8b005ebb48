//! The text of every error reply. Each is one line and begins with an upper-case code that clients can rely
//! on.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use crate::lock::Refusal;
use crate::server::{INTERNAL_ERROR, Reply};

/// Why a command was refused. Nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The lock's rules do not allow it.
    Refused(Refusal),
    /// For another reason, which the client is told in these words.
    Because(Cow<'static, str>),
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Error> for Reply {
    fn from(error: Error) -> Self {
        Self::Error(match error {
            Error::Refused(refusal) => refused(refusal).to_owned(),
            Error::Because(text) => text.into_owned(),
        })
    }
}

impl Error {
    pub fn unknown_option(options: &[&str]) -> Self {
        let options = one_of(options);
        because(format!(
            "ERR syntax error: unknown option, expected {options}"
        ))
    }

    pub fn twice(option: &str) -> Self {
        because(format!("ERR syntax error: {option} is given twice"))
    }

    pub fn no_value(option: &str) -> Self {
        because(format!("ERR syntax error: {option} needs a value"))
    }

    pub const CONTRADICTION: Self =
        said("ERR syntax error: only one of WAIT, NOWAIT and ENQUEUE can be given");

    pub fn number(name: &str, unit: &str, range: &RangeInclusive<i64>) -> Self {
        let (least, most) = (range.start(), range.end());
        because(format!(
            "ERR {name} is not a whole number{unit} from {least} to {most}"
        ))
    }

    pub fn length(name: &str, most: usize) -> Self {
        because(format!("ERR {name} is not 1 to {most} bytes long"))
    }

    /// An argument that is bound to a connection, from a caller of this kind, which has none.
    pub fn no_connection(argument: &str, caller: &str) -> Self {
        because(format!("ERR {argument} and cannot be used {caller}"))
    }

    pub const CROSS_SLOT: Self = said(
        "CROSSSLOT key has braces that would put the queue, deadlines and token of the lock in another slot; \
         use none, or one pair around a part of the key",
    );

    /// In a cluster: the keys of a script are in different slots. The server's own text.
    pub const KEYS_APART: Self = said("CROSSSLOT Keys in request don't hash to the same slot");

    pub const UNKNOWN_SCRIPT: Self =
        said("ERR script is not one of Redisson's fair-lock scripts, use EVAL");

    /// The lock, queue or deadline key holds something else. The server's own text.
    pub const WRONG_TYPE: Self =
        said("WRONGTYPE Operation against a key holding the wrong kind of value");

    pub fn twin_in_use(names: [&[u8]; 2]) -> Self {
        let [asked, used] = names.map(shown);
        because(format!(
            "ERR the lock '{asked}' cannot be used while '{used}' has waiters, a session or SHARED holders: \
             they have one queue"
        ))
    }

    /// Another module calls from an event of a step that is not over.
    pub const INSIDE_STEP: Self = said(
        "ERR FAIRLOCK commands cannot be called from a key event of a FAIRLOCK command: call them later, \
         from a timer or a post-notification job",
    );

    pub const INTERNAL: Self = said(INTERNAL_ERROR);

    /// The user may not run the command of this name. The server's own text.
    pub fn no_permission(name: &str) -> Self {
        because(format!(
            "NOPERM this user has no permissions to run the '{name}' command"
        ))
    }

    pub const PERMISSION_GONE: Self =
        said("NOPERM this user has lost the permission to acquire the lock");

    pub const CANNOT_BLOCK: Self = said(
        "ERR the server does not let this connection wait (it may have subscriptions): use ENQUEUE or \
         another connection",
    );

    /// The server has become a replica while the client waited. The server's own text.
    pub const UNBLOCKED: Self = said(
        "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
    );

    /// The cluster is down for this node. The server's own text.
    pub const CLUSTER_DOWN: Self = said("CLUSTERDOWN The cluster is down");

    /// The server is a replica, though one that takes writes.
    pub const REPLICA: Self = said("READONLY this server is a replica: ask its master");

    pub const TAKEN_OVER: Self = said("TAKENOVER another connection asks for the same owner");
}

const fn said(text: &'static str) -> Error {
    Error::Because(Cow::Borrowed(text))
}

fn because(text: String) -> Error {
    Error::Because(Cow::Owned(text))
}

/// A name as part of one line: a long one is cut, as in the server's own errors.
fn shown(name: &[u8]) -> String {
    let first = name.get(..128).unwrap_or(name);
    first.escape_ascii().to_string()
}

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
