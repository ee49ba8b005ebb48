//! One who asks for a lock, and then holds it: its commands, and how they are sent.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::time::sleep;

use crate::core::Core;
use crate::error::{hint, is_denied, lacks_module, silence, text_of};
use crate::lines::{Ear, Line, locked};
use crate::options::{ms, tell};
use crate::scripts::{Form, formed, is_setting, warning};
use crate::{Error, Event, Kind, Options};

pub const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Passing failures in a row.
#[derive(Default)]
pub struct Tries {
    pause: Duration,
    /// Since when all tries have failed, and the first failure.
    pub since: Option<(Instant, RedisError)>,
}

impl Tries {
    /// The pause before the next try; or the failure, if it does not pass, or the first one: it has failed for too long.
    pub fn failed(&mut self, failure: RedisError, longest: Duration) -> RedisResult<Duration> {
        if Kind::of(&failure) != Kind::Unavailable {
            return Err(failure);
        }
        let (since, first) = self.since.get_or_insert((Instant::now(), failure));
        let left = longest.saturating_sub(since.elapsed());
        if left.is_zero() {
            return Err(first.clone());
        }
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        Ok(self.pause.min(left))
    }
}

/// The server's answer, and whether enough replicas have confirmed it.
pub struct Reply(pub Value, pub bool);

pub struct Caller {
    pub core: Arc<Core>,
    pub name: Vec<u8>,
    pub owner: Vec<u8>,
    pub options: Options,
    /// For hooks and people.
    pub event: Event,
    /// For asks and renewals: of all, or of this session.
    pub line: Arc<Line>,
    /// How many commands were not answered: they may still reach the server.
    pub unanswered: AtomicUsize,
}

impl Caller {
    pub fn new(core: Arc<Core>, name: Vec<u8>, owner: Vec<u8>, options: Options) -> Self {
        let line = if options.session {
            // Its connection is not given up as long as the lease goes on.
            let longest = core.options.command_timeout.max(options.lease);
            Line::new(&core.server, longest)
        } else {
            core.asks.clone()
        };
        Self {
            event: Event {
                name: String::from_utf8_lossy(&name).into_owned(),
                owner: String::from_utf8_lossy(&owner).into_owned(),
                ..Event::default()
            },
            core,
            name,
            owner,
            options,
            line,
            unanswered: 0.into(),
        }
    }

    // ------------------------------------------------------------------- commands

    pub fn command(&self, native: &str) -> Cmd {
        let mut command = redis::cmd(native);
        command.arg(&self.name).arg(&self.owner);
        command
    }

    /// Of a grant that was answered: it need not follow anything, and goes by the plain line.
    pub fn release(&self, token: i64) -> Cmd {
        let mut release = self.command("FAIRLOCK.RELEASE");
        release.arg("TOKEN").arg(token);
        release
    }

    // --------------------------------------------------------------------- sending

    /// Sends a command once; by a script where the server does not have the module.
    pub async fn send(&self, line: &Line, command: &Cmd, longest: Duration) -> RedisResult<Reply> {
        let (core, most) = (&self.core, self.options.sync_timeout);
        let need = match self.options.min_replicas {
            _ if most.is_zero() || !is_setting(command) => 0,
            Some(given) => given,
            None => core.replicas(&self.line, &self.name).await?,
        };
        let may_be_scripted = self.options.needs().is_none();
        let mut form = Form::Native;
        if may_be_scripted && locked(&core.state).native == Some(false) {
            form = Form::Hash;
        }
        loop {
            let mut pipeline = redis::pipe();
            pipeline.add_command(formed(command, form));
            if need > 0 {
                pipeline.cmd("WAIT").arg(need).arg(ms(most));
            }
            let present = line.link(longest).await?;
            // Until it is answered, also if this future is dropped.
            self.unanswered.fetch_add(1, Ordering::Relaxed);
            let sent = present.send(pipeline, longest.saturating_add(most)).await;
            let mut values = sent?.into_iter();
            let value = values.next().unwrap_or_else(|| Err(silence()));
            let confirmed = values.next().filter(|_| value.is_ok());
            // If this fails, the command is done all the same.
            let confirmed = confirmed.transpose()?;
            self.unanswered.fetch_sub(1, Ordering::Relaxed);
            let failure = match value {
                Ok(value) => {
                    locked(&core.state).native.get_or_insert(true);
                    let is_confirmed = match confirmed {
                        Some(Value::Int(count)) => count.unsigned_abs() >= need as u64,
                        _ => true,
                    };
                    return Ok(Reply(value, is_confirmed));
                }
                Err(failure) => failure,
            };
            form = match form {
                Form::Hash if failure.code() == Some("NOSCRIPT") => Form::Text,
                Form::Native if may_be_scripted && self.uses_scripts(&failure) => Form::Hash,
                _ => return Err(failure),
            };
        }
    }

    /// Whether this failure is a reason to use scripts from now on.
    fn uses_scripts(&self, failure: &RedisError) -> bool {
        let (core, is_denied) = (&self.core, is_denied(failure));
        let is_missing = is_denied || lacks_module(failure);
        if !is_missing || core.options.require_module {
            return false;
        }
        if locked(&core.state).native.replace(false) != Some(false) {
            tell(warning(&core.server.address, is_denied));
        }
        true
    }

    /// Sends a command until it is answered or refused, for so long (zero: once).
    pub async fn persist(
        &self,
        line: &Line,
        command: &Cmd,
        longest: Duration,
    ) -> RedisResult<Reply> {
        let mut tries = Tries::default();
        let mut each = self.core.options.command_timeout;
        if !longest.is_zero() {
            each = each.min(longest);
        }
        loop {
            match self.send(line, command, each).await {
                Err(failure) => sleep(tries.failed(failure, longest)?).await,
                done => return done,
            }
        }
    }

    /// It is over. If that was clean, the next wait may use the owner's name and channel.
    pub fn keep_ear(&self, ear: Ear, is_clean: bool) {
        let is_own = self.options.owner.is_none();
        let is_answered = self.unanswered.load(Ordering::Relaxed) == 0;
        if is_own && is_clean && is_answered && ear.listens() {
            self.core.keep_idle(self.name.clone(), ear);
        }
    }

    // ------------------------------------------------------------------ for people

    /// The caller's error, with the lock and its server; and with what the library has said.
    pub fn error(&self, kind: Kind, text: impl Display, source: Option<RedisError>) -> Error {
        let (name, address) = (&self.event.name, &self.core.server.address);
        let mut error = Error::new(kind, format!("{name} at {address}: {text}"));
        error.code = source.as_ref().and_then(|it| it.code().map(str::to_owned));
        error.source = source;
        error
    }

    /// The caller's error, with advice.
    pub fn refused(&self, failure: RedisError) -> Error {
        let kind = Kind::of(&failure);
        let what = match (kind, self.options.needs()) {
            (Kind::NoModule, Some(option)) => {
                format!("{option} needs the fairlock module, which the server does not have")
            }
            (Kind::NoModule, None) => "the server does not have the fairlock module".to_owned(),
            _ => text_of(&failure),
        };
        let text = format!("{what}{}", hint(&failure));
        self.error(kind, text, Some(failure))
    }
}
