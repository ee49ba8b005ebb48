//! One round: servers, clients, a plan, and at the end the question whether all is well.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fairlock_testing::{Server, follow};

use crate::actor::{self, KINDS, LEASE, SCRIPTED};
use crate::checker::{self, Kind, Violation};
use crate::harm::Harmer;
use crate::history::{Answer, EXCLUSIVE, History, Recorder, Request};
use crate::plan::{Disk, plan};
use crate::porcupine;
use crate::wire::Wire;
use crate::witness;
use crate::world::{Load, World};

/// The length of a turn, in milliseconds.
const TURN: u64 = 3000;
/// How long clients may still wait at the end: for holders that died, each with a lease, and for waiters that died,
/// each row of them with a turn.
pub const LAST_WAIT: Duration = Duration::from_mins(1);

pub const BUSY: Load = Load {
    think: 10,
    hold: 4,
    deaths: 40,
    look: 4,
};

/// Runs a round and checks its history. Returns what was found wrong.
pub fn run(disk: Disk, seed: u64, milliseconds: u64) -> Vec<Violation> {
    let turn = TURN.to_string();
    let options = [disk.options(), &["--fairlock.turn", &turn]].concat();
    let master = Server::with_movable_clock(&options);
    let replica = (disk == Disk::Replica).then(|| {
        let replica = Server::with_movable_clock(&options);
        follow(&replica, &master);
        replica
    });
    let recorder = Recorder::new(History {
        scripted: (0..SCRIPTED).collect(),
        turn: TURN * 1000,
        ..History::default()
    });
    let world = Arc::new(World::new(recorder, BUSY));
    let witness = witness::start(&world);
    let mut harmer = Harmer::new(Arc::clone(&world), disk, master, replica);
    let threads = actor::start(&KINDS, &world, seed);
    harmer.carry_out(&plan(seed, disk, milliseconds));
    finish(&world, threads, LAST_WAIT);
    witness.join().expect("no panic in the witness");
    let left = left_behind(harmer.master());
    world.recorder.with(|history| history.left_behind = left);
    verdict(
        &world,
        harmer.master(),
        &format!("{disk:?}-{seed}"),
        checker::check,
    )
}

/// What is found in the history of a round that is over.
pub fn verdict(
    world: &World,
    server: &Server,
    run: &str,
    check: impl FnOnce(&History) -> Vec<Violation>,
) -> Vec<Violation> {
    let history = world.recorder.with(std::mem::take);
    report(&history);
    let mut found = check(&history);
    if server.log().contains("BUG REPORT") {
        found.push(Violation::said(Kind::Crash, "BUG REPORT"));
    }
    porcupine::judge(&history, found, run)
}

/// Lets all clients finish; a client that waits for too long is cut off, and says so.
pub fn finish(world: &World, threads: Vec<JoinHandle<()>>, wait: Duration) {
    world.end();
    let start = Instant::now();
    while start.elapsed() < wait && !threads.iter().all(JoinHandle::is_finished) {
        thread::sleep(Duration::from_millis(10));
    }
    world.close();
    for thread in threads {
        thread.join().expect("no panic in a client");
    }
}

/// What is there that should not be, once everything had the time to go.
pub fn left_behind(server: &Server) -> Vec<String> {
    let start = Instant::now();
    let longest = Duration::from_millis(2 * LEASE + 2 * TURN);
    loop {
        let keys = Wire::connect(server.port).and_then(|mut wire| wire.ask(&["KEYS", "*"]));
        let keys = keys.expect("the server is there");
        let keys = keys.items().iter().map(|key| key.text().into_owned());
        // A token is kept where it is ahead of the clock: after a failover, or a step back.
        let mut left: Vec<_> = keys
            .filter(|key| !key.starts_with("fairlock_token:"))
            .collect();
        for gauge in [
            "blocked_clients",
            "session_locks",
            "locks_with_waiters_or_session",
        ] {
            let count = server.info("fairlock", &format!("fairlock_{gauge}"));
            if count != "0" {
                left.push(format!("{gauge}: {count}"));
            }
        }
        if left.is_empty() || start.elapsed() > longest {
            return left;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// What a round consisted of, so that one can see that it was not idle.
pub fn report(history: &History) {
    let mut counts = BTreeMap::<String, usize>::new();
    let mut count = |what: String| *counts.entry(what).or_default() += 1;
    for call in &history.calls {
        match call.request {
            Request::Acquire { way, limit, .. } if call.is_granted() => {
                let shared = if limit == EXCLUSIVE { "" } else { " shared" };
                count(format!("granted {way:?}{shared}"));
            }
            _ if matches!(call.answer, Answer::Lost | Answer::NotHeld) => {
                count(format!("{:?}", call.answer));
            }
            _ => (),
        }
    }
    for fault in &history.faults {
        let name = format!("{:?}", fault.harm);
        count(name.split(' ').next().unwrap_or_default().to_owned());
    }
    let stalls = history.stalls.iter().map(|stall| stall.to - stall.from);
    let sights = history.sights.iter();
    let together = sights.filter(|sight| sight.holders.len() > 1).count();
    println!(
        "  {} calls; granted, ended, harmed: {counts:?}; {} sights, {together} of several holders; stood still {} ms",
        history.calls.len(),
        history.sights.len(),
        stalls.sum::<u64>() / 1000
    );
}
