//! Counts scripts, for INFO: those run natively, and known ones that ran as Lua.
//! With interception off the latter shows whether clients still use scripts.

use std::cell::Cell;

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

type Counters = [Cell<u64>; ROLES.len()];

thread_local! {
    static INTERCEPTED: Counters = const { [const { Cell::new(0) }; ROLES.len()] };
    static LUA: Counters = const { [const { Cell::new(0) }; ROLES.len()] };
}

fn add(counters: &'static std::thread::LocalKey<Counters>, role: Role) {
    let index = ROLES.iter().position(|(other, _)| *other == role);
    counters.with(|counters| {
        if let Some(counter) = index.and_then(|index| counters.get(index)) {
            counter.set(counter.get().wrapping_add(1));
        }
    });
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
        counters.with(|counters| {
            for ((_, role), counter) in ROLES.iter().zip(counters) {
                section.number(&format!("scripts_{kind}_{role}"), counter.get());
            }
        });
    }
}

/// Sets all counters to 0.
pub fn clear() {
    for counters in [&INTERCEPTED, &LUA] {
        counters.with(|counters| counters.iter().for_each(|counter| counter.set(0)));
    }
}
