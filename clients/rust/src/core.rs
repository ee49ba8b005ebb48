//! The locks at one server, or at those of one cluster: acquisitions, held locks, and their connections.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::ask::Ask;
use crate::error::{Failure, Outcome};
use crate::info::Info;
use crate::keep::Keep;
use crate::line::{Reply, Sync, Turn};
use crate::node::{Node, Which, reply_to};
use crate::route::{Address, Route, Source};
use crate::{Cause, Error, Options, Result};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const REDIRECTS: u32 = 16; // in a row, before they count as failures

/// The caller, for a lock that it may hold again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Caller {
    Thread(ThreadId),
    #[cfg_attr(not(feature = "tokio"), allow(dead_code))]
    Task(tokio::task::Id),
}

pub(crate) struct Core {
    pub(crate) route: Arc<Route>,
    pub(crate) options: Options,
    state: Mutex<State>,
    turn: Turn,
    closing: watch::Sender<bool>,
    /// Acquisitions under way, and locks that are held.
    work: watch::Sender<usize>,
    numbers: AtomicU64,
}

#[derive(Default)]
struct State {
    nodes: HashMap<Address, Arc<Node>>,
    kept: HashMap<u64, Weak<Keep>>,
    entered: HashMap<(Caller, String), Weak<Keep>>,
    watch: Option<tokio::task::AbortHandle>,
    looked: Option<Instant>,
    is_closed: bool,
}

impl State {
    fn all_kept(&self) -> Vec<Arc<Keep>> {
        self.kept.values().filter_map(Weak::upgrade).collect()
    }
}

/// How long, and how often, a temporary failure is tried again.
pub(crate) struct Tries {
    pub(crate) longest: Duration,
    since: Option<Instant>,
    pause: Duration,
    redirects: u32,
}

impl Tries {
    pub(crate) fn new(longest: Duration) -> Self {
        Self {
            longest,
            since: None,
            pause: FIRST_PAUSE,
            redirects: 0,
        }
    }

    /// The server has answered. The pauses stay as they are, because the next connection may fail again.
    pub(crate) fn answered(&mut self) {
        (self.since, self.redirects) = (None, 0);
    }

    pub(crate) fn may_redirect(&mut self) -> bool {
        self.redirects += 1;
        self.redirects <= REDIRECTS
    }

    /// Pauses; an error if the time is up.
    pub(crate) async fn after(&mut self, left: Option<Duration>) -> bool {
        let spent = self.since.get_or_insert_with(Instant::now).elapsed();
        let rest = self.longest.saturating_sub(spent);
        if !rest.is_zero() {
            self.pause(Some(left.map_or(rest, |left| left.min(rest))))
                .await;
        }
        !rest.is_zero()
    }

