//! An independent witness of one lock: it rebuilds holder and queue from what the server
//! replicates, and holds every step to the rules of a fair lock.
//!
//! A step is a transaction, or a command alone. An owner that becomes the holder in it must have been the head, or all
//! waiters before it left the queue in that step or earlier. Owners that left without the lock are counted; the test
//! says whether they had given up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fairlock_testing::{Client, Server, wait_until};

use crate::keys::Keys;
use crate::replica::{Effect, Replica};

/// What a busy machine may add to any promised time.
const SLACK: Duration = Duration::from_secs(5);
/// Written to the server to mark the stream's end.
const END: &str = "end-of-stream";
/// Steps that are shown when something is wrong.
const SHOWN: usize = 30;

/// What was seen.
#[derive(Debug, Default)]
pub struct Seen {
    /// The served owners, in order.
    pub served: Vec<String>,
    /// When and how an owner has left the queue without the lock, each time.
    pub left: HashMap<String, Vec<Left>>,
    /// Rules that were broken.
    pub violations: Vec<String>,
}

/// Once that an owner has left the queue without the lock.
#[derive(Clone, Debug)]
pub struct Left {
    pub at: Instant,
    pub how: String,
}

/// A witness at work.
pub struct Stream {
    port: u16,
    seen: Arc<Mutex<Seen>>,
    reader: JoinHandle<()>,
}

impl Stream {
    /// Watches a lock of a server whose turns have a length.
    pub fn watch(server: &Server, lock: &str, turn: Duration) -> Self {
        let mut replica = Replica::follow(server.port);
        let seen = Arc::<Mutex<Seen>>::default();
        let mut watched = Watched::new(lock, turn, Arc::clone(&seen));
        let reader = thread::spawn(move || {
            while let Some(effect) = replica.next() {
                // That the mark expires may be seen by the next witness.
                if effect.words[0] == "SET" && effect.words[1] == END {
                    break;
                }
                watched.take(effect);
            }
        });
        let port = server.port;
        wait_until("the witness is there", || {
            server.info("replication", "connected_slaves") != "0"
        });
        Self { port, seen, reader }
    }

    /// All that was seen up to now.
    pub fn finish(self) -> Seen {
        Client::new(self.port, 2).run(&format!("SET {END} 1 PX 1"));
        self.reader.join().expect("the witness");
        std::mem::take(&mut *self.seen.lock().expect("no panic elsewhere"))
    }
}

/// An owner that has left the queue without the lock.
struct Away {
    owner: String,
    left: Left,
    /// The waiters behind it.
    behind: Vec<String>,
}

/// The lock as rebuilt.
struct Watched {
    turn: Duration,
    keys: Keys,
    step: Vec<Effect>,
    in_transaction: bool,
    /// Since when the lock has been free, or the head has been the head: its turn.
    free_since: Instant,
    head_since: Instant,
    /// Owners out of the queue that may yet be put back where they stood.
    away: Vec<Away>,
    history: Vec<String>,
    seen: Arc<Mutex<Seen>>,
}

impl Watched {
    fn new(lock: &str, turn: Duration, seen: Arc<Mutex<Seen>>) -> Self {
        Self {
            turn,
            keys: Keys::new(lock),
            step: Vec::new(),
            in_transaction: false,
            free_since: Instant::now(),
            head_since: Instant::now(),
            away: Vec::new(),
            history: Vec::new(),
            seen,
        }
    }

    fn take(&mut self, effect: Effect) {
        match effect.words[0].to_ascii_uppercase().as_str() {
            "MULTI" => self.in_transaction = true,
            "EXEC" => {
                self.in_transaction = false;
                self.end_step();
            }
            _ => {
                self.step.push(effect);
                if !self.in_transaction {
                    self.end_step();
                }
            }
        }
    }

    fn end_step(&mut self) {
        let step = std::mem::take(&mut self.step);
        let ours = step.iter().any(|effect| self.keys.concern(effect));
        let Some(at) = step.first().map(|effect| effect.at).filter(|_| ours) else {
            return;
        };
        let before = self.keys.clone();
        // One that ends one hold and begins another has a moment in between.
        let mut freed = false;
        let mut orders = vec![before.queue.clone()];
        for effect in &step {
            if let Err(problem) = self.keys.apply(effect) {
                self.complain(&problem);
            }
            freed |= self.keys.holds.is_empty();
            orders.push(self.keys.queue.clone());
        }
        self.remember(&step);
        self.judge(&before, &orders, freed, at);
    }

