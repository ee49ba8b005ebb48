//! A fuzzer on the wire: random commands on random contents of a lock's four keys, against a real
//! server with a replica and an append-only file.
//!
//! [`words`] has what commands are made of, [`grammar`] their forms, [`steps`] what a client does
//! with them, [`connection`] sends them and holds each reply to its command, [`round`] has
//! several clients go on at a time and looks at what is left when all is said.
//!
//! `FUZZ_COMMANDS` says how many commands (`make fuzz`: ten million), `FUZZ_SEED` which ones: the
//! seed that a failure tells begins with the round that failed.

// All of it is for tests: one that cannot go on panics.
#![cfg(test)]

mod connection;
mod data;
mod grammar;
mod reply;
mod round;
mod scripts;
mod steps;
mod words;

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use fairlock_testing::setting;

use round::Stage;

/// A few seconds' worth.
const DAILY: usize = 100_000;
/// Commands of one round, after which everything is looked at and deleted.
const ROUND: usize = 20_000;
/// Rounds after which the append-only file is loaded.
const LOADED: usize = 10;
/// Bytes by which the server's memory may differ when all keys are deleted. Its caches of errors, names and scripts
/// have bounds, and are full after the first rounds.
const SLACK: i64 = 512 * 1024;
/// Rounds until these caches are full.
const WARM: usize = 5;

#[test]
fn no_command_and_no_content_of_a_key_breaks_the_server() {
    let commands = setting("FUZZ_COMMANDS").map_or(DAILY, |number| {
        usize::try_from(number).expect("a number of commands")
    });
    let clock = SystemTime::now().duration_since(UNIX_EPOCH);
    let seed = setting("FUZZ_SEED").unwrap_or(clock.expect("after 1970").as_secs());
    println!("FUZZ_SEED={seed} FUZZ_COMMANDS={commands}");
    let (start, mut stage) = (Instant::now(), Stage::new());
    let (mut sent, mut kept) = (0, Vec::new());
    for round in 0.. {
        sent += stage.play(seed.wrapping_add(round as u64), ROUND.min(commands - sent));
        stage.check_replica();
        if round % LOADED == 0 || sent >= commands {
            stage.check_append_only_file();
        }
        kept.push(stage.clean());
        if sent >= commands {
            break;
        }
        if round % 50 == 49 {
            println!("{sent} commands, {:?}", start.elapsed());
        }
    }
    println!(
        "{sent} commands in {:?}, {} rounds",
        start.elapsed(),
        kept.len()
    );
    println!("bytes of data kept after rounds: {kept:?}");
    let warm = kept.iter().skip(WARM).take(WARM).min();
    let grown = kept.last().zip(warm).map_or(0, |(last, warm)| last - warm);
    assert!(grown < SLACK, "{grown} bytes more are kept than before");
}
