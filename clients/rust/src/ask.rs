//! Asking for a lock, waiting for it and withdrawing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Value;

use crate::core::{By, Core, Tries, words};
use crate::error::{Failure, Outcome};
use crate::keep::renewal;
use crate::line::{Line, Reply, Sync, items};
use crate::node::{Node, Pending, reply_to};
use crate::options::{Event, Hooks, jitter, ms, new_owner, seconds};
use crate::route::Address;
use crate::scripts;
use crate::{Error, Options, Result};

const WITHDRAW: Duration = Duration::from_secs(1);
/// The most that is added to a caller's pause before it asks again.
const SOON: Duration = Duration::from_secs(1);

/// One acquisition under way. Dropped before its end, it withdraws in a task.
pub(crate) struct Ask {
    core: Arc<Core>,
    pub(crate) name: String,
    pub(crate) owner: String,
    pub(crate) options: Options,
    pub(crate) started: Instant,
    tries: Tries,
    /// The first failure since the server's last answer, for the caller.
    first: Option<Failure>,
    is_waiting: bool,
    /// To the server, as waiter or holder.
    pub(crate) may_be_known: bool,
    /// The reply to an ask that went together with others.
    pending: Option<Pending>,
    is_unconfirmed: bool,
    /// The server of the last ask, and the one that an ASK names for the next.
    node: Option<Arc<Node>>,
    asking_at: Option<Address>,
}

/// A lock that was granted.
pub(crate) struct Grant {
    pub(crate) token: i64,
    /// When its lease began, as far as is known.
    pub(crate) from: Instant,
    pub(crate) line: Option<Line>,
}

/// The failure of an ask: of the server, or final.
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
        self.core.end_work();
        if self.may_be_known
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(self.withdrawal());
        }
    }
}

