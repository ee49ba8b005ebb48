//! Clients without a lock: a message goes round, with as many calls, writes and messages as a hand-off
//! among polling clients takes. The commands do next to nothing, so what is measured is what the server
//! needs to read, answer and tell clients. No lock that clients ask for in this way can be cheaper.

use anyhow::{Result, bail};

use crate::crowd::{Member, Traffic};
use crate::resp::{Reply, encode, encoded};

/// One client.
pub struct Relay {
    subscribe: Vec<u8>,
    /// In place of the script that asks for the lock.
    ask: Vec<u8>,
    /// In place of the script that releases it, and of the deletion of its latch.
    pass_on: Vec<u8>,
    subscribed: bool,
    /// A message has come, and the question that follows it has not been answered yet.
    its_turn: bool,
    traffic: Traffic,
    done: u64,
}

/// The channel of a client.
pub fn channel(number: usize) -> String {
    format!("relay:{number}")
}

impl Relay {
    /// The client of this number, among all.
    pub fn new(number: usize, clients: usize) -> Self {
        let (own, next) = (channel(number), channel((number + 1) % clients));
        let mut pass_on = encoded(&[b"PUBLISH", next.as_bytes(), b"0"]);
        encode(&mut pass_on, &[b"DEL", b"latch"]);
        Self {
            subscribe: encoded(&[b"SUBSCRIBE", own.as_bytes()]),
            ask: encoded(&[b"EXISTS", b"lock"]),
            pass_on,
            subscribed: false,
            its_turn: false,
            traffic: Traffic::default(),
            done: 0,
        }
    }

    fn ask(&mut self, out: &mut Vec<u8>) {
        out.extend(&self.ask);
        self.traffic.calls += 1;
    }

    fn hear_message(&mut self, out: &mut Vec<u8>) {
        // The first one confirms the subscription.
        if !std::mem::replace(&mut self.subscribed, true) {
            return;
        }
        self.traffic.messages += 1;
        self.its_turn = true;
        self.ask(out);
    }

    fn hand_on(&mut self, out: &mut Vec<u8>) {
        self.done += 1;
        out.extend(&self.pass_on);
        self.traffic.calls += 1;
        self.ask(out);
    }
}

impl Member for Relay {
    fn begin(&mut self, out: &mut Vec<u8>) {
        encode(out, &[b"HELLO", b"3"]);
        out.extend(&self.subscribe);
    }

    fn hear(&mut self, reply: Reply<'_>, out: &mut Vec<u8>) -> Result<()> {
        match reply {
            Reply::Push => self.hear_message(out),
            Reply::Integer(_) if std::mem::take(&mut self.its_turn) => self.hand_on(out),
            Reply::Integer(_) | Reply::Array(_) => {}
            other => bail!("{other:?} to a client that passes a message on"),
        }
        Ok(())
    }

    fn done(&self) -> u64 {
        self.done
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }
}
