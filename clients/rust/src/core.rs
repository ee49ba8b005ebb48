//! How a lock is asked for, waited for and withdrawn from, and the connections for it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use redis::Value;
use tokio::sync::watch;

use crate::error::Failure;
use crate::keep::Keep;
use crate::line::Line;
use crate::options::{Event, Hooks, ms, new_owner};
use crate::route::{Address, Outcome, Route, Source};
use crate::{Cause, Error, Options, Result};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const MAX_IDLE: usize = 16;
const ALONE_FOR: Duration = Duration::from_secs(1);
const WITHDRAW: Duration = Duration::from_secs(1);
const REDIRECTS: u32 = 16; // in a row, before they count as failures

/// Who asks, for a lock that may be held again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Caller {
    Thread(ThreadId),
    #[cfg_attr(not(feature = "tokio"), allow(dead_code))]
    Task(tokio::task::Id),
}

/// The locks at one server, or at those of one cluster.
pub(crate) struct Core {
    pub(crate) route: Route,
    pub(crate) options: Options,
    state: Mutex<State>,
    closing: watch::Sender<bool>,
    asking: watch::Sender<usize>,
    numbers: AtomicU64,
}

#[derive(Default)]
struct State {
    idle: HashMap<Option<Address>, Vec<Line>>,
    control: HashMap<Option<Address>, Line>,
    alone_until: HashMap<Option<Address>, Instant>,
    kept: HashMap<u64, Weak<Keep>>,
    /// For the fake: why locks were lost whose holders did not know of them yet, by token.
    gone: HashMap<i64, Cause>,
    entered: HashMap<(Caller, String), Weak<Keep>>,
    is_closed: bool,
}

impl State {
    fn all_kept(&self) -> Vec<Arc<Keep>> {
        self.kept.values().filter_map(Weak::upgrade).collect()
    }
}

/// How long, and how often, something that fails for the time being is tried again.
struct Tries {
    longest: Duration,
    since: Option<Instant>,
    pause: Duration,
    redirects: u32,
}

impl Tries {
    fn new(longest: Duration) -> Self {
        Self {
            longest,
            since: None,
            pause: FIRST_PAUSE,
            redirects: 0,
        }
    }

    fn may_redirect(&mut self) -> bool {
        self.redirects += 1;
        self.redirects <= REDIRECTS
    }

    /// Pauses, or says that it has been long enough.
    async fn after(&mut self, failure: Failure, left: Option<Duration>) -> Result<()> {
        let spent = self.since.get_or_insert_with(Instant::now).elapsed();
        if spent >= self.longest {
            return Err(Error::Unavailable(
                format!("not available for {:?}", self.longest),
                failure,
            ));
        }
        let pause = self.pause.min(self.longest.saturating_sub(spent));
        tokio::time::sleep(left.map_or(pause, |left| pause.min(left))).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}

/// One acquisition under way. Dropped before its end, it withdraws in a task.
pub(crate) struct Ask {
    core: Arc<Core>,
    pub(crate) name: String,
    pub(crate) owner: String,
    pub(crate) options: Options,
    pub(crate) started: Instant,
    tries: Tries,
    is_waiting: bool,
    /// To the server, as waiter or holder.
    may_be_known: Arc<AtomicBool>,
    is_unconfirmed: bool,
    asking_at: Option<Address>,
}

/// A lock that was granted.
pub(crate) struct Grant {
    pub(crate) token: i64,
    pub(crate) sent: Instant,
    pub(crate) received: Instant,
    pub(crate) line: Option<Line>,
}

/// What an ask came to where it has failed: with the server, or for good.
enum Trouble {
    Failure(Failure),
    Error(Error),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl Drop for Ask {
    fn drop(&mut self) {
        self.core.asking.send_modify(|asking| *asking -= 1);
        if self.may_be_known.load(Ordering::Relaxed)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(self.withdrawal());
        }
    }
}

impl Ask {
    fn new(core: &Arc<Core>, name: &str, options: Options) -> Self {
        core.asking.send_modify(|asking| *asking += 1);
        // With no time to wait there is that of one answer.
        let longest = if options.is_patient() {
            options.retry_timeout
        } else {
            options.command_timeout
        };
        Self {
            core: core.clone(),
            name: name.to_owned(),
            owner: options.owner.clone().unwrap_or_else(new_owner),
            options,
            started: Instant::now(),
            tries: Tries::new(longest),
            is_waiting: false,
            may_be_known: Arc::default(),
            is_unconfirmed: false,
            asking_at: None,
        }
    }

