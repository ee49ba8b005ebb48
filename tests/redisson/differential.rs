//! Every known script against its native form: random states and arguments, run by Lua on one
//! server and natively on the other, leave the same holder, queue, lease, latch and messages, and get the same
//! reply; and what the native form replicates makes the replica's data equal to its master's.
//!
//! What is computed from scores goes by the native form's own rules.
//!
//! Each case is one transaction (state, script, what is left), so that nothing else acts between.
//! `DIFFERENTIAL_CASES` says how many cases there are for each release, `DIFFERENTIAL_SEED` which.

use std::time::Instant;

use fairlock_testing::redisson::harvest::{Script, harvest};
use fairlock_testing::redisson::releases;
use fairlock_testing::{
    Client, Dice, Listener, Server, WAKE_UPS, follow, give_up, setting, show, wait_until,
};
use redis::Value;

use crate::interception::Interception;
use crate::states::Case;

/// Cases that are run before everything is compared and forgotten: so few that even a busy machine has run them on both
/// servers before a waiter of theirs has been silent for 5 s.
const BATCH: usize = 100;
/// Milliseconds that two servers may differ by where their clocks come in: the second one runs a
/// case after the first. To it comes what running them takes.
const CLOCK: f64 = 1000.0;

/// No grace for waiters that are found: it is a turn from the start. The module's own wake-ups are not heard by
/// subscribers to [`WAKE_UPS`]: only those of scripts are compared.
const OPTIONS: [&str; 6] = [
    "--fairlock.turn",
    "1",
    "--fairlock.pubsub",
    "spublish",
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
    let cases = setting("DIFFERENTIAL_CASES").map_or(50_000, |number| {
        usize::try_from(number).expect("a number of cases")
    });
    let seed = setting("DIFFERENTIAL_SEED").unwrap_or(1);
    for (release, seed) in releases().iter().zip(seed..) {
        let scripts = harvest(release);
        println!("Redisson {release}, seed {seed}");
        compare(&scripts, cases, &mut Dice::new(seed, 0));
    }
}

fn compare(scripts: &[Script], cases: usize, dice: &mut Dice) {
    let sides = Sides {
        lua: Interception::Off.server(&OPTIONS),
        native: Interception::On.server(&OPTIONS),
        replica: Server::without_module(&["--enable-debug-command", "yes"]),
    };
    let (mut lua, mut native) = (sides.lua.connect(), sides.native.connect());
    for client in [&mut lua, &mut native] {
        // From now on no turn ends before the test does.
        client.run("CONFIG SET fairlock.turn 3600000");
    }
    for script in scripts {
        for client in [&mut lua, &mut native] {
            client
                .raw(&[b"SCRIPT", b"LOAD", &script.text])
                .expect("loaded");
        }
    }
    follow(&sides.replica, &sides.native);
    let mut done = 0;
    while done < cases {
        // A server that was kept from listening, as on a busy machine, takes waiters of which it knows nothing but the
        // score for alive as long again. So a difference counts if it stays when the same cases are made anew: each
        // goes by the time at which it was made.
        let start = Instant::now();
        *dice = loop {
            let mut tried = dice.clone();
            let batch: Vec<Case> = (0..BATCH)
                .map(|n| Case::new(&scripts[n % scripts.len()], done + n, &mut tried))
                .collect();
            let Some(difference) = sides.difference(&mut lua, &mut native, &batch) else {
                break tried;
            };
            assert!(start.elapsed() < give_up(), "{difference}");
        };
        done += BATCH;
    }
    sides.scripts_ran_natively(done);
}

impl Sides {
    fn difference(&self, lua: &mut Client, native: &mut Client, batch: &[Case]) -> Option<String> {
        let heard = [&self.lua, &self.native].map(|server| Listener::new(server.port, WAKE_UPS));
        let start = Instant::now();
        let expected = run(lua, batch);
        let found = run(native, batch);
        let apart = CLOCK + start.elapsed().as_secs_f64() * 1000.0;
        let [of_lua, of_native] = heard.map(|listener| listener.until_now());
        wait_until("the replica has what its master has", || {
            let digest = |server: &Server| server.connect().run("DEBUG DIGEST");
            digest(&self.native) == digest(&self.replica)
        });
        lua.run("FLUSHALL");
        native.run("FLUSHALL");
        let mut cases = batch.iter().zip(expected.iter().zip(&found));
        let differs = cases.find(|(case, (lua, native))| !agree(case, apart, lua, native));
        differs
            .map(|(case, (lua, native))| {
                format!("{case}\nLua:    {}\nnative: {}", show(lua), show(native))
            })
            .or_else(|| (of_lua != of_native).then(|| format!("{of_lua:?}\n{of_native:?}")))
    }

    /// Most cases have a native form: it is not all left to Lua.
    fn scripts_ran_natively(&self, cases: usize) {
        let info = self.native.connect().run("INFO fairlock");
        let intercepted: usize = info
            .lines()
            .filter_map(|line| line.strip_prefix("fairlock_scripts_intercepted_"))
            .map(|line| line.split_once(':').expect("a number").1)
            .map(|number| number.parse::<usize>().expect("a number"))
            .sum();
        println!("{intercepted} of {cases} cases ran natively");
        assert!(intercepted > cases / 3, "{intercepted} of {cases}");
    }
}