    fn judge(&mut self, before: &Keys, orders: &[Vec<String>], freed: bool, at: Instant) {
        let after = self.keys.clone();
        if after.holds.len() > 1 {
            self.complain("two holders");
        }
        let holder = after.holds.keys().next().cloned();
        let is_new = holder.is_some() && (freed || holder != before.holds.keys().next().cloned());
        let served = holder.filter(|_| is_new);
        if let Some(owner) = &served {
            self.judge_service(owner, orders, &after);
            if before.queue.first() == Some(owner) {
                self.judge_turn(before, at);
            }
        }
        self.count_leavers(before, &after, served.as_ref(), at);
        self.judge_lease(before, &after);
        if after.holds.is_empty() && !before.holds.is_empty() || is_new {
            self.free_since = at;
        }
        if before.queue.first() != after.queue.first() {
            self.judge_turn(before, at);
            self.head_since = at;
        }
    }

    /// The served owner must not have had a waiter before it that still waits, when it last stood in the queue; it may
    /// have been put back in the same step. A newcomer must have found the queue empty.
    fn judge_service(&mut self, owner: &str, orders: &[Vec<String>], after: &Keys) {
        let ahead = orders.iter().rev().find_map(|order| {
            let place = order.iter().position(|other| other == owner)?;
            order.get(..place)
        });
        let ahead = ahead.unwrap_or_else(|| orders.first().map_or(&[], Vec::as_slice));
        if let Some(passed) = ahead.iter().find(|other| after.queue.contains(other)) {
            self.complain(&format!("{owner} was served before {passed}"));
        }
        let mut seen = self.seen.lock().expect("no panic elsewhere");
        seen.served.push(owner.to_owned());
    }

    /// A head whose turn has come takes the lock or is dropped before its turn is over.
    fn judge_turn(&mut self, before: &Keys, at: Instant) {
        let Some(head) = before.queue.first().filter(|_| before.holds.is_empty()) else {
            return;
        };
        let took = at - self.free_since.max(self.head_since);
        if took > self.turn + SLACK {
            self.complain(&format!("the turn of {head} took {took:?}"));
        }
    }

    /// With waiters, a hold must end soon after its lease.
    fn judge_lease(&mut self, before: &Keys, after: &Keys) {
        if before.queue.is_empty() || !after.holds.is_empty() {
            return;
        }
        let Some(end) = before.lease_end else { return };
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let late = now.expect("after 1970").saturating_sub(end);
        if late > SLACK {
            self.complain(&format!("the end of a lease was noticed {late:?} late"));
        }
    }

    fn count_leavers(&mut self, before: &Keys, after: &Keys, served: Option<&String>, at: Instant) {
        let mut seen = self.seen.lock().expect("no panic elsewhere");
        let away = std::mem::take(&mut self.away);
        for away in away {
            match after.queue.iter().position(|other| *other == away.owner) {
                // Scripts took it out, and the server has put it back: it never was away.
                Some(place) if !after.queue[..place].iter().any(|o| away.behind.contains(o)) => (),
                None if served == Some(&away.owner) => (),
                None if !served.is_some_and(|owner| away.behind.contains(owner)) => {
                    self.away.push(away);
                }
                _ => seen.left.entry(away.owner).or_default().push(away.left),
            }
        }
        let how = self.history.last().cloned().unwrap_or_default();
        let since = self.free_since.max(self.head_since).elapsed();
        for (place, owner) in before.queue.iter().enumerate() {
            if !after.queue.contains(owner) && Some(owner) != served {
                self.away.push(Away {
                    owner: owner.clone(),
                    left: Left {
                        at,
                        how: format!("{since:?} into a turn or hold: {how}"),
                    },
                    behind: before.queue[place + 1..].to_vec(),
                });
            }
        }
    }

    fn remember(&mut self, step: &[Effect]) {
        let words: Vec<_> = step.iter().map(|effect| effect.words.join(" ")).collect();
        self.history.push(words.join("; "));
        if self.history.len() > SHOWN {
            self.history.remove(0);
        }
    }

    fn complain(&self, problem: &str) {
        let history = self.history.join("\n    ");
        let mut seen = self.seen.lock().expect("no panic elsewhere");
        seen.violations
            .push(format!("{problem}\n  after:\n    {history}"));
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut seen = self.seen.lock().expect("no panic elsewhere");
        for away in self.away.drain(..) {
            seen.left.entry(away.owner).or_default().push(away.left);
        }
    }
}
