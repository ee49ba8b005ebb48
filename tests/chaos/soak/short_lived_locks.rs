//! Locks of names that are used once: what is remembered of a lock has to go with it.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::wire::{Gone, Wire};
use crate::world::World;

/// Milliseconds between two names.
const EVERY: u64 = 20;

pub fn start(world: &Arc<World>) -> JoinHandle<()> {
    let world = Arc::clone(world);
    thread::spawn(move || {
        let Some(mut wire) = world.connect() else {
            return;
        };
        let mut number = 0_u64;
        while !world.is_over() {
            number += 1;
            pass(&mut wire, &format!("passing-{number}")).expect("the connection is not broken");
            thread::sleep(Duration::from_millis(EVERY));
        }
    })
}

/// Every way of coming and going on one lock.
fn pass(wire: &mut Wire, lock: &str) -> Result<(), Gone> {
    for command in [
        "ACQUIRE * SESSION",
        "ACQUIRE a ENQUEUE",
        "ACQUIRE b ENQUEUE PATIENCE 1000",
        "RENEW * LEASE 10000",
        "RELEASE *",
        "ACQUIRE a ENQUEUE",
        "CANCEL b",
        "BREAK",
        "ACQUIRE c LEASE 1",
        "QUEUE",
        "INFO",
    ] {
        let mut words = command.split(' ');
        let name = format!("FAIRLOCK.{}", words.next().unwrap_or_default());
        let mut command = vec![name.as_str(), lock];
        command.extend(words);
        wire.ask(&command)?;
    }
    Ok(())
}
