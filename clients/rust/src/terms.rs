//! What is asked for, by whom, and on which connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use redis::Value;
use tokio::time::sleep;

use crate::core::{Core, Idle};
use crate::lines::{Ear, Line, locked};
use crate::options::{ms, tell};
use crate::protocol::{Reply, Tries};
use crate::scripts::{Form, Request, warning};
use crate::{Error, Event, Kind, Module, Options, Result};

/// How long an owner's name and channel are kept for the next wait.
const IDLE: Duration = Duration::from_mins(1);

/// For an acquisition, and for the hold that comes of it.
pub struct Terms {
    pub core: Arc<Core>,
    pub name: Vec<u8>,
    pub options: Options,
    pub ear: Arc<Ear>,
    /// For asks and renewals: of all, or of this session.
    pub line: Arc<Line>,
    /// How many commands were not answered: they may still reach the server.
    pub unanswered: AtomicUsize,
}

impl Terms {
    // ------------------------------------------------------------------- commands

    pub fn ask(&self) -> Request {
        let options = &self.options;
        let (lease, patience) = (ms(options.lease), ms(options.patience));
        let shared = match options.limit {
            Some(limit) => format!("SHARED {limit}"),
            None => (if options.shared { "SHARED" } else { "" }).to_owned(),
        };
        let wait = match options.wait {
            Some(Duration::ZERO) => "NOWAIT".to_owned(),
            _ => format!("ENQUEUE PATIENCE {patience}"),
        };
        let session = if options.session { "SESSION" } else { "" };
        let words = format!("{shared} LEASE {lease} {wait} {session} ONCE");
        self.request("FAIRLOCK.ACQUIRE", &words)
    }

    pub fn request(&self, native: &'static str, words: &str) -> Request {
        let words = words.split_whitespace().map(str::as_bytes);
        let words = std::iter::once(&self.ear.owner[..]).chain(words);
        Request {
            native,
            words: words.map(<[u8]>::to_vec).collect(),
            line: self.line.clone(),
        }
    }

    /// Of a grant that was answered: it need not follow anything.
    pub fn release(&self, token: i64) -> Request {
        let request = self.request("FAIRLOCK.RELEASE", &format!("TOKEN {token}"));
        Request {
            line: self.core.plain.clone(),
            ..request
        }
    }

    // --------------------------------------------------------------------- sending

    /// How many replicas must confirm it.
    async fn need(&self, request: &Request) -> Result<usize> {
        match self.options.min_replicas {
            _ if self.options.sync_timeout.is_zero() || !request.is_setting() => Ok(0),
            Some(given) => Ok(given),
            None => self.core.replicas(&self.line, &self.name).await,
        }
    }

    /// Sends a command once.
    pub async fn send(&self, request: &Request, longest: Duration) -> Result<Reply> {
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        let outcome = self.send_or_script(request, longest).await;
        if !outcome.as_ref().is_err_and(|failure| failure.may_be_done) {
            self.unanswered.fetch_sub(1, Ordering::Relaxed);
        }
        outcome
    }

    /// By a script where the server does not have the module.
    async fn send_or_script(&self, request: &Request, longest: Duration) -> Result<Reply> {
        let need = self.need(request).await.map_err(Error::unsent)?;
        let (core, most) = (&self.core, self.options.sync_timeout);
        let may_be_scripted = self.options.needs().is_none();
        let mut form = Form::Native;
        if may_be_scripted && locked(&core.state).native == Some(false) {
            form = Form::Hash;
        }
        loop {
            let mut pipeline = redis::pipe();
            pipeline.add_command(request.command(&self.name, form));
            if need > 0 {
                pipeline.cmd("WAIT").arg(need).arg(ms(most));
            }
            let sent = request.line.send(pipeline, longest.saturating_add(most));
            let mut values = sent.await?.into_iter();
            let failure = match (values.next(), values.next()) {
                // But the command is done.
                (Some(Ok(_)), Some(Err(failure))) => return Err(failure.in_doubt()),
                (Some(Ok(value)), confirmed) => {
                    if form == Form::Native {
                        locked(&core.state).native = Some(true);
                    }
                    let is_confirmed = match confirmed {
                        Some(Ok(Value::Int(count))) => count.unsigned_abs() >= need as u64,
                        _ => true,
                    };
                    return Ok(Reply(value, is_confirmed));
                }
                (Some(Err(failure)), _) => failure,
                (None, _) => return Err(Error::silent("no reply")),
            };
            form = match form {
                Form::Hash if failure.is("NOSCRIPT") => Form::Text,
                Form::Native if may_be_scripted && self.uses_scripts(&failure) => Form::Hash,
                _ if failure.is_no_module() => return Err(failure.no_module(self.options.needs())),
                _ => return Err(failure),
            };
        }
    }

    /// Whether this failure is a reason to use scripts from now on.
    fn uses_scripts(&self, failure: &Error) -> bool {
        let (core, is_denied) = (&self.core, failure.is_denied());
        let is_missing = is_denied || failure.is_no_module();
        if !is_missing || core.options.module == Module::Required {
            return false;
        }
        if locked(&core.state).native.replace(false) != Some(false) {
            tell(warning(&core.server.address, is_denied));
        }
        true
    }

    /// Sends a command until it is answered or refused, for so long (zero: once).
    pub async fn persist(&self, request: &Request, longest: Duration) -> Result<Reply> {
        let (mut tries, mut may_be_done) = (Tries::new(longest), false);
        let mut each = self.core.options.command_timeout;
        if !longest.is_zero() {
            each = each.min(longest);
        }
        loop {
            match self.send(request, each).await {
                Err(failure) if failure.kind == Kind::Unavailable => {
                    may_be_done |= failure.may_be_done;
                    sleep(tries.failed(Instant::now(), failure)?).await;
                }
                Err(failure) if may_be_done => return Err(failure.in_doubt()),
                done => return done,
            }
        }
    }

    /// It is over. If that was clean, the next wait may use the owner's name and channel.
    pub async fn end(&self, is_clean: bool) {
        let (core, ear) = (Arc::downgrade(&self.core), self.ear.clone());
        let is_clean = is_clean && self.unanswered.load(Ordering::Relaxed) == 0;
        if !is_clean || !ear.listens() || self.options.owner.is_some() {
            return self.core.ears.forget(&ear).await;
        }
        let key = (self.name.clone(), ear.owner.clone());
        let its = key.clone();
        let forgetting = tokio::spawn(async move {
            sleep(IDLE).await;
            let Some(core) = core.upgrade() else { return };
            let idle = locked(&core.state).idle.remove(&its);
            if let Some(Idle(ear, _)) = idle {
                core.ears.forget(&ear).await;
            }
        });
        let idle = Idle(ear, forgetting.abort_handle());
        locked(&self.core.state).idle.insert(key, idle);
    }

    // ------------------------------------------------------------------ for people

    /// The caller's error.
    pub fn error(&self, failure: Error) -> Error {
        failure.of_lock(&self.shown(), &self.core.server.address)
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }

    pub fn event(&self) -> Event {
        Event {
            name: self.shown(),
            owner: String::from_utf8_lossy(&self.ear.owner).into_owned(),
            ..Event::default()
        }
    }
}
