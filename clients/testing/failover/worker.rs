//! Holds locks one after another while masters fail over, and says when: a line of JSON for each event. What it reads
//! from the environment, and the lines, are the same in all languages. It ends when its standard input does.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fairlock::{Error, Options, aio::Locks};

fn variable(name: &str) -> String {
    std::env::var(format!("FAILOVER_{name}")).unwrap_or_default()
}

fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

/// One line at a time, and at once.
fn say(event: &str, lock: &str, more: &str) {
    let line = format!("{{\"event\":\"{event}\",\"lock\":\"{lock}\"{more}}}\n");
    let mut out = std::io::stdout().lock();
    drop(out.write_all(line.as_bytes()).and_then(|()| out.flush()));
}

/// A time from the range of milliseconds in a variable, another each time.
fn between(name: &str, usual: &str) -> Duration {
    let range = variable(name);
    let range = if range.is_empty() { usual } else { &range };
    let (low, high) = range.split_once('-').unwrap_or((range, range));
    let (low, high): (u64, u64) = (low.parse().unwrap_or(0), high.parse().unwrap_or(0));
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH);
    let random = u64::from(nanos.unwrap_or_default().subsec_micros());
    Duration::from_millis(low + random % (high - low + 1))
}

async fn call(locks: Arc<Locks>, lock: String, limit: u32) {
    loop {
        let asked = locks.lock(&lock).wait(Duration::from_secs(2));
        let asked = if limit > 1 { asked.limit(limit) } else { asked };
        let held = match asked.acquire().await {
            Ok(held) => held,
            Err(error) => {
                if !error.is_not_in_time() {
                    say(
                        "error",
                        &lock,
                        &format!(",\"error\":{:?}", error.to_string()),
                    );
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                continue;
            }
        };
        let (at, owner, token) = (now(), held.owner(), held.token());
        let more =
            format!(",\"limit\":{limit},\"owner\":\"{owner}\",\"token\":{token},\"at\":{at:.6}");
        say("begin", &lock, &more);
        let lost = tokio::time::timeout(between("HOLD_MS", "50-150"), held.lost()).await;
        let how = lost.map_or("release".to_owned(), |error| {
            format!("lost:{}", cause(&error))
        });
        let more = format!(",\"token\":{token},\"at\":{:.6},\"how\":\"{how}\"", now());
        say("end", &lock, &more);
        match held.release().await {
            Err(error) if error.cause().is_some() => {
                if how == "release" {
                    let more = format!(",\"token\":{token},\"cause\":\"{}\"", cause(&error));
                    say("late", &lock, &more);
                }
            }
            Err(error) => say(
                "error",
                &lock,
                &format!(",\"error\":{:?}", error.to_string()),
            ),
            Ok(()) => (),
        }
        tokio::time::sleep(between("IDLE_MS", "0-0")).await;
    }
}

fn cause(error: &Error) -> String {
    format!("{:?}", error.cause())
        .to_lowercase()
        .replace("some(", "")
        .replace(')', "")
}

fn options() -> Options {
    let mut options = Options::default();
    if let Ok(lease) = variable("LEASE_MS").parse() {
        options.lease = Duration::from_millis(lease);
    }
    options.min_replicas = variable("MIN_REPLICAS").parse().ok();
    options
}

#[tokio::main]
async fn main() -> fairlock::Result<()> {
    let sentinels = variable("SENTINELS");
    let urls = sentinels.split(',').map(|each| format!("redis://{each}"));
    let locks = Locks::sentinel(urls, &variable("MASTER"), None)?.with(options());
    let locks = Arc::new(locks);
    for lock in variable("LOCKS").split(',') {
        let (name, limit) = lock.split_once(':').unwrap_or((lock, "1"));
        for _ in 0..variable("WORKERS").parse().unwrap_or(1) {
            let limit = limit.parse().unwrap_or(1);
            tokio::spawn(call(locks.clone(), name.to_owned(), limit));
        }
    }
    let input = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    drop(input.await);
    std::process::exit(0) // Calls are under way; what they hold ends with its lease.
}
