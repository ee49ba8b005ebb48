//! Asking for the lock, and asking again if the server goes away during the wait.

use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::{Instant, sleep};

use crate::args::ExecArgs;
use crate::failure::Failure;
use crate::server::{Link, PAUSE, Seeds, Target, Trouble};
use crate::text::{duration, word};

use super::waiting;

/// What is asked for.
#[derive(Debug)]
pub struct Request {
    /// The lock.
    pub key: Vec<u8>,
    /// The owner.
    pub owner: Vec<u8>,
    wait: Option<Duration>,
    lease: Option<Duration>,
    reconnect: Duration,
    sharing: Sharing,
}

/// How many owners may hold the lock together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// One.
    Alone,
    /// Any number.
    Together,
    /// At most this many.
    AtMost(u32),
}

impl Sharing {
    fn of(args: &ExecArgs) -> Self {
        match args.limit {
            Some(limit) => Self::AtMost(limit),
            None if args.shared => Self::Together,
            None => Self::Alone,
        }
    }
}

/// The lock is held by this connection.
#[derive(Debug)]
pub struct Held {
    /// The connection.
    pub link: Link,
    /// The fencing token.
    pub token: i64,
}

impl Request {
    /// What the command line asks for.
    #[must_use]
    pub fn new(args: &ExecArgs) -> Self {
        let owner = args.owner.as_ref();
        Self {
            key: args.key.as_bytes().to_vec(),
            owner: owner.map_or_else(unique_owner, |owner| owner.as_bytes().to_vec()),
            wait: args.wait,
            lease: args.lease,
            reconnect: args.reconnect,
            sharing: Sharing::of(args),
        }
    }

    /// Waits for the lock. `None` if it did not become available in time.
    pub async fn acquire(&self, target: Target) -> Result<Option<Held>, Failure> {
        let start = Instant::now();
        let mut seeds = Seeds::new(target);
        // Since when no server can be reached, or all refuse. The owner's place in the queue outlives a failover, so that asking again
        // finds it.
        let mut gone: Option<Instant> = None;
        loop {
            let left = self.wait.map(|wait| wait.saturating_sub(start.elapsed()));
            let mut was_asked = false;
            let trouble = match self.attempt(&mut seeds, left, &mut was_asked).await {
                Ok(held) => return Ok(held),
                Err(Trouble::Elsewhere(_)) if was_asked => continue,
                Err(trouble) => trouble,
            };
            if was_asked {
                gone = None;
            }
            let first_attempt = gone.is_none() && !was_asked;
            let text = match trouble {
                Trouble::Passing(text) => text,
                Trouble::Gone(text) if !first_attempt => text,
                other => return Err(other.into_failure()),
            };
            if gone.is_none() {
                let reconnect = duration(self.reconnect);
                eprintln!(
                    "fairlock: waiting for the lock {} was cut short: {text}. Asking again for {reconnect}",
                    word(&self.key)
                );
            }
            let since = *gone.get_or_insert_with(Instant::now);
            let time_is_up = left.is_some_and(|left| left.is_zero());
            if since.elapsed() >= self.reconnect || time_is_up {
                return Err(Trouble::Gone(text).into_failure());
            }
            sleep(PAUSE).await;
        }
    }

    /// Asks once. `was_asked` tells whether the server got as far as letting it wait.
    async fn attempt(
        &self,
        seeds: &mut Seeds,
        left: Option<Duration>,
        was_asked: &mut bool,
    ) -> Result<Option<Held>, Trouble> {
        let mut link = seeds.connect_for(&self.key).await?;
        let target = link.target.clone();
        let command = self.command(left);
        let reply = tokio::select! {
            reply = link.wait_for(&command) => reply,
            () = waiting::watch(&target, self) => {
                *was_asked = true;
                let address = target.address();
                return Err(Trouble::Gone(format!("the connection to the server at {address} is dead")));
            }
        };
        match reply {
            Ok(Value::Int(token)) => Ok(Some(Held { link, token })),
            Ok(Value::Nil) => Ok(None),
            Ok(_) => Err(Trouble::odd("FAIRLOCK.ACQUIRE", &link.target)),
            Err(error) => {
                *was_asked = error.is_io_error()
                    || error.redirect_node().is_some()
                    || error.code() == Some("UNBLOCKED");
                Err(Trouble::of(&error, &link.target))
            }
        }
    }

    /// Without ONCE: asking again after a lost connection adds a hold, and the server takes the first one back when it
    /// notices that its connection is gone.
    fn command(&self, left: Option<Duration>) -> Cmd {
        let mut command = redis::cmd("FAIRLOCK.ACQUIRE");
        command.arg(&self.key).arg(&self.owner);
        match self.sharing {
            Sharing::Alone => &mut command,
            Sharing::Together => command.arg("SHARED"),
            Sharing::AtMost(limit) => command.arg("SHARED").arg(limit),
        };
        command.arg("SESSION");
        if let Some(lease) = self.lease {
            command.arg("LEASE").arg(whole_millis(lease));
        }
        match left.map(whole_millis) {
            None => &mut command,
            Some(0) => command.arg("NOWAIT"),
            Some(millis) => command.arg("WAIT").arg(millis),
        };
        command
    }
}

fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Tells people where to look, and is unique.
fn unique_owner() -> Vec<u8> {
    let host = nix::unistd::gethostname();
    let host = host.map_or_else(
        |_| "host".to_owned(),
        |host| host.to_string_lossy().into_owned(),
    );
    let (pid, uuid) = (std::process::id(), uuid::Uuid::new_v4());
    format!("{host}:{pid}:{uuid}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(wait: Option<Duration>, left: Option<Duration>) -> String {
        sent_as(Sharing::Alone, wait, left)
    }

    fn sent_as(sharing: Sharing, wait: Option<Duration>, left: Option<Duration>) -> String {
        let request = Request {
            key: b"k".to_vec(),
            owner: b"a".to_vec(),
            wait,
            lease: Some(Duration::from_secs(2)),
            reconnect: Duration::ZERO,
            sharing,
        };
        let command = request.command(left);
        let words = command.args_iter().map(|word| match word {
            redis::Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            _ => "?".to_owned(),
        });
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn it_asks_for_what_is_left_of_the_wait() {
        let start = "FAIRLOCK.ACQUIRE k a SESSION LEASE 2000";
        assert_eq!(sent(None, None), start);
        let wait = Some(Duration::from_secs(5));
        assert_eq!(
            sent(wait, Some(Duration::from_millis(1500))),
            format!("{start} WAIT 1500")
        );
        assert_eq!(sent(wait, Some(Duration::ZERO)), format!("{start} NOWAIT"));
        assert_eq!(
            sent(wait, Some(Duration::from_micros(10))),
            format!("{start} NOWAIT")
        );
    }

    #[test]
    fn it_says_with_whom_it_shares() {
        let end = "SESSION LEASE 2000 WAIT 5000";
        let wait = Some(Duration::from_secs(5));
        for (sharing, said) in [
            (Sharing::Alone, ""),
            (Sharing::Together, "SHARED "),
            (Sharing::AtMost(3), "SHARED 3 "),
        ] {
            let expected = format!("FAIRLOCK.ACQUIRE k a {said}{end}");
            assert_eq!(sent_as(sharing, wait, wait), expected);
        }
    }

    #[test]
    fn owners_are_unique_and_short_enough() {
        let (one, other) = (unique_owner(), unique_owner());
        assert_ne!(one, other);
        assert!(one.len() <= 256);
    }
}
