//! Atomic slot migration (CLUSTER MIGRATESLOTS), which Valkey has from 9.0 on.
//!
//! The keys of a slot arrive at the new node before it owns the slot. They are hidden from clients there, but
//! raise key events. Valkey refuses such migrations unless all modules have declared that they
//! can tell these keys from the server's own. It notifies modules when a migration begins and how it ends.

use std::ffi::c_int;

use super::api::{api, raw};
use super::context::Ctx;

/// Valkey's number for "this module can handle atomic slot migrations".
const HANDLES_ATOMIC_MIGRATION: c_int = 1 << 5;
/// Valkey's number for "the commands that this module replicates need not be looked up".
const SKIPS_VALIDATION: c_int = 1 << 4;
/// Valkey's number for the events of such migrations.
pub(super) const EVENT: u64 = 19;
/// The kinds of such events that matter here.
const IMPORT_STARTED: u64 = 0;
const IMPORT_ABORTED: u64 = 2;
const IMPORT_COMPLETED: u64 = 4;
const EXPORT_COMPLETED: u64 = 5;

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
        let is_valkey = self.info(c"server", c"valkey_version").is_some();
        if is_valkey { known } else { 0 }
    }

    /// Whether slots can migrate.
    pub(super) fn has_migrations(&self) -> bool {
        self.options_of_valkey() & HANDLES_ATOMIC_MIGRATION > 0
    }
}

/// What such an event says, if it matters.
pub(super) fn read(subevent: u64) -> Option<Migration> {
    match subevent {
        IMPORT_STARTED => Some(Migration::ImportStarted),
        IMPORT_ABORTED => Some(Migration::ImportAborted),
        IMPORT_COMPLETED => Some(Migration::ImportCompleted),
        EXPORT_COMPLETED => Some(Migration::ExportCompleted),
        _ => None,
    }
}
