//! Which database a client has selected.
//!
//! When Valkey 8.1 and 9.0 report a key event to a module, they select the event's database for the client
//! whose command raised it, and do not restore the client's own (valkey-io/valkey, pull request 4024). With
//! any module that listens to key events, a client that moves or copies a key to another database would
//! find itself in that database. Here its database is restored. Other servers report key events through an
//! internal client, and are not affected.

use std::cell::Cell;

use super::api::{OK, api, raw};
use super::context::Ctx;
use super::filter::Incoming;

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
pub(super) fn restore(ctx: &Ctx, event: &[u8]) {
    let began_in = match event {
        b"move_from" => {
            BEGAN.set(Some(Began::Move(ctx.db())));
            None
        }
        b"move_to" | b"copy_to" => match BEGAN.take() {
            Some(Began::Move(db)) if event == b"move_to" => Some(db),
            Some(Began::Copy(client, db)) => {
                let is_its = client == ctx.client_id() && !ctx.flags().in_transaction();
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
    info.version = raw::REDISMODULE_CLIENTINFO_VERSION;
    let place = (&raw mut info).cast();
    // SAFETY: `place` has room for the info of the version that it says.
    let status = unsafe { api!(GetClientInfoById(place, client)) };
    (status == OK).then(|| i32::from(info.db))
}
