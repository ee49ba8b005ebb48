//! The context of one call that the server makes into the module.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_long};
use std::sync::atomic::{AtomicBool, Ordering};

use redis_module::RedisValue;

use super::api::{OK, REQUIRED, api, raw};
use super::memory::Str;

/// What a client is told after a panic.
pub const INTERNAL_ERROR: &str = "ERR internal error, see the server's log";

/// The context of one callback. Through it the module replies, reads and writes keys, replicates, and raises
/// key events. A callback borrows it while it runs, and cannot keep it.
#[derive(Debug)]
pub struct Ctx {
    pub(super) raw: *mut raw::RedisModuleCtx,
    /// How many replies the caller is still to be given.
    owed: Cell<usize>,
}

/// What the server says of the caller of a command, and of itself.
#[derive(Clone, Copy, Debug)]
pub struct Flags(c_int);

impl Flags {
    fn has(self, flag: c_int) -> bool {
        self.0 & flag != 0
    }

    /// The caller is in a transaction or a script, or has asked not to be blocked.
    pub fn deny_blocking(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING)
            || self.in_transaction()
            || self.in_script()
    }

    /// The command is part of a transaction.
    pub fn in_transaction(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_MULTI)
    }

    /// The command was called by a Lua script or a function.
    pub fn in_script(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_LUA)
    }

    /// The server uses more memory than it may.
    pub fn out_of_memory(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_OOM)
    }

    /// The server keeps an append-only file.
    pub fn append_only_file(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_AOF)
    }
}

/// An atomic, because reading a thread-local costs a function call.
static CLUSTER: AtomicBool = AtomicBool::new(false);

/// As [`CLUSTER`].
static REPLICA: AtomicBool = AtomicBool::new(false);

