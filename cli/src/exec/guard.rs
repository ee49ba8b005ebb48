//! Noticing that the lock is lost.
//!
//! The end of the connection is noticed, and client-side caching tells when the lock's key changes. Then, and each
//! second, the server is asked for the holder. (The key of a lock that is held together with others changes whenever
//! one of them comes or goes: there it is asked each second only.) If it does not answer, the lock counts as lost early
//! enough to end the command before the lease ends.

use std::fmt;
use std::time::Duration;

use redis::PushKind;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::failure::{Failure, LOST};
use crate::lock::Lock;
use crate::server::{Link, PAUSE, REPLY, Trouble};
use crate::text::word;

/// Longest time between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// A lease without an end.
const FOREVER: Duration = Duration::from_hours(24);

/// Why the lock counts as lost.
#[derive(Debug, PartialEq, Eq)]
pub enum Loss {
    /// The connection has ended, and the lock with it.
    Closed(String),
    /// The lock is free.
    Free,
    /// It is no longer among the holders.
    NotAHolder,
    /// Another owner holds it.
    Taken(Vec<u8>),
    /// It was acquired anew as the same owner.
    AcquiredAnew(i64),
    /// The lease may be over soon, and the server has not confirmed another end.
    Unsafe(String),
    /// The release could not be confirmed.
    Unconfirmed(String),
}

impl fmt::Display for Loss {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(address) => write!(
                out,
                "the connection to the server at {address} has ended (killed, or the server is gone)"
            ),
            Self::Free => out.write_str("it was freed (FAIRLOCK.BREAK, DEL, or its lease ended)"),
            Self::NotAHolder => out.write_str(
                "it is no holder of it any more (FAIRLOCK.BREAK, DEL, HDEL, or its lease ended)",
            ),
            Self::Taken(owner) => write!(out, "{} holds it now", word(owner)),
            Self::AcquiredAnew(token) => {
                write!(
                    out,
                    "it was acquired anew as the same owner, with token {token}"
                )
            }
            Self::Unsafe(why) => write!(out, "its lease may end soon, and {why}"),
            Self::Unconfirmed(why) => out.write_str(why),
        }
    }
}

/// What is held.
#[derive(Debug)]
pub struct Hold {
    /// The lock.
    pub key: Vec<u8>,
    /// The owner.
    pub owner: Vec<u8>,
    /// The fencing token.
    pub token: i64,
    /// Whether others may hold it at the same time.
    pub is_shared: bool,
}

impl Hold {
    /// Asks the server for it, without a time limit.
    async fn look(&self, link: &mut Link) -> Result<Lock, Trouble> {
        if self.is_shared {
            link.holder_for_long(&self.key, &self.owner).await
        } else {
            link.lock_for_long(&self.key).await
        }
    }

    /// Whether it is lost, by the server's answer.
    fn judge(&self, lock: &Lock) -> Option<Loss> {
        match (&lock.owner, lock.token) {
            (None, _) if self.is_shared => Some(Loss::NotAHolder),
            (None, _) => Some(Loss::Free),
            (Some(holder), _) if *holder != self.owner => Some(Loss::Taken(holder.clone())),
            (Some(_), Some(other)) if other != self.token => Some(Loss::AcquiredAnew(other)),
            // The token's key may have been deleted or evicted.
            (Some(_), _) => None,
        }
    }
}

/// Watches over a lock that is held.
#[derive(Debug)]
pub struct Guard {
    link: Link,
    hold: Hold,
    grace: Duration,
    /// How late a busy machine may be to deliver a signal.
    margin: Duration,
    /// Time between two looks.
    look: Duration,
    /// Until when the lock is held for sure, with time to end the command.
    safe_until: Instant,
}

impl Guard {
    /// Looks at the lock for the first time. `grace` is how long ending the command may take, `patience` how long the
    /// server may be busy.
    pub async fn new(
        mut link: Link,
        hold: Hold,
        grace: Duration,
        patience: Duration,
    ) -> Result<Self, Failure> {
        if !hold.is_shared {
            // Without the permission, the next look tells of changes.
            let _ = link
                .ask(redis::cmd("CLIENT").arg("TRACKING").arg("ON"))
                .await;
        }
        let start = Instant::now();
        let (now, lock) = loop {
            let now = Instant::now();
            let lock = timeout(REPLY, hold.look(&mut link)).await;
            match lock.unwrap_or_else(|_| Err(Trouble::silent(&link.target))) {
                Ok(lock) => break (now, lock),
                Err(Trouble::Passing(_)) if start.elapsed() < patience => sleep(PAUSE).await,
                Err(trouble) => return Err(trouble.into_failure()),
            }
        };
        let lease = lease_of(&lock);
        let mut guard = Self {
            link,
            hold,
            grace: grace.min(lease / 3),
            margin: lease / 10,
            look: LOOK.min(lease / 6).max(Duration::from_millis(1)),
            safe_until: now,
        };
        if let Some(loss) = guard.judge(&lock, now) {
            let key = word(&guard.hold.key);
            let text = format!("the lock {key} was lost at once: {loss}");
            return Err(Failure::new(LOST, text));
        }
        Ok(guard)
    }

