//! Counts scripts, for INFO: those run natively, and known ones that were left to Lua.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::server::info::Section;

/// The roles of scripts, in the order of INFO.
pub const ROLES: [&str; 6] = [
    "try_lock",
    "lock",
    "unlock",
    "force_unlock",
    "leave",
    "renew",
];

type Counters = [AtomicU64; ROLES.len()];

static INTERCEPTED: Counters = [const { AtomicU64::new(0) }; ROLES.len()];
static LUA: Counters = [const { AtomicU64::new(0) }; ROLES.len()];

fn add(counters: &Counters, role: usize) {
    if let Some(counter) = counters.get(role) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// A script was run natively.
pub fn intercepted(role: usize) {
    add(&INTERCEPTED, role);
}

/// A known script was left to Lua.
pub fn left_to_lua(role: usize) {
    add(&LUA, role);
}

/// Writes the counters since the module was loaded.
pub fn write(section: &mut Section) {
    for (kind, counters) in [("intercepted", &INTERCEPTED), ("lua", &LUA)] {
        for (role, counter) in ROLES.iter().zip(counters) {
            let count = counter.load(Ordering::Relaxed);
            section.number(&format!("scripts_{kind}_{role}"), count);
        }
    }
}
