//! Clients that the server itself blocks: those of `FAIRLOCK.ACQUIRE`, and those of BLPOP to compare.

use anyhow::{Result, bail};

use super::LEASE;
use crate::crowd::{Member, Traffic};
use crate::resp::{Reply, encoded};

/// One client of `FAIRLOCK.ACQUIRE` and `FAIRLOCK.RELEASE`.
pub struct Fairlock {
    acquire: Vec<u8>,
    /// RELEASE and the next ACQUIRE, in one write.
    again: Vec<u8>,
    holds: bool,
    done: u64,
}

impl Fairlock {
    /// The client of this number.
    pub fn new(key: &str, number: usize) -> Self {
        Self::asking(key, number, &[])
    }

    /// The client of this number, which asks with more words.
    pub fn asking(key: &str, number: usize, words: &[&[u8]]) -> Self {
        let owner = format!("owner:{number}");
        let (key, owner) = (key.as_bytes(), owner.as_bytes());
        let lasting = [&b"FAIRLOCK.ACQUIRE"[..], key, owner, b"LEASE", LEASE];
        let acquire = encoded(&[&lasting[..], words].concat());
        let mut again = encoded(&[b"FAIRLOCK.RELEASE", key, owner]);
        again.extend(&acquire);
        Self {
            acquire,
            again,
            holds: false,
            done: 0,
        }
    }
}

impl Member for Fairlock {
    fn begin(&mut self, out: &mut Vec<u8>) {
        out.extend(&self.acquire);
    }

    fn hear(&mut self, reply: Reply<'_>, out: &mut Vec<u8>) -> Result<()> {
        match reply {
            Reply::Integer(0) if self.holds => self.holds = false,
            Reply::Integer(token) if token > 0 && !self.holds => {
                self.holds = true;
                self.done += 1;
                out.extend(&self.again);
            }
            other => bail!("{other:?} in a hand-off"),
        }
        Ok(())
    }

    fn done(&self) -> u64 {
        self.done
    }

    fn traffic(&self) -> Traffic {
        // Each gives back what it has got, and asks once more.
        Traffic {
            calls: 1 + 2 * self.done,
            messages: 0,
        }
    }
}

/// One client that takes a token from a list and puts it back: BLPOP and RPUSH.
pub struct Token {
    take: Vec<u8>,
    again: Vec<u8>,
    done: u64,
}

impl Token {
    /// Any client.
    pub fn new(key: &str) -> Self {
        let key = key.as_bytes();
        let take = encoded(&[b"BLPOP", key, b"0"]);
        let mut again = encoded(&[b"RPUSH", key, b"token"]);
        again.extend(&take);
        Self {
            take,
            again,
            done: 0,
        }
    }
}

impl Member for Token {
    fn begin(&mut self, out: &mut Vec<u8>) {
        out.extend(&self.take);
    }

    fn hear(&mut self, reply: Reply<'_>, out: &mut Vec<u8>) -> Result<()> {
        match reply {
            Reply::Integer(_) => (),
            Reply::Array(2) => {
                self.done += 1;
                out.extend(&self.again);
            }
            other => bail!("{other:?} in passing a token"),
        }
        Ok(())
    }

    fn done(&self) -> u64 {
        self.done
    }

    fn traffic(&self) -> Traffic {
        // Each gives back what it has got, and asks once more.
        Traffic {
            calls: 1 + 2 * self.done,
            messages: 0,
        }
    }
}