/// Reads what does not change while the server runs, and its role.
pub fn remember_server(ctx: &Ctx) {
    let flags = ctx.flags();
    CLUSTER.store(
        flags.has(raw::REDISMODULE_CTX_FLAGS_CLUSTER),
        Ordering::Relaxed,
    );
    REPLICA.store(
        flags.has(raw::REDISMODULE_CTX_FLAGS_SLAVE),
        Ordering::Relaxed,
    );
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

impl Ctx {
    /// The context that the server passed to a callback.
    pub(super) fn new(raw: *mut raw::RedisModuleCtx) -> Self {
        Self {
            raw,
            owed: Cell::new(1),
        }
    }

    /// The flags of this call. Not free: the server computes its memory use for them.
    pub fn flags(&self) -> Flags {
        // SAFETY: the context is valid for this call.
        Flags(unsafe { api!(GetContextFlags(self.raw)) })
    }

    /// Identifies the calling connection.
    pub fn client_id(&self) -> u64 {
        // SAFETY: the context is valid for this call.
        unsafe { api!(GetClientId(self.raw)) }
    }

    /// The database that keys are opened in.
    pub fn db(&self) -> i32 {
        // SAFETY: the context is valid for this call.
        unsafe { api!(GetSelectedDb(self.raw)) }
    }

    /// Number of keys in that database.
    pub fn keys(&self) -> u64 {
        // SAFETY: the context is valid for this call.
        unsafe { api!(DbSize(self.raw)) }
    }

    /// Changes the database that keys are opened in; false if there is no such database.
    pub fn select_db(&self, db: i32) -> bool {
        // SAFETY: the context is valid for this call.
        let status = unsafe { api!(SelectDb(self.raw, db)) };
        status == OK
    }

    /// Runs one of the server's own commands with the permissions of the calling connection (with all
    /// permissions where there is none), and passes its reply on. Its changes are replicated with the rest of
    /// this step.
    pub fn run_for_caller(&self, name: &CStr, arguments: &[Str]) {
        let mut argv: Vec<_> = arguments.iter().map(|argument| argument.inner).collect();
        let mut run = |format: &CStr| {
            let (word, format) = (name.as_ptr(), format.as_ptr());
            // SAFETY: the format says: replicate, perhaps check permissions, the caller's protocol, and a vector of
            // strings with its length; they live until the call returns.
            unsafe { api!(Call(self.raw, word, format, argv.as_mut_ptr(), argv.len())) }
        };
        let mut reply = run(c"!C0v");
        if reply.is_null() && last_error().raw_os_error() == Some(libc::ENOTSUP) {
            // There is no user whose permissions could be checked.
            reply = run(c"!0v");
        }
        if reply.is_null() {
            self.reply_error(&not_run(name, &last_error()));
            return;
        }
        self.replied(0);
        // SAFETY: the reply is the server's, and is freed once.
        unsafe {
            api!(ReplyWithCallReply(self.raw, reply));
            api!(FreeCallReply(reply));
        }
    }

    /// Writes a line of consequence to the server's log. It is not a format string: `%` has no meaning in it.
    pub fn log_warning(&self, message: &str) {
        let level = c"warning";
        let message = CString::new(message.replace('\0', "\\0")).unwrap_or_default();
        // SAFETY: the format says: one string, which lives until the call returns. The context may be
        // null. If the server lacks this very function, nothing is logged.
        unsafe {
            if let Some(log) = REQUIRED.Log {
                log(self.raw, level.as_ptr(), c"%s".as_ptr(), message.as_ptr());
            }
        }
    }

    /// One of the missing replies was given, and `more` are to follow as its parts.
    fn replied(&self, more: usize) {
        let others = self.owed.get().saturating_sub(1);
        self.owed.set(others.saturating_add(more));
    }

    /// The caller is blocked: it gets its reply when it is unblocked.
    pub(super) fn will_be_replied(&self) {
        self.owed.set(0);
    }

    /// Whether the caller has been given all of its reply.
    pub(super) fn is_replied(&self) -> bool {
        self.owed.get() == 0
    }

    /// After a panic, replies an error in place of each reply that is still missing. Without a reply the client would
    /// wait for ever, and after half of an array it would take the next replies for the rest of it.
    pub(super) fn make_up(&self) {
        while self.owed.get() > 0 {
            self.reply_error(INTERNAL_ERROR);
        }
    }

    /// Replies an integer.
    pub fn reply_integer(&self, value: i64) {
        self.replied(0);
        // SAFETY: the context is valid for this call; the same for the replies below.
        unsafe { api!(ReplyWithLongLong(self.raw, value)) };
    }

    /// Replies nil.
    pub fn reply_nil(&self) {
        self.replied(0);
        // SAFETY: as above.
        unsafe { api!(ReplyWithNull(self.raw)) };
    }

    /// Replies a boolean (RESP3) or 0 and 1 (RESP2).
    pub fn reply_bool(&self, value: bool) {
        self.replied(0);
        // SAFETY: as above.
        unsafe { api!(ReplyWithBool(self.raw, c_int::from(value))) };
    }

    /// Replies a bulk string.
    pub fn reply_bytes(&self, bytes: &[u8]) {
        self.replied(0);
        let start = bytes.as_ptr().cast::<c_char>();
        // SAFETY: as above; the server copies the bytes.
        unsafe { api!(ReplyWithStringBuffer(self.raw, start, bytes.len())) };
    }

    /// Begins an array; that many replies follow.
    pub fn reply_array(&self, length: usize) {
        self.replied(length);
        let length = c_long::try_from(length).unwrap_or(c_long::MAX);
        // SAFETY: as above.
        unsafe { api!(ReplyWithArray(self.raw, length)) };
    }

    /// Begins a map (RESP3) or a flat array (RESP2); twice that many replies follow.
    pub fn reply_map(&self, length: usize) {
        self.replied(length.saturating_mul(2));
        let length = c_long::try_from(length).unwrap_or(c_long::MAX);
        // SAFETY: as above.
        unsafe { api!(ReplyWithMap(self.raw, length)) };
    }

    /// Replies an error: one line that begins with an upper-case code.
    pub fn reply_error(&self, text: &str) {
        self.replied(0);
        let text = CString::new(text).unwrap_or_else(|_| c"ERR internal error".to_owned());
        // SAFETY: as above; the server copies the text.
        unsafe { api!(ReplyWithError(self.raw, text.as_ptr())) };
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

/// The bytes of a reply of the server that is a string or an error.
///
/// # Safety
/// The reply must be valid, and must not be freed for as long as the bytes are used.
pub(super) unsafe fn bytes_of_reply<'a>(reply: *mut raw::RedisModuleCallReply) -> Option<&'a [u8]> {
    let mut length = 0;
    // SAFETY: a valid reply, and a pointer for its length. Null: it is of another kind.
    unsafe {
        let start = api!(CallReplyStringPtr(reply, &raw mut length));
        (!start.is_null()).then(|| std::slice::from_raw_parts(start.cast::<u8>(), length))
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

/// Why a function of the server has failed.
fn last_error() -> std::io::Error {
    std::io::Error::last_os_error()
}

/// Why a command was not run, as the server would have said it.
fn not_run(name: &CStr, reason: &std::io::Error) -> String {
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
