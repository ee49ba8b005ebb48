//! What a connection's user may do.

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use redis_module::{AclPermissions, Context};

use super::api::{OK, api, raw};
use super::context::{Ctx, Flags, number_of};
use super::key::adopt;
use super::memory::{Str, string};

pub struct User {
    raw: *mut raw::RedisModuleUser,
}

/// A context that belongs to no call, for functions that need one.
static NO_CALL: AtomicPtr<raw::RedisModuleCtx> = AtomicPtr::new(null_mut());

/// Commands of the server that are in both `@admin` and `@dangerous`.
const ADMIN: [&str; 4] = ["debug help", "failover", "replicaof no one", "shutdown"];

/// Prepares [`user_of`] and [`without_call`]. To be called when the module is loaded.
pub fn remember_module(ctx: &Ctx) {
    // SAFETY: the context is that of the module's initialisation. The one that is made lives
    // until [`forget_module`].
    let detached = unsafe { api!(GetDetachedThreadSafeContext(ctx.raw)) };
    NO_CALL.store(detached, Ordering::Relaxed);
}

/// Gives back what [`remember_module`] took. To be called when the module cannot be loaded.
pub fn forget_module() {
    let ctx = NO_CALL.swap(null_mut(), Ordering::Relaxed);
    if !ctx.is_null() {
        // SAFETY: the context was made by the server and is given back once.
        unsafe { api!(FreeThreadSafeContext(ctx)) };
    }
}

/// Runs `body` with a context that belongs to no call, if the module is loaded.
pub(super) fn without_call<T>(body: impl FnOnce(*mut raw::RedisModuleCtx) -> T) -> Option<T> {
    let ctx = NO_CALL.load(Ordering::Relaxed);
    (!ctx.is_null()).then(|| body(ctx))
}

/// The name of a connection's user. `None` for what is not a connection, such as another module.
pub fn user_of(client: u64) -> Option<Str> {
    // SAFETY: the context was not given back yet; the server looks the connection up.
    let name = without_call(|ctx| unsafe { api!(GetClientUserNameById(ctx, client)) })?;
    adopt(name)
}

impl Ctx {
    /// The name of the calling connection's user. `None` for what is not a connection.
    pub fn user_name(&self) -> Option<Str> {
        user_of(self.client_id())
    }

    /// Whether the calling connection's user may read a key.
    pub fn may_read(&self, key: &Str) -> bool {
        self.may_use(key, &AclPermissions::ACCESS)
    }

    /// Whether the calling connection's user may read and change a key.
    pub fn may_update(&self, key: &Str) -> bool {
        self.may_use(key, &(AclPermissions::ACCESS | AclPermissions::UPDATE))
    }

    /// What is not a connection, such as another module, may do everything; a user that was deleted, nothing.
    fn may_use(&self, key: &Str, access: &AclPermissions) -> bool {
        let server = Context::new(self.raw);
        let may = |user| server.acl_check_key_permission(&user, key, access);
        self.user_name().is_none_or(|user| may(user).is_ok())
    }

    /// Whether the calling connection may run one of fairlock's admin commands by its user's categories.
    /// Since Redis 7.2 the server itself checks that. Before, it has no categories for a module's
    /// commands: a user counts as an administrator if it may run any of the server's own admin commands,
    /// or if its rules name this command. Scripts are refused then, because they have no user to check.
    pub fn may_administrate(&self, command: &str) -> bool {
        // SAFETY: redis-module writes it once, before this.
        if unsafe { raw::RedisModule_SetCommandACLCategories }.is_some() {
            return true;
        }
        let Some(name) = self.user_name() else {
            return !self.flags().contains(Flags::LUA);
        };
        User::named(&name).is_some_and(|user| {
            let mut admin = ADMIN.iter();
            admin.any(|words| user.may_run_words(words) == Some(true)) || user.was_named(command)
        })
    }
}

impl User {
    pub fn named(name: &Str) -> Option<Self> {
        // SAFETY: the string is valid; the server answers null if there is no such user.
        let raw = unsafe { api!(GetModuleUserFromUserName(name.inner)) };
        (!raw.is_null()).then_some(Self { raw })
    }

    /// Whether the user's rules, as ACL LIST shows them, name this command. Not known before Redis 7.0.6.
    fn was_named(&self, command: &str) -> bool {
        // SAFETY: the user is valid as long as `self`.
        let rules = adopt(unsafe { api!(GetModuleUserACLString(self.raw) or null_mut()) });
        rules.is_some_and(|rules| {
            let mut words = rules.as_slice().split(|byte| b" ()".contains(byte));
            words.any(|word| word.strip_prefix(b"+") == Some(command.as_bytes()))
        })
    }

    /// As [`User::may_run`], in the first database, with blanks between the words.
    pub fn may_run_words(&self, command: &str) -> Option<bool> {
        let words: Vec<_> = command.split(' ').map(str::as_bytes).collect();
        self.may_run(0, &words)
    }

    /// Whether the user may run a command with these arguments in a database. `None` where the server has no such
    /// command, or, since Redis 8.2, where the command does not take as many arguments: that is not a question of
    /// permission.
    pub fn may_run(&self, db: i32, command: &[&[u8]]) -> Option<bool> {
        let words: Vec<_> = command.iter().map(|word| string(word)).collect();
        let mut words: Vec<_> = words.iter().map(|word| word.inner).collect();
        self.may_run_raw(|| Some(db), &mut words)
    }

    /// As [`User::may_run`]. The database is asked for only where it matters.
    pub(super) fn may_run_raw(
        &self,
        db: impl FnOnce() -> Option<i32>,
        words: &mut [*mut raw::RedisModuleString],
    ) -> Option<bool> {
        let count = c_int::try_from(words.len()).unwrap_or(c_int::MAX);
        let words = words.as_mut_ptr();
        // SAFETY: the user and the strings are valid during the call, and there are as many.
        let status = unsafe { api!(ACLCheckCommandPermissions(self.raw, words, count)) };
        let reason = std::io::Error::last_os_error().raw_os_error();
        match status {
            OK => Some(true),
            _ if reason == Some(libc::EACCES) => Some(check_in_database().is_some_and(|check| {
                let db = db().map_or(-1, number_of);
                // SAFETY: as above; the place for the reason of a refusal may be null.
                OK == unsafe { check(self.raw, words, count, db, null_mut()) }
            })),
            _ => None,
        }
    }
}

/// `RedisModule_ACLCheckPermissions`, which redis-module does not declare.
type CheckInDatabase = unsafe extern "C" fn(
    *mut raw::RedisModuleUser,
    *mut *mut raw::RedisModuleString,
    c_int,
    c_int,
    *mut c_int,
) -> c_int;

/// Valkey has permissions for databases since 9.1. There `ACLCheckCommandPermissions` knows no database, and says no
/// for every user that may not use all of them.
fn check_in_database() -> Option<CheckInDatabase> {
    let mut check = None::<CheckInDatabase>;
    let place = (&raw mut check).cast();
    // SAFETY: the server writes a function of this form there, or leaves the place alone if it has none.
    unsafe { api!(GetApi(c"RedisModule_ACLCheckPermissions".as_ptr(), place)) };
    check
}

impl Drop for User {
    fn drop(&mut self) {
        // SAFETY: the handle came from the server and is given back once; the user itself stays.
        unsafe { api!(FreeModuleUser(self.raw)) };
    }
}
