//! Counts scripts, for INFO: those run natively, and known ones that were left to Lua.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::server::info::Section;

use super::table::Role;

/// Roles in the order of INFO.
const ROLES: [(Role, &str); 6] = [
    (Role::TryLock, "try_lock"),
    (Role::Lock, "lock"),
    (Role::Unlock, "unlock"),
    (Role::ForceUnlock, "force_unlock"),
    (Role::Leave, "leave"),
    (Role::Renew, "renew"),
];

type Counters = [AtomicU64; ROLES.len()];

static INTERCEPTED: Counters = [const { AtomicU64::new(0) }; ROLES.len()];
static LUA: Counters = [const { AtomicU64::new(0) }; ROLES.len()];

fn add(counters: &Counters, role: Role) {
    let mut counted = ROLES.iter().zip(counters);
    if let Some((_, counter)) = counted.find(|((other, _), _)| *other == role) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// A script was run natively.
pub fn intercepted(role: Role) {
    add(&INTERCEPTED, role);
}

/// A known script was left to Lua.
pub fn left_to_lua(role: Role) {
    add(&LUA, role);
}

/// Writes the counters since the module was loaded.
pub fn write(section: &mut Section) {
    for (kind, counters) in [("intercepted", &INTERCEPTED), ("lua", &LUA)] {
        for ((_, role), counter) in ROLES.iter().zip(counters) {
            let count = counter.load(Ordering::Relaxed);
            section.number(&format!("scripts_{kind}_{role}"), count);
        }
    }
}

/// Sets all counters to 0.
pub fn clear() {
    for counter in INTERCEPTED.iter().chain(&LUA) {
        counter.store(0, Ordering::Relaxed);
    }
}
