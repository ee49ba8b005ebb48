//! Many locks, many sessions, many waiters: how fast, and how much memory.

use std::time::Duration;

use anyhow::{Result, bail};

use crate::bench::{Bench, Contestant};
use crate::crowd::{Crowd, Member};
use crate::pairs::Manner;
use crate::report::{show, spread};
use crate::resp::{Reply, encode, encoded};
use crate::ring::blocking::Fairlock;
use crate::server::{Kind, Server};
use crate::work::{self, Done};

use super::uncontended;

const OWNER: &[u8] = b"8d2c4a43-5f0e-4c7b-9a86-3f2f6f2a0001:42";
/// Longer than the scene.
const LEASE: &[u8] = b"600000";

/// Runs the scene.
pub fn run(bench: &mut Bench) -> Result<()> {
    if bench.quick {
        // The server is slow to give memory back, and a quick run does not wait.
        return rings(bench, 1_000);
    }
    locks(bench, 100_000)?;
    waiters_of_one_lock(bench, 10_000)?;
    rings(bench, 10_000)
}

/// Bytes that the server uses when it has given back what it can: buffers of clients that have
/// been idle for two seconds, and others bit by bit.
fn memory(server: &mut Server) -> Result<f64> {
    let mut least = f64::INFINITY;
    let mut same = 0;
    while same < 2 {
        std::thread::sleep(Duration::from_secs(1));
        let now = server.info("used_memory")?;
        same = if now > least * 0.999 { same + 1 } else { 0 };
        least = least.min(now);
    }
    Ok(least)
}

#[allow(clippy::cast_precision_loss)] // Far below 2^53.
fn float(number: usize) -> f64 {
    number as f64
}

/// Many locks, held by the lease or by a session, until all are released.
fn locks(bench: &mut Bench, number: usize) -> Result<()> {
    let mut rows = Vec::new();
    for (name, session) in [("held for a lease", false), ("held by a session", true)] {
        bench.say(&format!("{number} locks {name}"));
        let mut server = bench.server(Kind::Module, &[])?;
        // The one-time setup of server and module happens before measuring.
        drop(acquire(&server, 1000, session, "warm")?);
        let before = memory(&mut server)?;
        let acquired = acquire(&server, number, session, "lock")?;
        let held = memory(&mut server)?;
        let members = uncontended::crowd(bench, &server, Manner::Fairlock)?;
        let mut pairs = Contestant::new("pairs beside", 0, members);
        let mut servers = [server];
        pairs.measure(&mut servers, bench.window)?;
        drop(pairs.crowd);
        let [mut server] = servers;
        let released = work::all(&server, number, |index, out| {
            let key = format!("lock:{index}");
            encode(out, &[b"FAIRLOCK.RELEASE", key.as_bytes(), OWNER]);
        })?;
        let (acquire_rate, release_rate) = (acquired.rate, released.rate);
        drop((acquired, released));
        let after = memory(&mut server)?;
        let each = |bytes: f64| show(bytes / float(number));
        rows.push(vec![
            format!("{number} locks {name}"),
            show(acquire_rate),
            show(release_rate),
            spread(&pairs.rate),
            each(held - before),
            each(after - before),
        ]);
    }
    bench.report.table(
        "Many locks",
        "Bytes are used_memory for each lock, with an owner of 39 bytes.",
        &[
            "what",
            "acquired a second",
            "released a second",
            "pairs a second beside them",
            "bytes each, held",
            "released",
        ],
        rows,
    );
    Ok(())
}

fn acquire(server: &Server, number: usize, session: bool, prefix: &'static str) -> Result<Done> {
    work::all(server, number, move |index, out| {
        let key = format!("{prefix}:{index}");
        let mut words = vec![&b"FAIRLOCK.ACQUIRE"[..], key.as_bytes(), OWNER, b"NOWAIT"];
        if session {
            words.push(b"SESSION");
        } else {
            words.extend([&b"LEASE"[..], LEASE]);
        }
        encode(out, &words);
    })
}