    /// How long ending the command may take, so that it is over before the lease.
    #[must_use]
    pub fn grace(&self) -> Duration {
        self.grace
    }

    /// Waits until the lock is lost.
    pub async fn lost(&mut self) -> Loss {
        let silent = format!(
            "the server at {} does not answer",
            self.link.target.address()
        );
        loop {
            let next_look = (Instant::now() + self.look).min(self.safe_until);
            tokio::select! {
                push = self.link.pushes.recv() => {
                    if push.is_none_or(|push| push.kind == PushKind::Disconnection) {
                        return Loss::Closed(self.link.target.address());
                    }
                }
                () = sleep_until(next_look) => (),
            }
            let asked = Instant::now();
            let answer = timeout_at(self.safe_until, self.hold.look(&mut self.link)).await;
            let why = match answer {
                Ok(Ok(lock)) => {
                    if let Some(loss) = self.judge(&lock, asked) {
                        return loss;
                    }
                    "the server does not renew it".to_owned()
                }
                // The end of the connection is noticed elsewhere.
                Ok(Err(trouble)) => trouble.text(),
                Err(_) => silent.clone(),
            };
            if Instant::now() >= self.safe_until {
                return Loss::Unsafe(why);
            }
        }
    }

    /// What the server's answer to a question means.
    fn judge(&mut self, lock: &Lock, asked: Instant) -> Option<Loss> {
        let loss = self.hold.judge(lock);
        if loss.is_none() {
            let needed = self.grace + self.margin;
            self.safe_until = asked + lease_of(lock).saturating_sub(needed);
        }
        loss
    }

    /// Gives the lock back; an error if it had been lost by then. A server that is busy is asked again, for so long.
    pub async fn release(mut self, patience: Duration) -> Result<(), Loss> {
        let mut command = redis::cmd("FAIRLOCK.RELEASE");
        command
            .arg(&self.hold.key)
            .arg(&self.hold.owner)
            .arg("TOKEN")
            .arg(self.hold.token);
        let start = Instant::now();
        let mut is_said = false;
        loop {
            let why = match self.link.ask(&command).await {
                Ok(_) => return Ok(()),
                Err(Trouble::Passing(why)) if start.elapsed() < patience => {
                    if !is_said {
                        let key = word(&self.hold.key);
                        eprintln!("fairlock: cannot give back the lock {key} yet: {why}");
                        is_said = true;
                    }
                    sleep(PAUSE).await;
                    continue;
                }
                Err(trouble) if trouble.code() == Some("NOTHELD") => {
                    "the server says that it is not held any more".to_owned()
                }
                Err(trouble) => trouble.text(),
            };
            return Err(Loss::Unconfirmed(why));
        }
    }
}

fn lease_of(lock: &Lock) -> Duration {
    u64::try_from(lock.lease).map_or(FOREVER, Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(owner: Option<&str>, token: Option<i64>) -> Lock {
        Lock {
            owner: owner.map(|owner| owner.as_bytes().to_vec()),
            token,
            ..Lock::default()
        }
    }

    fn hold(is_shared: bool) -> Hold {
        Hold {
            key: b"k".to_vec(),
            owner: b"a".to_vec(),
            token: 7,
            is_shared,
        }
    }

    #[test]
    fn a_lock_is_held_by_owner_and_token() {
        for (owner, token, expected) in [
            (Some("a"), Some(7), None),
            (Some("a"), None, None),
            (Some("a"), Some(8), Some(Loss::AcquiredAnew(8))),
            (Some("b"), Some(7), Some(Loss::Taken(b"b".to_vec()))),
            (None, Some(7), Some(Loss::Free)),
        ] {
            assert_eq!(hold(false).judge(&lock(owner, token)), expected);
        }
        assert_eq!(hold(true).judge(&lock(Some("a"), Some(7))), None);
        let gone = hold(true).judge(&Lock::default());
        assert_eq!(gone, Some(Loss::NotAHolder));
    }

    #[test]
    fn a_lease_without_end_is_long() {
        let endless = Lock {
            lease: -1,
            ..Lock::default()
        };
        assert_eq!(lease_of(&endless), FOREVER);
    }
}