    fn know(&self, is_so: bool) {
        self.may_be_known.store(is_so, Ordering::Relaxed);
    }

    fn left(&self) -> Option<Duration> {
        self.options
            .wait
            .map(|wait| wait.saturating_sub(self.started.elapsed()))
    }

    fn is_over(&self) -> bool {
        self.left() == Some(Duration::ZERO)
    }

    async fn until_granted(&mut self) -> Result<Grant> {
        loop {
            let mut address = self.asking_at.clone();
            let trouble = match self.ask_somewhere(&mut address).await {
                Ok(Some(grant)) => return Ok(grant),
                Ok(None) => {
                    self.is_unconfirmed = true;
                    self.know(false);
                    if !self.options.is_patient() || self.is_over() {
                        return Err(self.not_in_time(None));
                    }
                    tokio::time::sleep(FIRST_PAUSE).await;
                    continue;
                }
                Err(trouble) => trouble,
            };
            match trouble {
                Trouble::Error(error) => return Err(error),
                Trouble::Failure(failure) => self.passed(failure, address.as_ref()).await?,
            }
        }
    }

    /// Returns if it is worth asking again.
    async fn passed(&mut self, failure: Failure, address: Option<&Address>) -> Result<()> {
        self.asking_at = None;
        let is_redirect = ["MOVED", "ASK", "UNBLOCKED"]
            .iter()
            .any(|code| failure.is(code));
        if is_redirect && self.tries.may_redirect() {
            let named = self.core.route.redirect(&failure, address);
            if failure.is("ASK") {
                self.asking_at.clone_from(&named);
            }
            if named.is_some() || failure.is("UNBLOCKED") {
                return Ok(());
            }
        }
        if !failure.is_passing() {
            return Err(failure.translated(&self.core.route.describe(address)));
        }
        self.core.distrust(address, &failure);
        if self.is_over() && self.options.is_patient() {
            return Err(self.not_in_time(Some(&failure)));
        }
        // With no time to wait, the time of one answer is there for trying again.
        let left = self.left().filter(|_| self.options.is_patient());
        self.tries.after(failure, left).await
    }

    async fn ask_somewhere(
        &mut self,
        address: &mut Option<Address>,
    ) -> std::result::Result<Option<Grant>, Trouble> {
        if address.is_none() {
            *address = self.core.address(&self.name).await?;
        }
        self.core.control_line(address.as_ref()).await?; // To release by: a full server must not keep a holder from it.
        let mut line = self
            .core
            .take(address.as_ref(), self.options.session)
            .await?;
        let outcome = self.ask_on(&mut line, address.as_ref()).await;
        match outcome {
            Ok(Some((token, sent))) => {
                let received = Instant::now();
                let line = if self.options.session {
                    Some(line)
                } else {
                    self.core.give(address.clone(), line);
                    None
                };
                Ok(Some(Grant {
                    token,
                    sent,
                    received,
                    line,
                }))
            }
            Ok(None) => Ok(None),
            Err(trouble) => {
                // The answer to a refusal was read, so the connection is as good as before.
                if !matches!(&trouble, Trouble::Failure(failure) if failure.is_broken())
                    && !self.options.session
                {
                    self.core.give(address.clone(), line);
                }
                Err(trouble)
            }
        }
    }

    /// The token, and when the ask was sent that brought it; `None`: no replica has confirmed it.
    async fn ask_on(
        &mut self,
        line: &mut Line,
        address: Option<&Address>,
    ) -> std::result::Result<Option<(i64, Instant)>, Trouble> {
        let (token, sent) = self.token(line).await?;
        if self.confirm(line, address).await? {
            return Ok(Some((token, sent)));
        }
        let words = words(["FAIRLOCK.RELEASE", &self.name, &self.owner]);
        match line.call(&words, Some(self.options.command_timeout)).await {
            Err(failure) if !failure.is("NOTHELD") => Err(failure.into()),
            _ => Ok(None), // NOTHELD: the lease was over before.
        }
    }

