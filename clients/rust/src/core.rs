//! The locks at one server, or at those of one cluster: what acquisitions and held locks share.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, Weak};

use redis::Value;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::hold::Hold;
use crate::lines::{Ear, Line, locked};
use crate::options::new_owner;
use crate::scripts::Request;
use crate::server::Server;
use crate::terms::Terms;
use crate::{Error, Info, Options, Result};

/// So many names are remembered.
const MAX_NAMES: usize = 10_000;

/// Who asks, for a lock that it may hold again: the thread or task, and the lock's name.
pub type Entry = (String, Vec<u8>);

pub struct Core {
    pub options: Options,
    pub server: Arc<Server>,
    /// For asks and renewals, behind which WAIT may stall whoever comes next.
    asks: Arc<Line>,
    /// For other commands.
    pub plain: Arc<Line>,
    pub ears: Arc<Line>,
    pub state: Mutex<State>,
    /// Whoever is at work for this Locks has a receiver.
    pub closing: watch::Sender<bool>,
}

pub struct Idle(pub Arc<Ear>, pub AbortHandle);

#[derive(Default)]
pub struct State {
    pub native: Option<bool>,
    pub entered: HashMap<Entry, Weak<Hold>>,
    /// For each lock, the first asks are sent one after the other.
    turns: HashMap<Vec<u8>, Arc<tokio::sync::Mutex<()>>>,
    /// By lock and owner, those that have ended cleanly and are listened for; and what ends that.
    pub idle: BTreeMap<(Vec<u8>, Vec<u8>), Idle>,
    /// How many replicas a server had when it was first asked; in a cluster also each lock's server.
    replicas: HashMap<String, usize>,
    nodes: HashMap<Vec<u8>, String>,
}

impl Core {
    pub fn new(server: Server, options: Options) -> Arc<Self> {
        let server = Arc::new(server);
        let line = || Line::new(&server, options.command_timeout);
        Arc::new(Self {
            asks: line(),
            plain: line(),
            ears: line(),
            server,
            options,
            state: Mutex::default(),
            closing: watch::Sender::new(false),
        })
    }

    /// With an owner that has ended cleanly, and is listened for, if there is one.
    pub fn terms(self: &Arc<Self>, name: Vec<u8>, options: Options) -> Arc<Terms> {
        let mut idle = None;
        if options.owner.is_none() {
            idle = self.idle_ear(&name);
        }
        let owner = || options.owner.clone().unwrap_or_else(new_owner);
        let ear = idle.unwrap_or_else(|| Ear::new(&name, owner()));
        let line = if options.session {
            // Its connection is not given up as long as the lease goes on.
            Line::new(
                &self.server,
                self.options.command_timeout.max(options.lease),
            )
        } else {
            self.asks.clone()
        };
        Arc::new(Terms {
            core: self.clone(),
            name,
            options,
            ear,
            line,
            unanswered: AtomicUsize::new(0),
        })
    }

    fn idle_ear(&self, name: &[u8]) -> Option<Arc<Ear>> {
        let idle = &mut locked(&self.state).idle;
        let (key, _) = idle.range((name.to_vec(), Vec::new())..).next()?;
        let key = Some(key).filter(|(of, _)| of == name)?.clone();
        let Idle(ear, forgetting) = idle.remove(&key)?;
        forgetting.abort();
        Some(ear)
    }

    pub async fn info(self: &Arc<Self>, name: Vec<u8>) -> Result<Info> {
        self.options.check(&name)?;
        self.check_open()?;
        let owner = Some(Vec::new());
        let options = Options {
            owner,
            ..Options::default()
        };
        let terms = self.terms(name, options);
        let request = Request {
            native: "FAIRLOCK.INFO",
            words: Vec::new(),
            line: self.plain.clone(),
        };
        let longest = self.options.command_timeout;
        let asked = terms.persist(&request, longest).await;
        let reply = asked.map_err(|failure| terms.error(failure))?;
        Ok(Info::of(&reply.0))
    }

    /// One, if the lock's server had any replica when it was first asked.
    pub async fn replicas(&self, line: &Arc<Line>, name: &[u8]) -> Result<usize> {
        let (is_cluster, longest) = (self.server.is_cluster, self.options.command_timeout);
        let address = line.link(longest).await?.address.clone();
        {
            let state = locked(&self.state);
            let node = if is_cluster {
                state.nodes.get(name)
            } else {
                Some(&address)
            };
            if let Some(known) = node.and_then(|node| state.replicas.get(node)) {
                return Ok(*known);
            }
        }
        let mut pipeline = redis::pipe();
        if is_cluster {
            // The first leads to the lock's node; the other tells which one that is.
            pipeline.cmd("FAIRLOCK.INFO").arg(name);
            pipeline.cmd("CLUSTER").arg("NODES");
        }
        pipeline.cmd("ROLE");
        let mut values = line.send(pipeline, longest).await?;
        let count = match values.pop() {
            Some(Err(failure)) if !failure.is_unknown() => return Err(failure),
            Some(Ok(Value::Array(role))) => match role.get(2) {
                Some(Value::Array(replicas)) => replicas.len().min(1),
                _ => return Ok(0), // A replica; it will refuse the ask.
            },
            _ => 0,
        };
        let nodes = values.pop().and_then(Result::ok).unwrap_or(Value::Nil);
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
        let node = me.map_or(address, str::to_owned);
        Ok(*state.replicas.entry(node).or_insert(count))
    }

    /// The turn for the first ask.
    pub fn turn(&self, name: &[u8]) -> Arc<tokio::sync::Mutex<()>> {
        let turns = &mut locked(&self.state).turns;
        if turns.len() >= MAX_NAMES {
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        }
        turns.entry(name.to_vec()).or_default().clone()
    }

    pub fn check_open(&self) -> Result<()> {
        let is_open = !*self.closing.borrow();
        is_open.then_some(()).ok_or_else(Error::closed)
    }

    /// All who are at work end, and then the connections.
    pub async fn close(&self) -> Result<()> {
        self.closing.send_replace(true);
        drop(timeout(self.options.command_timeout, self.closing.closed()).await);
        for line in [&self.asks, &self.plain, &self.ears] {
            line.close();
        }
        Ok(())
    }
}
