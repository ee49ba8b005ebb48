//! Which server decides: where keys are in a cluster and whether it is up, slots that migrate to another node, and
//! times in which a server wants no writes, such as before another takes over.
//!
//! Atomic slot migration is CLUSTER MIGRATESLOTS of Valkey (from 9.0 on), CLUSTER MIGRATION of Redis (from 8.4 on).
//! The keys of a slot arrive at the new node before it owns the slot. They are hidden from clients there, but
//! raise key events. The servers notify modules when a migration begins and how it ends, each by an event of its own.
//! Valkey refuses such migrations unless all modules have declared that they can tell these keys from the server's own.

use std::ffi::c_int;

use redis_module::Context;

use super::api::{api, raw};
use super::context::{Ctx, in_cluster, text};
use super::info::field_of;
use super::memory::Str;

/// Valkey's number for "this module can handle atomic slot migrations".
const HANDLES_ATOMIC_MIGRATION: c_int = 1 << 5;
/// Valkey's number for "the commands that this module replicates need not be looked up".
const SKIPS_VALIDATION: c_int = 1 << 4;
/// Redis's number for the events of such migrations.
const MIGRATIONS_OF_REDIS: u64 = 18;
/// As [`MIGRATIONS_OF_REDIS`], of Valkey.
const MIGRATIONS_OF_VALKEY: u64 = 19;

/// Where keys of one slot are, as far as this node knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// Here, all of them that there are.
    Here,
    /// Some may be at another node: the slot is being moved, or has left.
    Moving,
    /// The cluster is down for this node: it must not decide anything.
    Down,
}

impl Ctx {
    /// Where these keys are, and whether their slot is known to be this node's and not on its way. The server is asked
    /// whether it would serve a command on all of them now: it does so in a slot of its own, and where a slot is being
    /// moved only if each of them is here.
    pub fn slot_state(&self, [a, b, c, d]: [&Str; 4]) -> (SlotState, bool) {
        // SAFETY: the format says: four strings; they live until the call returns. The reply is
        // freed, and is null, with the reason in errno, where the command was not run.
        unsafe {
            let (name, format) = (c"EXISTS".as_ptr(), c"ssss".as_ptr());
            let reply = api!(Call(
                self.raw, name, format, a.inner, b.inner, c.inner, d.inner
            ));
            if !reply.is_null() {
                let are_all_there = api!(CallReplyInteger(reply)) == 4;
                api!(FreeCallReply(reply));
                return (SlotState::Here, !are_all_there);
            }
        }
        let state = match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::ENETDOWN | libc::EROFS) => SlotState::Down,
            _ => SlotState::Moving,
        };
        (state, false)
    }

    /// Whether this node would serve a command on a key now.
    pub fn serves(&self, key: &Str) -> bool {
        !in_cluster() || self.slot_state([key; 4]).0 == SlotState::Here
    }

    /// Whether the cluster is down for this node. Unlike [`Ctx::slot_state`], this touches no key.
    pub fn cluster_is_down(&self) -> bool {
        if !in_cluster() {
            return false;
        }
        let info = Context::new(self.raw).call("CLUSTER", &["INFO"]);
        let info = info.ok();
        let info = info.as_ref().and_then(text);
        info.is_some_and(|info| info.starts_with(b"cluster_state:fail"))
    }
}

/// Whether the server wants no new writes now: CLIENT PAUSE WRITE, or a failover under way.
pub fn writes_paused() -> bool {
    // SAFETY: the function takes nothing and only reads the server's state.
    unsafe { api!(AvoidReplicaTraffic()) != 0 }
}

/// Whether writes are paused so that another server can take over: by FAILOVER, CLUSTER FAILOVER or
/// CLUSTER MIGRATESLOTS. Valkey reports the purpose of a pause since 8.1. Redis reports FAILOVER only, and in a
/// cluster nothing, so any pause there may be for a failover. Not free.
pub fn is_handing_over() -> bool {
    if !writes_paused() {
        return false;
    }
    match field_of(c"clients", c"paused_reason").as_deref() {
        Some("failover_in_progress" | "slot_migration_in_progress") => true,
        Some(_) => is_failing_over(),
        None => in_cluster() || is_failing_over(),
    }
}

/// Whether FAILOVER is under way. `paused_reason` shows one reason only, and so may hide this one.
fn is_failing_over() -> bool {
    let state = field_of(c"replication", c"master_failover_state");
    state.is_some_and(|state| state != "no-failover")
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
        // The numbers above are Valkey's: another server may mean something else by them.
        let known = if is_valkey() {
            // SAFETY: the function takes nothing and only reads the server's state.
            unsafe { api!(GetModuleOptionsAll() or 0) }
        } else {
            0
        };
        let theirs = known & (HANDLES_ATOMIC_MIGRATION | SKIPS_VALIDATION);
        let options = raw::ModuleOptions::NO_IMPLICIT_SIGNAL_MODIFIED.bits() | theirs;
        // SAFETY: the context is valid for this call.
        unsafe { api!(SetModuleOptions(self.raw, options)) };
    }
}

fn is_valkey() -> bool {
    field_of(c"server", c"valkey_version").is_some()
}

/// The number of the event that the server has for migrations, if it has them; older ones refuse to tell of it.
pub(super) fn migration_event() -> u64 {
    if is_valkey() {
        MIGRATIONS_OF_VALKEY
    } else {
        MIGRATIONS_OF_REDIS
    }
}

/// Whether an event of a migration says that slots have come (true), or have gone.
pub(super) fn have_come(event: u64, subevent: u64) -> Option<bool> {
    match (event, subevent) {
        (MIGRATIONS_OF_REDIS, 2) | (MIGRATIONS_OF_VALKEY, 4) => Some(true),
        (MIGRATIONS_OF_REDIS | MIGRATIONS_OF_VALKEY, 5) => Some(false),
        _ => None,
    }
}
