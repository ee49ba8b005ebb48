//! Taking a lock and giving it back without contention: connections that send batch after batch of commands.

use anyhow::{Result, bail};
use fairlock_testing::lua::{self, sha1};
use fairlock_testing::redisson;
use fairlock_testing::resp::{Reply, packed};

use crate::crowd::{Member, encode};
use crate::ring::retrying::RELEASE;

/// Pairs in one batch: 16 commands where a pair is two.
pub const PAIRS: usize = 8;
/// Different batches of a connection: together 32 locks.
const BATCHES: usize = 4;
const LEASE: &[u8] = b"30000";
/// A time that a client's clock could show.
const NOW: u64 = 1_790_000_000_000;

/// The expected answer to a command.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// Exactly this integer.
    Is(i64),
    /// An integer above 0.
    Positive,
    /// Nil.
    Nil,
    /// A text: OK.
    Text,
}

impl Answer {
    fn fits(self, reply: &Reply) -> bool {
        match (self, reply) {
            (Self::Is(wanted), Reply::Int(number)) => wanted == *number,
            (Self::Positive, Reply::Int(number)) => *number > 0,
            (Self::Nil, Reply::Nil) | (Self::Text, Reply::Status(_) | Reply::Bulk(_)) => true,
            _ => false,
        }
    }
}

/// A connection that sends batches, one after the other has been answered.
pub struct Batches {
    encoded: Vec<Vec<u8>>,
    answers: Vec<Answer>,
    heard: usize,
    sent: usize,
    done: u64,
}

impl Batches {
    /// Batches of pairs. `commands` encodes those of a pair; `answers` are the expected ones.
    pub fn new(answers: &[Answer], commands: impl Fn(&mut Vec<u8>, usize)) -> Self {
        let batch = |index| {
            let mut out = Vec::new();
            let pairs = index * PAIRS..(index + 1) * PAIRS;
            pairs.for_each(|pair| commands(&mut out, pair));
            out
        };
        Self {
            encoded: (0..BATCHES).map(batch).collect(),
            answers: answers.repeat(PAIRS),
            heard: 0,
            sent: 0,
            done: 0,
        }
    }

    fn send(&mut self, out: &mut Vec<u8>) {
        let index = self.sent % self.encoded.len();
        out.extend(self.encoded.get(index).into_iter().flatten());
        self.sent += 1;
        self.heard = 0;
    }
}

impl Member for Batches {
    fn begin(&mut self, out: &mut Vec<u8>) {
        self.send(out);
    }

    fn receive(&mut self, reply: &Reply, out: &mut Vec<u8>) -> Result<()> {
        let wanted = self.answers.get(self.heard);
        if !wanted.is_some_and(|wanted| wanted.fits(reply)) {
            bail!("{reply:?} where {wanted:?} was expected");
        }
        self.heard += 1;
        if self.heard == self.answers.len() {
            self.done += PAIRS as u64;
            self.send(out);
        }
        Ok(())
    }

    fn done(&self) -> u64 {
        self.done
    }
}

/// The ways of taking locks and giving them back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// `FAIRLOCK.ACQUIRE ... NOWAIT` and `FAIRLOCK.RELEASE`.
    Fairlock,
    /// Redisson's try-lock and unlock by EVALSHA, and the DEL of the latch that its client sends after each unlock.
    Redisson,
    /// `SET NX PX` and DEL.
    Set,
    /// `SET NX PX` and the script that deletes the owner's own key, as redis-py's Lock.
    RedisPy,
    /// The packages' scripts.
    OwnScripts,
}

/// A connection that does nothing but pairs.
pub fn pairs(manner: Manner, connection: u32) -> Batches {
    let owner = &format!("8d2c4a43-5f0e-4c7b-9a86-3f2f6f2a{connection:04}:42")[..];
    let answers: &[Answer] = match manner {
        Manner::Fairlock | Manner::OwnScripts => &[Answer::Positive, Answer::Is(0)],
        Manner::Set | Manner::RedisPy => &[Answer::Text, Answer::Is(1)],
        Manner::Redisson => &[Answer::Nil, Answer::Is(1), Answer::Is(1)],
    };
    Batches::new(answers, |out, unit| {
        let key = &format!("order:{connection}:{unit}")[..];
        let (name, id) = (key.as_bytes(), owner.as_bytes());
        let set = [b"SET", name, id, b"NX", b"PX", LEASE];
        match manner {
            Manner::Fairlock => {
                encode(out, &[b"FAIRLOCK.ACQUIRE", name, id, b"NOWAIT"]);
                encode(out, &[b"FAIRLOCK.RELEASE", name, id]);
            }
            Manner::Set => {
                encode(out, &set);
                encode(out, &[b"DEL", name]);
            }
            Manner::RedisPy => {
                encode(out, &set);
                let release = sha1(RELEASE);
                encode(out, &[b"EVALSHA", release.as_bytes(), b"1", name, id]);
            }
            Manner::OwnScripts => {
                let acquire = ["ACQUIRE", key, owner, "NOWAIT"];
                for command in [&acquire[..], &["RELEASE", key, owner]] {
                    out.extend(packed(&lua::call(command)));
                }
            }
            Manner::Redisson => {
                let latch = &connection.to_string();
                for role in ["try-lock", "unlock"] {
                    let times = [30_000, 300_000, NOW];
                    let call = redisson::call_by_digest(role, (key, owner), latch, times);
                    out.extend(packed(&call));
                }
                let [.., latch] = redisson::keys(key, latch);
                encode(out, &[b"DEL", latch.as_bytes()]);
            }
        }
    })
}
