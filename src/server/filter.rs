//! Command filters: look at a command before the server does, and replace it with another.
//!
//! The replacement goes through all of the server's checks: authentication, permissions, slots, roles,
//! memory. A filter sees every command of every client and of other modules, so it must be quick.
//!
//! One also sees to a fault of a server. When Valkey 8.1 and 9.0 report a key event to a module, they select the
//! event's database for the client whose command raised it, and do not restore the client's own (valkey-io/valkey,
//! pull request 4024). With any module that listens to key events, a client that moves or copies a key to another
//! database would find itself in that database. Here its database is restored ([`before_copy`]). Other servers report
//! key events through an internal client.

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

use super::api::{OK, api, raw};
use super::context::{Ctx, Flags, bytes, db_at};
use super::guard::{guard, require_main_thread};
use super::info::field_of;
use super::memory::Str;
use super::user::User;

/// A command on its way to the server.
pub struct Incoming {
    raw: *mut raw::RedisModuleCommandFilterCtx,
}

/// A function that sees every command.
pub trait Filter {
    /// Whether a command of this name is of interest. Called for each command of each client, so
    /// it must be very fast, and must not panic.
    fn concerns(name: &[u8]) -> bool;
    fn look(command: &mut Incoming);
}

/// Whether the server has that fault.
static MOVES_CLIENTS: AtomicBool = AtomicBool::new(false);

/// Whether a client may find itself in another database after a command that moves or copies a key.
pub fn may_move_clients() -> bool {
    MOVES_CLIENTS.load(Ordering::Relaxed)
}

/// Registers a filter, which sees every command from now on. False if the server refuses.
pub fn register<F: Filter>(ctx: &Ctx) -> bool {
    let version = field_of(c"server", c"valkey_version").unwrap_or_default();
    let has_fault = ["8.1.", "9.0."]
        .iter()
        .any(|release| version.starts_with(release));
    MOVES_CLIENTS.store(has_fault, Ordering::Relaxed);
    let not_own = raw::REDISMODULE_CMDFILTER_NOSELF.cast_signed();
    // SAFETY: the callback has the signature that the server expects and its code stays.
    let filter = unsafe { api!(RegisterCommandFilter(ctx.raw, Some(entry::<F>), not_own)) };
    !filter.is_null()
}

/// Whether a filter is told which client has sent a command: since Redis 7.2, and in Valkey.
pub fn knows_clients() -> bool {
    // SAFETY: redis-module writes it once, before this.
    unsafe { raw::RedisModule_CommandFilterGetClientId }.is_some()
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

    /// Whether a client's user may run it under another name, as the server itself would check it.
    pub fn may_run_as(&self, name: &Str, client: u64, user: &User) -> bool {
        let mut words = vec![name.inner];
        words.extend((1..).map_while(|index| {
            // SAFETY: as in `argument`.
            let word = unsafe { api!(CommandFilterArgGet(self.raw, index)) };
            (!word.is_null()).then_some(word)
        }));
        user.may_run_raw(|| selected_by(client), &mut words) == Some(true)
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

/// Where the client began whose command moves or copies a key.
#[derive(Clone, Copy)]
enum Began {
    /// A MOVE: the database that the key comes from.
    Move(i32),
    /// A COPY: the client, and its database.
    Copy(u64, i32),
}

thread_local! {
    static BEGAN: Cell<Option<Began>> = const { Cell::new(None) };
}

/// A COPY is about to run, or to be queued.
pub fn before_copy(command: &Incoming) {
    let client = command.client();
    BEGAN.set(client.and_then(|client| Some(Began::Copy(client, selected_by(client)?))));
}

/// After a key event, selects the database in which the command began. The first event of a MOVE tells it.
/// For a COPY it is read before the command runs. In a transaction or a script a SELECT may follow that
/// reading, so nothing is restored there.
pub(super) fn restore_db(ctx: &Ctx, event: &[u8]) {
    if !may_move_clients() {
        return;
    }
    let began_in = match event {
        b"move_from" => {
            BEGAN.set(Some(Began::Move(ctx.db())));
            None
        }
        b"move_to" | b"copy_to" => match BEGAN.take() {
            Some(Began::Move(db)) if event == b"move_to" => Some(db),
            Some(Began::Copy(client, db)) => {
                let is_its = client == ctx.client_id() && !ctx.flags().contains(Flags::MULTI);
                (event == b"copy_to" && is_its).then_some(db)
            }
            _ => None,
        },
        _ => None,
    };
    if let Some(db) = began_in {
        // It was selected a moment ago.
        let _ = ctx.select_db(db);
    }
}

fn selected_by(client: u64) -> Option<i32> {
    // SAFETY: the structure is plain data, which the server fills in.
    let mut info: raw::RedisModuleClientInfo = unsafe { std::mem::zeroed() };
    info.version = raw::REDISMODULE_CLIENTINFO_VERSION.into();
    let place = (&raw mut info).cast();
    // SAFETY: `place` has room for the info of the version that it says.
    let status = unsafe { api!(GetClientInfoById(place, client)) };
    (status == OK).then(|| db_at(i32::from(info.db)))
}
