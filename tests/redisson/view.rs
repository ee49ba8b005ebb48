//! What one lock's keys say, in words that are the same on any server: owners go by the names of
//! their threads, and moments by how far away they are.

use std::collections::HashMap;

use fairlock_testing::{Client, show};
use redis::Value;

/// The keys of `k`: itself, its queue, its deadlines.
pub const KEYS: [&str; 3] = ["k", "redisson_lock_queue:{k}", "redisson_lock_timeout:{k}"];
/// What is asked, at one moment.
const QUESTIONS: [&str; 10] = [
    "MULTI",
    "TIME",
    "KEYS *",
    "HGETALL k",
    "LRANGE redisson_lock_queue:{k} 0 -1",
    "ZRANGE redisson_lock_timeout:{k} 0 -1 WITHSCORES",
    "PTTL k",
    "PTTL redisson_lock_queue:{k}",
    "PTTL redisson_lock_timeout:{k}",
    "EXEC",
];
/// Milliseconds by which two servers may differ where a moment depends on when a client came; less than any patience.
const CLOCK: i64 = 4000;

/// Threads by the owners that the keys know.
pub type Names = HashMap<String, String>;

/// What the keys say at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Every key of the server; latches without the requests that they stand for.
    keys: Vec<String>,
    /// Holder and hold count.
    holder: Vec<String>,
    queue: Vec<String>,
    /// By how many milliseconds each deadline is later than the one ahead: what scripts make of it
    /// depends on no clock.
    gaps: Vec<Option<i64>>,
    /// Owners with a deadline and no place.
    lost: Vec<String>,
    /// Milliseconds from now: the head's deadline, the ends of the lease, the queue and the deadlines. Negative ones
    /// are PTTL's replies for keys without an end.
    times: [i64; 4],
}

impl View {
    pub fn of(client: &mut Client, names: &Names) -> Self {
        let answers = client.run_many(QUESTIONS);
        let answers = words(answers.last().expect("EXEC"));
        let [time, keys, holder, queue, scores, lease, ends @ ..] = &answers[..] else {
            panic!("{answers:?}");
        };
        let scores: HashMap<_, _> = scores
            .chunks_exact(2)
            .map(|pair| (pair[0].clone(), milliseconds(&pair[1])))
            .collect();
        let now = milliseconds(&time[0]) * 1000 + milliseconds(&time[1]) / 1000;
        let deadlines: Vec<_> = queue.iter().map(|owner| scores.get(owner)).collect();
        let head = deadlines.first().copied().flatten();
        let [queue_end, scores_end] = [&ends[0][0], &ends[1][0]].map(|end| milliseconds(end));
        let by_name = |owners: &[String]| owners.iter().map(|owner| name(names, owner)).collect();
        let mut lost: Vec<_> = scores
            .keys()
            .filter(|owner| !queue.contains(owner))
            .collect();
        lost.sort();
        Self {
            keys: key_names(keys),
            holder: by_name(holder),
            queue: by_name(queue),
            gaps: deadlines
                .windows(2)
                .map(|pair| Some(pair[1]? - pair[0]?))
                .collect(),
            lost: lost.into_iter().map(|owner| name(names, owner)).collect(),
            times: [
                head.map_or(-1, |head| head - now),
                milliseconds(&lease[0]),
                queue_end,
                scores_end,
            ],
        }
    }

    /// Whether two servers say the same, but for the moment at which they were asked.
    pub fn agrees_with(&self, other: &Self) -> bool {
        let timeless = |view: &Self| Self {
            times: [0; 4],
            ..view.clone()
        };
        let mut times = self.times.iter().zip(other.times);
        let near = |(one, other): (&i64, i64)| {
            (*one >= 0) == (other >= 0) && one.abs_diff(other) <= CLOCK.unsigned_abs()
        };
        timeless(self) == timeless(other) && times.all(near)
    }
}

/// The name of an owner's thread; the owner itself if it has none.
pub fn name(names: &Names, owner: &str) -> String {
    names.get(owner).map_or(owner, String::as_str).to_owned()
}

/// Answers as lists of words.
fn words(answers: &Value) -> Vec<Vec<String>> {
    let Value::Array(answers) = answers else {
        panic!("{answers:?}");
    };
    let list = |answer: &Value| match answer {
        Value::Array(items) => items.iter().map(show).collect(),
        other => vec![show(other)],
    };
    answers.iter().map(list).collect()
}

/// A score is the sum of whole numbers.
#[allow(clippy::cast_possible_truncation)]
fn milliseconds(word: &str) -> i64 {
    let number: f64 = word.parse().expect("a number");
    number as i64
}

fn key_names(keys: &[String]) -> Vec<String> {
    let name = |key: &String| match key.split_once("redisson_unlock_latch") {
        Some(_) => "latch".to_owned(),
        None => key.clone(),
    };
    let mut keys: Vec<_> = keys.iter().map(name).collect();
    keys.retain(|key| key != crate::trace::NOW && key != crate::stage::HOURGLASS);
    keys.sort();
    keys
}
