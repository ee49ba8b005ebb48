//! The locks at one server, or at those of one cluster: what all callers share.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use redis::{RedisResult, Value};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::caller::Caller;
use crate::error::is_unknown;
use crate::hold::Hold;
use crate::keeper::Keeper;
use crate::lines::{Ear, Line, locked};
use crate::locks::Thread;
use crate::options::new_owner;
use crate::server::Server;
use crate::{Cause, Error, Info, Options, Result};

/// So many names are remembered.
const MAX_NAMES: usize = 10_000;
/// How long an owner's name and channel are kept for the next wait; up to twice as long.
const IDLE: Duration = Duration::from_mins(1);

pub struct Core {
    pub options: Options,
    pub server: Arc<Server>,
    /// For asks and renewals, behind which WAIT may stall whoever comes next.
    pub asks: Arc<Line>,
    /// For other commands.
    pub plain: Arc<Line>,
    /// To listen. In a cluster it ends when any node is gone, and can perhaps not be opened then; those for commands go on.
    ears: Arc<Line>,
    pub state: Mutex<State>,
    pub keeper: Arc<Keeper>,
    pub thread: Thread,
    /// Whoever is at work for this Locks has a receiver.
    pub closing: watch::Sender<bool>,
}

#[derive(Default)]
pub struct State {
    pub native: Option<bool>,
    /// What may be held again: by the thread or task, and the lock's name.
    pub entered: HashMap<(String, Vec<u8>), Weak<Hold>>,
    /// For each lock, the first asks are sent one after the other.
    turns: HashMap<Vec<u8>, Arc<tokio::sync::Mutex<()>>>,
    /// For each lock, owners that have ended cleanly and are listened for, and since when.
    idle: HashMap<Vec<u8>, Vec<(Instant, Ear)>>,
    is_swept: bool,
    /// By lock and owner, what callers whose owner was given have in common.
    given: HashMap<(Vec<u8>, Vec<u8>), Weak<AtomicBool>>,
    /// How many replicas a server had when it was first asked; in a cluster also each lock's server.
    replicas: HashMap<String, usize>,
    nodes: HashMap<Vec<u8>, String>,
}

impl Core {
    pub fn new(server: Server, options: Options) -> Result<Arc<Self>> {
        let (server, keeper) = (Arc::new(server), Arc::<Keeper>::default());
        let line = || Line::new(&server, options.command_timeout);
        Ok(Arc::new(Self {
            asks: line(),
            plain: line(),
            ears: line(),
            server,
            options,
            state: Mutex::default(),
            thread: Thread::start(keeper.clone())?,
            keeper,
            closing: watch::Sender::new(false),
        }))
    }

    /// Of the owner that is given, or else of one that has ended cleanly, and is listened for, if there is one.
    pub fn ear(&self, name: &[u8], owner: Option<Vec<u8>>) -> Ear {
        if owner.is_none()
            && let Some(idle) = locked(&self.state).idle.get_mut(name)
            && let Some((_, ear)) = idle.pop()
        {
            return ear;
        }
        let common = self.common(name, owner.as_ref());
        Ear::new(&self.ears, name, owner.unwrap_or_else(new_owner), common)
    }

    /// The next wait may use it, for a minute, and as long as this runtime goes on.
    pub fn keep_idle(self: &Arc<Self>, name: Vec<u8>, ear: Ear) {
        let was_swept = {
            let state = &mut *locked(&self.state);
            let ears = state.idle.entry(name).or_default();
            ears.push((Instant::now(), ear));
            std::mem::replace(&mut state.is_swept, true)
        };
        if !was_swept {
            tokio::spawn(Sweeper(Arc::downgrade(self)).run());
        }
    }

    /// Whether no owner is idle any more.
    fn sweep(&self) -> bool {
        let idle = &mut locked(&self.state).idle;
        idle.retain(|_, ears| {
            ears.retain(|(since, _)| since.elapsed() < IDLE);
            !ears.is_empty()
        });
        idle.is_empty()
    }

    /// What callers have in common whose owner was given: whether one that has left may be known to the server.
    fn common(&self, name: &[u8], owner: Option<&Vec<u8>>) -> Arc<AtomicBool> {
        let Some(owner) = owner else {
            return Arc::default();
        };
        let given = &mut locked(&self.state).given;
        given.retain(|_, its| its.strong_count() > 0);
        let its = given.entry((name.to_vec(), owner.clone())).or_default();
        let common = its.upgrade().unwrap_or_default();
        *its = Arc::downgrade(&common);
        common
    }

    pub async fn info(self: Arc<Self>, name: Vec<u8>) -> Result<Info> {
        self.options.check(&name)?;
        self.check_open()?;
        let caller = Caller::new(self.clone(), name, Vec::new(), Options::default());
        let mut command = redis::cmd("FAIRLOCK.INFO");
        command.arg(&caller.name);
        let longest = self.options.command_timeout;
        let asked = caller.persist(&self.plain, &command, longest).await;
        let reply = asked.map_err(|failure| caller.refused(failure))?;
        Ok(Info::of(&reply.0))
    }

    /// One, if the lock's server had any replica when it was first asked.
    pub async fn replicas(&self, line: &Line, name: &[u8]) -> RedisResult<usize> {
        let (is_cluster, longest) = (self.server.is_cluster, self.options.command_timeout);
        let present = line.link(longest).await?;
        {
            let state = locked(&self.state);
            let node = if is_cluster {
                state.nodes.get(name)
            } else {
                Some(&present.address)
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
        let mut values = present.send(pipeline, longest).await?;
        let count = match values.pop() {
            Some(Err(failure)) if !is_unknown(&failure) => return Err(failure),
            Some(Ok(Value::Array(role))) => match role.get(2) {
                Some(Value::Array(replicas)) => replicas.len().min(1),
                _ => return Ok(0), // A replica; it will refuse the ask.
            },
            _ => 0,
        };
        let nodes = values.pop().and_then(RedisResult::ok).unwrap_or(Value::Nil);
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
        let node = me.unwrap_or(&present.address).to_owned();
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

    /// Waits end, and what is held is lost.
    pub fn end(&self) {
        self.closing.send_replace(true);
        let holds = self.keeper.all().into_iter();
        holds.for_each(|hold| hold.lose(Cause::Closed));
    }

    /// All who are at work end, and then the connections.
    pub async fn close(self: Arc<Self>) -> Result<()> {
        self.end();
        drop(timeout(self.options.command_timeout, self.closing.closed()).await);
        for line in [&self.asks, &self.plain, &self.ears] {
            line.close().await;
        }
        Ok(())
    }
}

/// Gives up owners that are idle for too long. All are given up when its runtime ends, in which they are listened for.
struct Sweeper(Weak<Core>);

impl Sweeper {
    async fn run(self) {
        while self.0.upgrade().is_some_and(|core| !core.sweep()) {
            sleep(IDLE).await;
        }
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        if let Some(core) = self.0.upgrade() {
            let state = &mut *locked(&core.state);
            state.is_swept = false;
            state.idle.clear();
        }
    }
}
