//! One acquisition: carries out what [`Asking`] says.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use crate::core::{Busy, Caller, Core, Seat, Way, closed};
use crate::error::{Failure, Outcome};
use crate::hold::Hold;
use crate::lines::{Channel, Line, locked};
use crate::options::{call, new_owner};
use crate::protocol::{Asking, Keeping, Message, Reply, Request, Step};
use crate::scripts::{Command, channel};
use crate::{Error, Event, Kind, Options, Result};

/// The longest that a caller waits for its owner to leave the queue; it goes on in the background.
const LEAVE: Duration = Duration::from_secs(1);

struct Waiter {
    core: Arc<Core>,
    name: Vec<u8>,
    owner: Vec<u8>,
    options: Options,
    start: Instant,
    asking: Asking,
    /// The connection of a session.
    own: Option<Arc<Line>>,
    way: Option<Way>,
    channel: Option<Arc<Channel>>,
    is_told: bool,
    busy: Option<Busy>,
}

impl Core {
    /// The lock, or the hold that this caller has already.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        name: &[u8],
        options: Options,
        caller: Option<Caller>,
    ) -> Result<Arc<Hold>> {
        options.check(name)?;
        self.check_open()?;
        let mut key = None;
        if options.reentrant {
            let refused = || Error::new(Kind::Argument, "reentrant: this is no task");
            let entered = (caller.ok_or_else(refused)?, name.to_vec());
            let there = locked(&self.state)
                .entered
                .get(&entered)
                .and_then(std::sync::Weak::upgrade);
            if let Some(hold) = there {
                hold.enter_again()?;
                return Ok(hold);
            }
            key = Some(entered);
        }
        let mut waiter = Waiter::new(self, name, options);
        let mut closing = self.closing.subscribe();
        let granted = tokio::select! {
            biased;
            granted = Box::pin(waiter.run()) => granted,
            _ = closing.wait_for(|is_so| *is_so) => Err(closed()),
        };
        match granted {
            Ok((token, since)) => Ok(waiter.hold(token, since, key).await),
            Err(error) => {
                if let Some(leaving) = waiter.leave() {
                    drop(timeout(LEAVE, tokio::spawn(leaving)).await);
                }
                Err(error)
            }
        }
    }
}

impl Waiter {
    fn new(core: &Arc<Core>, name: &[u8], options: Options) -> Self {
        let start = Instant::now();
        let seat = if options.owner.is_none() {
            core.take_seat(name)
        } else {
            None
        };
        let (owner, channel) = match seat {
            Some(Seat { owner, channel }) => (owner, Some(channel)),
            None => (options.owner.clone().unwrap_or_else(new_owner), None),
        };
        Self {
            core: core.clone(),
            name: name.to_vec(),
            owner,
            start,
            asking: Asking::new(&options, start),
            own: options.session.then(|| core.own_line(options.lease)),
            options,
            way: None,
            channel,
            is_told: false,
            busy: Some(core.busy()),
        }
    }

    async fn run(&mut self) -> Result<(i64, Instant)> {
        let longest = self.asking.left(self.start).unwrap_or(Duration::MAX);
        let turn = self.core.turn(&self.name).lock_owned();
        let mut turn = timeout(longest, turn).await.ok();
        let mut step = self.asking.ask(Instant::now());
        loop {
            step = match step {
                Step::Send(message) => {
                    let sent = Instant::now();
                    let outcome = self.send(message, sent).await;
                    drop(turn.take());
                    self.asking.answered(sent, Instant::now(), outcome)
                }
                Step::Listen(longest) => self.listen(longest).await,
                Step::Pause(longest) => {
                    sleep(longest).await;
                    self.asking.ask(Instant::now())
                }
                Step::Granted(token, since) => return Ok((token, since)),
                Step::Failed(kind, failure) => return Err(self.error(kind, failure)),
            }
        }
    }

    async fn send(&mut self, message: Message, now: Instant) -> Outcome<Reply> {
        let way = self
            .core
            .way(&self.name, &self.options, self.own.as_ref())
            .await?;
        let way = self.way.insert(way);
        let request = match message {
            Message::Ask => Request::ask(&self.owner, &self.options),
            Message::Renew => Request::renew(&self.owner, self.options.lease).with(&self.options),
            Message::GiveBack(token) => Request::release(&self.owner, token).with(&self.options),
        };
        let left = self.asking.left(now).unwrap_or(Duration::MAX);
        let longest = self.core.options.command_timeout.min(left) + self.options.sync_timeout;
        self.core.send(way, &self.name, &request, longest).await
    }

