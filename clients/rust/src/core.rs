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
use crate::lines::{Channel, Line, Server, Source, locked};
use crate::protocol::{Reply, Request, Tries};
use crate::scripts::{Command, Form, no_module, warning};
use crate::{Error, Info, Kind, Module, Options, Result};

/// How long an owner's name and channel are kept for the next wait.
const IDLE: Duration = Duration::from_mins(1);
/// So many names are remembered.
const MAX_NAMES: usize = 10_000;
const WITHOUT: u8 = 1;
const WITH: u8 = 2;

/// The caller, for a lock that it may hold again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Caller {
    Thread(std::thread::ThreadId),
    Task(tokio::task::Id),
}

pub(crate) struct Core {
    pub(crate) options: Options,
    pub(crate) source: Arc<Source>,
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
    pub(crate) entered: HashMap<(Caller, Vec<u8>), Weak<Hold>>,
    /// For each lock, the first asks are sent one after the other.
    turns: HashMap<Vec<u8>, Weak<tokio::sync::Mutex<()>>>,
    /// For each lock, owners that have ended cleanly, with channels that are listened to.
    seats: HashMap<Vec<u8>, Vec<(Instant, Seat)>>,
    /// How many replicas a server had when it was first asked; in a cluster also each lock's server.
    replicas: HashMap<String, usize>,
    nodes: HashMap<Vec<u8>, String>,
}

#[derive(Clone)]
pub(crate) struct Seat {
    pub(crate) owner: Vec<u8>,
    pub(crate) channel: Arc<Channel>,
}

