//! Noticing that the lock is lost.
//!
//! The end of the connection is noticed, and client-side caching tells when the lock's key changes. Then, and each
//! second, the server is asked for the holder. (The key of a lock that is held together with others changes whenever
//! one of them comes or goes: there it is asked each second only.) If it does not answer, the lock counts as lost early
//! enough to end the command before the lease ends.

use std::time::Duration;

use redis::PushKind;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::failure::{Failure, LOST};
use crate::lock::Lock;
use crate::server::{Link, PAUSE, REPLY, Trouble};
use crate::text::word;

use super::request::Request;

/// Longest time between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// A lease without an end.
const FOREVER: Duration = Duration::from_hours(24);

/// Why the lock counts as lost, for an operator.
pub type Loss = String;

/// Watches over a lock that is held.
#[derive(Debug)]
pub struct Guard<'a> {
    link: Link,
    request: &'a Request<'a>,
    /// The fencing token.
    pub token: i64,
    /// How long ending the command may take, so that it is over before the lease.
    pub grace: Duration,
    /// How late a busy machine may be to deliver a signal.
    margin: Duration,
    /// Time between two looks.
    look: Duration,
    /// Until when the lock is held for sure, with time to end the command.
    safe_until: Instant,
}

impl<'a> Guard<'a> {
    /// Looks at the lock for the first time.
    pub async fn new(
        mut link: Link,
        request: &'a Request<'a>,
        token: i64,
    ) -> Result<Self, Failure> {
        if !request.args.is_shared() {
            // Without the permission, the next look tells of changes.
            let _ = link
                .ask(redis::cmd("CLIENT").arg("TRACKING").arg("ON"))
                .await;
        }
        let start = Instant::now();
        let (now, lock) = loop {
            let now = Instant::now();
            let lock = timeout(REPLY, look(request, &mut link)).await;
            match lock.unwrap_or_else(|_| Err(Trouble::silent(&link.target))) {
                Ok(lock) => break (now, lock),
                Err(Trouble::Passing(_)) if start.elapsed() < request.args.reconnect => {
                    sleep(PAUSE).await;
                }
                Err(trouble) => return Err(trouble.into_failure()),
            }
        };
        let lease = lease_of(&lock);
        let mut guard = Self {
            link,
            request,
            token,
            grace: request.args.grace.min(lease / 3),
            margin: lease / 10,
            look: LOOK.min(lease / 6).max(Duration::from_millis(1)),
            safe_until: now,
        };
        if let Some(loss) = guard.judge(&lock, now) {
            let key = word(request.key());
            let text = format!("the lock {key} was lost at once: {loss}");
            return Err(Failure::new(LOST, text));
        }
        Ok(guard)
    }

    /// Waits until the lock is lost.
    pub async fn lost(&mut self) -> Loss {
        let address = self.link.target.address();
        loop {
            let next_look = (Instant::now() + self.look).min(self.safe_until);
            tokio::select! {
                push = self.link.pushes.recv() => {
                    if push.is_none_or(|push| push.kind == PushKind::Disconnection) {
                        return format!(
                            "the connection to the server at {address} has ended (killed, or the server is gone)"
                        );
                    }
                }
                () = sleep_until(next_look) => (),
            }
            let asked = Instant::now();
            let answer = timeout_at(self.safe_until, look(self.request, &mut self.link)).await;
            let why = match answer {
                Ok(Ok(lock)) => {
                    if let Some(loss) = self.judge(&lock, asked) {
                        return loss;
                    }
                    "the server does not renew it".to_owned()
                }
                // The end of the connection is noticed elsewhere.
                Ok(Err(trouble)) => trouble.text(),
                Err(_) => format!("the server at {address} does not answer"),
            };
            if Instant::now() >= self.safe_until {
                return format!("its lease may end soon, and {why}");
            }
        }
    }

    /// What the server's answer to a question means.
    fn judge(&mut self, lock: &Lock, asked: Instant) -> Option<Loss> {
        let loss = loss(self.request, self.token, lock);
        if loss.is_none() {
            let needed = self.grace + self.margin;
            self.safe_until = asked + lease_of(lock).saturating_sub(needed);
        }
        loss
    }

    /// Gives the lock back; an error if it had been lost by then. A server that is busy is asked again.
    pub async fn release(mut self) -> Result<(), Loss> {
        let (key, owner) = (self.request.key(), &self.request.owner);
        let mut command = redis::cmd("FAIRLOCK.RELEASE");
        command.arg(key).arg(owner).arg("TOKEN").arg(self.token);
        let start = Instant::now();
        let mut is_said = false;
        loop {
            match self.link.ask(&command).await {
                Ok(_) => return Ok(()),
                Err(Trouble::Passing(why)) if start.elapsed() < self.request.args.reconnect => {
                    if !is_said {
                        let key = word(key);
                        eprintln!("fairlock: cannot give back the lock {key} yet: {why}");
                        is_said = true;
                    }
                    sleep(PAUSE).await;
                }
                Err(trouble) if trouble.code() == Some("NOTHELD") => {
                    return Err("the server says that it is not held any more".to_owned());
                }
                Err(trouble) => return Err(trouble.text()),
            }
        }
    }
}

/// Asks the server for the lock, without a time limit.
async fn look(request: &Request<'_>, link: &mut Link) -> Result<Lock, Trouble> {
    if request.args.is_shared() {
        link.holder_for_long(request.key(), &request.owner).await
    } else {
        link.lock_for_long(request.key()).await
    }
}

/// Whether the lock is lost, by the server's answer.
fn loss(request: &Request<'_>, token: i64, lock: &Lock) -> Option<Loss> {
    match (&lock.owner, lock.token) {
        (None, _) if request.args.is_shared() => Some(
            "it is no holder of it any more (FAIRLOCK.BREAK, DEL, HDEL, or its lease ended)"
                .to_owned(),
        ),
        (None, _) => Some("it was freed (FAIRLOCK.BREAK, DEL, or its lease ended)".to_owned()),
        (Some(holder), _) if *holder != request.owner => {
            Some(format!("{} holds it now", word(holder)))
        }
        (Some(_), Some(other)) if other != token => Some(format!(
            "it was acquired anew as the same owner, with token {other}"
        )),
        // The token's key may have been deleted or evicted.
        (Some(_), _) => None,
    }
}

fn lease_of(lock: &Lock) -> Duration {
    u64::try_from(lock.lease).map_or(FOREVER, Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::super::request::tests::args;
    use super::*;

    #[test]
    fn a_lock_is_held_by_owner_and_token() {
        let args = args("");
        let request = Request::new(&args);
        for (owner, token, is_lost) in [
            (Some(b"a"), Some(7), false),
            (Some(b"a"), None, false),
            (Some(b"a"), Some(8), true),
            (Some(b"b"), Some(7), true),
            (None, Some(7), true),
        ] {
            let lock = Lock {
                owner: owner.map(|owner| owner.to_vec()),
                token,
                ..Lock::default()
            };
            assert_eq!(loss(&request, 7, &lock).is_some(), is_lost, "{lock:?}");
        }
    }
}
