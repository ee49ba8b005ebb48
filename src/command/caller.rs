//! Who calls a command.

use crate::server::Ctx;

/// A UUID of this server run. Its version is not that of Redisson's UUIDs, so that after a restart owners
/// named by `*` can be told from Redisson's clients.
fn run_id() -> String {
    let random = uuid::Uuid::new_v4().into_bytes();
    let id = uuid::Builder::from_custom_bytes(random).into_uuid();
    id.to_string()
}

thread_local! {
    static RUN: String = run_id();
}

/// Whether the caller is a connection, and not another module: only a connection has a user of its own.
pub fn is_connection(ctx: &Ctx) -> bool {
    ctx.user_name().is_some()
}

/// This connection's own identity: unique over all runs of all servers.
pub fn identity(ctx: &Ctx) -> String {
    RUN.with(|run| format!("{run}:{}", ctx.client_id()))
}
