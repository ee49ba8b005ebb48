//! What a step costs behind a queue of 10, 1,000 and 100,000 waiters.

use anyhow::Result;

use crate::bench::{Bench, Contestant, growth};
use crate::crowd::Crowd;
use crate::pairs::{Answer, Batches};
use crate::report::grouped;
use crate::resp::encode;
use crate::server::{Kind, Server};
use crate::work;

const LENGTHS: [usize; 3] = [10, 1_000, 100_000];
/// Longer than the scene.
const LONG: &[u8] = b"3600000";

/// What is done to the queue, all on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// An owner joins and cancels.
    Join,
    /// Waiters from the middle cancel and join again.
    Cancel,
    /// A blocked waiter joins, and its time is up.
    TimeOut,
    /// The holder releases, the head takes the lock, and the holder joins again.
    HandOff,
}

const STEPS: [(Step, &str); 4] = [
    (Step::Join, "join and cancel at the end"),
    (Step::Cancel, "cancel in the middle and join"),
    (Step::TimeOut, "join, block and time out"),
    (Step::HandOff, "hand off to a polling head"),
];

/// Runs the scene. Returns the lines of its picture.
pub fn run(bench: &mut Bench) -> Result<()> {
    let mut rows = Vec::new();
    for (step, name) in STEPS {
        let (mut servers, mut contestants) = (Vec::new(), Vec::new());
        for (index, length) in LENGTHS.into_iter().enumerate() {
            if bench.quick && length > 10_000 {
                continue;
            }
            bench.say(&format!("{length} waiters"));
            let mut server = queue(bench, length)?;
            contestants.push(Contestant::new(
                name,
                index,
                clients(&mut server, step, length)?,
            ));
            servers.push(server);
        }
        rows.push(growth(bench, name, &mut servers, &mut contestants)?);
    }
    let mut header = vec!["step".to_owned()];
    let lengths = LENGTHS
        .iter()
        .filter(|length| !bench.quick || **length <= 10_000);
    header.extend(lengths.map(|length| format!("{} waiters", grouped(*length))));
    header.push("longest queue ÷ shortest".to_owned());
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    bench.report.table(
        "The length of the queue",
        "CPU of a step, by the number of polling waiters (ENQUEUE) in the queue.",
        &header,
        rows,
    );
    Ok(())
}

fn owner(index: usize) -> String {
    format!("waiter:{index}")
}

/// A server with a held lock and a queue.
fn queue(bench: &Bench, length: usize) -> Result<Server> {
    let mut server = bench.server(Kind::Module, &["--fairlock.max-waiters", "1000000"])?;
    let _: i64 = server.run(&[b"FAIRLOCK.ACQUIRE", b"lock", b"holder", b"LEASE", LONG])?;
    let joined = work::in_order(&server, length, |index, out| {
        enqueue(out, &owner(index));
    })?;
    drop(joined);
    Ok(server)
}

fn enqueue(out: &mut Vec<u8>, owner: &str) {
    let words = [
        &b"FAIRLOCK.ACQUIRE"[..],
        b"lock",
        owner.as_bytes(),
        b"ENQUEUE",
    ];
    let lasting = [&b"PATIENCE"[..], LONG, b"LEASE", LONG];
    encode(out, &[&words[..], &lasting[..]].concat());
}

fn clients(server: &mut Server, step: Step, length: usize) -> Result<Crowd<Batches>> {
    let address = server.address();
    match step {
        Step::Join => {
            let answers = [Answer::Array, Answer::Is(1)];
            let batches = Batches::new(1, 8, &answers, |out, _, unit| {
                let owner = format!("newcomer:{unit}");
                enqueue(out, &owner);
                encode(out, &[b"FAIRLOCK.CANCEL", b"lock", owner.as_bytes()]);
            });
            Crowd::connect(address, [batches])
        }
        Step::Cancel => {
            // A waiter that cancels from the middle joins at the end. After half the queue has done so, the next in the
            // middle are the same again.
            let number = (length / 16).max(1);
            let answers = [Answer::Is(1), Answer::Array];
            let batches = Batches::new(number, 8, &answers, |out, batch, unit| {
                let index = (length / 2 + batch * 8 + unit) % length;
                let owner = owner(index);
                encode(out, &[b"FAIRLOCK.CANCEL", b"lock", owner.as_bytes()]);
                enqueue(out, &owner);
            });
            Crowd::connect(address, [batches])
        }
        Step::TimeOut => {
            let members = (0..50).map(|connection| {
                Batches::new(1, 1, &[Answer::Nil], move |out, _, _| {
                    let owner = format!("hurried:{connection}");
                    let words = [&b"FAIRLOCK.ACQUIRE"[..], b"lock", owner.as_bytes()];
                    encode(out, &[&words[..], &[b"WAIT", b"1"]].concat());
                })
            });
            Crowd::connect(address, members)
        }
        Step::HandOff => {
            // The holder counts as the waiter before the first: "waiter:-1".
            let _: i64 = server.run(&[b"FAIRLOCK.RELEASE", b"lock", b"holder"])?;
            let first = owner(0);
            let words = [
                &b"FAIRLOCK.ACQUIRE"[..],
                b"lock",
                first.as_bytes(),
                b"ENQUEUE",
            ];
            let _: i64 = server.run(&[&words[..], &[b"LEASE", LONG]].concat())?;
            let answers = [Answer::Is(0), Answer::Positive, Answer::Array];
            // As many batches as bring the lock back to the first.
            let number = if length.is_multiple_of(8) {
                length / 8
            } else {
                length
            };
            let batches = Batches::new(number, 8, &answers, move |out, batch, unit| {
                let holder = owner((batch * 8 + unit) % length);
                let next = owner((batch * 8 + unit + 1) % length);
                encode(out, &[b"FAIRLOCK.RELEASE", b"lock", holder.as_bytes()]);
                enqueue(out, &next);
                enqueue(out, &holder);
            });
            Crowd::connect(address, [batches])
        }
    }
}
