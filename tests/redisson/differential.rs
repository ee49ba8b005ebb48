//! Every known script against its native form: random states and arguments, run by Lua on one
//! server and natively on the other, leave the same reply, keys, scores, lease and messages; and
//! what the native form replicates makes the replica's data equal to its master's.
//!
//! Each case is one transaction (state, script, what is left), so that nothing else acts between.
//! `DIFFERENTIAL_CASES` says how many cases there are for each release, `DIFFERENTIAL_SEED` which.

use redis::Value;

use crate::client::{Client, show};
use crate::harvest::{Script, harvest};
use crate::listener::Listener;
use crate::releases::releases;
use crate::server::{Server, wait_until};
use crate::states::{Case, Random};

/// Cases that are run before everything is compared and forgotten.
const BATCH: usize = 500;
/// Milliseconds that two servers may differ by where their clocks come in: the second one runs a
/// case after the first.
const CLOCK: f64 = 1000.0;

/// A turn is longer than the test: the module's rules wake waiters on both sides, and nothing else.
const OPTIONS: [&str; 6] = [
    "--repl-diskless-sync-delay",
    "0",
    "--fairlock.turn",
    "3600000",
    "--enable-debug-command",
    "yes",
];

/// Two servers with the module: one leaves the scripts to Lua, one runs them natively.
struct Sides {
    lua: Server,
    native: Server,
    replica: Server,
}

#[test]
fn native_forms_do_what_the_scripts_do() {
    let setting = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let cases: usize = setting("DIFFERENTIAL_CASES").unwrap_or(50_000);
    let seed: u64 = setting("DIFFERENTIAL_SEED")
        .unwrap_or(1)
        .try_into()
        .expect("a number");
    for (release, seed) in releases().iter().zip(seed..) {
        let scripts = harvest(release);
        println!("Redisson {release}, seed {seed}");
        compare(&scripts, cases, &mut Random::new(seed));
    }
}

fn compare(scripts: &[Script], cases: usize, random: &mut Random) {
    let sides = Sides {
        lua: Server::with(&OPTIONS),
        native: Server::with(&[&OPTIONS[..], &["--fairlock.intercept-eval", "yes"]].concat()),
        replica: Server::without_module(&["--enable-debug-command", "yes"]),
    };
    let (mut lua, mut native) = (sides.lua.connect(), sides.native.connect());
    for script in scripts {
        for client in [&mut lua, &mut native] {
            client
                .raw(&[b"SCRIPT", b"LOAD", &script.text])
                .expect("loaded");
        }
    }
    sides.follow();
    let mut done = 0;
    while done < cases {
        let batch: Vec<Case> = (0..BATCH)
            .map(|n| Case::new(&scripts[n % scripts.len()], done + n, random))
            .collect();
        sides.compare_batch(&mut lua, &mut native, &batch);
        done += batch.len();
    }
    sides.scripts_ran_natively(done);
}

impl Sides {
    fn follow(&self) {
        let mut replica = self.replica.connect();
        replica.run(&format!("REPLICAOF 127.0.0.1 {}", self.native.port));
        wait_until("the replica is up to date", || {
            self.replica.info("replication", "master_link_status") == "up"
        });
    }

    fn compare_batch(&self, lua: &mut Client, native: &mut Client, batch: &[Case]) {
        let heard = [&self.lua, &self.native].map(|server| Listener::to_scripts(server.port));
        let expected = run(lua, batch);
        let found = run(native, batch);
        for ((case, expected), found) in batch.iter().zip(&expected).zip(&found) {
            let same = agree(expected, found, case.goes_by_the_clock);
            let (expected, found) = (show(expected), show(found));
            assert!(same, "{case}\nLua:    {expected}\nnative: {found}");
        }
        let [of_lua, of_native] = heard.map(Listener::finish);
        assert_eq!(of_lua, of_native, "messages");
        wait_until("the replica has what its master has", || {
            let digest = |server: &Server| server.connect().run("DEBUG DIGEST");
            digest(&self.native) == digest(&self.replica)
        });
        lua.run("FLUSHALL");
        native.run("FLUSHALL");
    }

    /// Most cases have a native form: it is not all left to Lua.
    fn scripts_ran_natively(&self, cases: usize) {
        let info = self.native.connect().text("INFO fairlock");
        let intercepted: usize = info
            .lines()
            .filter_map(|line| line.strip_prefix("fairlock_scripts_intercepted_"))
            .map(|line| line.split_once(':').expect("a number").1)
            .map(|number| number.parse::<usize>().expect("a number"))
            .sum();
        println!("{intercepted} of {cases} cases ran natively");
        assert!(intercepted > cases / 3, "{intercepted} of {cases}");
        let seen = self.lua.connect().text("INFO fairlock");
        assert!(!seen.contains("fairlock_scripts_lua_lock:0\n"));
    }
}

/// Runs cases; what EXEC replied to each.
fn run(client: &mut Client, batch: &[Case]) -> Vec<Value> {
    let commands: Vec<_> = batch
        .iter()
        .flat_map(|case| case.commands.clone())
        .collect();
    let replies = client.pipeline(&commands);
    let mut ends = batch.iter().scan(0, |end, case| {
        *end += case.commands.len();
        Some(*end - 1)
    });
    let mut next = ends.next();
    let mut results = Vec::new();
    for (index, reply) in replies.into_iter().enumerate() {
        if Some(index) == next {
            results.push(reply);
            next = ends.next();
        }
    }
    results
}

/// Whether the answers to two cases are the same, but for the clock.
fn agree(one: &Value, other: &Value, clock: bool) -> bool {
    let (Value::Array(ones), Value::Array(others)) = (one, other) else {
        return one == other;
    };
    // What is left of leases and latches goes by the clock in any case.
    let times = ones.len().saturating_sub(Case::TIMES);
    let pairs = ones.iter().zip(others).enumerate();
    ones.len() == others.len()
        && pairs
            .map(|(index, (one, other))| (one, other, clock || index >= times))
            .all(|(one, other, clock)| one == other || clock && close(one, other))
}

/// Whether two answers are the same but for a moment.
fn close(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Array(ones), Value::Array(others)) => {
            // Scores that are equal on one side only are in another order.
            let (ones, others) = (scores(ones), scores(others));
            let mut pairs = ones.iter().zip(&others);
            !ones.is_empty()
                && ones.len() == others.len()
                && pairs.all(|(one, other)| one.0 == other.0 && near(one.1, other.1))
        }
        _ => number(one)
            .zip(number(other))
            .is_some_and(|(one, other)| near(one, other)),
    }
}

fn near(one: f64, other: f64) -> bool {
    // Infinities are near themselves only.
    one.total_cmp(&other).is_eq() || (one - other).abs() <= CLOCK
}

/// Members with their scores, by member; nothing if it is something else.
fn scores(answer: &[Value]) -> Vec<(String, f64)> {
    let pairs = answer.chunks_exact(2);
    let pairs = pairs.map(|pair| Some((show(&pair[0]), number(&pair[1])?)));
    let mut scores: Vec<_> = pairs.collect::<Option<_>>().unwrap_or_default();
    scores.sort_by(|one, other| one.0.cmp(&other.0));
    scores
}

#[allow(clippy::cast_precision_loss)]
fn number(value: &Value) -> Option<f64> {
    match value {
        // Numbers below zero have a meaning of their own.
        Value::Int(number) if *number > 0 => Some(*number as f64),
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?.parse().ok(),
        _ => None,
    }
}
