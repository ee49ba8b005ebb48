//! Command filters: look at a command before the server does, and replace it with another.
//!
//! The replacement goes through all of the server's checks: authentication, permissions, slots, roles,
//! memory. A filter sees every command of every client and of other modules, so it must be quick.

use std::ffi::c_int;
use std::ptr::null_mut;

use super::api::{OPTIONAL, api, raw};
use super::context::{Ctx, bytes};
use super::guard::{guard, require_main_thread};
use super::memory::Str;
use super::user::User;

/// A command on its way to the server.
#[derive(Debug)]
pub struct Incoming {
    raw: *mut raw::RedisModuleCommandFilterCtx,
}

/// A function that sees every command.
pub trait Filter {
    /// Whether a command of this name is of interest. Called for each command of each client, so
    /// it must be very fast, and must not panic.
    fn concerns(name: &[u8]) -> bool;
    /// Looks at such a command.
    fn look(command: &mut Incoming);
}

/// Registers a filter, which sees every command from now on. False if the server refuses.
pub fn register<F: Filter>(ctx: &Ctx) -> bool {
    let not_own = raw::REDISMODULE_CMDFILTER_NOSELF;
    // SAFETY: the callback has the signature that the server expects and its code stays.
    let filter = unsafe { api!(RegisterCommandFilter(ctx.raw, Some(entry::<F>), not_own)) };
    !filter.is_null()
}

/// Whether a filter is told which client has sent a command: since Redis 7.2, and in Valkey.
pub fn knows_clients() -> bool {
    // SAFETY: the table of functions is written once, before this, and only read afterwards.
    unsafe { OPTIONAL.CommandFilterGetClientId }.is_some()
}

impl Incoming {
    /// The bytes of an argument; the command's name is the first.
    pub fn argument(&self, index: c_int) -> Option<&[u8]> {
        // SAFETY: the context is valid during the callback; the server answers null where there
        // is no such argument, and the string lives as long as the command is not changed.
        unsafe {
            let string = api!(CommandFilterArgGet(self.raw, index));
            (!string.is_null()).then(|| bytes(string))
        }
    }

    /// The connection that sends it. `None` before Redis 7.2, where a filter cannot know it.
    pub fn client(&self) -> Option<u64> {
        // SAFETY: the function is there or not; the context is valid during the callback.
        unsafe { Some(api!(CommandFilterGetClientId(self.raw) or return None)) }
    }

    /// Whether a user may run it under another name, as the server itself would check it.
    pub fn may_run_as(&self, name: &Str, user: &User) -> bool {
        let mut words = vec![name.inner];
        words.extend((1..).map_while(|index| {
            // SAFETY: as in `argument`.
            let word = unsafe { api!(CommandFilterArgGet(self.raw, index)) };
            (!word.is_null()).then_some(word)
        }));
        user.may_run_raw(&mut words) == Some(true)
    }

    /// Makes it another command, with the same arguments.
    pub fn rename(&mut self, name: &Str) {
        // SAFETY: the context is valid during the callback. The server takes over one reference to the
        // new string, and drops its reference to the old one.
        unsafe {
            api!(RetainString(null_mut(), name.inner));
            api!(CommandFilterArgReplace(self.raw, 0, name.inner));
        }
    }
}

extern "C" fn entry<F: Filter>(raw: *mut raw::RedisModuleCommandFilterCtx) {
    require_main_thread();
    let mut command = Incoming { raw };
    if command.argument(0).is_some_and(F::concerns) {
        guard("a filter", || F::look(&mut command));
    }
}
