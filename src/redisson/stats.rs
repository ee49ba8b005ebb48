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

/// How many scripts of each role there were.
pub struct Counters([AtomicU64; ROLES.len()]);

pub static INTERCEPTED: Counters = Counters([const { AtomicU64::new(0) }; ROLES.len()]);
pub static LEFT_TO_LUA: Counters = Counters([const { AtomicU64::new(0) }; ROLES.len()]);

impl Counters {
    pub fn count(&self, role: usize) {
        if let Some(counter) = self.0.get(role) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Writes the counters since the module was loaded.
pub fn write(section: &mut Section) {
    for (kind, counters) in [("intercepted", &INTERCEPTED), ("lua", &LEFT_TO_LUA)] {
        for (role, counter) in ROLES.iter().zip(&counters.0) {
            let count = counter.load(Ordering::Relaxed);
            section.number(&format!("scripts_{kind}_{role}"), count);
        }
    }
}
