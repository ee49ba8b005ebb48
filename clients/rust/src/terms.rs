//! What is asked for, by whom, and on which connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use redis::Value;
use tokio::time::sleep;

use crate::core::{Core, Idle};
use crate::lines::{Ear, Line, locked};
use crate::options::ms;
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
    /// The connection of a session.
    pub own: Option<Arc<Line>>,
    /// How many commands were not answered: they may still reach the server.
    pub unanswered: AtomicUsize,
}

/// The connection for commands, and how many replicas must confirm them.
pub struct Way(Arc<Line>, usize);

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

    pub fn request(&self, command: &'static str, words: &str) -> Request {
        let words = words.split_whitespace().map(str::as_bytes);
        let words = std::iter::once(&self.ear.owner[..]).chain(words);
        Request(command, words.map(<[u8]>::to_vec).collect())
    }

    // --------------------------------------------------------------------- sending

    /// The way of an ask or a renewal.
    pub async fn way(&self) -> Result<Way> {
        let (core, options) = (&self.core, &self.options);
        let need = match options.min_replicas {
            _ if options.sync_timeout.is_zero() => 0,
            Some(given) => given,
            None => core.replicas(&self.name).await.map_err(Error::unsent)?,
        };
        let line = if need > 0 {
            &core.confirmed
        } else {
            &core.plain
        };
        Ok(Way(self.own.as_ref().unwrap_or(line).clone(), need))
    }

    /// The way of what no replica needs to confirm.
    pub fn plain_way(&self) -> Way {
        Way(self.own.as_ref().unwrap_or(&self.core.plain).clone(), 0)
    }

    /// Sends a command once.
    pub async fn send(&self, way: &Way, request: &Request, longest: Duration) -> Result<Reply> {
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        let outcome = self.send_or_script(way, request, longest).await;
        if !outcome.as_ref().is_err_and(|failure| failure.may_be_done) {
            self.unanswered.fetch_sub(1, Ordering::Relaxed);
        }
        outcome
    }

    /// By a script where the server does not have the module.
    async fn send_or_script(
        &self,
        Way(line, need): &Way,
        request: &Request,
        longest: Duration,
    ) -> Result<Reply> {
        let (core, most) = (&self.core, self.options.sync_timeout);
        let may_be_scripted = self.options.needs().is_none();
        let is_scripted = may_be_scripted && locked(&core.state).native == Some(false);
        let mut form = if is_scripted {
            Form::Hash
        } else {
            Form::Native
        };
        loop {
            let mut pipeline = redis::pipe();
            pipeline.add_command(request.command(&self.name, form));
            if *need > 0 && request.is_setting() {
                pipeline.cmd("WAIT").arg(*need).arg(ms(most));
            }
            let sent = line.send(&pipeline, longest.saturating_add(most));
            let mut values = sent.await?.into_iter();
            let failure = match (values.next(), values.next()) {
                // But the command is done.
                (Some(Ok(_)), Some(Err(failure))) => return Err(failure.in_doubt()),
                (Some(Ok(value)), confirmed) => {
                    if form == Form::Native {
                        locked(&core.state).native = Some(true);
                    }
                    let is_confirmed = match confirmed {
                        Some(Ok(Value::Int(count))) => count.unsigned_abs() >= *need as u64,
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
            eprintln!("{}", warning(&core.server.address(), is_denied));
        }
        true
    }

    /// Sends a command until it is answered or refused, for so long (zero: once).
    pub async fn persist(&self, way: &Way, request: &Request, longest: Duration) -> Result<Reply> {
        let (mut tries, mut may_be_done) = (Tries::new(longest), false);
        let mut each = self.core.options.command_timeout;
        if !longest.is_zero() {
            each = each.min(longest);
        }
        loop {
            let failure = match self.send(way, request, each).await {
                Err(failure) if may_be_done => failure.in_doubt(),
                Err(failure) => failure,
                done => return done,
            };
            may_be_done = failure.may_be_done;
            match tries.failed(Instant::now(), &failure) {
                Some(pause) if failure.kind == Kind::Unavailable => sleep(pause).await,
                _ => return Err(failure),
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

    /// The caller's error: of this kind, unless the server has refused.
    pub fn error(&self, kind: Kind, failure: Option<Error>) -> Error {
        let is_refusal = |failure: &&Error| failure.kind != Kind::Unavailable;
        let refusal = failure.as_ref().filter(is_refusal);
        let (kind, mut what) = match (refusal, kind) {
            (Some(refusal), _) if refusal.is_no_module() => {
                (Kind::NoModule, Error::no_module(self.options.needs()))
            }
            (Some(refusal), _) => (refusal.kind, format!("{refusal}{}", refusal.hint())),
            (None, Kind::NotReplicated) => (kind, "no replica has confirmed it in time".to_owned()),
            (None, Kind::NotInTime) => {
                let wait = self.options.wait.unwrap_or_default();
                (kind, format!("not acquired within {wait:?}"))
            }
            (None, _) => (kind, "not available".to_owned()),
        };
        if let (None, Some(failure)) = (refusal, &failure) {
            what = format!("{what}: {failure}");
        }
        let text = format!("{} at {}: {what}", self.shown(), self.core.server.address());
        Error::new(kind, text).because(failure)
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
