//! Noticing that the lock is lost.
//!
//! The end of the connection is noticed, and client-side caching tells when the lock's key changes. Then, and each
//! second, the server is asked for the holders. (The key of a lock that is held together with others changes whenever
//! one of them comes or goes: there it is asked each second only.) If it does not answer, the lock counts as lost early
//! enough to end the command before the lease ends.

use std::time::Duration;

use redis::PushKind;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::failure::{Failure, LOST, tell};
use crate::lock::Lock;
use crate::server::{Link, PAUSE, REPLY, Trouble};
use crate::text::word;

use super::request::Request;

/// Longest time between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// A lease without an end.
const FOREVER: Duration = Duration::from_hours(24);

/// Watches over a lock that is held.
pub struct Guard<'a> {
    link: Link,
    request: &'a Request<'a>,
    pub token: i64,
    /// How long ending the command may take, so that it is over before the lease.
    pub grace: Duration,
    /// How late a busy machine may be to deliver a signal.
    margin: Duration,
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
        let (now, holders) = loop {
            let now = Instant::now();
            match link.holders(request.key()).await {
                Ok(holders) => break (now, holders),
                Err(Trouble::Passing(_)) if start.elapsed() < request.args.reconnect => {
                    sleep(PAUSE).await;
                }
                Err(trouble) => return Err(trouble.into()),
            }
        };
        let lease = held(request, token, &holders).map_err(|loss| {
            let key = word(request.key());
            Failure::new(LOST, format!("the lock {key} was lost at once: {loss}"))
        })?;
        let mut guard = Self {
            link,
            request,
            token,
            grace: request.args.grace.min(lease / 3),
            margin: lease / 10,
            look: LOOK.min(lease / 6).max(Duration::from_millis(1)),
            safe_until: now,
        };
        guard.confirmed(now, lease);
        Ok(guard)
    }

    /// Waits until the lock is lost; why it counts as lost, for an operator.
    pub async fn lost(&mut self) -> String {
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
            // It may be late: this program was stopped, or got no processor. The server may have the lock all the same.
            let until = self.safe_until.max(asked + self.look.min(self.margin / 2));
            let answer = timeout_at(until, self.link.holders(self.request.key())).await;
            let why = match answer {
                Ok(Ok(holders)) => {
                    match held(self.request, self.token, &holders) {
                        Ok(lease) => self.confirmed(asked, lease),
                        Err(loss) => return loss,
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

    /// At that time there was so much left of the lease.
    fn confirmed(&mut self, asked: Instant, lease: Duration) {
        let needed = self.grace + self.margin;
        self.safe_until = asked + lease.saturating_sub(needed);
    }

    /// Gives the lock back; an error if it had been lost by then. A server that is busy is asked again, a silent one may
    /// take as long to answer.
    pub async fn release(mut self) -> Result<(), String> {
        let (key, owner) = (self.request.key(), &self.request.owner);
        let reconnect = self.request.args.reconnect;
        let mut command = redis::cmd("FAIRLOCK.RELEASE");
        command.arg(key).arg(owner).arg("TOKEN").arg(self.token);
        let start = Instant::now();
        let mut is_said = false;
        loop {
            match self.link.ask_within(reconnect.max(REPLY), &command).await {
                Ok(_) => return Ok(()),
                Err(Trouble::Passing(why)) if start.elapsed() < reconnect => {
                    if !is_said {
                        let key = word(key);
                        tell(format_args!("cannot give back the lock {key} yet: {why}"));
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

/// What is left of the lease, by the server's answer, or that the lock is lost.
fn held(request: &Request<'_>, token: i64, holders: &[Lock]) -> Result<Duration, String> {
    let is_own = |holder: &&Lock| holder.owner.as_ref() == Some(&request.owner);
    if let Some(own) = holders.iter().find(is_own) {
        // One that a script has acquired anew has no token.
        return match own.token.filter(|found| *found != token) {
            Some(other) => Err(format!(
                "it was acquired anew as the same owner, with token {other}"
            )),
            None => Ok(u64::try_from(own.lease).map_or(FOREVER, Duration::from_millis)),
        };
    }
    Err(
        match holders.first().and_then(|other| other.owner.as_ref()) {
            Some(other) => format!(
                "{} holds it now (after FAIRLOCK.BREAK, DEL, HDEL, or the end of the lease)",
                word(other)
            ),
            None => "it was freed (FAIRLOCK.BREAK, DEL, or its lease ended)".to_owned(),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::super::request::tests::args;
    use super::*;

    #[test]
    fn a_lock_is_held_by_owner_and_token() {
        let args = args("");
        let request = Request::new(&args);
        let holder = |owner: &str, token, lease| Lock {
            owner: Some(owner.into()),
            token,
            lease,
            ..Lock::default()
        };
        let other = holder("b", Some(9), 10);
        for (own, lease) in [
            (holder("a", Some(7), 900), Some(Duration::from_millis(900))),
            (holder("a", None, -1), Some(FOREVER)),
            (holder("a", Some(8), 900), None),
            (holder("c", Some(7), 900), None),
        ] {
            let holders = [other.clone(), own];
            assert_eq!(held(&request, 7, &holders).ok(), lease, "{holders:?}");
        }
        assert!(held(&request, 7, &[]).is_err());
    }
}
