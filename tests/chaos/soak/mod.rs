//! A soak: hours of mixed load with all features and nothing done to the server. Memory and file descriptors have to
//! stay where they are.
//!
//! A few seconds long in `make test-all`, as long as `SOAK_SECONDS` says by `make soak`.

mod probe;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fairlock_testing::{Server, setting};

use crate::actor::{self, KINDS, SCRIPTED, fetch_scripts};
use crate::checker::{self, Violation};
use crate::guarantees::alone;
use crate::history::{Answer, Call, History, Micros, Recorder, Request};
use crate::porcupine;
use crate::round::{LAST_WAIT, finish, left_behind};
use crate::witness;
use crate::world::{Load, World};

use probe::Row;

const LOAD: Load = Load {
    think: 160,
    hold: 16,
    deaths: 100,
    look: 100,
};
/// In `make test-all`, seconds.
const SHORT: u64 = 6;
/// Rows that are printed, for any length.
const ROWS: u64 = 360;

#[test]
#[ignore = "takes minutes: make test-all"]
fn memory_and_descriptors_stay_where_they_are() {
    fetch_scripts();
    let _alone = alone();
    let seconds = setting("SOAK_SECONDS").unwrap_or(SHORT);
    let options = "--appendonly yes --appendfsync everysec --auto-aof-rewrite-min-size 4mb --fairlock.turn 3000";
    let options: Vec<&str> = options.split(' ').collect();
    let server = Server::with(&options);
    let recorder = Recorder::new(history());
    let world = Arc::new(World::new(recorder, LOAD));
    world.set_master(&server);
    let threads = actor::start(&KINDS, &world, setting("CHAOS_SEED").unwrap_or(1));
    let witness = witness::start(&world);
    let (rows, found) = rows(&world, &server, seconds);
    finish(&world, threads, LAST_WAIT);
    witness.join().expect("no panic in the witness");
    let left = left_behind(&server);
    assert!(left.is_empty(), "left behind: {left:?}");
    assert!(found.is_empty(), "{} violations: {found:?}", found.len());
    probe::is_flat(&rows);
}

fn history() -> History {
    History {
        scripted: (0..SCRIPTED).collect(),
        turn: 3_000_000,
        resumed: true,
        ..History::default()
    }
}

/// One row after the other, printed as they come. What happened in each but the last is checked as in chaos.
fn rows(world: &World, server: &Server, seconds: u64) -> (Vec<Row>, Vec<Violation>) {
    let every = Duration::from_millis((seconds * 1000 / ROWS).max(200));
    let (start, length) = (Instant::now(), Duration::from_secs(seconds));
    let (mut rows, mut found) = (Vec::new(), Vec::new());
    let (mut begins, mut before) = (start, None);
    while start.elapsed() < length {
        begins += every;
        thread::sleep(begins.saturating_duration_since(Instant::now()));
        change_mode(server, rows.len());
        let history = world.recorder.with(|now| std::mem::replace(now, history()));
        let end = world.recorder.now();
        let row = Row::of(server);
        println!("{} s: {row:.2?}", start.elapsed().as_secs());
        rows.push(row);
        if let Some((last, its_end)) = before.take() {
            found.extend(judged(last, &under_way(&history, its_end)));
        }
        before = Some((history, end));
    }
    (rows, found)
}

/// What was asked for before that instant, and answered in this history, which begins there: it may have been carried
/// out before. A request for the lock is not among these: its answer says what it was.
fn under_way(history: &History, end: Micros) -> Vec<Call> {
    let is_acquire = |call: &&Call| matches!(call.request, Request::Acquire { .. });
    let calls = history.calls.iter().filter(|call| !is_acquire(call));
    let calls = calls.filter(|call| call.invoked < end).cloned();
    let unanswered = |call| Call {
        answered: end,
        answer: Answer::Never,
        ..call
    };
    calls.map(unanswered).collect()
}

/// Porcupine sees no keys: who holds the lock at the end of a row may be told in the next one.
fn judged(mut history: History, under_way: &[Call]) -> Vec<Violation> {
    let found = checker::check(&history);
    history.sights.clear();
    history.calls.extend_from_slice(under_way);
    porcupine::judge(&history, found, "soak")
}

/// Scripts run natively and as Lua in turn.
fn change_mode(server: &Server, row: usize) {
    let value = if row.is_multiple_of(2) { "yes" } else { "no" };
    let set = format!("CONFIG SET fairlock.intercept-eval {value}");
    assert_eq!(server.connect().run(&set), "OK");
}