/// Runs cases; returns EXEC's reply to each.
fn run(client: &mut Client, batch: &[Case]) -> Vec<Value> {
    let commands: Vec<_> = batch
        .iter()
        .flat_map(|case| case.commands.clone())
        .collect();
    let mut replies = client.pipeline(&commands).into_iter();
    let last = |case: &Case| replies.nth(case.commands.len() - 1);
    batch.iter().map_while(last).collect()
}

/// Whether the answers to a case are the same, except for the clock and for scores.
fn agree(case: &Case, apart: f64, one: &Value, other: &Value) -> bool {
    let (Value::Array(ones), Value::Array(others)) = (one, other) else {
        return one == other;
    };
    // What is left of leases and latches goes by the clock in any case.
    let times = ones.len().saturating_sub(Case::TIMES);
    let reply = ones.len().saturating_sub(Case::QUESTIONS + 1);
    let same = |(index, (one, other)): (usize, (&Value, &Value))| {
        let clock = case.goes_by_the_clock || index >= times;
        one == other
            || clock && close(apart, one, other)
            || index == reply && told_by_rule(case, apart, one, other, others)
            || index == reply + Case::SCORES && stay_for_others(case, apart, one, other)
    };
    ones.len() == others.len() && ones.iter().zip(others).enumerate().all(same)
}

/// Whether a native reply to a waiter follows the rules, where Lua follows scores.
fn told_by_rule(case: &Case, apart: f64, lua: &Value, native: &Value, after: &[Value]) -> bool {
    let (Value::Int(lua), Value::Int(told)) = (lua, native) else {
        return false;
    };
    if *lua > 0 && near(apart, to_float(*lua), to_float(*told)) {
        // Lua has doubles only.
        return true;
    }
    let lock_is_free =
        matches!(answer(after, Case::HOLDER), Some(Value::Array(holder)) if holder.is_empty());
    if *lua <= 0 && (*told == 0 || lock_is_free && *told > 0) {
        // A negative number computed from a score, or what is left of another waiter's turn.
        return true;
    }
    let queue = answer(after, Case::QUEUE).map(show).unwrap_or_default();
    let queue: Vec<&str> = queue.trim_matches(['[', ']']).split(", ").collect();
    let position = queue.iter().position(|owner| *owner == case.owner);
    let lease = match answer(after, Case::LEASE) {
        Some(Value::Int(lease)) => to_float(*lease).max(0.0),
        _ => 0.0,
    };
    let position = position.and_then(|position| u32::try_from(position).ok());
    position.zip(case.wait).is_some_and(|(position, wait)| {
        let by_position = lease + wait * f64::from(position);
        // Not at once, at another's turn.
        let waits_for_turn = by_position == 0.0 && lock_is_free && *told > 0;
        let same = near(apart, by_position.min(to_float(i64::MAX)), to_float(*told));
        same || waits_for_turn
    })
}

/// Whether the scores of the same waiters are there, and those of others stay. By which rule the caller's is set, the
/// model has shown.
fn stay_for_others(case: &Case, apart: f64, lua: &Value, native: &Value) -> bool {
    let (Value::Array(lua), Value::Array(native)) = (lua, native) else {
        return false;
    };
    let (lua, native) = (scores(lua), scores(native));
    let stays = |(owner, score): &(String, f64)| {
        let mut before = case.scores.iter();
        before.any(|(other, before)| other == owner && near(apart, *before, *score))
    };
    let owners = |scores: &[(String, f64)]| -> Vec<String> {
        scores.iter().map(|(owner, _)| owner.clone()).collect()
    };
    owners(&lua) == owners(&native) && native.iter().all(|of| of.0 == case.owner || stays(of))
}

/// The answer to one of the questions after the call.
fn answer(after: &[Value], question: usize) -> Option<&Value> {
    after.get(after.len().checked_sub(Case::QUESTIONS)? + question)
}

#[allow(clippy::cast_precision_loss)]
fn to_float(number: i64) -> f64 {
    number as f64
}

/// Whether two answers are the same except for a moment.
fn close(apart: f64, one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Array(ones), Value::Array(others)) => {
            // Scores that are equal on one side only are in another order.
            let (ones, others) = (scores(ones), scores(others));
            let mut pairs = ones.iter().zip(&others);
            !ones.is_empty()
                && ones.len() == others.len()
                && pairs.all(|(one, other)| one.0 == other.0 && near(apart, one.1, other.1))
        }
        _ => number(one)
            .zip(number(other))
            .is_some_and(|(one, other)| near(apart, one, other)),
    }
}

fn near(apart: f64, one: f64, other: f64) -> bool {
    // Infinities are near themselves only.
    let exact = one.abs().max(other.abs()) * f64::EPSILON * 4.0;
    one.total_cmp(&other).is_eq() || (one - other).abs() <= apart + exact
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
