//! Clients that are answered at once, and ask again when a message wakes them or when the time in the reply is over:
//! those of `FAIRLOCK.ACQUIRE ... ENQUEUE`, of the packages' scripts, and of Redisson's. These are quicker than
//! Redisson's own client in two ways: they stay subscribed, and receive messages on the connection that they ask on.
//! So almost only the server's work on the lock is measured.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use fairlock_testing::resp::{Reply, packed};
use fairlock_testing::{lua, redisson};

use super::{KEY, LEASE};
use crate::crowd::{Member, encode};

/// How a client asks, and how it gives the lock back.
enum Words {
    /// By the same words each time.
    Same { ask: Vec<u8>, release: Vec<u8> },
    /// By scripts that take the client's time.
    Redisson,
}

/// One client.
pub struct Waiting {
    words: Words,
    owner: String,
    /// What Redisson calls the lock by.
    keys: [String; 5],
    greeted: bool,
    subscribed: bool,
    /// Answers to what it sent when it released the lock, which come before that to the next question.
    unanswered: usize,
    /// Messages that came while a question was on its way. Each is good for one more question.
    permits: u32,
    waits: bool,
    until: Option<Instant>,
    done: u64,
}

impl Waiting {
    /// A client of `FAIRLOCK.ACQUIRE ... ENQUEUE`.
    pub fn polling(number: u32) -> Self {
        Self::same(number, |words| packed(words))
    }

    /// A client that sends the commands as scripts.
    pub fn by_scripts(number: u32) -> Self {
        Self::same(number, |words| packed(&lua::call(words)))
    }

    fn same(number: u32, command: impl Fn(&[&str]) -> Vec<u8>) -> Self {
        let (owner, lease) = (owner(number), String::from_utf8_lossy(LEASE));
        let acquire = ["FAIRLOCK.ACQUIRE", KEY, &owner];
        let ask = command(&[&acquire[..], &["ENQUEUE", "LEASE", &lease]].concat());
        let release = command(&["FAIRLOCK.RELEASE", KEY, &owner]);
        Self::new(Words::Same { ask, release }, number)
    }

    /// A client of Redisson's scripts.
    pub fn redisson(number: u32) -> Self {
        Self::new(Words::Redisson, number)
    }

    fn new(words: Words, number: u32) -> Self {
        Self {
            words,
            owner: owner(number),
            keys: redisson::keys(KEY, &number.to_string()),
            greeted: false,
            subscribed: false,
            unanswered: 0,
            permits: 0,
            waits: false,
            until: None,
            done: 0,
        }
    }

    fn ask(&self, out: &mut Vec<u8>) {
        match &self.words {
            Words::Same { ask, .. } => out.extend(ask),
            Words::Redisson => self.call("lock", out),
        }
    }

    /// A call of Redisson's script for a role, at the client's time.
    fn call(&self, role: &str, out: &mut Vec<u8>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_millis();
        let times = [600_000, 300_000, u64::try_from(now).unwrap_or(0)];
        let (_, latch) = self.keys[4].rsplit_once(':').unwrap_or_default();
        let names = (KEY, &self.owner[..]);
        out.extend(packed(&redisson::call_by_digest(role, names, latch, times)));
    }

    fn hand_on(&mut self, out: &mut Vec<u8>) {
        self.done += 1;
        // Messages of the past no longer count.
        (self.permits, self.waits, self.until) = (0, false, None);
        match &self.words {
            Words::Same { release, .. } => {
                out.extend(release);
                self.unanswered = 1;
            }
            Words::Redisson => {
                self.call("unlock", out);
                encode(out, &[b"DEL", self.keys[4].as_bytes()]);
                self.unanswered = 2;
            }
        }
        self.ask(out);
    }

    /// It does not hold the lock, and is to ask again after some milliseconds; a negative number means that only a
    /// message ends the wait.
    fn told_to_wait(&mut self, milliseconds: i64, out: &mut Vec<u8>) {
        if self.permits > 0 || milliseconds == 0 {
            self.permits = self.permits.saturating_sub(1);
            self.ask(out);
            return;
        }
        self.waits = true;
        let time = u64::try_from(milliseconds).ok();
        self.until = time.map(|time| Instant::now() + Duration::from_millis(time));
    }

    fn woken(&mut self, out: &mut Vec<u8>) {
        self.until = None;
        if std::mem::take(&mut self.waits) {
            self.ask(out);
        } else {
            self.permits += 1;
        }
    }
}

fn owner(number: u32) -> String {
    format!("owner:{number}")
}

impl Member for Waiting {
    fn begin(&mut self, out: &mut Vec<u8>) {
        encode(out, &[b"HELLO", b"3"]);
        let channel = format!("{}:{}", self.keys[3], self.owner);
        encode(out, &[b"SUBSCRIBE", channel.as_bytes()]);
        self.ask(out);
    }

    fn receive(&mut self, reply: &Reply, out: &mut Vec<u8>) -> Result<()> {
        let is_redisson = matches!(self.words, Words::Redisson);
        match reply {
            // The first one confirms the subscription.
            Reply::Push(_) if !std::mem::replace(&mut self.subscribed, true) => (),
            Reply::Push(_) => self.woken(out),
            Reply::Items(_) if !self.greeted => self.greeted = true,
            Reply::Int(_) if self.unanswered > 0 => self.unanswered -= 1,
            Reply::Nil if is_redisson => self.hand_on(out),
            Reply::Int(after) if is_redisson => self.told_to_wait(*after, out),
            Reply::Int(1..) => self.hand_on(out),
            Reply::Items(place) if let [_, Reply::Int(after)] = place[..] => {
                self.told_to_wait(after, out);
            }
            other => bail!("{other:?} to a client that waits"),
        }
        Ok(())
    }

    fn done(&self) -> u64 {
        self.done
    }

    fn due(&self) -> Option<Instant> {
        self.until
    }

    fn time_up(&mut self, out: &mut Vec<u8>) {
        self.woken(out);
    }
}
