//! Queues that were there before the module: of a server that has run without it until now.
//!
//! A server that starts tells of each key that it loads; one that runs already tells of nothing.
//! So its keys are walked over once, a few in each turn of the event loop.

use std::cell::RefCell;

use crate::keyspace::names;
use crate::server::scan::KeyScan;
use crate::server::{Ctx, events};

use super::sweep;
use super::table::LockId;

/// Steps in one turn: some tenths of a millisecond.
const STEPS: usize = 500;

thread_local! {
    static SCAN: RefCell<Option<KeyScan>> = const { RefCell::new(None) };
}

/// Begins, if there are any keys.
pub fn start(ctx: &Ctx) {
    let selected = ctx.db();
    let any = (0..i32::MAX)
        .take_while(|db| ctx.select_db(*db))
        .any(|_| ctx.keys() > 0);
    // The caller's database; there is one.
    let _ = ctx.select_db(selected);
    SCAN.set(any.then(KeyScan::default));
    if any {
        events::hurry(ctx);
    }
}

/// Goes on where it was put down.
pub fn go_on(ctx: &Ctx) {
    let Some(mut scan) = SCAN.take() else {
        return;
    };
    for _ in 0..STEPS {
        if !scan.step(ctx, &mut look_at) {
            return;
        }
    }
    SCAN.set(Some(scan));
    events::hurry(ctx);
}

fn look_at(ctx: &Ctx, key: &[u8]) {
    let locks = names::locks_of(key).into_iter().flatten().flatten();
    for name in locks {
        sweep::touched(ctx, LockId::new(ctx.db(), name), true);
    }
}
