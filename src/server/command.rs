//! Registering commands, and the entry through which the server calls them.

use std::ffi::{CStr, c_int};
use std::fmt::Display;

use std::ptr::null_mut;

use redis_module::raw;

use super::api::{OK, api};
use super::docs::{Docs, Keys, describe};
use super::{Ctx, Str, guard};

/// One command: what the server must know of it, and what it does.
pub trait Command {
    /// Its name, lower-case as those of the server's own.
    const NAME: &'static CStr;
    /// Flags as the server's documentation of `CreateCommand` lists them.
    const FLAGS: &'static CStr;
    /// What COMMAND DOCS and COMMAND INFO say of it; its key, if it has one, is its first argument.
    const DOCS: Docs;
    /// ACL categories beyond those that follow from the flags, for servers that can set them.
    const CATEGORIES: &'static CStr;
    /// What it refuses with: one line that begins with an upper-case code.
    type Error: Display;

    /// Runs the command. It replies once, or returns an error that becomes the reply.
    ///
    /// # Errors
    /// Whatever the client is to be told.
    fn run(ctx: &Ctx, arguments: &Args<'_>) -> Result<(), Self::Error>;
}

/// The arguments of a command, without its name.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a>(&'a [*mut raw::RedisModuleString]);

impl<'a> Args<'a> {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes of an argument.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.0
            .get(index)
            .map(|string| Str::string_as_slice(*string))
    }

    /// An argument as a string of the server, without a copy.
    #[must_use]
    pub fn string(&self, index: usize) -> Option<Str> {
        self.0.get(index).map(|string| Str::new(None, *string))
    }
}

/// Makes a command known to the server. False if the server refuses.
pub fn register<C: Command>(ctx: &Ctx) -> bool {
    let key = c_int::from(matches!(C::DOCS.keys, Some(Keys::First(_))));
    // SAFETY: names and flags are static; the entry has the signature that the server expects.
    unsafe {
        let status = api!(RedisModule_CreateCommand(
            ctx.raw,
            C::NAME.as_ptr(),
            Some(entry::<C>),
            C::FLAGS.as_ptr(),
            key,
            key,
            key,
        ) or 1);
        if status != OK {
            return false;
        }
        let command = api!(RedisModule_GetCommand(ctx.raw, C::NAME.as_ptr()) or null_mut());
        if command.is_null() {
            return false;
        }
        // Since Redis 7.2. Without it the categories that follow from the flags apply.
        api!(RedisModule_SetCommandACLCategories(command, C::CATEGORIES.as_ptr()) or 0);
        describe(command, &C::DOCS)
    }
}

extern "C" fn entry<C: Command>(
    ctx: *mut raw::RedisModuleCtx,
    arguments: *mut *mut raw::RedisModuleString,
    count: c_int,
) -> c_int {
    let ctx = Ctx::new(ctx);
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: the server passes `count` strings that live until the command returns.
    let arguments = unsafe { std::slice::from_raw_parts(arguments, count) };
    let arguments = Args(arguments.get(1..).unwrap_or_default());
    match guard("a command", || C::run(&ctx, &arguments)) {
        Some(Ok(())) => (),
        Some(Err(error)) => ctx.reply_error(&error.to_string()),
        None => ctx.reply_error("ERR internal error, see the server's log"),
    }
    OK
}