    pub(crate) async fn pause(&mut self, longest: Option<Duration>) {
        let pause = longest.map_or(self.pause, |longest| self.pause.min(longest));
        tokio::time::sleep(pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}

/// The connection for a command.
#[derive(Debug, Clone, Copy)]
pub(crate) enum By {
    Control,
    Renewals(Sync),
}

/// Why a command failed: the error, its cause, and whether an earlier try may have been carried out.
pub(crate) struct Failed {
    pub(crate) error: Error,
    pub(crate) failure: Failure,
    pub(crate) may_be_done: bool,
}

impl Core {
    pub(crate) fn new(source: Source, options: Options) -> Arc<Self> {
        Arc::new(Self {
            route: Arc::new(Route::new(source)),
            options,
            state: Mutex::default(),
            turn: Turn::default(),
            closing: watch::Sender::new(false),
            work: watch::Sender::new(0),
            numbers: AtomicU64::new(0),
        })
    }

    pub(crate) fn set_options(&mut self, options: Options) {
        self.route.native.require(options.module);
        self.options = options;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // --------------------------------------------------------------------------- acquiring

    /// The Keep of a lock that is now held, or of one that this caller holds already.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        name: &str,
        options: Options,
        caller: Option<Caller>,
    ) -> Result<Arc<Keep>> {
        options.check(name)?;
        if *self.closing.borrow() {
            return Err(Error::Closed);
        }
        let caller = if options.reentrant {
            let caller =
                caller.ok_or_else(|| Error::Argument("reentrant: this is no task".to_owned()))?;
            Some((caller, name.to_owned()))
        } else {
            None
        };
        let there = caller
            .as_ref()
            .and_then(|key| self.state().entered.get(key)?.upgrade());
        if let Some(keep) = there {
            keep.enter_again()?;
            return Ok(keep);
        }
        let mut ask = Ask::new(self, name, options);
        let mut closing = self.closing.subscribe();
        let granted = tokio::select! {
            biased;
            granted = ask.until_granted() => granted,
            _ = closing.wait_for(|is_so| *is_so) => Err(Error::Closed),
        };
        match granted {
            Ok(grant) => {
                let keep = Keep::begin(self, &mut ask, grant, caller.clone());
                if let Some(key) = caller {
                    self.state().entered.insert(key, Arc::downgrade(&keep));
                }
                Ok(keep)
            }
            Err(error) => {
                ask.withdraw().await;
                Err(error)
            }
        }
    }

    /// The confirmation by replicas that these options need.
    pub(crate) fn sync(&self, name: &str, options: &Options) -> Sync {
        let known = || self.route.replicas(name).min(1);
        Sync {
            timeout: options.sync_timeout,
            least: options.min_replicas.unwrap_or_else(known),
        }
    }

    pub(crate) async fn info(&self, name: &str) -> Result<Info> {
        Options::default().check(name)?;
        if *self.closing.borrow() {
            return Err(Error::Closed);
        }
        let words = words(["FAIRLOCK.INFO", name]);
        let longest = self.options.command_timeout;
        let reply = self.control(name, &words, By::Control, longest).await;
        let reply = reply.map_err(|failed| failed.error)?;
        Ok(Info::of(&reply.value))
    }

    // ------------------------------------------------------------------------- connections

    /// The server at an address, with its connections.
    pub(crate) fn node(&self, address: &Address) -> Arc<Node> {
        let mut state = self.state();
        if let Some(node) = state.nodes.get(address) {
            return node.clone();
        }
        let node = Node::new(address, &self.route, self.options.command_timeout);
        let node = Arc::new(node);
        if state.is_closed {
            node.close();
        } else {
            state.nodes.insert(address.clone(), node.clone());
        }
        node
    }

    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        self.state().nodes.values().cloned().collect()
    }

    /// The server that a lock is at.
    pub(crate) async fn node_of(&self, name: &str) -> Outcome<Arc<Node>> {
        let longest = self.options.command_timeout;
        let located = Box::pin(self.route.locate(name, longest));
        let address = self.turn.take(located).await?;
        Ok(self.node(&address))
    }

    /// A command that must not wait for others, tried for a time.
    pub(crate) async fn control(
        &self,
        name: &str,
        words: &[String],
        by: By,
        longest: Duration,
    ) -> std::result::Result<Reply, Failed> {
        let mut tries = Tries::new(longest);
        let mut may_be_done = false;
        let mut asking_at: Option<Address> = None;
        loop {
            let mut node = None;
            let failure = match self
                .control_once(name, words, by, asking_at.as_ref(), &mut node)
                .await
            {
                Ok(reply) => return Ok(reply),
                Err(failure) => failure,
            };
            let address = node.as_ref().map(|node| node.address.clone());
            let was_redirected = failure.is("MOVED") || failure.is("ASK");
            if let Some(address) = &address
                && was_redirected
                && tries.may_redirect()
            {
                let named = self.route.redirect(&failure, address);
                asking_at = named.filter(|_| failure.is("ASK"));
                continue;
            }
            asking_at = None;
            let is_passing = failure.is_passing();
            if is_passing {
                may_be_done |= failure.is_broken() && node.is_some();
                self.distrust(node.as_ref(), &failure);
                if tries.after(None).await {
                    continue;
                }
            }
            let error = if is_passing {
                Error::unavailable(name, longest, &failure)
            } else {
                failure.translated(name, address.as_deref().unwrap_or("no server yet"))
            };
            return Err(Failed {
                error,
                failure,
                may_be_done,
            });
        }
    }

    /// `node`: the server that it was sent to.
    async fn control_once(
        &self,
        name: &str,
        all: &[String],
        by: By,
        asking_at: Option<&Address>,
        node: &mut Option<Arc<Node>>,
    ) -> Outcome<Reply> {
        let longest = Some(self.options.command_timeout);
        let there = match asking_at {
            Some(address) => self.node(address),
            None => self.node_of(name).await?,
        };
        let value = match (asking_at, by) {
            (Some(_), _) => {
                let mut line = there.take(false).await?;
                *node = Some(there.clone());
                line.call(&["ASKING".to_owned()], longest).await?;
                let value = line.call(all, longest).await?;
                there.give(line);
                value
            }
            (None, By::Control) => {
                let mut line = there.control().await?;
                *node = Some(there.clone());
                let value = line.call(all, longest).await;
                if value.as_ref().is_err_and(Failure::is_broken) {
                    there.control.clear();
                }
                value?
            }
            (None, By::Renewals(sync)) => {
                *node = Some(there.clone());
                let mut pending = there.send(Which::Renewals, all.to_vec(), sync);
                let reply = reply_to(&mut pending).await?;
                reply.is_confirmed.clone()?;
                return Ok(reply);
            }
        };
        Ok(Reply {
            value,
            is_confirmed: Ok(true),
        })
    }

    /// After a failure, connections and known masters may be out of date.
    pub(crate) fn distrust(&self, node: Option<&Arc<Node>>, failure: &Failure) {
        if failure.is("READONLY")
            && let Some(node) = node
        {
            self.leave_node(node);
        }
        if failure.is_broken()
            && let Some(node) = node
        {
            node.idle().clear();
        }
        if failure.is_broken() || failure.is("READONLY") || failure.is("CLUSTERDOWN") {
            self.route.forget();
        }
    }

    /// The server is no longer the master: callers that wait there ask anew, and held locks are looked up.
    pub(crate) fn leave_node(&self, node: &Arc<Node>) {
        let is_there = {
            let nodes = &mut self.state().nodes;
            let there = nodes.get(&node.address);
            let is_there = there.is_some_and(|there| Arc::ptr_eq(there, node));
            if is_there {
                nodes.remove(&node.address);
            }
            is_there
        };
        node.close();
        if is_there {
            self.doubt();
        }
    }

    /// Has all held locks looked up at once.
    pub(crate) fn doubt(&self) {
        for keep in self.all_kept() {
            keep.doubt();
        }
    }

    // -------------------------------------------------------------------------------- held

    /// An acquisition or a hold begins: the master is watched until it ends.
    pub(crate) fn begin_work(self: &Arc<Self>) {
        let mut state = self.state();
        self.work.send_modify(|work| *work += 1);
        if *self.work.borrow() == 1 && self.route.may_change() {
            let watch = tokio::spawn(crate::watch::watch(Arc::downgrade(self)));
            state.watch = Some(watch.abort_handle());
        }
    }

    /// When the master was last looked at, or began to be used.
    pub(crate) fn looked(&self) -> Instant {
        *self.state().looked.get_or_insert_with(Instant::now)
    }

    pub(crate) fn set_looked(&self) {
        self.state().looked = Some(Instant::now());
    }

    pub(crate) fn end_work(&self) {
        let mut state = self.state();
        self.work.send_modify(|work| *work -= 1);
        if *self.work.borrow() == 0
            && let Some(watch) = state.watch.take()
        {
            watch.abort();
        }
    }

    pub(crate) fn keep(self: &Arc<Self>, keep: &Arc<Keep>) -> u64 {
        self.begin_work();
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        self.state().kept.insert(number, Arc::downgrade(keep));
        number
    }

    pub(crate) fn unkeep(&self, number: u64, entered: Option<&(Caller, String)>) {
        {
            let mut state = self.state();
            if state.kept.remove(&number).is_none() {
                return;
            }
            if let Some(key) = entered {
                state.entered.remove(key);
            }
        }
        self.end_work();
    }

    fn all_kept(&self) -> Vec<Arc<Keep>> {
        self.state().all_kept()
    }

    /// Ends all waits; held locks are lost. The connections close when waits have left their queues.
    pub(crate) fn begin_to_close(&self) {
        self.closing.send_replace(true);
        for keep in self.all_kept() {
            keep.lose(Cause::Closed);
        }
    }

    pub(crate) async fn close(&self) {
        self.begin_to_close();
        let mut work = self.work.subscribe();
        let ended = work.wait_for(|work| *work == 0);
        drop(tokio::time::timeout(self.options.command_timeout, ended).await);
        let nodes = {
            let mut state = self.state();
            state.is_closed = true;
            std::mem::take(&mut state.nodes)
        };
        for node in nodes.values() {
            node.close();
        }
        self.route.close();
    }
}

pub(crate) fn words<S: AsRef<str>>(all: impl IntoIterator<Item = S>) -> Vec<String> {
    all.into_iter()
        .map(|word| word.as_ref().to_owned())
        .collect()
}
