//! An acquisition: carries out what [`Asking`] says, in a task of its own, which leaves the queue when its caller has gone.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use redis::Value;
use tokio::sync::{OwnedMutexGuard, oneshot};
use tokio::time::{sleep, timeout};

use crate::core::{Core, Entry};
use crate::hold::{Guard, Hold};
use crate::lines::locked;
use crate::options::call;
use crate::protocol::{Asking, Reply, Step};
use crate::scripts::Request;
use crate::terms::Terms;
use crate::{Error, Kind, Options, Result};

/// The longest that a caller waits for its owner to leave the queue; it goes on in the background.
const LEAVE: Duration = Duration::from_secs(1);

struct Waiter {
    terms: Arc<Terms>,
    asking: Asking,
    start: Instant,
    entry: Option<Entry>,
    is_told: bool,
}

impl Core {
    /// The lock, or one more guard of the hold that this caller has already.
    pub async fn acquire(
        self: Arc<Self>,
        name: Vec<u8>,
        options: Options,
        caller: Option<String>,
    ) -> Result<Guard> {
        options.check(&name)?;
        self.check_open()?;
        let mut entry = None;
        if options.reentrant {
            let refused = || Error::new(Kind::Argument, "reentrant: this is no task");
            let key = (caller.ok_or_else(refused)?, name.clone());
            let there = locked(&self.state)
                .entered
                .get(&key)
                .and_then(Weak::upgrade);
            if let Some(hold) = there {
                return hold.enter_again();
            }
            entry = Some(key);
        }
        let start = Instant::now();
        let mut asking = Asking::new(&options, start);
        let longest = asking.at_most(Duration::MAX, start);
        let turn = timeout(longest, self.turn(&name).lock_owned()).await.ok();
        let terms = self.terms(name, options);
        asking.released = terms.ear.released.load(Ordering::Relaxed);
        let waiter = Waiter {
            terms,
            asking,
            start,
            entry,
            is_told: false,
        };
        let (caller, result) = oneshot::channel();
        tokio::spawn(waiter.run(turn, caller));
        result.await.unwrap_or_else(|_| Err(Error::closed()))
    }
}

impl Waiter {
    async fn run(
        mut self,
        turn: Option<OwnedMutexGuard<()>>,
        mut caller: oneshot::Sender<Result<Guard>>,
    ) {
        let mut closing = self.terms.core.closing.subscribe();
        let granted = tokio::select! {
            biased;
            granted = Box::pin(self.ask(turn)) => granted,
            _ = closing.wait_for(|is_so| *is_so) => Err(Error::closed()),
            () = caller.closed() => Err(Error::closed()),
        };
        match granted {
            Ok((token, since)) => {
                let guard = Hold::begin(&self.terms, self.entry, token, since);
                let mut event = guard.0.event.clone();
                event.waited = Some(self.start.elapsed());
                call(self.terms.core.options.on_acquired.as_ref(), &event);
                drop(caller.send(Ok(guard))); // Without a caller it is released.
            }
            Err(error) => {
                let mut leaving = pin!(self.leave());
                let is_over = timeout(LEAVE, &mut leaving).await.is_ok();
                drop(caller.send(Err(error)));
                if !is_over {
                    leaving.await;
                }
            }
        }
    }

    async fn ask(&mut self, mut turn: Option<OwnedMutexGuard<()>>) -> Result<(i64, Instant)> {
        let mut step = self.asking.ask(Instant::now());
        loop {
            step = match step {
                Step::Ask => {
                    let sent = Instant::now();
                    let outcome = self.send(&self.terms.ask()).await;
                    drop(turn.take());
                    self.asking.answered(sent, Instant::now(), outcome)
                }
                Step::GiveBack(token) => {
                    let outcome = self.send(&self.terms.release(token)).await;
                    self.asking.given_back(Instant::now(), outcome)
                }
                Step::Listen(longest) => self.listen(longest).await,
                Step::Pause(longest) => {
                    sleep(longest).await;
                    self.asking.ask(Instant::now())
                }
                Step::Granted(token, since) => return Ok((token, since)),
                Step::Failed(failure) => return Err(self.terms.error(failure)),
            }
        }
    }

    async fn send(&self, request: &Request) -> Result<Reply> {
        let longest = self.terms.core.options.command_timeout;
        let longest = self.asking.at_most(longest, Instant::now());
        // To release. The nodes by which a cluster's client finds the others may be down later.
        self.terms.core.plain.link(longest).await?;
        self.terms.send(request, longest).await
    }

    async fn listen(&mut self, longest: Duration) -> Step {
        let (core, ear) = (&self.terms.core, &self.terms.ear);
        if !std::mem::replace(&mut self.is_told, true) {
            call(core.options.on_wait.as_ref(), &self.terms.event());
        }
        let heard = timeout(longest, ear.bell.notified());
        // Silence may be that of a dead connection: then it does not confirm this either.
        let is_heard = ear.listens() && heard.await.is_ok();
        if !is_heard && let Err(failure) = core.ears.listen(ear).await {
            return self.asking.failed(Instant::now(), failure);
        }
        self.asking.ask(Instant::now())
    }

    /// Leaves the queue, or gives up what was granted meanwhile, if the owner may be there. Behind its last ask, on the same
    /// connection.
    async fn leave(&self) {
        let (terms, options) = (&self.terms, &self.terms.options);
        let is_clean = terms.unanswered.load(Ordering::Relaxed) == 0;
        let send = async |command| {
            let longest = options.lease.max(options.patience);
            terms.persist(&terms.request(command, ""), longest).await
        };
        let mut is_left = true;
        if self.asking.is_there || !is_clean {
            let cancelled = send("FAIRLOCK.CANCEL").await;
            is_left = matches!(cancelled, Ok(Reply(Value::Int(1), _)));
            // Another caller may hold the lock by an owner that was given, unless an ask of this one is not answered.
            let may_hold = !is_clean || options.owner.is_none();
            if cancelled.is_ok() && !is_left && may_hold {
                drop(send("FAIRLOCK.RELEASE").await);
            }
        }
        let released = &terms.ear.released;
        released.fetch_max(self.asking.released, Ordering::Relaxed);
        terms.end(is_left).await;
    }
}
