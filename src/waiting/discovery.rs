//! Queues that were there before the module: of a server that has run without it until now.
//!
//! A server that starts tells of each key that it loads; one that runs already tells of nothing.
//! So its keys are walked over once, a few in each iteration of the event loop.

use crate::server::scan::KeyScan;
use crate::server::{Ctx, events};

use super::state::{note, waiting};
use super::touch::Touch;

/// Steps in one iteration: some tenths of a millisecond.
const STEPS: usize = 500;

/// Begins, if there are any keys.
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

/// Goes on where it was put down.
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
