//! Queues that exist when the module is loaded into a running server, or when interception is switched on.
//!
//! A server that starts raises an event for each key that it loads. A server that is already running raises
//! none, so its keys are scanned once, a few in each iteration of the event loop.

use crate::server::scan::KeyScan;
use crate::server::{Ctx, events};

use super::conditions::intercepts;
use super::state::{ensure_before_sleep, note, waiting};
use super::touch::Touch;

/// Steps in one iteration: some tenths of a millisecond.
const STEPS: usize = 500;

/// As [`start`], when the module is loaded and configured.
pub fn start_afresh(ctx: &Ctx) {
    let _ = intercepts();
    waiting(|waiting| waiting.has_switched_on.set(false));
    ensure_before_sleep();
    start(ctx);
}

/// Begins the scan, if there are any keys.
pub fn start(ctx: &Ctx) {
    let selected = ctx.db();
    let any = (0..i32::MAX)
        .take_while(|db| ctx.select_db(*db))
        .any(|_| ctx.keys() > 0);
    // The caller's database; there is one.
    let _ = ctx.select_db(selected);
    let scan = any.then(KeyScan::default);
    waiting(|waiting| {
        waiting.scan.set(scan);
        waiting.is_scanning.set(any);
    });
    if any {
        events::hurry();
    }
}

/// Continues the scan.
pub fn go_on(ctx: &Ctx) {
    let Some(mut scan) = waiting(|waiting| waiting.scan.take()) else {
        return;
    };
    for _ in 0..STEPS {
        if !scan.step(ctx, &mut look_at) {
            waiting(|waiting| waiting.is_scanning.set(false));
            return;
        }
    }
    waiting(|waiting| waiting.scan.set(Some(scan)));
    events::hurry();
}

fn look_at(ctx: &Ctx, key: &[u8]) {
    note(|notes| notes.touch_queue_key(ctx.db(), key, Touch::LOADED));
}
