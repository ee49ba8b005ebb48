//! Registering commands, and the entry through which the server calls them.

use std::ffi::{CString, c_int};

use super::api::{OK, api, raw};
use super::context::{Ctx, Reply, bytes};
use super::docs::{Docs, describe};
use super::guard::{guard_reply, require_main_thread};
use super::memory::Str;

/// One command: what the server must know of it, and what it does.
pub trait Command {
    /// Its name, lower-case like the server's own commands.
    const NAME: &'static str;
    /// What COMMAND DOCS and COMMAND INFO say of it; its key, if it has one, is its first argument.
    const DOCS: Docs;
    /// The options that its syntax has, in the same order.
    const OPTIONS: &'static [&'static str] = &[];
    /// Runs the command.
    fn run(ctx: &Ctx, arguments: &Args<'_>) -> Result<Reply, Reply>;
}

/// The arguments of a command, without its name.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a>(&'a [*mut raw::RedisModuleString]);

impl<'a> Args<'a> {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Splits off the first arguments. `None` if there are fewer.
    pub fn split(self, first: usize) -> Option<(Self, Self)> {
        let (first, others) = self.0.split_at_checked(first)?;
        Some((Self(first), Self(others)))
    }

    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        let string = self.0.get(index)?;
        // SAFETY: the server keeps a command's arguments until the command has returned.
        Some(unsafe { bytes(*string) })
    }

    /// An argument as a string of the server, without a copy.
    pub fn string(&self, index: usize) -> Option<Str> {
        self.0.get(index).map(|string| Str::new(None, *string))
    }
}

/// A command among others.
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    pub name: &'static str,
    pub docs: &'static Docs,
    /// Makes it known to the server. False if the server refuses.
    pub register: fn(&Ctx) -> bool,
}

impl Listed {
    pub const fn of<C: Command>() -> Self {
        Self {
            name: C::NAME,
            docs: &C::DOCS,
            register: register::<C>,
        }
    }
}

fn register<C: Command>(ctx: &Ctx) -> bool {
    let name = CString::new(C::NAME).unwrap_or_default();
    // SAFETY: the server copies names and flags; the entry has the signature that the server expects. Its keys are in
    // what `describe` says.
    unsafe {
        let status = api!(CreateCommand(
            ctx.raw,
            name.as_ptr(),
            Some(entry::<C>),
            C::DOCS.flags.as_ptr(),
            0,
            0,
            0,
        ));
        if status != OK {
            return false;
        }
        let command = api!(GetCommand(ctx.raw, name.as_ptr()));
        if command.is_null() {
            return false;
        }
        // Since Redis 7.2. Without it the categories that follow from the flags apply.
        api!(SetCommandACLCategories(command, C::DOCS.categories.as_ptr()) or 0);
        describe(command, &C::DOCS)
    }
}

extern "C" fn entry<C: Command>(
    ctx: *mut raw::RedisModuleCtx,
    arguments: *mut *mut raw::RedisModuleString,
    count: c_int,
) -> c_int {
    require_main_thread();
    let ctx = Ctx::new(ctx);
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: the server passes `count` strings that live until the command returns.
    let arguments = unsafe { std::slice::from_raw_parts(arguments, count) };
    let arguments = Args(arguments.get(1..).unwrap_or_default());
    let run = || C::run(&ctx, &arguments).unwrap_or_else(|refused| refused);
    ctx.reply(&guard_reply("a command", run));
    OK
}