impl Ask {
    pub(crate) fn new(core: &Arc<Core>, name: &str, options: Options) -> Self {
        core.begin_work();
        // Without a wait there is still the time of one answer.
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
            first: None,
            is_waiting: false,
            may_be_known: false,
            pending: None,
            is_unconfirmed: false,
            node: None,
            asking_at: None,
        }
    }

    fn left(&self) -> Option<Duration> {
        let wait = self.options.wait;
        wait.map(|wait| wait.saturating_sub(self.started.elapsed()))
    }

    fn is_over(&self) -> bool {
        self.left() == Some(Duration::ZERO)
    }

    pub(crate) async fn until_granted(&mut self) -> Result<Grant> {
        loop {
            match self.ask_somewhere().await {
                Ok(Some(grant)) => return Ok(grant),
                Ok(None) => {
                    self.is_unconfirmed = true;
                    if !self.options.is_patient() || self.is_over() {
                        return Err(self.not_in_time(None));
                    }
                    let left = self.left();
                    self.tries.pause(left).await;
                }
                Err(Trouble::Error(error)) => return Err(error),
                Err(Trouble::Failure(failure)) => self.passed(failure).await?,
            }
        }
    }

    /// Returns if asking again may help.
    async fn passed(&mut self, failure: Failure) -> Result<()> {
        self.asking_at = None;
        let is_redirect = ["MOVED", "ASK", "UNBLOCKED"]
            .iter()
            .any(|code| failure.is(code));
        if is_redirect && self.tries.may_redirect() {
            let node = self.node.as_ref();
            let named = node.and_then(|node| self.core.route.redirect(&failure, &node.address));
            if failure.is("ASK") {
                self.asking_at.clone_from(&named);
            }
            if named.is_some() || failure.is("UNBLOCKED") {
                return Ok(());
            }
        }
        if failure.is("NOTHELD") {
            self.may_be_known = false; // The lease was over when the grant arrived.
            return Ok(());
        }
        if !failure.is_passing() {
            return Err(failure.translated(&self.name, &self.address()));
        }
        self.core.distrust(self.node.as_ref(), &failure);
        let first = self.first.get_or_insert_with(|| failure.clone()).clone();
        if self.is_over() && self.options.is_patient() {
            return Err(self.not_in_time(Some(first)));
        }
        // Without a wait, there is still the time of one answer for another try.
        let left = self.left().filter(|_| self.options.is_patient());
        if matches!(failure, Failure::NoDescriptor(_)) && self.options.is_patient() {
            self.tries.pause(left).await;
            return Ok(());
        }
        if self.tries.after(left).await {
            return Ok(());
        }
        Err(Error::unavailable(&self.name, self.tries.longest, &first))
    }

    /// `None`: it was granted, and too few replicas have confirmed that.
    async fn ask_somewhere(&mut self) -> std::result::Result<Option<Grant>, Trouble> {
        let node = match &self.asking_at {
            Some(address) => self.core.node(address),
            None => self.core.node_of(&self.name).await?,
        };
        self.node = Some(node.clone());
        let mut line = if self.options.session || self.asking_at.is_some() {
            node.ready().await?;
            Some(node.take(self.options.session).await?)
        } else {
            None
        };
        let outcome = self.ask_at(&node, &mut line).await;
        // The refusal was read in full, so the connection can be used again.
        let is_broken = matches!(&outcome, Err(Trouble::Failure(failure)) if failure.is_broken());
        if !self.options.session && !is_broken {
            line.take().into_iter().for_each(|line| node.give(line));
        }
        let Some((reply, sent)) = outcome? else {
            return Err(self.not_in_time(None).into());
        };
        if !reply.is_confirmed? {
            self.give_back(&node).await?;
            return Ok(None);
        }
        let Value::Int(token) = reply.value else {
            return Err(self.not_in_time(None).into());
        };
        let is_session = self.options.session;
        // Until now the server has renewed the lease of a session.
        let from = if is_session { Instant::now() } else { sent };
        Ok(Some(Grant { token, from, line }))
    }

    /// The first ask keeps the order of the calls, and has a place in the queue; then the caller waits on a connection
    /// of its own. Returns the reply, and when its request was sent, or one that has renewed the lease since.
    async fn ask_at(
        &mut self,
        node: &Arc<Node>,
        line: &mut Option<Line>,
    ) -> std::result::Result<Option<(Reply, Instant)>, Trouble> {
        let (sent, longest) = (Instant::now(), Some(self.options.command_timeout));
        let patience = ms(self.options.patience);
        let first: &[&str] = if self.options.is_patient() {
            &["ENQUEUE", "PATIENCE", &patience]
        } else {
            &["NOWAIT"]
        };
        let reply = self.ask(node, line.as_mut(), first, longest).await?;
        if matches!(reply.value, Value::Int(_)) {
            return Ok(Some((reply, sent)));
        }
        if !self.options.is_patient() {
            return Ok(None);
        }
        if !self.is_waiting {
            self.is_waiting = true;
            Hooks::call(self.options.hooks.on_wait.as_ref(), &self.event());
        }
        if self.is_over() {
            return Ok(None);
        }
        if node.is_by_scripts() {
            return self.ask_until_granted(node, line).await;
        }
        if line.is_none() {
            *line = Some(node.take(false).await?);
        }
        let mut sent = Instant::now();
        let mut reply = match self.left() {
            None => self.ask(node, line.as_mut(), &[], None).await?,
            Some(left) => {
                let longest = left.saturating_add(self.options.command_timeout);
                let wait = ["WAIT", &ms(left)];
                self.ask(node, line.as_mut(), &wait, Some(longest)).await?
            }
        };
        if !matches!(reply.value, Value::Int(_)) {
            return Ok(None);
        }
        let is_late = !self.options.session && sent.elapsed() >= self.options.lease / 3;
        if is_late
            && reply.is_confirmed == Ok(true)
            && let Some(line) = line
        {
            // The grant may have been on its way for longer than its lease.
            sent = Instant::now();
            reply.is_confirmed = self.renew(line).await?.is_confirmed;
        }
        Ok(Some((reply, sent)))
    }

    /// Without the module no connection can block: the caller asks again when it is woken, and at the time in the reply
    /// to the last ask. It listens before it asks, so that it misses no message.
    async fn ask_until_granted(
        &mut self,
        node: &Arc<Node>,
        line: &mut Option<Line>,
    ) -> std::result::Result<Option<(Reply, Instant)>, Trouble> {
        let channel = scripts::channel(&self.name, &self.owner);
        let longest = self.options.command_timeout;
        let mut ear = node.take(false).await?;
        let is_cluster = self.core.route.is_cluster();
        let leave = ear.subscribe(&channel, is_cluster, longest).await?;
        let patience = ms(self.options.patience);
        let enqueue = ["ENQUEUE", "PATIENCE", &patience];
        loop {
            let sent = Instant::now();
            let reply = self
                .ask(node, line.as_mut(), &enqueue, Some(longest))
                .await?;
            if matches!(reply.value, Value::Int(_)) {
                if ear
                    .call(&words([leave, &channel]), Some(longest))
                    .await
                    .is_ok()
                {
                    node.give(ear);
                }
                return Ok(Some((reply, sent)));
            }
            let pause = retry_after(&reply.value);
            let pause = self.left().map_or(pause, |left| left.min(pause));
            tokio::select! {
                () = ear.woken() => (),
                () = tokio::time::sleep(pause) => (),
                () = ear.ended() => return Err(Failure::Broken(format!("{}: the connection has ended", node.address)).into()),
            }
            if self.is_over() {
                return Ok(None);
            }
        }
    }

    async fn ask(
        &mut self,
        node: &Arc<Node>,
        line: Option<&mut Line>,
        more: &[&str],
        longest: Option<Duration>,
    ) -> Outcome<Reply> {
        let mut all = words(["FAIRLOCK.ACQUIRE", &self.name, &self.owner]);
        all.extend(self.options.arguments());
        all.extend(words(more));
        let sync = self.core.sync(&self.name, &self.options);
        let was_known = self.may_be_known;
        let reply = match line {
            None => {
                let pending = node.ask(all, sync).await?;
                self.may_be_known = true;
                reply_to(self.pending.insert(pending)).await
            }
            Some(line) => {
                self.may_be_known = true;
                self.ask_on(line, all, sync, longest).await
            }
        };
        self.pending = None;
        match &reply {
            Ok(reply) => {
                self.tries.answered();
                self.first = None;
                self.may_be_known = reply.value != Value::Nil;
            }
            // A refusal changes nothing. A hold from an earlier ask whose reply was lost is still there, and so is the
            // place of a caller that asks again.
            Err(failure) if !failure.is_broken() => {
                let may_be_there = was_known || (self.is_waiting && failure.is_passing());
                self.may_be_known = may_be_there && !failure.is_settled();
            }
            Err(_) => (),
        }
        reply
    }

    async fn ask_on(
        &self,
        line: &mut Line,
        words: Vec<String>,
        sync: Sync,
        longest: Option<Duration>,
    ) -> Outcome<Reply> {
        let at_once = self.options.command_timeout;
        if self.asking_at.is_some() {
            line.call(&["ASKING".to_owned()], Some(at_once)).await?;
        }
        let mut replies = line.exchange(&[(words, sync)], longest, at_once).await?;
        let none = || Failure::Broken("no reply".to_owned());
        replies.pop().unwrap_or_else(|| Err(none()))
    }

    async fn renew(&self, line: &mut Line) -> Outcome<Reply> {
        let words = renewal(&self.name, &self.owner, self.options.lease);
        let sync = self.core.sync(&self.name, &self.options);
        let longest = Some(self.options.command_timeout);
        self.ask_on(line, words, sync, longest).await
    }

    /// A grant that does not count.
    async fn give_back(&mut self, node: &Arc<Node>) -> Outcome<()> {
        let words = words(["FAIRLOCK.RELEASE", &self.name, &self.owner]);
        let mut line = node.control().await?;
        match line.call(&words, Some(self.options.command_timeout)).await {
            Err(failure) if !failure.is("NOTHELD") => Err(failure),
            _ => {
                self.may_be_known = false; // NOTHELD: the lease was over before.
                Ok(())
            }
        }
    }

    fn address(&self) -> String {
        let node = self.node.as_ref();
        node.map_or("no server yet", |node| &node.address)
            .to_owned()
    }

    fn not_in_time(&self, cause: Option<Failure>) -> Error {
        let (name, wait) = (&self.name, seconds(self.options.wait.unwrap_or_default()));
        let why = if self.is_unconfirmed {
            ", for want of replicas that confirm it"
        } else {
            ""
        };
        let place = match &cause {
            Some(_) => String::new(), // Which says where.
            None => format!(" at {}", self.address()),
        };
        let text = format!("{name} not acquired within {wait}{place}{why}");
        if self.is_unconfirmed {
            return Error::NotReplicated(text, cause);
        }
        Error::NotInTime(text, cause)
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

    /// Withdraws, if the server may know of it.
    pub(crate) async fn withdraw(&mut self) {
        if self.may_be_known {
            self.withdrawal().await;
            self.may_be_known = false;
        }
    }

    /// For a caller that does not know whether it waits, holds the lock, or neither.
    fn withdrawal(&mut self) -> impl Future<Output = ()> + Send + 'static {
        let (core, name, owner) = (self.core.clone(), self.name.clone(), self.owner.clone());
        let (is_new, lease) = (self.options.owner.is_none(), self.options.lease);
        let soon = WITHDRAW.min(self.options.command_timeout);
        let pending = self.pending.take();
        let mut leaving = Box::pin(async move {
            // A request that is still under way would arrive after the withdrawal.
            if let Some(mut pending) = pending {
                drop(reply_to(&mut pending).await);
            }
            core.leave(&name, &owner, lease).await;
        });
        async move {
            let is_late = tokio::time::timeout(soon, &mut leaving).await.is_err();
            // A network that comes back must not leave the lock to a caller that has gone. With a given owner, the
            // caller may hold the lock again by then.
            if is_late && is_new {
                tokio::spawn(leaving);
            }
        }
    }
}

/// How long to wait before asking again: the server's time, and up to a tenth more, so that callers whose leases end
/// together do not ask together.
fn retry_after(reply: &Value) -> Duration {
    let [_, Value::Int(after)] = items(reply) else {
        return SOON;
    };
    let after = Duration::from_millis((*after).try_into().unwrap_or_default());
    after + jitter((after / 10).min(SOON))
}

impl Core {
    /// Makes the owner neither wait nor hold; gives up after a time without the server.
    async fn leave(&self, name: &str, owner: &str, longest: Duration) {
        for command in ["FAIRLOCK.CANCEL", "FAIRLOCK.RELEASE"] {
            let all = words([command, name, owner]);
            let done = self.control(name, &all, By::Control, longest).await;
            if matches!(done, Err(failed) if failed.failure.is_passing()) {
                return;
            }
        }
    }
}