/// The connection for a lock's commands, and how many replicas must confirm them.
#[derive(Clone)]
pub(crate) struct Way {
    pub(crate) line: Arc<Line>,
    need: usize,
    sync_timeout: Duration,
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
        let source = Arc::new(Source::new(server));
        let line = || Line::new(&source, options.command_timeout);
        Arc::new(Self {
            plain: line(),
            confirmed: line(),
            ears: line(),
            source,
            options,
            native: AtomicU8::new(0),
            state: Mutex::default(),
            closing: watch::Sender::new(false),
            work: watch::Sender::new(0),
        })
    }

    /// The connection of a session, which is not given up as long as the lease goes on.
    pub(crate) fn own_line(&self, lease: Duration) -> Arc<Line> {
        Line::new(&self.source, self.options.command_timeout.max(lease))
    }

    pub(crate) fn busy(self: &Arc<Self>) -> Busy {
        self.work.send_modify(|work| *work += 1);
        Busy(self.clone())
    }

    pub(crate) fn native(&self) -> Option<bool> {
        match self.native.load(Ordering::Relaxed) {
            0 => None,
            known => Some(known == WITH),
        }
    }

    // ---------------------------------------------------------------------- sending

    pub(crate) async fn way(
        &self,
        name: &[u8],
        options: &Options,
        own: Option<&Arc<Line>>,
    ) -> Outcome<Way> {
        let need = match options.min_replicas {
            _ if options.sync_timeout.is_zero() => 0,
            Some(given) => given,
            None => self.replicas(name).await.map_err(Failure::unsent)?.min(1),
        };
        let line = own.unwrap_or(if need > 0 {
            &self.confirmed
        } else {
            &self.plain
        });
        let (line, sync_timeout) = (line.clone(), options.sync_timeout);
        Ok(Way {
            line,
            need,
            sync_timeout,
        })
    }

    /// How many replicas the lock's server had when it was first asked.
    async fn replicas(&self, name: &[u8]) -> Outcome<usize> {
        let is_cluster = self.source.is_cluster;
        {
            let state = locked(&self.state);
            let node = if is_cluster {
                state.nodes.get(name).cloned()
            } else {
                Some(self.source.address())
            };
            if let Some(known) = node.and_then(|node| state.replicas.get(&node).copied()) {
                return Ok(known);
            }
        }
        let mut pipeline = redis::pipe();
        if is_cluster {
            // The first leads to the lock's node; the last tells which one that is.
            pipeline
                .cmd("FAIRLOCK.INFO")
                .arg(name)
                .cmd("CLUSTER")
                .arg("NODES");
        }
        pipeline.cmd("ROLE");
        let mut values = self
            .plain
            .send(&pipeline, self.options.command_timeout)
            .await?;
        let count = match values.pop() {
            Some(Err(failure)) if !failure.is_unknown() => return Err(failure),
            Some(Ok(Value::Array(role))) => match role.get(2) {
                Some(Value::Array(replicas)) => replicas.len(),
                _ => return Ok(0), // A replica; it will refuse the ask.
            },
            _ => 0,
        };
        let mut state = locked(&self.state);
        let node = if is_cluster {
            let Some(Ok(nodes)) = values.pop() else {
                return Ok(count);
            };
            let nodes: String = redis::from_redis_value(nodes).unwrap_or_default();
            let me = nodes
                .lines()
                .find(|line| line.contains("myself"))
                .unwrap_or_default();
            let node = me.split(' ').next().unwrap_or_default().to_owned();
            if state.nodes.len() >= MAX_NAMES {
                state.nodes.clear();
            }
            state.nodes.insert(name.to_vec(), node.clone());
            node
        } else {
            self.source.address()
        };
        Ok(*state.replicas.entry(node).or_insert(count))
    }

    /// Sends a command once; by a script where the server does not have the module.
    pub(crate) async fn send(
        &self,
        way: &Way,
        name: &[u8],
        request: &Request,
        longest: Duration,
    ) -> Outcome<Reply> {
        let is_to_confirm =
            way.need > 0 && matches!(request.command, Command::Acquire | Command::Renew);
        let is_scripted = request.needs.is_none() && self.native() == Some(false);
        let mut form = if is_scripted {
            Form::Hash
        } else {
            Form::Native
        };
        loop {
            let mut pipeline = redis::pipe();
            pipeline.add_command(request.command(name, form));
            if is_to_confirm {
                let ms = u64::try_from(way.sync_timeout.as_millis())
                    .unwrap_or(u64::MAX)
                    .max(1);
                pipeline.cmd("WAIT").arg(way.need).arg(ms);
            }
            let mut values = way.line.send(&pipeline, longest).await?.into_iter();
            let nothing = || Err(Failure::Broken("no reply".to_owned()));
            match values.next().unwrap_or_else(nothing) {
                Err(failure) if form == Form::Hash && failure.is("NOSCRIPT") => form = Form::Text,
                Err(failure)
                    if form == Form::Native
                        && request.needs.is_none()
                        && self.uses_scripts(&failure) =>
                {
                    form = Form::Hash;
                }
                Err(failure) => return Err(failure),
                Ok(value) => {
                    if form == Form::Native {
                        self.native.store(WITH, Ordering::Relaxed);
                    }
                    let is_enough = |count| matches!(count, Value::Int(count) if count >= i64::try_from(way.need).unwrap_or(i64::MAX));
                    let confirmed = values.next().filter(|_| is_to_confirm);
                    let is_confirmed = confirmed.map_or(Ok(true), |count| count.map(is_enough));
                    return Ok(Reply {
                        value,
                        is_confirmed,
                    });
                }
            }
        }
    }

    /// Whether this failure is a reason to use scripts from now on.
    fn uses_scripts(&self, failure: &Failure) -> bool {
        let is_missing = failure.is_no_module() || failure.is_denied();
        if !is_missing || self.options.module == Module::Required {
            return false;
        }
        if self.native.swap(WITHOUT, Ordering::Relaxed) != WITHOUT {
            eprintln!("{}", warning(&self.source.address(), failure.is_denied()));
        }
        true
    }

    /// Sends a command until it is answered or refused, for so long; also whether a try that failed may have arrived.
    pub(crate) async fn persist(
        &self,
        way: &Way,
        name: &[u8],
        request: &Request,
        longest: Duration,
    ) -> (Outcome<Reply>, bool) {
        let (mut tries, mut may_be_done) = (Tries::new(longest), false);
        loop {
            let each = if longest.is_zero() {
                Duration::MAX
            } else {
                longest
            };
            let each = self.options.command_timeout.min(each) + way.sync_timeout;
            let failure = match self.send(way, name, request, each).await {
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

    pub(crate) fn error(&self, name: &[u8], failure: Failure, needs: Option<&str>) -> Error {
        let (name, address) = (String::from_utf8_lossy(name), self.source.address());
        if failure.is_no_module() {
            return Error::new(Kind::NoModule, no_module(&address, needs));
        }
        if failure.is_passing() {
            let error = Error::new(Kind::Unavailable, format!("{name} at {address}"));
            return error.because(Some(failure));
        }
        failure.translated(&name, &address)
    }

    pub(crate) async fn info(&self, name: &[u8]) -> Result<Info> {
        Options::default().check(name)?;
        self.check_open()?;
        let (words, needs) = (Vec::new(), None);
        let request = Request {
            command: Command::Info,
            words,
            needs,
        };
        let (line, need, sync_timeout) = (self.plain.clone(), 0, Duration::ZERO);
        let way = Way {
            line,
            need,
            sync_timeout,
        };
        let (outcome, _) = self
            .persist(&way, name, &request, self.options.command_timeout)
            .await;
        let reply = outcome.map_err(|failure| self.error(name, failure, None))?;
        Ok(Info::of(&reply.value))
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
        let mut state = locked(&self.state);
        let (_, seat) = state.seats.get_mut(name)?.pop()?;
        Some(seat)
    }

    pub(crate) fn give_seat(self: &Arc<Self>, name: &[u8], seat: Seat) {
        let mut state = locked(&self.state);
        let is_first = state.seats.is_empty();
        state
            .seats
            .entry(name.to_vec())
            .or_default()
            .push((Instant::now(), seat));
        drop(state);
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
            let mut state = locked(&core.state);
            for seats in state.seats.values_mut() {
                // Those that were used last are at the end.
                let count = seats
                    .iter()
                    .take_while(|(since, _)| since.elapsed() >= IDLE)
                    .count();
                old.extend(seats.drain(..count));
            }
            state.seats.retain(|_, seats| !seats.is_empty());
            state.seats.is_empty()
        };
        for (_, seat) in old {
            core.ears.forget(&seat.channel).await;
        }
        if is_last {
            return;
        }
    }
}
