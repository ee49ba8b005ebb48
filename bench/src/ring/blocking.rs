//! Clients that the server itself blocks: those of `FAIRLOCK.ACQUIRE`, and those of BLPOP to compare.

use anyhow::{Result, bail};
use fairlock_testing::resp::{Reply, packed};

use super::{KEY, LEASE};
use crate::crowd::Member;

/// One client.
pub struct Blocking {
    ask: Vec<u8>,
    release: Vec<u8>,
    /// The answer to a release comes before that to the next question.
    releases: bool,
    done: u64,
}

impl Blocking {
    /// A client of `FAIRLOCK.ACQUIRE` and `FAIRLOCK.RELEASE`.
    pub fn fairlock(number: u32) -> Self {
        let owner = format!("owner:{number}");
        let (key, owner) = (KEY.as_bytes(), owner.as_bytes());
        Self::of(
            &[b"FAIRLOCK.ACQUIRE", key, owner, b"LEASE", LEASE],
            &[b"FAIRLOCK.RELEASE", key, owner],
        )
    }

    /// A client that takes a token from a list and puts it back.
    pub fn token() -> Self {
        let key = KEY.as_bytes();
        Self::of(&[b"BLPOP", key, b"0"], &[b"RPUSH", key, b"token"])
    }

    fn of(ask: &[&[u8]], release: &[&[u8]]) -> Self {
        Self {
            ask: packed(ask),
            release: packed(release),
            releases: false,
            done: 0,
        }
    }
}

impl Member for Blocking {
    fn begin(&mut self, out: &mut Vec<u8>) {
        out.extend(&self.ask);
    }

    fn receive(&mut self, reply: &Reply, out: &mut Vec<u8>) -> Result<()> {
        match reply {
            Reply::Int(_) if self.releases => self.releases = false,
            Reply::Int(1..) | Reply::Items(_) => {
                self.done += 1;
                self.releases = true;
                out.extend(&self.release);
                out.extend(&self.ask);
            }
            other => bail!("{other:?} in a hand-off"),
        }
        Ok(())
    }

    fn done(&self) -> u64 {
        self.done
    }
}