/// A client that sends PING, and one more command when it is told to.
struct Waiter {
    wait: Vec<u8>,
    pong: bool,
}

impl Member for Waiter {
    fn begin(&mut self, out: &mut Vec<u8>) {
        encode(out, &[b"PING"]);
    }

    fn hear(&mut self, reply: Reply<'_>, _out: &mut Vec<u8>) -> Result<()> {
        match reply {
            Reply::Text(_) => self.pong = true,
            other => bail!("{other:?} to a client that waits"),
        }
        Ok(())
    }

    fn done(&self) -> u64 {
        u64::from(self.pong)
    }
}

/// The memory of a waiter beyond its connection.
fn waiters_of_one_lock(bench: &mut Bench, number: usize) -> Result<()> {
    let mut rows = Vec::new();
    for (name, kind) in [
        ("blocked in ACQUIRE", Kind::Module),
        ("blocked in BLPOP", Kind::Plain),
    ] {
        bench.say(&format!("{number} clients {name}"));
        // The server gives back 50 of the module's clients in each of its rounds.
        let mut server = bench.server(kind, &["--hz", "100"])?;
        if kind == Kind::Module {
            let _: i64 = server.run(&[b"FAIRLOCK.ACQUIRE", b"lock", b"holder", b"LEASE", LEASE])?;
        }
        let before = memory(&mut server)?;
        let members = (0..number).map(|index| {
            let owner = format!("owner:{index}");
            let wait = match kind {
                Kind::Plain => encoded(&[b"BLPOP", b"lock", b"0"]),
                _ => encoded(&[b"FAIRLOCK.ACQUIRE", b"lock", owner.as_bytes()]),
            };
            Waiter { wait, pong: false }
        });
        let mut crowd = Crowd::connect(server.address(), members)?;
        let all = number as u64;
        crowd.run_while(Duration::from_mins(1), |crowd| crowd.done() < all)?;
        let connected = memory(&mut server)?;
        let cpu = server.cpu()?;
        crowd.tell(|member, out| out.extend(&member.wait))?;
        server.wait("blocked_clients", |blocked| blocked >= float(number))?;
        let cpu = server.cpu()? - cpu;
        let blocked = memory(&mut server)?;
        drop(crowd);
        server.wait("blocked_clients", |blocked| blocked < 0.5)?;
        let after = memory(&mut server)?;
        let each = |bytes: f64| show(bytes / float(number));
        rows.push(vec![
            format!("{number} clients {name}"),
            show(cpu * 1e6 / float(number)),
            each(connected - before),
            each(blocked - connected),
            each(after - before),
        ]);
    }
    bench.report.table(
        "A waiter's memory",
        "Bytes of used_memory: of a connection, what it takes more while it waits, and what is left of both. Nearly \
         all of it is [two clients that the server makes for each](performance.md#waiting).",
        &["what", "CPU to block", "bytes, connection", "bytes more, waiting", "bytes left"],
        rows,
    );
    Ok(())
}

/// Many locks, each with its ring of clients.
fn rings(bench: &mut Bench, waiters: usize) -> Result<()> {
    let locks = waiters / 10;
    bench.say(&format!("{waiters} waiters on {locks} locks"));
    let server = bench.server(Kind::Module, &[])?;
    let clients = waiters + locks;
    let members =
        (0..clients).map(|index| Fairlock::new(&format!("ring:{}", index % locks), index));
    let crowd = Crowd::connect(server.address(), members)?;
    let mut rings = Contestant::new("rings", 0, crowd);
    let mut servers = [server];
    for _ in 0..bench.rounds {
        rings.measure(&mut servers, bench.window)?;
    }
    bench.report.table(
        "Many locks with waiters",
        "Every client releases what it gets at once and asks again.",
        &["what", "hand-offs a second", "CPU"],
        vec![vec![
            format!("{waiters} waiters on {locks} locks"),
            spread(&rings.rate),
            spread(&rings.cpu),
        ]],
    );
    Ok(())
}
