//! Reads holders and waiters of a lock at one instant from the keys, by plain commands.

use std::thread;
use std::time::Duration;

use fairlock_testing::resp::Reply;

use crate::history::{Micros, Sight};
use crate::wire::{Gone, Wire};
use crate::world::{LOCKS, World, client_of, key, lock_name};

/// Looks at one lock after the other until the round is over.
pub fn run(world: &World) {
    while !world.is_over() {
        let Some(mut wire) = world.connect() else {
            return;
        };
        while !world.is_over() && look(world, &mut wire) == Ok(()) {
            thread::sleep(Duration::from_millis(world.load.look));
        }
    }
}

fn look(world: &World, wire: &mut Wire) -> Result<(), Gone> {
    for lock in 0..LOCKS {
        let from = world.recorder.now();
        let (name, queue) = (lock_name(lock), key("queue", lock));
        wire.send(&["MULTI"])?;
        wire.send(&["ROLE"])?;
        wire.send(&["HKEYS", &name])?;
        wire.send(&["LRANGE", &queue, "0", "-1"])?;
        wire.send(&["EXEC"])?;
        for _ in 0..4 {
            wire.reply()?;
        }
        let reply = wire.reply()?;
        let sight = sight(lock, from, world.recorder.now(), &reply).ok_or(Gone)?;
        world.recorder.sight(sight);
    }
    Ok(())
}

/// `None` unless it is the master's.
fn sight(lock: usize, from: Micros, to: Micros, reply: &Reply) -> Option<Sight> {
    let [role, holders, queue] = reply.items() else {
        return None;
    };
    (role.items().first()?.text() == "master").then(|| Sight {
        lock,
        from,
        to,
        holders: owners(holders),
        queue: owners(queue),
    })
}

fn owners(reply: &Reply) -> Vec<usize> {
    let names = reply.items().iter();
    names.filter_map(|name| client_of(&name.text())).collect()
}
