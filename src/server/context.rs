//! The context of one call that the server makes into the module.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_long};
use std::io::Error;
use std::sync::atomic::{AtomicBool, Ordering};

use redis_module::RedisValue;

pub use redis_module::ContextFlags as Flags;

use super::api::{OK, api, raw};
use super::memory::Str;

/// What a client is told after a panic.
pub const INTERNAL_ERROR: &str = "ERR internal error, see the server's log";

/// The context of one callback. Through it the module replies, reads and writes keys, replicates, and raises
/// key events. A callback borrows it while it runs, and cannot keep it.
pub struct Ctx {
    pub(super) raw: *mut raw::RedisModuleCtx,
}

/// What a caller is told. A command makes all of its reply before any of it is given, so that a panic never leaves half
/// of one: a client would take the next replies for the rest of it.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    Nil,
    Integer(i64),
    /// A boolean; in RESP2 0 and 1.
    Bool(bool),
    Bytes(Vec<u8>),
    Array(Vec<Reply>),
    /// A map; in RESP2 a flat array.
    Map(Vec<(&'static str, Reply)>),
    /// An error: one line that begins with an upper-case code.
    Error(String),
    /// The server has replied, or the caller is blocked and gets its reply when it is unblocked.
    Elsewhere,
}

impl Reply {
    /// A number of things, or of milliseconds.
    pub fn number(number: impl TryInto<i64>) -> Self {
        Self::Integer(number.try_into().unwrap_or(i64::MAX))
    }

    pub fn or_nil<T>(value: Option<T>, reply: impl FnOnce(T) -> Self) -> Self {
        value.map_or(Self::Nil, reply)
    }
}

/// An atomic, because reading a thread-local costs a function call.
static CLUSTER: AtomicBool = AtomicBool::new(false);

/// As [`CLUSTER`].
static REPLICA: AtomicBool = AtomicBool::new(false);

/// Reads what does not change while the server runs, and its role.
pub fn remember_server(ctx: &Ctx) {
    let flags = ctx.flags();
    CLUSTER.store(flags.contains(Flags::CLUSTER), Ordering::Relaxed);
    REPLICA.store(flags.contains(Flags::SLAVE), Ordering::Relaxed);
}

/// The server has become a replica, or the master.
pub(super) fn role_changes(replica: bool) {
    REPLICA.store(replica, Ordering::Relaxed);
}

/// Whether the server is a replica. Its keys are the master's, also where it takes writes.
pub fn is_replica() -> bool {
    REPLICA.load(Ordering::Relaxed)
}

/// Whether the server is part of a cluster. Unlike [`Ctx::flags`], this costs nothing.
pub fn in_cluster() -> bool {
    CLUSTER.load(Ordering::Relaxed)
}

// Databases, as the module knows them, have the numbers that they had when it was loaded. So after SWAPDB everything
// that is known of a lock is still true, wherever the server has its keys now.

thread_local! {
    /// Which database is at each number that was swapped.
    static PLACES: RefCell<BTreeMap<i32, i32>> = const { RefCell::new(BTreeMap::new()) };
}

/// Whether there was a SWAPDB. An atomic, as [`CLUSTER`].
static IS_SWAPPED: AtomicBool = AtomicBool::new(false);

/// The database that has this number at the server.
pub(super) fn db_at(number: i32) -> i32 {
    if !IS_SWAPPED.load(Ordering::Relaxed) {
        return number;
    }
    PLACES.with_borrow(|places| places.get(&number).copied().unwrap_or(number))
}

/// The number that a database has at the server.
pub(super) fn number_of(db: i32) -> i32 {
    if !IS_SWAPPED.load(Ordering::Relaxed) {
        return db;
    }
    let found = |(number, at): (&i32, &i32)| (*at == db).then_some(*number);
    PLACES.with_borrow(|places| places.iter().find_map(found).unwrap_or(db))
}

/// Two databases have changed their numbers.
pub(super) fn swapped([one, other]: [i32; 2]) {
    let changed = [(one, db_at(other)), (other, db_at(one))];
    PLACES.with_borrow_mut(|places| places.extend(changed));
    IS_SWAPPED.store(true, Ordering::Relaxed);
}

impl Ctx {
    /// The context that the server passed to a callback.
    pub(super) fn new(raw: *mut raw::RedisModuleCtx) -> Self {
        Self { raw }
    }

    /// What the server says of the caller of a command, and of itself. Not free: the server computes its memory use.
    pub fn flags(&self) -> Flags {
        // SAFETY: the context is valid for this call.
        Flags::from_bits_truncate(unsafe { api!(GetContextFlags(self.raw)) })
    }

    /// The caller is in a transaction or a script, or has asked not to be blocked.
    pub fn denies_blocking(&self) -> bool {
        let flags = Flags::DENY_BLOCKING | Flags::MULTI | Flags::LUA;
        self.flags().intersects(flags)
    }

    pub fn client_id(&self) -> u64 {
        // SAFETY: the context is valid for this call.
        unsafe { api!(GetClientId(self.raw)) }
    }

    /// The database that keys are opened in.
    pub fn db(&self) -> i32 {
        // SAFETY: the context is valid for this call.
        db_at(unsafe { api!(GetSelectedDb(self.raw)) })
    }

    pub fn keys(&self) -> u64 {
        // SAFETY: the context is valid for this call.
        unsafe { api!(DbSize(self.raw)) }
    }

    /// Changes the database that keys are opened in; false if there is no such database.
    pub fn select_db(&self, db: i32) -> bool {
        // SAFETY: the context is valid for this call.
        let status = unsafe { api!(SelectDb(self.raw, number_of(db))) };
        status == OK
    }

    /// Runs one of the server's own commands with the permissions of the calling connection (with all
    /// permissions where there is none), and replies what it replies. Its changes are replicated with the rest of
    /// this step.
    pub fn run_for_caller(&self, name: &CStr, arguments: &[Str]) -> Reply {
        let mut argv: Vec<_> = arguments.iter().map(|argument| argument.inner).collect();
        let mut run = |format: &CStr| {
            let (word, format) = (name.as_ptr(), format.as_ptr());
            // SAFETY: the format says: replicate, perhaps check permissions, refuse if memory is full, the caller's
            // protocol, and a vector of strings with its length; they live until the call returns.
            unsafe { api!(Call(self.raw, word, format, argv.as_mut_ptr(), argv.len())) }
        };
        let mut reply = run(c"!CM0v");
        if reply.is_null() && Error::last_os_error().raw_os_error() == Some(libc::ENOTSUP) {
            // There is no user whose permissions could be checked.
            reply = run(c"!M0v");
        }
        if reply.is_null() {
            return Reply::Error(not_run(name, &Error::last_os_error()));
        }
        // SAFETY: the reply is the server's, and is freed once.
        unsafe {
            api!(ReplyWithCallReply(self.raw, reply));
            api!(FreeCallReply(reply));
        }
        Reply::Elsewhere
    }

    /// Writes a line of consequence to the server's log. It is not a format string: `%` has no meaning in it.
    pub fn log_warning(&self, message: &str) {
        let level = c"warning";
        let message = CString::new(message.replace('\0', "\\0")).unwrap_or_default();
        // SAFETY: the format says: one string, which lives until the call returns. The context may be
        // null. If the server lacks this very function, nothing is logged.
        unsafe {
            if let Some(log) = raw::RedisModule_Log {
                log(self.raw, level.as_ptr(), c"%s".as_ptr(), message.as_ptr());
            }
        }
    }

    /// Replies to the caller: once in each call, unless the call blocks it.
    pub(super) fn reply(&self, reply: &Reply) {
        let raw = self.raw;
        let length = |length| c_long::try_from(length).unwrap_or(c_long::MAX);
        let bytes = |bytes: &[u8]| {
            let start = bytes.as_ptr().cast::<c_char>();
            // SAFETY: as below.
            unsafe { api!(ReplyWithStringBuffer(raw, start, bytes.len())) }
        };
        // SAFETY: the context is valid for this call; the server copies bytes and texts; as many replies follow as an
        // array or a map is said to have.
        unsafe {
            match reply {
                Reply::Nil => api!(ReplyWithNull(raw)),
                Reply::Integer(number) => api!(ReplyWithLongLong(raw, *number)),
                Reply::Bool(is) => api!(ReplyWithBool(raw, c_int::from(*is))),
                Reply::Bytes(text) => bytes(text),
                Reply::Array(parts) => {
                    api!(ReplyWithArray(raw, length(parts.len())));
                    for part in parts {
                        self.reply(part);
                    }
                    OK
                }
                Reply::Map(fields) => {
                    api!(ReplyWithMap(raw, length(fields.len())));
                    for (name, value) in fields {
                        bytes(name.as_bytes());
                        self.reply(value);
                    }
                    OK
                }
                Reply::Error(text) => {
                    let text = CString::new(text.as_str()).unwrap_or_default();
                    api!(ReplyWithError(raw, text.as_ptr()))
                }
                Reply::Elsewhere => OK,
            }
        };
    }
}

/// The bytes of a string of the server.
///
/// # Safety
/// The string must be valid, and must not change, for as long as the bytes are used.
pub(super) unsafe fn bytes<'a>(string: *const raw::RedisModuleString) -> &'a [u8] {
    let mut length = 0;
    // SAFETY: a valid string, and a pointer for its length.
    unsafe {
        let start = api!(StringPtrLen(string, &raw mut length));
        std::slice::from_raw_parts(start.cast::<u8>(), length)
    }
}

/// The bytes of a reply that is a string of any kind.
pub(super) fn text(value: &RedisValue) -> Option<&[u8]> {
    match value {
        RedisValue::SimpleString(text) | RedisValue::BulkString(text) => Some(text.as_bytes()),
        RedisValue::StringBuffer(text) => Some(text),
        RedisValue::BulkRedisString(text) => Some(text.as_slice()),
        _ => None,
    }
}

/// Why a command was not run, as the server would have said it.
fn not_run(name: &CStr, reason: &Error) -> String {
    let name = name.to_string_lossy().to_lowercase();
    match reason.raw_os_error() {
        Some(libc::EACCES) => {
            format!("NOPERM this user has no permissions to run the '{name}' command")
        }
        // In a cluster: the slot is on its way, and not all of the keys are here.
        Some(libc::EPERM) => "TRYAGAIN Multiple keys request during rehashing of slot".to_owned(),
        _ => format!("ERR the '{name}' command could not be run: {reason}"),
    }
}
