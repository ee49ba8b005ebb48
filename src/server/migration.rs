//! Atomic slot migration: CLUSTER MIGRATESLOTS of Valkey (from 9.0 on), CLUSTER MIGRATION of Redis (from 8.4 on).
//!
//! The keys of a slot arrive at the new node before it owns the slot. They are hidden from clients there, but
//! raise key events. The servers notify modules when a migration begins and how it ends, each by an event of its own.
//! Valkey refuses such migrations unless all modules have declared that they can tell these keys from the server's own.

use std::ffi::c_int;

use super::api::{api, raw};
use super::context::Ctx;

/// Valkey's number for "this module can handle atomic slot migrations".
const HANDLES_ATOMIC_MIGRATION: c_int = 1 << 5;
/// Valkey's number for "the commands that this module replicates need not be looked up".
const SKIPS_VALIDATION: c_int = 1 << 4;
/// Redis's number for the events of such migrations.
pub(super) const REDIS: u64 = 18;
/// Valkey's.
pub(super) const VALKEY: u64 = 19;

/// What happens to slots that migrate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migration {
    /// Slots begin to migrate to this node, or to its master. No key is here yet.
    ImportStarted,
    /// The migration has failed: the slots stay at their node.
    ImportAborted,
    /// This node, or its master, owns the slots now.
    ImportCompleted,
    /// Another node owns slots that this node had.
    ExportCompleted,
}

impl Ctx {
    /// Declares what the server may rely on:
    ///
    /// - only keys reported by [`Ctx::changed`] have changed: opening a key for writing alone must not make
    ///   a WATCH fail;
    /// - where the server has atomic slot migration: the module can handle keys of slots that another node
    ///   still owns;
    /// - where the server would look each replicated command up: there are such commands (see `needs.rs`).
    pub fn declare_options(&self) {
        let theirs = self.options_of_valkey() & (HANDLES_ATOMIC_MIGRATION | SKIPS_VALIDATION);
        let options = raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED | theirs;
        // SAFETY: the context is valid for this call.
        unsafe { api!(SetModuleOptions(self.raw, options)) };
    }

    /// The options that the server knows. The numbers above are Valkey's: another server may mean something else by
    /// them, and none of them is known then.
    fn options_of_valkey(&self) -> c_int {
        // SAFETY: the function takes nothing and only reads the server's state.
        let known = unsafe { api!(GetModuleOptionsAll() or 0) };
        if self.is_valkey() { known } else { 0 }
    }

    fn is_valkey(&self) -> bool {
        self.info(c"server", c"valkey_version").is_some()
    }

    /// The number of the event that the server has for migrations, if it has them; older ones refuse to tell of it.
    pub(super) fn migration_event(&self) -> u64 {
        if self.is_valkey() { VALKEY } else { REDIS }
    }
}

/// What such an event says, if it matters.
pub(super) fn read(event: u64, subevent: u64) -> Option<Migration> {
    match (event, subevent) {
        (_, 0) => Some(Migration::ImportStarted),
        (REDIS, 1) | (VALKEY, 2) => Some(Migration::ImportAborted),
        (REDIS, 2) | (VALKEY, 4) => Some(Migration::ImportCompleted),
        (_, 5) => Some(Migration::ExportCompleted),
        _ => None,
    }
}
