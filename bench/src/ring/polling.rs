//! Clients that wait by `FAIRLOCK.ACQUIRE ... ENQUEUE`: they are answered at once, and ask again when
//! a message wakes them or when the retry-after of the reply is over.

use std::time::Instant;

use anyhow::{Result, bail};
use fairlock_testing::lua;

use super::LEASE;
use super::wait::Wait;
use crate::crowd::{Member, Traffic};
use crate::pairs::Names;
use crate::resp::{Reply, encode, encoded};

/// One client.
pub struct Polling {
    subscribe: Vec<u8>,
    acquire: Vec<u8>,
    release: Vec<u8>,
    wait: Wait,
    greeted: bool,
    subscribed: bool,
    /// The answer to a RELEASE comes before that to the next ACQUIRE.
    releases: bool,
    traffic: Traffic,
    done: u64,
}

impl Polling {
    /// The client of this number.
    pub fn new(key: &str, number: usize) -> Self {
        let owner = format!("owner:{number}");
        let channel = Names::of(key, number).wake_up(&owner);
        let (key, owner) = (key.as_bytes(), owner.as_bytes());
        Self {
            subscribe: encoded(&[b"SUBSCRIBE", channel.as_bytes()]),
            acquire: encoded(&[b"FAIRLOCK.ACQUIRE", key, owner, b"ENQUEUE", b"LEASE", LEASE]),
            release: encoded(&[b"FAIRLOCK.RELEASE", key, owner]),
            wait: Wait::default(),
            greeted: false,
            subscribed: false,
            releases: false,
            traffic: Traffic::default(),
            done: 0,
        }
    }

    /// The client of this number, which sends the commands as scripts.
    pub fn by_scripts(key: &str, number: usize) -> Self {
        let owner = format!("owner:{number}");
        let call = |words: &[&str]| {
            let words = lua::call(words);
            let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
            encoded(&words)
        };
        let lease = String::from_utf8_lossy(LEASE);
        Self {
            acquire: call(&["ACQUIRE", key, &owner, "ENQUEUE", "LEASE", &lease]),
            release: call(&["RELEASE", key, &owner]),
            ..Self::new(key, number)
        }
    }

    fn ask(&mut self, out: &mut Vec<u8>) {
        out.extend(&self.acquire);
        self.traffic.calls += 1;
    }

    fn hear_message(&mut self, out: &mut Vec<u8>) {
        // The first one confirms the subscription.
        if !std::mem::replace(&mut self.subscribed, true) {
            return;
        }
        self.traffic.messages += 1;
        if self.wait.message() {
            self.ask(out);
        }
    }

    fn hand_on(&mut self, out: &mut Vec<u8>) {
        self.done += 1;
        self.wait.acquired();
        self.releases = true;
        out.extend(&self.release);
        self.traffic.calls += 1;
        self.ask(out);
    }
}

impl Member for Polling {
    fn begin(&mut self, out: &mut Vec<u8>) {
        encode(out, &[b"HELLO", b"3"]);
        out.extend(&self.subscribe);
        self.ask(out);
    }

    fn hear(&mut self, reply: Reply<'_>, out: &mut Vec<u8>) -> Result<()> {
        match reply {
            Reply::Push => self.hear_message(out),
            Reply::Array(_) if !self.greeted => self.greeted = true,
            Reply::Integer(0) if self.releases => self.releases = false,
            Reply::Integer(token) if token > 0 && !self.releases => self.hand_on(out),
            Reply::Pair(_, retry_after) if !self.releases => {
                if self.wait.replied(retry_after) {
                    self.ask(out);
                }
            }
            other => bail!("{other:?} to a polling client"),
        }
        Ok(())
    }

    fn done(&self) -> u64 {
        self.done
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn due(&self) -> Option<Instant> {
        self.wait.until()
    }

    fn time_up(&mut self, out: &mut Vec<u8>) {
        if self.wait.end() {
            self.ask(out);
        }
    }
}