    async fn token(&mut self, line: &mut Line) -> std::result::Result<(i64, Instant), Trouble> {
        if !self.is_waiting {
            let sent = Instant::now();
            if let Some(token) = self
                .ask(line, &["NOWAIT"], Some(self.options.command_timeout))
                .await?
            {
                return Ok((token, sent));
            }
            if !self.options.is_patient() {
                return Err(self.not_in_time(None).into());
            }
            self.is_waiting = true;
            Hooks::call(self.options.hooks.on_wait.as_ref(), &self.event());
        }
        if self.is_over() {
            return Err(self.not_in_time(None).into());
        }
        let sent = Instant::now();
        let token = match self.left() {
            None => self.ask(line, &[], None).await?,
            Some(left) => {
                let longest = left.saturating_add(self.options.command_timeout);
                self.ask(line, &["WAIT", &ms(left)], Some(longest)).await?
            }
        };
        token
            .map(|token| (token, sent))
            .ok_or_else(|| self.not_in_time(None).into())
    }

    async fn ask(
        &mut self,
        line: &mut Line,
        more: &[&str],
        longest: Option<Duration>,
    ) -> Outcome<Option<i64>> {
        let mut all = words(["FAIRLOCK.ACQUIRE", &self.name, &self.owner]);
        all.extend(self.options.arguments());
        all.extend(words(more));
        if self.asking_at.is_some() {
            line.call(&words(["ASKING"]), Some(self.options.command_timeout))
                .await?;
        }
        let was_known = self.may_be_known.swap(true, Ordering::Relaxed);
        match line.call(&all, longest).await {
            Ok(reply) => {
                self.tries = Tries::new(self.tries.longest);
                let token = if let Value::Int(token) = reply {
                    Some(token)
                } else {
                    None
                };
                self.know(token.is_some());
                Ok(token)
            }
            Err(failure) => {
                // A refusal changes nothing: what an earlier ask brought is still there, though its reply was lost, and
                // so is the place of a caller that is to ask again.
                if !failure.is_broken() {
                    let may_be_there = was_known || (self.is_waiting && failure.is_passing());
                    self.know(may_be_there && !failure.is_settled());
                }
                Err(failure)
            }
        }
    }

    /// Whether a replica has the acquisition, or there is none. INFO comes right before WAIT, which covers what was
    /// written before the last command of its connection: a grant to a blocked client was written after it.
    async fn confirm(&self, line: &mut Line, address: Option<&Address>) -> Outcome<bool> {
        let longest = self.options.sync_timeout;
        if longest.is_zero() || self.core.is_alone(address) {
            return Ok(true);
        }
        let reply = line
            .call(
                &words(["INFO", "replication"]),
                Some(self.options.command_timeout),
            )
            .await?;
        let info: String = redis::from_redis_value(reply).unwrap_or_default();
        let replicas = info
            .lines()
            .find_map(|each| each.strip_prefix("connected_slaves:"));
        let replicas = replicas.unwrap_or("0").trim();
        if replicas == "0" {
            self.core.set_alone(address);
            return Ok(true);
        }
        let most = longest.saturating_add(self.options.command_timeout);
        let confirmed = line
            .call(&words(["WAIT", replicas, &ms(longest)]), Some(most))
            .await?;
        Ok(matches!(confirmed, Value::Int(1..)))
    }

    fn not_in_time(&self, cause: Option<&Failure>) -> Error {
        let because = cause
            .map(|failure| format!(" ({failure})"))
            .unwrap_or_default();
        if self.is_unconfirmed {
            return Error::NotReplicated(format!(
                "{}: no replica has confirmed it in time{because}",
                self.name
            ));
        }
        Error::NotInTime(format!("{}: not in time{because}", self.name))
    }

    fn event(&self) -> Event {
        let (name, owner) = (self.name.clone(), self.owner.clone());
        Event {
            name,
            owner,
            token: None,
            waited: None,
            held: None,
            cause: None,
        }
    }

    /// For a caller that does not know whether it waits, holds the lock, or neither.
    fn withdrawal(&self) -> impl Future<Output = ()> + Send + 'static {
        let (core, name, owner) = (self.core.clone(), self.name.clone(), self.owner.clone());
        let (is_new, lease) = (self.options.owner.is_none(), self.options.lease);
        let soon = WITHDRAW.min(self.options.command_timeout);
        async move {
            let leaving = tokio::time::timeout(soon, core.leave(&name, &owner, soon)).await;
            if leaving.unwrap_or(false) || !is_new {
                return;
            }
            // A network that comes back must not leave the lock to a caller that has gone. With an owner that was
            // given, the caller may hold the lock again by then.
            tokio::spawn(async move { core.leave(&name, &owner, lease).await });
        }
    }
}