    async fn listen(&mut self, longest: Duration) -> Step {
        if !self.is_told {
            self.is_told = true;
            call(self.core.options.hooks.on_wait.as_ref(), &self.event());
        }
        let ears = &self.core.ears;
        let channel = self
            .channel
            .get_or_insert_with(|| ears.channel(channel(&self.name, &self.owner)));
        // Silence may be that of a dead connection: then it does not confirm this either.
        let is_heard =
            ears.hears(channel) && timeout(longest, channel.bell.notified()).await.is_ok();
        if !is_heard && let Err(failure) = ears.listen(channel).await {
            return self.asking.failed(Instant::now(), failure);
        }
        self.asking.ask(Instant::now())
    }

    fn event(&self) -> Event {
        Event {
            name: String::from_utf8_lossy(&self.name).into_owned(),
            owner: String::from_utf8_lossy(&self.owner).into_owned(),
            token: None,
            waited: None,
            held: None,
            cause: None,
        }
    }

    fn error(&self, kind: Kind, failure: Option<Failure>) -> Error {
        let name = String::from_utf8_lossy(&self.name);
        let address = self.core.source.address();
        let failure = match (kind, failure) {
            (Kind::Refused | Kind::Unavailable, Some(failure)) => {
                return self.core.error(&self.name, failure, self.options.needs());
            }
            (_, failure) => failure,
        };
        let text = match kind {
            Kind::NotReplicated => {
                format!("{name} at {address}: no replica has confirmed it in time")
            }
            _ => format!(
                "{name} at {address}: not acquired within {:?}",
                self.options.wait.unwrap_or_default()
            ),
        };
        Error::new(kind, text).because(failure)
    }

    async fn hold(
        mut self,
        token: i64,
        since: Instant,
        key: Option<(Caller, Vec<u8>)>,
    ) -> Arc<Hold> {
        let own = match self.own.take() {
            Some(line) => Some((line.clone(), line.number().await)),
            None => None,
        };
        let owner = self.owner.clone();
        let seat = self.channel.take().map(|channel| Seat { owner, channel });
        let event = Event {
            token: Some(token),
            ..self.event()
        };
        let acquired = Event {
            waited: Some(self.start.elapsed()),
            ..event.clone()
        };
        let hold = Arc::new(Hold {
            keeping: Mutex::new(Keeping::new(
                self.options.lease,
                self.options.renew || self.options.session,
                since,
            )),
            seat: Mutex::new(seat),
            unanswered: AtomicUsize::new(usize::from(!self.asking.is_clean())),
            core: self.core.clone(),
            name: std::mem::take(&mut self.name),
            owner: std::mem::take(&mut self.owner),
            options: self.options.clone(),
            token,
            event,
            own,
            key,
            acquired: Instant::now(),
            holds: Mutex::new(1),
            lost: watch::Sender::new(None),
            changed: Notify::new(),
            task: OnceLock::new(),
        });
        hold.begin(self.busy.take());
        call(self.core.options.hooks.on_acquired.as_ref(), &acquired);
        hold
    }

    /// The work of leaving the queue, or of giving up what was granted meanwhile; none if the owner was never there.
    fn leave(&mut self) -> Option<impl Future<Output = ()> + Send + 'static> {
        let busy = self.busy.take()?;
        let way = self.way.take().filter(|_| self.asking.must_leave());
        let (core, name, owner, options) = (
            self.core.clone(),
            self.name.clone(),
            self.owner.clone(),
            self.options.clone(),
        );
        let (channel, is_clean) = (self.channel.take(), self.asking.is_clean());
        if way.is_none() && channel.is_none() {
            return None;
        }
        Some(async move {
            let _busy = busy;
            let is_left = match way {
                Some(way) => leave(&core, &way, &name, &owner, &options, is_clean).await,
                None => true,
            };
            match channel {
                Some(channel) if is_left && is_clean && options.owner.is_none() => {
                    core.give_seat(&name, Seat { owner, channel });
                }
                Some(channel) => core.ears.forget(&channel).await,
                None => {}
            }
        })
    }
}

/// Whether the owner was in the queue, and has left it.
async fn leave(
    core: &Arc<Core>,
    way: &Way,
    name: &[u8],
    owner: &[u8],
    options: &Options,
    is_clean: bool,
) -> bool {
    let longest = options.lease.max(options.patience);
    let cancel = Request::new(Command::Cancel, owner, &[]).with(options);
    let (answer, _) = core.persist(way, name, &cancel, longest).await;
    if matches!(
        answer,
        Ok(Reply {
            value: redis::Value::Int(1),
            ..
        })
    ) {
        return true;
    }
    // Another caller may hold the lock by an owner that was given, unless an ask of this one is not answered.
    if answer.is_ok() && !(is_clean && options.owner.is_some()) {
        let release = Request::new(Command::Release, owner, &[]).with(options);
        drop(core.persist(way, name, &release, longest).await);
    }
    false
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if let Some(leaving) = self.leave()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(leaving);
        }
    }
}
