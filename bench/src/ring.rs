//! One lock, many clients, no pause: whoever gets it gives it back at once and asks again. So
//! there is always one holder and all others wait.

use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};

use crate::crowd::Member;
use crate::pairs::{Manner, Names};
use crate::redisson::Scripts;
use crate::resp::{Reply, encode};

const LEASE: &[u8] = b"600000";

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
        let owner = format!("owner:{number}");
        let (key, owner) = (key.as_bytes(), owner.as_bytes());
        let mut acquire = Vec::new();
        encode(
            &mut acquire,
            &[b"FAIRLOCK.ACQUIRE", key, owner, b"LEASE", LEASE],
        );
        let mut again = Vec::new();
        encode(&mut again, &[b"FAIRLOCK.RELEASE", key, owner]);
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
        let mut take = Vec::new();
        encode(&mut take, &[b"BLPOP", key, b"0"]);
        let mut again = Vec::new();
        encode(&mut again, &[b"RPUSH", key, b"token"]);
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
}

/// One client of Redisson's scripts. It hears its wake-ups on the connection that it asks on,
/// which a client of Redisson's cannot do as fast.
pub struct Redisson {
    scripts: Rc<Scripts>,
    names: Names,
    owner: String,
    /// What the next replies answer.
    asked: Vec<Asked>,
    subscribed: bool,
    woken: bool,
    waits: bool,
    done: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Hello,
    Lock,
    Unlock,
    Latch,
}

impl Redisson {
    /// The client of this number.
    pub fn new(scripts: &Rc<Scripts>, key: &str, number: usize) -> Self {
        Self {
            scripts: Rc::clone(scripts),
            names: Names::of(key, number),
            owner: format!("owner:{number}"),
            asked: Vec::new(),
            subscribed: false,
            woken: false,
            waits: false,
            done: 0,
        }
    }

    fn lock(&mut self, out: &mut Vec<u8>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_millis().to_string();
        let owner = self.owner.as_bytes();
        encode(
            out,
            &self.names.lock(&self.scripts, LEASE, owner, now.as_bytes()),
        );
        self.asked.push(Asked::Lock);
        self.waits = false;
        self.woken = false;
    }

    fn pass_on(&mut self, out: &mut Vec<u8>) {
        let owner = self.owner.as_bytes();
        encode(
            out,
            &self.names.unlock(Manner::EvalSha, &self.scripts, owner),
        );
        encode(out, &[b"DEL", self.names.latch()]);
        self.asked.extend([Asked::Unlock, Asked::Latch]);
        self.lock(out);
    }
}

impl Member for Redisson {
    fn begin(&mut self, out: &mut Vec<u8>) {
        encode(out, &[b"HELLO", b"3"]);
        self.asked.push(Asked::Hello);
        encode(
            out,
            &[b"SUBSCRIBE", self.names.wake_up(&self.owner).as_bytes()],
        );
        self.lock(out);
    }

    fn hear(&mut self, reply: Reply<'_>, out: &mut Vec<u8>) -> Result<()> {
        if reply == Reply::Push {
            // The first one confirms the subscription.
            self.woken = std::mem::replace(&mut self.subscribed, true);
            if self.woken && self.waits {
                self.lock(out);
            }
            return Ok(());
        }
        if self.asked.is_empty() {
            bail!("{reply:?} out of turn");
        }
        match (self.asked.remove(0), reply) {
            (Asked::Hello, Reply::Array(_)) | (Asked::Unlock | Asked::Latch, Reply::Integer(1)) => {
            }
            (Asked::Lock, Reply::Nil) => {
                self.done += 1;
                self.pass_on(out);
            }
            (Asked::Lock, Reply::Integer(_)) if self.woken => self.lock(out),
            (Asked::Lock, Reply::Integer(_)) => self.waits = true,
            (asked, other) => bail!("{other:?} to {asked:?}"),
        }
        Ok(())
    }

    fn done(&self) -> u64 {
        self.done
    }
}
