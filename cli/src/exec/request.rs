//! Asking for the lock, and asking again if the server goes away during the wait.

use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::{Instant, sleep};

use crate::args::ExecArgs;
use crate::failure::{Failure, tell};
use crate::server::{Link, Masters, PAUSE, Target, Trouble};
use crate::text::{duration, word};

use super::waiting;

pub struct Request<'a> {
    pub args: &'a ExecArgs,
    pub owner: Vec<u8>,
}

impl<'a> Request<'a> {
    pub fn new(args: &'a ExecArgs) -> Self {
        // To the server `*` is the connection that asks, by a name that this program is not told.
        let owner = args.owner.as_ref().filter(|owner| *owner != "*");
        let owner = owner.map_or_else(unique_owner, |owner| owner.as_bytes().to_vec());
        Self { args, owner }
    }

    pub fn key(&self) -> &[u8] {
        self.args.key.as_bytes()
    }

    /// Waits for the lock: the connection that holds it, and the fencing token. `None` if it did not become available
    /// in time.
    pub async fn acquire(&self, target: Target) -> Result<Option<(Link, i64)>, Failure> {
        let start = Instant::now();
        let mut masters = Masters::new(target);
        // Since when no server can be reached, or all refuse. The owner's place in the queue outlives a failover, so that
        // asking again finds it.
        let mut gone: Option<Instant> = None;
        loop {
            let left = self
                .args
                .wait
                .map(|wait| wait.saturating_sub(start.elapsed()));
            let mut was_asked = false;
            let text = match self.attempt(&mut masters, left, &mut was_asked).await {
                Ok(held) => return Ok(held),
                Err(Trouble::Elsewhere(_)) if was_asked => continue,
                Err(Trouble::Passing(text)) => text,
                // A server that has never answered may be another one than was meant.
                Err(Trouble::Gone(text)) if was_asked || gone.is_some() => text,
                Err(trouble) => return Err(trouble.into()),
            };
            if was_asked {
                gone = None;
            }
            let since = *gone.get_or_insert_with(|| {
                let reconnect = duration(self.args.reconnect);
                let key = word(self.key());
                tell(format_args!(
                    "waiting for the lock {key} was cut short: {text}. Asking again for {reconnect}"
                ));
                Instant::now()
            });
            let time_is_up = left.is_some_and(|left| left.is_zero());
            if since.elapsed() >= self.args.reconnect || time_is_up {
                return Err(Trouble::Gone(text).into());
            }
            sleep(PAUSE).await;
        }
    }

    /// Asks once. `was_asked` tells whether the server got as far as letting it wait.
    async fn attempt(
        &self,
        masters: &mut Masters,
        left: Option<Duration>,
        was_asked: &mut bool,
    ) -> Result<Option<(Link, i64)>, Trouble> {
        let (mut link, _) = masters.connect_for(self.key()).await?;
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
            Ok(Value::Int(token)) => Ok(Some((link, token))),
            Ok(Value::Nil) => Ok(None),
            Ok(_) => Err(Trouble::odd(&link.target)),
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
        command.arg(self.key()).arg(&self.owner);
        if self.args.is_shared() {
            command.arg("SHARED").arg(self.args.limit);
        }
        command.arg("SESSION");
        if let Some(lease) = self.args.lease {
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
pub(super) mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Args, Subcommand};

    pub fn args(options: &str) -> ExecArgs {
        let line = format!("fairlock exec k --owner a {options} -- true");
        let args = Args::try_parse_from(line.split_whitespace()).expect("a command line");
        let Subcommand::Exec(args) = args.command else {
            panic!("another subcommand");
        };
        args
    }

    #[test]
    fn it_asks_for_what_is_left_of_the_wait() {
        let left = Duration::from_micros;
        for (options, left, words) in [
            ("", None, "SESSION"),
            (
                "--lease 2s",
                Some(left(1_500_000)),
                "SESSION LEASE 2000 WAIT 1500",
            ),
            ("--shared", Some(left(10)), "SHARED SESSION NOWAIT"),
            ("--limit 3", Some(left(0)), "SHARED 3 SESSION NOWAIT"),
        ] {
            let packed = Request::new(&args(options))
                .command(left)
                .get_packed_command();
            let sent = String::from_utf8(packed).expect("text");
            let sent = sent.lines().filter(|line| !line.starts_with(['*', '$']));
            let sent = sent.collect::<Vec<_>>().join(" ");
            assert_eq!(sent, format!("FAIRLOCK.ACQUIRE k a {words}"));
        }
    }
}
