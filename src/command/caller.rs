//! Who calls a command.

use crate::lock::Connection;
use crate::server::{Ctx, in_cluster};

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

/// The caller of a command. The meaning of some arguments depends on it.
pub trait Caller {
    /// It is a script or a function.
    fn in_script(&self) -> bool;
    /// It is a connection, or a script that one has sent; not another module.
    fn is_of_connection(&self) -> bool {
        true
    }
    /// Its server is part of a cluster.
    fn in_cluster(&self) -> bool;
    /// Its connection.
    fn connection(&self) -> Connection;
}

impl Caller for Ctx {
    fn in_script(&self) -> bool {
        self.flags().in_script()
    }

    fn is_of_connection(&self) -> bool {
        // Only a connection has a user of its own.
        self.in_script() || self.user_name().is_some()
    }

    fn in_cluster(&self) -> bool {
        in_cluster()
    }

    fn connection(&self) -> Connection {
        self.client_id()
    }
}

/// This connection's own identity: unique over all runs of all servers.
pub fn identity(caller: &impl Caller) -> String {
    RUN.with(|run| format!("{run}:{}", caller.connection()))
}
