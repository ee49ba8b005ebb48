//! Much work at once: how long another client waits for its PING during it.

use anyhow::{Context as _, Result};

use crate::bench::Bench;
use crate::measure::Figure;
use crate::report::{Goal, grouped, spread};
use crate::resp::encode;
use crate::server::{Kind, Server};
use crate::work;

use super::cut::{self, Crowd, beside_pings, queue_empty};

/// No PING is to take longer, in milliseconds.
const GOAL: f64 = 10.0;
const OWNER: &[u8] = b"owner";
/// Longer than the scene.
const LEASE: &[u8] = b"600000";

/// A piece of work: milliseconds until it is done, and of the longest PING.
type Measured = (f64, f64);
type Piece = fn(&Bench, u32) -> Result<Measured>;

const CUT_OFF: &str = "clients blocked in ACQUIRE are cut off";
/// What closing the connections alone costs the server.
const PLAINLY_CUT_OFF: &str = "clients blocked in BLPOP are cut off";

const PIECES: [(&str, u32, Piece); 8] = [
    (CUT_OFF, 10_000, |bench, number| {
        cut::cut(bench, Kind::Module, number)
    }),
    (PLAINLY_CUT_OFF, 10_000, |bench, number| {
        cut::cut(bench, Kind::Plain, number)
    }),
    ("WAITs end together", 12_000, waits),
    ("dead polling waiters at a release", 100_000, reaped),
    ("dead polling waiters at a release", 1_000_000, reaped),
    ("sessions: FAIRLOCK.LOCKS", 300_000, |bench, number| {
        listed(bench, number, b"100")
    }),
    (
        "sessions: FAIRLOCK.LOCKS COUNT -1",
        300_000,
        |bench, number| listed(bench, number, b"-1"),
    ),
    (
        "held locks: all replies of FAIRLOCK.LOCKS ALL",
        300_000,
        listed_all,
    ),
];

/// Runs the scene.
pub fn run(bench: &mut Bench) -> Result<()> {
    let mut rows = Vec::new();
    let mut worst = Figure::of(0.0);
    for (name, number, piece) in PIECES {
        let number = if bench.quick { number / 100 } else { number };
        let what = format!("{} {name}", grouped(number as usize));
        let (mut done, mut longest) = (Figure::default(), Figure::default());
        for _ in 0..if bench.quick { 1 } else { 3 } {
            bench.say(&what);
            let (time, ping) = piece(bench, number)?;
            done.push(time);
            longest.push(ping);
        }
        rows.push(vec![what.clone(), spread(&done), spread(&longest)]);
        if name == CUT_OFF {
            let goal = Goal::AtMost(GOAL, "the server's own closing of connections, BLPOP's too");
            let what = format!("Longest PING: {what}");
            bench.report.goal(&what, &longest, " ms", goal);
        } else if name != PLAINLY_CUT_OFF && longest.median() > worst.median() {
            worst = longest;
        }
    }
    let goal = Goal::AtMost(GOAL, "see the table of much at once");
    let what = "Longest PING beside any other work";
    bench.report.goal(what, &worst, " ms", goal);
    bench.report.table(
        "Much at once",
        "Another connection sends one PING after the other meanwhile.",
        &["what", "done after, ms", "longest PING, ms"],
        rows,
    );
    Ok(())
}

fn hold_lock(server: &mut Server) -> Result<()> {
    let _: i64 = server.run(&[b"FAIRLOCK.ACQUIRE", b"lock", OWNER, b"LEASE", LEASE])?;
    Ok(())
}

/// Blocked clients, all of whose time is up at the same instant.
fn waits(bench: &Bench, number: u32) -> Result<Measured> {
    let mut server = bench.server(Kind::Module, &[])?;
    hold_lock(&mut server)?;
    let crowd = Crowd::start(&server, "wait", number)?;
    server.wait("blocked_clients", |blocked| blocked >= f64::from(number))?;
    let measured = beside_pings(&mut server, |server| {
        server.wait("blocked_clients", |blocked| blocked < 0.5)?;
        queue_empty(server)
    });
    drop(crowd);
    measured
}

/// Waiters that have been silent for longer than their patience.
fn reaped(bench: &Bench, number: u32) -> Result<Measured> {
    let mut server = bench.server(Kind::Module, &["--fairlock.max-waiters", "2000000"])?;
    hold_lock(&mut server)?;
    let joined = work::all(&server, number as usize, |index, out| {
        let owner = format!("dead:{index}");
        let patience: [&[u8]; 3] = [b"ENQUEUE", b"PATIENCE", b"1"];
        let [enqueue, patience, millis] = patience;
        let words = [b"FAIRLOCK.ACQUIRE", &b"lock"[..], owner.as_bytes()];
        let [command, lock, owner] = words;
        encode(out, &[command, lock, owner, enqueue, patience, millis]);
    })?;
    beside_pings(&mut server, |server| {
        let left: i64 = server.run(&[b"FAIRLOCK.RELEASE", b"lock", OWNER])?;
        anyhow::ensure!(left == 0, "the lock was not freed");
        queue_empty(server)
    })
    .inspect(|_| drop(joined))
}

/// A listing among many locks that are bound to connections.
fn listed(bench: &Bench, number: u32, count: &[u8]) -> Result<Measured> {
    let mut server = bench.server(Kind::Module, &[])?;
    let held = work::all(&server, number as usize, |index, out| {
        let key = format!("lock:{index}");
        let lease: [&[u8]; 4] = [b"NOWAIT", b"SESSION", b"LEASE", LEASE];
        let [nowait, session, lease, millis] = lease;
        let key = key.as_bytes();
        encode(
            out,
            &[
                b"FAIRLOCK.ACQUIRE",
                key,
                OWNER,
                nowait,
                session,
                lease,
                millis,
            ],
        );
    })?;
    let measured = beside_pings(&mut server, |server| {
        let listed: redis::Value = server.run(&[b"FAIRLOCK.LOCKS", b"COUNT", count])?;
        listed.as_sequence().context("a list").map(|_| ())
    });
    drop(held);
    measured
}

/// A listing, reply by reply, of locks that are held for their leases, of which the server keeps no record.
fn listed_all(bench: &Bench, number: u32) -> Result<Measured> {
    let mut server = bench.server(Kind::Module, &[])?;
    let held = work::all(&server, number as usize, |index, out| {
        let key = format!("lock:{index}");
        let words = [&b"FAIRLOCK.ACQUIRE"[..], key.as_bytes(), OWNER];
        let lasting = [&b"NOWAIT"[..], b"LEASE", LEASE];
        encode(out, &[&words[..], &lasting].concat());
    })?;
    let measured = beside_pings(&mut server, |server| {
        let mut cursor = Some(b"0".to_vec());
        while let Some(after) = cursor {
            let words: [&[u8]; 6] = [b"FAIRLOCK.LOCKS", b"ALL", b"COUNT", b"-1", b"AFTER", &after];
            cursor = more(&server.run(&words)?);
        }
        Ok(())
    });
    drop(held);
    measured
}

/// The cursor at the end of a listing, if there is more.
fn more(listed: &redis::Value) -> Option<Vec<u8>> {
    let [name, cursor] = listed.as_sequence()?.last()?.as_sequence()? else {
        return None;
    };
    let is_more = matches!(name, redis::Value::BulkString(name) if name == b"more");
    match cursor {
        redis::Value::BulkString(cursor) if is_more => Some(cursor.clone()),
        _ => None,
    }
}