impl Core {
    pub(crate) fn new(source: Source, options: Options) -> Arc<Self> {
        Arc::new(Self {
            route: Route::new(source),
            options,
            state: Mutex::default(),
            closing: watch::Sender::new(false),
            asking: watch::Sender::new(0),
            numbers: AtomicU64::new(0),
        })
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
        options.check()?;
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
                let keep = Keep::begin(self, &ask, grant, caller.clone());
                let gone = self.state().gone.remove(&keep.token);
                if let Some(cause) = gone {
                    keep.lose(cause);
                }
                ask.know(false);
                if let Some(key) = caller {
                    self.state().entered.insert(key, Arc::downgrade(&keep));
                }
                Ok(keep)
            }
            Err(error) => {
                if ask.may_be_known.load(Ordering::Relaxed) {
                    ask.withdrawal().await;
                    ask.know(false);
                }
                Err(error)
            }
        }
    }

    /// Whether the owner neither waits nor holds any more, as far as the server could be asked.
    async fn leave(&self, name: &str, owner: &str, longest: Duration) -> bool {
        for command in ["FAIRLOCK.CANCEL", "FAIRLOCK.RELEASE"] {
            match self
                .control(name, &words([command, name, owner]), longest)
                .await
            {
                Err(ControlError::Unavailable(_)) => return false,
                Ok(_) | Err(ControlError::Refused { .. }) => (), // NOTHELD: it does not.
            }
        }
        true
    }

    pub(crate) async fn address(&self, name: &str) -> Outcome<Option<Address>> {
        if !self.route.is_cluster() {
            return Ok(None);
        }
        if self.route.address(name).is_none() {
            self.read_slots().await?;
        }
        let address = self.route.address(name);
        address
            .map(Some)
            .ok_or_else(|| Failure::Refusal("CLUSTERDOWN no node has the slot".to_owned()))
    }

    async fn read_slots(&self) -> Outcome<()> {
        let mut last = Failure::Broken("no node of the cluster is known".to_owned());
        for node in self.route.nodes() {
            match self
                .call_once(Some(&node), &words(["CLUSTER", "SLOTS"]))
                .await
            {
                Ok(reply) => {
                    self.route.learn(&reply, &node);
                    return Ok(());
                }
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    // ------------------------------------------------------------------------- connections

    /// A command on the connection that no waiter can hold up, tried for so long; and whether it may have been done before.
    pub(crate) async fn control(
        &self,
        name: &str,
        words: &[String],
        longest: Duration,
    ) -> std::result::Result<(Value, bool), ControlError> {
        let mut tries = Tries::new(longest);
        let mut may_be_done = false;
        let mut asking_at: Option<Address> = None;
        loop {
            let mut address = asking_at.clone();
            let failure = match self
                .control_once(name, words, &mut address, asking_at.is_some())
                .await
            {
                Ok(reply) => return Ok((reply, may_be_done)),
                Err(failure) => failure,
            };
            let was_redirected = failure.is("MOVED") || failure.is("ASK");
            if was_redirected && tries.may_redirect() {
                let named = self.route.redirect(&failure, address.as_ref());
                asking_at = named.filter(|_| failure.is("ASK"));
                continue;
            }
            asking_at = None;
            if !failure.is_passing() {
                let error = failure.translated(&self.route.describe(address.as_ref()));
                return Err(ControlError::Refused {
                    error,
                    failure,
                    may_be_done,
                });
            }
            may_be_done |= failure.is_broken();
            self.distrust(address.as_ref(), &failure);
            tries
                .after(failure, None)
                .await
                .map_err(ControlError::Unavailable)?;
        }
    }

    async fn control_once(
        &self,
        name: &str,
        all: &[String],
        address: &mut Option<Address>,
        is_asking: bool,
    ) -> Outcome<Value> {
        if is_asking {
            let longest = Some(self.options.command_timeout);
            let mut line = self
                .route
                .open(address.as_ref(), self.options.command_timeout)
                .await?;
            line.call(&words(["ASKING"]), longest).await?;
            return line.call(all, longest).await;
        }
        *address = self.address(name).await?;
        self.call_once(address.as_ref(), all).await
    }

    async fn call_once(&self, address: Option<&Address>, words: &[String]) -> Outcome<Value> {
        let mut line = self.control_line(address).await?;
        let reply = line.call(words, Some(self.options.command_timeout)).await;
        if let Err(failure) = &reply {
            self.distrust(address, failure);
        }
        reply
    }

    /// Which all share; made if it is not there.
    async fn control_line(&self, address: Option<&Address>) -> Outcome<Line> {
        if let Some(line) = self
            .state()
            .control
            .get(&address.cloned())
            .filter(|line| line.is_open())
        {
            return Ok(line.clone());
        }
        let line = self
            .route
            .open(address, self.options.command_timeout)
            .await?;
        let mut state = self.state();
        if !state.is_closed {
            state.control.insert(address.cloned(), line.clone());
        }
        Ok(line)
    }

    /// For one caller alone, until it is given back or dropped. A session's is never one that was used before.
    async fn take(&self, address: Option<&Address>, is_new: bool) -> Outcome<Line> {
        let idle = if is_new {
            None
        } else {
            self.state()
                .idle
                .get_mut(&address.cloned())
                .and_then(Vec::pop)
        };
        match idle.filter(Line::is_open) {
            Some(line) => Ok(line),
            None => self.route.open(address, self.options.command_timeout).await,
        }
    }

    fn give(&self, address: Option<Address>, line: Line) {
        let mut state = self.state();
        let is_closed = state.is_closed;
        let idle = state.idle.entry(address).or_default();
        if idle.len() < MAX_IDLE && !is_closed {
            idle.push(line);
        }
    }

    /// After a failure, connections and what is known of the cluster may be those of the past.
    fn distrust(&self, address: Option<&Address>, failure: &Failure) {
        let is_past = failure.is_broken() || failure.is("READONLY");
        if is_past {
            let mut state = self.state();
            state.idle.remove(&address.cloned());
            state.control.remove(&address.cloned());
        }
        if is_past || failure.is("CLUSTERDOWN") {
            self.route.forget();
        }
    }

    fn is_alone(&self, address: Option<&Address>) -> bool {
        let until = self.state().alone_until.get(&address.cloned()).copied();
        until.is_some_and(|until| Instant::now() < until)
    }

    fn set_alone(&self, address: Option<&Address>) {
        self.state()
            .alone_until
            .insert(address.cloned(), Instant::now() + ALONE_FOR);
    }

    // -------------------------------------------------------------------------------- held

    pub(crate) fn keep(&self, keep: &Arc<Keep>) -> u64 {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        self.state().kept.insert(number, Arc::downgrade(keep));
        number
    }

    pub(crate) fn unkeep(&self, number: u64, entered: Option<&(Caller, String)>) {
        let mut state = self.state();
        state.kept.remove(&number);
        if let Some(key) = entered {
            state.entered.remove(key);
        }
    }

    /// For the fake: the locks with these tokens are lost, at once or as soon as their holders know of them.
    #[cfg_attr(not(feature = "testing"), allow(dead_code))]
    pub(crate) fn lose(&self, tokens: &[i64], cause: Cause) {
        let kept = {
            let state = &mut *self.state();
            let kept = state.all_kept();
            state
                .gone
                .extend(tokens.iter().map(|token| (*token, cause)));
            for keep in &kept {
                state.gone.remove(&keep.token);
            }
            kept
        };
        for keep in kept.iter().filter(|keep| tokens.contains(&keep.token)) {
            keep.lose(cause);
        }
    }

    fn all_kept(&self) -> Vec<Arc<Keep>> {
        self.state().all_kept()
    }

    /// Ends all waits; held locks are lost to us. The connections close when waits have left their queues.
    pub(crate) fn begin_to_close(&self) {
        self.closing.send_replace(true);
        for keep in self.all_kept() {
            keep.lose(Cause::Closed);
        }
    }

    pub(crate) async fn close(&self) {
        self.begin_to_close();
        let mut asking = self.asking.subscribe();
        let ended = asking.wait_for(|asking| *asking == 0);
        drop(tokio::time::timeout(self.options.command_timeout, ended).await);
        let mut state = self.state();
        state.is_closed = true;
        state.idle.clear();
        state.control.clear();
    }
}

/// Why a command on the control connection has come to nothing.
pub(crate) enum ControlError {
    Refused {
        error: Error,
        failure: Failure,
        may_be_done: bool,
    },
    Unavailable(Error),
}

pub(crate) fn words<S: AsRef<str>>(all: impl IntoIterator<Item = S>) -> Vec<String> {
    all.into_iter()
        .map(|word| word.as_ref().to_owned())
        .collect()
}
