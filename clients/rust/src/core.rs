//! The locks at one server, or at those of one cluster: what acquisitions and held locks share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use redis::Value;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::error::{Failure, Outcome};
use crate::hold::Hold;
use crate::lines::{Channel, Line, Server, locked};
use crate::protocol::{Reply, Request, Terms, Tries};
use crate::scripts::{Command, Form, no_module, warning};
use crate::{Error, Info, Kind, Module, Options, Result};

/// How long an owner's name and channel are kept for the next wait.
const IDLE: Duration = Duration::from_mins(1);
/// So many names are remembered.
const MAX_NAMES: usize = 10_000;
const WITHOUT: u8 = 1;
const WITH: u8 = 2;

/// Who asks, for a lock that it may hold again: the thread or task, and the lock's name.
pub(crate) type Entry = (Caller, Vec<u8>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Caller {
    Thread(std::thread::ThreadId),
    Task(tokio::task::Id),
}

pub(crate) struct Core {
    pub(crate) options: Options,
    server: Arc<Server>,
    plain: Arc<Line>,
    /// Where WAIT follows, and stalls whoever is behind it.
    confirmed: Arc<Line>,
    pub(crate) ears: Arc<Line>,
    native: AtomicU8,
    pub(crate) state: Mutex<State>,
    pub(crate) closing: watch::Sender<bool>,
    /// Acquisitions under way, and locks that are held.
    work: watch::Sender<usize>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) entered: HashMap<Entry, Weak<Hold>>,
    /// For each lock, the first asks are sent one after the other.
    turns: HashMap<Vec<u8>, Weak<tokio::sync::Mutex<()>>>,
    /// For each lock, owners that have ended cleanly, and whose channels are listened to.
    seats: HashMap<Vec<u8>, Vec<Seat>>,
    /// How many replicas a server had when it was first asked; in a cluster also each lock's server.
    replicas: HashMap<String, usize>,
    nodes: HashMap<Vec<u8>, String>,
}

pub(crate) struct Seat {
    pub(crate) owner: Vec<u8>,
    pub(crate) channel: Arc<Channel>,
    pub(crate) since: Instant,
}

/// The connection for a lock's commands, and how many replicas must confirm them.
pub(crate) struct Way {
    line: Arc<Line>,
    need: usize,
}

/// Counts as work until it is dropped.
pub(crate) struct Busy(Arc<Core>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.work.send_modify(|work| *work -= 1);
    }
}

impl Core {
    pub(crate) fn new(server: Server, options: Options) -> Arc<Self> {
        let server = Arc::new(server);
        let line = || Line::new(&server, options.command_timeout);
        Arc::new(Self {
            plain: line(),
            confirmed: line(),
            ears: line(),
            server,
            options,
            native: AtomicU8::new(0),
            state: Mutex::default(),
            closing: watch::Sender::new(false),
            work: watch::Sender::new(0),
        })
    }

    /// The connection of a session, which is not given up as long as the lease goes on.
    pub(crate) fn own_line(&self, lease: Duration) -> Arc<Line> {
        Line::new(&self.server, self.options.command_timeout.max(lease))
    }

    pub(crate) fn busy(self: &Arc<Self>) -> Busy {
        self.work.send_modify(|work| *work += 1);
        Busy(self.clone())
    }

    pub(crate) fn native(&self) -> Option<bool> {
        let known = self.native.load(Ordering::Relaxed);
        (known != 0).then_some(known == WITH)
    }

    // ---------------------------------------------------------------------- sending

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

    pub(crate) async fn info(&self, name: &[u8]) -> Result<Info> {
        let (name, owner, options) = (name.to_vec(), Vec::new(), Options::default());
        options.check(&name)?;
        self.check_open()?;
        let terms = Terms {
            name,
            owner,
            options,
        };
        let (command, words) = (Command::Info, Vec::new());
        let (request, longest) = (Request { command, words }, self.options.command_timeout);
        let way = self.plain_way(None);
        let (outcome, _) = self.persist(&way, &terms, &request, longest).await;
        match outcome {
            Ok(reply) => Ok(Info::of(&reply.value)),
            Err(failure) => Err(self.error(&terms, Kind::Refused, Some(failure))),
        }
    }

    // ------------------------------------------------------------------ what is shared

    /// The turn for the first ask.
    pub(crate) fn turn(&self, name: &[u8]) -> Arc<tokio::sync::Mutex<()>> {
        let turns = &mut locked(&self.state).turns;
        if let Some(turn) = turns.get(name).and_then(Weak::upgrade) {
            return turn;
        }
        if turns.len() >= MAX_NAMES {
            turns.retain(|_, turn| turn.strong_count() > 0);
        }
        let turn = Arc::default();
        turns.insert(name.to_vec(), Arc::downgrade(&turn));
        turn
    }

    /// An owner that has ended cleanly, and is listened for.
    pub(crate) fn take_seat(&self, name: &[u8]) -> Option<Seat> {
        locked(&self.state).seats.get_mut(name)?.pop()
    }

    pub(crate) async fn give_seat(self: &Arc<Self>, terms: &Terms, seat: Seat, is_clean: bool) {
        if !is_clean || terms.options.owner.is_some() {
            return self.ears.forget(&seat.channel).await;
        }
        let is_first = {
            let seats = &mut locked(&self.state).seats;
            let is_first = seats.is_empty();
            seats.entry(terms.name.clone()).or_default().push(seat);
            is_first
        };
        if is_first {
            tokio::spawn(forget_seats(Arc::downgrade(self)));
        }
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if *self.closing.borrow() {
            Err(closed())
        } else {
            Ok(())
        }
    }

    pub(crate) async fn close(&self) -> Result<()> {
        self.closing.send_replace(true);
        let mut work = self.work.subscribe();
        drop(
            timeout(
                self.options.command_timeout,
                work.wait_for(|work| *work == 0),
            )
            .await,
        );
        for line in [&self.plain, &self.confirmed, &self.ears] {
            line.close().await;
        }
        Ok(())
    }
}

pub(crate) fn closed() -> Error {
    Error::new(Kind::Closed, "Locks is closed")
}

/// Ends when there is none any more.
async fn forget_seats(core: Weak<Core>) {
    loop {
        sleep(IDLE / 6).await;
        let Some(core) = core.upgrade() else { return };
        let mut old = Vec::new();
        let is_last = {
            let seats = &mut locked(&core.state).seats;
            for seats in seats.values_mut() {
                // Those that were used last are at the end.
                let is_old = |seat: &&Seat| seat.since.elapsed() >= IDLE;
                let count = seats.iter().take_while(is_old).count();
                old.extend(seats.drain(..count));
            }
            seats.retain(|_, seats| !seats.is_empty());
            seats.is_empty()
        };
        for seat in old {
            core.ears.forget(&seat.channel).await;
        }
        if is_last {
            return;
        }
    }
}
