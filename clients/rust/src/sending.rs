//! Commands on their way: which connection, how many replicas, the module or scripts, again or an error.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use redis::Value;
use tokio::time::sleep;

use crate::core::{Core, MAX_NAMES, WITH, WITHOUT};
use crate::error::{Failure, Outcome};
use crate::lines::{Line, locked};
use crate::protocol::{Reply, Tries};
use crate::scripts::{Command, Form, Request, Terms, no_module, warning};
use crate::{Error, Kind, Module};

/// The connection for a lock's commands, and how many replicas must confirm them.
pub(crate) struct Way {
    line: Arc<Line>,
    need: usize,
}

impl Core {
    pub(crate) async fn way(&self, terms: &Terms, own: Option<&Arc<Line>>) -> Outcome<Way> {
        let need = match terms.options.min_replicas {
            _ if terms.options.sync_timeout.is_zero() => 0,
            Some(given) => given,
            None => self.replicas(&terms.name).await.map_err(Failure::unsent)?,
        };
        let shared = [&self.plain, &self.confirmed][usize::from(need > 0)];
        let line = own.unwrap_or(shared).clone();
        Ok(Way { line, need })
    }

    /// The way of what no replica needs to confirm.
    pub(crate) fn plain_way(&self, own: Option<&Arc<Line>>) -> Way {
        let (line, need) = (own.unwrap_or(&self.plain).clone(), 0);
        Way { line, need }
    }

    /// One, if the lock's server had any replica when it was first asked.
    async fn replicas(&self, name: &[u8]) -> Outcome<usize> {
        let is_cluster = self.server.is_cluster();
        let known = {
            let state = locked(&self.state);
            let node = state.nodes.get(name).cloned();
            let node = node.or_else(|| (!is_cluster).then(|| self.server.address()));
            node.and_then(|node| state.replicas.get(&node).copied())
        };
        if let Some(known) = known {
            return Ok(known);
        }
        let mut pipeline = redis::pipe();
        if is_cluster {
            // The first leads to the lock's node; the other tells which one that is.
            pipeline.cmd("FAIRLOCK.INFO").arg(name);
            pipeline.cmd("CLUSTER").arg("NODES");
        }
        pipeline.cmd("ROLE");
        let sent = self.plain.send(&pipeline, self.options.command_timeout);
        let mut values = sent.await?;
        let count = match values.pop() {
            Some(Err(failure)) if !failure.is_unknown() => return Err(failure),
            Some(Ok(Value::Array(role))) => match role.get(2) {
                Some(Value::Array(replicas)) => replicas.len().min(1),
                _ => return Ok(0), // A replica; it will refuse the ask.
            },
            _ => 0,
        };
        let nodes = values.pop().and_then(Outcome::ok).unwrap_or(Value::Nil);
        let nodes: String = redis::from_redis_value(nodes).unwrap_or_default();
        let me = nodes.lines().find(|line| line.contains("myself"));
        let me = me.and_then(|line| line.split(' ').next());
        let mut state = locked(&self.state);
        if let Some(me) = me {
            if state.nodes.len() >= MAX_NAMES {
                state.nodes.clear();
            }
            state.nodes.insert(name.to_vec(), me.to_owned());
        }
        let node = me.map_or_else(|| self.server.address(), str::to_owned);
        Ok(*state.replicas.entry(node).or_insert(count))
    }

    /// Sends a command once; by a script where the server does not have the module.
    pub(crate) async fn send(
        &self,
        way: &Way,
        terms: &Terms,
        request: &Request,
        longest: Duration,
    ) -> Outcome<Reply> {
        let is_setting = matches!(request.command, Command::Acquire | Command::Renew);
        let may_be_scripted = terms.options.needs().is_none();
        let mut form = Form::Native;
        if may_be_scripted && self.native() == Some(false) {
            form = Form::Hash;
        }
        loop {
            let mut pipeline = redis::pipe();
            pipeline.add_command(request.command(&terms.name, form));
            if is_setting && way.need > 0 {
                let ms = crate::options::ms(terms.options.sync_timeout);
                pipeline.cmd("WAIT").arg(way.need).arg(ms);
            }
            let longest = longest.saturating_add(terms.options.sync_timeout);
            let mut values = way.line.send(&pipeline, longest).await?.into_iter();
            let nothing = || Err(Failure::Broken("no reply".to_owned()));
            let failure = match values.next().unwrap_or_else(nothing) {
                Ok(value) => {
                    if form == Form::Native {
                        self.native.store(WITH, Ordering::Relaxed);
                    }
                    let is_enough = |count| matches!(count, Value::Int(count) if count.unsigned_abs() >= way.need as u64);
                    let confirmed = values.next().map(|count| count.map(is_enough));
                    let is_confirmed = confirmed.unwrap_or(Ok(true));
                    return Ok(Reply {
                        value,
                        is_confirmed,
                    });
                }
                Err(failure) => failure,
            };
            form = match form {
                Form::Hash if failure.is("NOSCRIPT") => Form::Text,
                Form::Native if may_be_scripted && self.uses_scripts(&failure) => Form::Hash,
                _ => return Err(failure),
            };
        }
    }

    /// Whether this failure is a reason to use scripts from now on.
    fn uses_scripts(&self, failure: &Failure) -> bool {
        let is_missing = failure.is_no_module() || failure.is_denied();
        if !is_missing || self.options.module == Module::Required {
            return false;
        }
        if self.native.swap(WITHOUT, Ordering::Relaxed) != WITHOUT {
            eprintln!("{}", warning(&self.server.address(), failure.is_denied()));
        }
        true
    }

    /// Sends a command until it is answered or refused, for so long (zero: once); also whether a try that failed may have
    /// arrived.
    pub(crate) async fn persist(
        &self,
        way: &Way,
        terms: &Terms,
        request: &Request,
        longest: Duration,
    ) -> (Outcome<Reply>, bool) {
        let (mut tries, mut may_be_done) = (Tries::new(longest), false);
        let mut each = self.options.command_timeout;
        if !longest.is_zero() {
            each = each.min(longest);
        }
        loop {
            let failure = match self.send(way, terms, request, each).await {
                Err(failure) if failure.is_passing() => failure,
                other => return (other, may_be_done),
            };
            may_be_done |= matches!(failure, Failure::Broken(_));
            match tries.failed(Instant::now(), &failure) {
                Some(pause) => sleep(pause).await,
                None => return (Err(failure), may_be_done),
            }
        }
    }

    pub(crate) fn error(&self, terms: &Terms, kind: Kind, failure: Option<Failure>) -> Error {
        let address = self.server.address();
        let name = String::from_utf8_lossy(&terms.name);
        let what = match (kind, &failure) {
            (Kind::Refused | Kind::Unavailable, Some(failure)) if failure.is_no_module() => {
                let text = no_module(&address, terms.options.needs());
                return Error::new(Kind::NoModule, text);
            }
            (Kind::Refused | Kind::Unavailable, Some(failure)) if !failure.is_passing() => {
                return failure.translated(&name, &address);
            }
            (Kind::NotReplicated, _) => "no replica has confirmed it in time".to_owned(),
            (Kind::NotInTime, _) => {
                format!(
                    "not acquired within {:?}",
                    terms.options.wait.unwrap_or_default()
                )
            }
            _ => "not available".to_owned(),
        };
        let is_passing = failure.as_ref().is_some_and(Failure::is_passing);
        let kind = if kind == Kind::Refused && is_passing {
            Kind::Unavailable
        } else {
            kind
        };
        Error::new(kind, format!("{name} at {address}: {what}")).because(failure)
    }
}
