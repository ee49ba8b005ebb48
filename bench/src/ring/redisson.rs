//! Clients of Redisson's scripts. They wait as Redisson's own client does: for a message, or for the time to live in
//! the reply to the last question. They are quicker than it in two ways: they stay subscribed, and they hear messages
//! on the connection that they ask on. So almost only the server's work on the lock is measured.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use fairlock_testing::redisson::Scripts;

use super::LEASE;
use super::wait::Wait;
use crate::crowd::{Member, Traffic};
use crate::pairs::{Manner, Names};
use crate::resp::{Reply, encode};

/// One client.
pub struct Redisson {
    scripts: Rc<Scripts>,
    names: Names,
    owner: String,
    /// What the next replies answer.
    asked: VecDeque<Asked>,
    subscribed: bool,
    wait: Wait,
    traffic: Traffic,
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
            asked: VecDeque::new(),
            subscribed: false,
            wait: Wait::default(),
            traffic: Traffic::default(),
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
        self.asked.push_back(Asked::Lock);
        self.traffic.calls += 1;
    }

    fn hand_on(&mut self, out: &mut Vec<u8>) {
        self.done += 1;
        self.wait.acquired();
        let owner = self.owner.as_bytes();
        encode(
            out,
            &self.names.unlock(Manner::EvalSha, &self.scripts, owner),
        );
        encode(out, &[b"DEL", self.names.latch()]);
        self.asked.extend([Asked::Unlock, Asked::Latch]);
        self.traffic.calls += 1;
        self.lock(out);
    }

    fn hear_message(&mut self, out: &mut Vec<u8>) {
        // The first one confirms the subscription.
        if !std::mem::replace(&mut self.subscribed, true) {
            return;
        }
        self.traffic.messages += 1;
        if self.wait.message() {
            self.lock(out);
        }
    }
}

impl Member for Redisson {
    fn begin(&mut self, out: &mut Vec<u8>) {
        encode(out, &[b"HELLO", b"3"]);
        self.asked.push_back(Asked::Hello);
        encode(
            out,
            &[b"SUBSCRIBE", self.names.wake_up(&self.owner).as_bytes()],
        );
        self.lock(out);
    }

    fn hear(&mut self, reply: Reply<'_>, out: &mut Vec<u8>) -> Result<()> {
        if reply == Reply::Push {
            self.hear_message(out);
            return Ok(());
        }
        match (self.asked.pop_front(), reply) {
            (Some(Asked::Hello), Reply::Array(_))
            | (Some(Asked::Unlock | Asked::Latch), Reply::Integer(1)) => {}
            (Some(Asked::Lock), Reply::Nil) => self.hand_on(out),
            (Some(Asked::Lock), Reply::Integer(milliseconds)) => {
                if self.wait.replied(milliseconds) {
                    self.lock(out);
                }
            }
            (asked, other) => bail!("{other:?} to {asked:?}"),
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
            self.lock(out);
        }
    }
}
