//! Clients that ask again and again until the lock is free, as redis-py's `Lock` does: SET NX PX, once every
//! 0.1 s, and a script that deletes the key if it still has the client's value.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use fairlock_testing::lua::sha1;
use fairlock_testing::resp::{Reply, packed};

use super::{KEY, LEASE};
use crate::crowd::Member;

/// redis-py's default.
const PAUSE: Duration = Duration::from_millis(100);

/// Gives the lock back if it is still the client's.
pub const RELEASE: &str =
    "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0";

/// One client.
pub struct Retrying {
    acquire: Vec<u8>,
    release: Vec<u8>,
    next: Option<Instant>,
    done: u64,
}

impl Retrying {
    /// The client of this number among so many.
    ///
    /// Clients of different processes ask at different times, so these begin at different times.
    pub fn new(number: u32, clients: u32) -> Self {
        let owner = format!("owner:{number}");
        let (key, owner) = (KEY.as_bytes(), owner.as_bytes());
        Self {
            acquire: packed(&[b"SET", key, owner, b"NX", b"PX", LEASE]),
            release: packed(&[b"EVALSHA", sha1(RELEASE).as_bytes(), b"1", key, owner]),
            next: Some(Instant::now() + PAUSE * number / clients.max(1)),
            done: 0,
        }
    }

    fn pause(&mut self) {
        self.next = Some(Instant::now() + PAUSE);
    }
}

impl Member for Retrying {
    fn begin(&mut self, _out: &mut Vec<u8>) {}

    fn receive(&mut self, reply: &Reply, out: &mut Vec<u8>) -> Result<()> {
        match reply {
            Reply::Status(_) => {
                self.done += 1;
                out.extend(&self.release);
            }
            // Another client has the lock; or this one has released it, and would win it again if it asked at once.
            Reply::Nil | Reply::Int(1) => self.pause(),
            other => bail!("{other:?} to a client that tries"),
        }
        Ok(())
    }

    fn done(&self) -> u64 {
        self.done
    }

    fn due(&self) -> Option<Instant> {
        self.next
    }

    fn time_up(&mut self, out: &mut Vec<u8>) {
        self.next = None;
        out.extend(&self.acquire);
    }
}
