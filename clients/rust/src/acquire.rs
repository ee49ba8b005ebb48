//! One acquisition: carries out what [`Asking`] says.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use crate::core::{Busy, Caller, Core, Seat, closed};
use crate::error::Outcome;
use crate::hold::Hold;
use crate::lines::{Channel, Line, Work, locked};
use crate::options::{call, new_owner};
use crate::protocol::{Asking, Message, Reply, Step};
use crate::scripts::{Terms, channel};
use crate::sending::Way;
use crate::{Error, Event, Kind, Options, Result};

/// The longest that a caller waits for its owner to leave the queue; it goes on in the background.
const LEAVE: Duration = Duration::from_secs(1);

struct Waiter {
    core: Arc<Core>,
    terms: Arc<Terms>,
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
        let mut entry = None;
        if options.reentrant {
            let refused = || Error::new(Kind::Argument, "reentrant: this is no task");
            let key = (caller.ok_or_else(refused)?, name.to_vec());
            let there = locked(&self.state)
                .entered
                .get(&key)
                .and_then(Weak::upgrade);
            if let Some(hold) = there {
                return hold.enter_again();
            }
            entry = Some(key);
        }
        let mut waiter = Waiter::new(self, name, options);
        let mut closing = self.closing.subscribe();
        let granted = tokio::select! {
            biased;
            granted = Box::pin(waiter.run()) => granted,
            _ = closing.wait_for(|is_so| *is_so) => Err(closed()),
        };
        match granted {
            Ok((token, since)) => {
                let seat = waiter.seat().map(|seat| (seat, waiter.asking.is_clean()));
                let (terms, own) = (waiter.terms.clone(), waiter.own.take());
                let mut hold = Hold::new(self, terms, token, since, own).await;
                (hold.seat, hold.entry) = (seat.into(), entry);
                let hold = hold.begin(waiter.busy.take());
                let took = Some(waiter.start.elapsed());
                let event = Event {
                    waited: took,
                    ..hold.event.clone()
                };
                call(self.options.hooks.on_acquired.as_ref(), &event);
                Ok(hold)
            }
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
        let (owner, channel) = seat.map(|seat| (seat.owner, seat.channel)).unzip();
        let owner = owner.or_else(|| options.owner.clone());
        let owner = owner.unwrap_or_else(new_owner);
        let own = options.session.then(|| core.own_line(options.lease));
        let asking = Asking::new(&options, start);
        let name = name.to_vec();
        Self {
            core: core.clone(),
            terms: Arc::new(Terms {
                name,
                owner,
                options,
            }),
            start,
            asking,
            own,
            way: None,
            channel,
            is_told: false,
            busy: Some(core.busy()),
        }
    }

    async fn run(&mut self) -> Result<(i64, Instant)> {
        let longest = self.asking.left(self.start).unwrap_or(Duration::MAX);
        let turn = self.core.turn(&self.terms.name).lock_owned();
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
                Step::Failed(kind, failure) => {
                    return Err(self.core.error(&self.terms, kind, failure));
                }
            }
        }
    }

    async fn send(&mut self, message: Message, now: Instant) -> Outcome<Reply> {
        let way = self.core.way(&self.terms, self.own.as_ref()).await?;
        let way = self.way.insert(way);
        let longest = self.core.options.command_timeout;
        let longest = self
            .asking
            .left(now)
            .map_or(longest, |left| left.min(longest));
        let request = self.terms.message(message);
        self.core.send(way, &self.terms, &request, longest).await
    }

    async fn listen(&mut self, longest: Duration) -> Step {
        if !self.is_told {
            self.is_told = true;
            call(
                self.core.options.hooks.on_wait.as_ref(),
                &self.terms.event(),
            );
        }
        let (ears, terms) = (&self.core.ears, &self.terms);
        let new = || ears.channel(channel(&terms.name, &terms.owner));
        let channel = self.channel.get_or_insert_with(new);
        let heard = timeout(longest, channel.bell.notified());
        // Silence may be that of a dead connection: then it does not confirm this either.
        let is_heard = ears.has(channel) && heard.await.is_ok();
        if !is_heard && let Err(failure) = ears.listen(channel).await {
            return self.asking.failed(Instant::now(), failure);
        }
        self.asking.ask(Instant::now())
    }

    fn seat(&mut self) -> Option<Seat> {
        let (owner, since) = (self.terms.owner.clone(), Instant::now());
        let channel = self.channel.take()?;
        Some(Seat {
            owner,
            channel,
            since,
        })
    }

    /// The work of leaving the queue, or of giving up what was granted meanwhile; none if the owner was never there.
    fn leave(&mut self) -> Option<Work<'static, ()>> {
        let busy = self.busy.take()?;
        let way = self.way.take().filter(|_| self.asking.must_leave());
        let (core, terms, seat) = (self.core.clone(), self.terms.clone(), self.seat());
        let is_clean = self.asking.is_clean();
        if way.is_none() && seat.is_none() {
            return None;
        }
        Some(Box::pin(async move {
            let is_left = match way {
                Some(way) => leave(&core, &way, &terms, is_clean).await,
                None => true,
            };
            if let Some(seat) = seat {
                core.give_seat(&terms, seat, is_left && is_clean).await;
            }
            drop(busy);
        }))
    }
}

/// Whether the owner was in the queue, and has left it.
async fn leave(core: &Arc<Core>, way: &Way, terms: &Terms, is_clean: bool) -> bool {
    let longest = terms.options.lease.max(terms.options.patience);
    let (answer, _) = core.persist(way, terms, &terms.cancel(), longest).await;
    let is_left = |reply: &Reply| reply.value == redis::Value::Int(1);
    // Another caller may hold the lock by an owner that was given, unless an ask of this one is not answered.
    let may_hold = !is_clean || terms.options.owner.is_none();
    if may_hold && answer.as_ref().is_ok_and(|reply| !is_left(reply)) {
        drop(
            core.persist(way, terms, &terms.release(None), longest)
                .await,
        );
    }
    answer.as_ref().is_ok_and(is_left)
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
