//! One acquisition: carries out what [`Asking`] says.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use crate::core::Core;
use crate::hold::Hold;
use crate::lines::{Work, locked};
use crate::options::call;
use crate::protocol::{Asking, Reply, Step};
use crate::scripts::Request;
use crate::terms::{Terms, Way};
use crate::{Error, Kind, Options, Result};

/// The longest that a caller waits for its owner to leave the queue; it goes on in the background.
const LEAVE: Duration = Duration::from_secs(1);

struct Waiter {
    terms: Arc<Terms>,
    asking: Asking,
    /// That of the last ask.
    way: Option<Way>,
    is_told: bool,
    is_over: bool,
}

impl Core {
    /// The lock, or the hold that this caller has already. The caller is the task, if no thread is given.
    pub async fn acquire(
        self: &Arc<Self>,
        name: Vec<u8>,
        options: Options,
        thread: Option<ThreadId>,
    ) -> Result<Arc<Hold>> {
        options.check(&name)?;
        self.check_open()?;
        let mut entry = None;
        if options.reentrant {
            let task = || tokio::task::try_id().map(|id| format!("task {id}"));
            let caller = thread.map(|id| format!("{id:?}")).or_else(task);
            let refused = || Error::new(Kind::Argument, "reentrant: this is no task");
            let key = (caller.ok_or_else(refused)?, name.clone());
            let there = locked(&self.state).entered.get(&key).cloned();
            if let Some(hold) = there.and_then(|there| there.upgrade()) {
                return hold.enter_again();
            }
            entry = Some(key);
        }
        let start = Instant::now();
        let mut closing = self.closing.subscribe();
        let mut waiter = Waiter {
            asking: Asking::new(&options, start),
            terms: self.terms(name, options),
            way: None,
            is_told: false,
            is_over: false,
        };
        let granted = tokio::select! {
            biased;
            granted = Box::pin(waiter.run(start)) => granted,
            _ = closing.wait_for(|is_so| *is_so) => Err(Error::closed()),
        };
        match granted {
            Ok((token, since)) => {
                waiter.is_over = true;
                let hold = Hold::begin(&waiter.terms, entry, token, since);
                let mut event = hold.event.clone();
                event.waited = Some(start.elapsed());
                call(self.options.on_acquired.as_ref(), &event);
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
    async fn run(&mut self, start: Instant) -> Result<(i64, Instant)> {
        let longest = self.asking.at_most(Duration::MAX, start);
        let turn = self.terms.core.turn(&self.terms.name).lock_owned();
        let mut turn = timeout(longest, turn).await.ok();
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
                    let token = format!("TOKEN {token}");
                    let release = self.terms.request("FAIRLOCK.RELEASE", &token);
                    let outcome = self.send(&release).await;
                    self.asking.given_back(Instant::now(), outcome)
                }
                Step::Listen(longest) => self.listen(longest).await,
                Step::Pause(longest) => {
                    sleep(longest).await;
                    self.asking.ask(Instant::now())
                }
                Step::Granted(token, since) => return Ok((token, since)),
                Step::Failed(kind, failure) => return Err(self.terms.error(kind, failure)),
            }
        }
    }

    async fn send(&mut self, request: &Request) -> Result<Reply> {
        let longest = self.terms.core.options.command_timeout;
        let longest = self.asking.at_most(longest, Instant::now());
        let way = self.way.insert(self.terms.way().await?);
        self.terms.send(way, request, longest).await
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

    /// The work of leaving the queue, or of giving up what was granted meanwhile; none if the owner was never there.
    fn leave(&mut self) -> Option<Work<()>> {
        let terms = self.terms.clone();
        let is_clean = terms.unanswered.load(Ordering::Relaxed) == 0;
        let must_leave = self.asking.is_there || !is_clean;
        let way = self.way.take().filter(|_| must_leave);
        let is_over = std::mem::replace(&mut self.is_over, true);
        if is_over || (way.is_none() && !terms.ear.listens()) {
            return None;
        }
        let closing = terms.core.closing.subscribe();
        Some(Box::pin(async move {
            let is_left = match way {
                Some(way) => leave(&terms, &way, is_clean).await,
                None => true,
            };
            terms.end(is_left).await;
            drop(closing);
        }))
    }
}

/// Whether the owner was in the queue, and has left it.
async fn leave(terms: &Terms, way: &Way, is_clean: bool) -> bool {
    let longest = terms.options.lease.max(terms.options.patience);
    let send = async |command| {
        terms
            .persist(way, &terms.request(command, ""), longest)
            .await
    };
    let is_left = send("FAIRLOCK.CANCEL")
        .await
        .map(|reply| reply.0 == redis::Value::Int(1));
    // Another caller may hold the lock by an owner that was given, unless an ask of this one is not answered.
    let may_hold = !is_clean || terms.options.owner.is_none();
    if may_hold && matches!(is_left, Ok(false)) {
        drop(send("FAIRLOCK.RELEASE").await);
    }
    matches!(is_left, Ok(true))
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
