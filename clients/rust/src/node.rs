//! The connections to one server: one for releases and looks, one for asks, one for renewals, and those on which
//! callers wait. The first three are opened before the first ask, so that a process that runs out of descriptors can
//! still renew and release its locks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use crate::error::{Failure, Outcome};
use crate::line::{Line, Reply, Shared, Sync, Turn};
use crate::route::{Address, Route};
use crate::scripts::Server;

const MAX_IDLE: usize = 16;

pub(crate) struct Node {
    pub(crate) address: Address,
    route: Arc<Route>,
    longest: Duration,
    gone: watch::Sender<bool>,
    server: Arc<Server>,
    pub(crate) control: Shared,
    turn: Turn,
    asks: Together,
    renewals: Together,
    idle: Mutex<Vec<Line>>,
}

/// Commands that replicas confirm, on one connection. Those that come while a reply is awaited go together, in their
/// order.
#[derive(Default)]
struct Together {
    shared: Shared,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    requests: Vec<Request>,
    answers: Vec<Answer>,
    is_sending: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Which {
    Asks,
    Renewals,
}

type Request = (Vec<String>, Sync);
type Answer = oneshot::Sender<Outcome<Reply>>;
pub(crate) type Pending = oneshot::Receiver<Outcome<Reply>>;

impl Node {
    pub(crate) fn new(address: &Address, route: &Arc<Route>, longest: Duration) -> Self {
        Self {
            address: address.clone(),
            route: route.clone(),
            longest,
            gone: watch::Sender::new(false),
            server: Arc::default(),
            control: Shared::default(),
            turn: Turn::default(),
            asks: Together::default(),
            renewals: Together::default(),
            idle: Mutex::default(),
        }
    }

    pub(crate) async fn open(&self) -> Outcome<Line> {
        let gone = self.gone.subscribe();
        // A large future, seldom needed.
        Box::pin(
            self.route
                .open(&self.address, gone, &self.server, self.longest),
        )
        .await
    }

    pub(crate) async fn control(&self) -> Outcome<Line> {
        self.control.line(self.open()).await
    }

    /// Opens the connections that a holder will need.
    pub(crate) async fn ready(&self) -> Outcome<()> {
        self.control().await?;
        for which in [Which::Asks, Which::Renewals] {
            self.together(which).shared.line(self.open()).await?;
        }
        Ok(())
    }

    /// Whether the server is known not to have the module.
    pub(crate) fn is_by_scripts(&self) -> bool {
        let asks = self.asks.shared.current();
        asks.is_some_and(|line| line.is_by_scripts())
    }

    /// For one caller alone, until it is given back or dropped. A session's is always a new one.
    pub(crate) async fn take(&self, is_new: bool) -> Outcome<Line> {
        let idle = if is_new { None } else { self.idle().pop() };
        match idle.filter(Line::is_open) {
            Some(line) => Ok(line),
            None => self.open().await,
        }
    }

    pub(crate) fn give(&self, line: Line) {
        let mut idle = self.idle();
        if idle.len() < MAX_IDLE && line.is_open() {
            idle.push(line);
        }
    }

    pub(crate) fn idle(&self) -> MutexGuard<'_, Vec<Line>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends everything that is under way here.
    pub(crate) fn close(&self) {
        self.gone.send_replace(true);
        self.idle().clear();
        for shared in [&self.control, &self.asks.shared, &self.renewals.shared] {
            shared.clear();
        }
    }

    // ------------------------------------------------------------------------ asked together

    fn together(&self, which: Which) -> &Together {
        match which {
            Which::Asks => &self.asks,
            Which::Renewals => &self.renewals,
        }
    }

    fn queue(&self, which: Which) -> MutexGuard<'_, Queue> {
        let queue = &self.together(which).queue;
        queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks after all earlier callers; the reply comes later.
    pub(crate) async fn ask(self: &Arc<Self>, words: Vec<String>, sync: Sync) -> Outcome<Pending> {
        let sent = async {
            self.ready().await?;
            Ok(self.send(Which::Asks, words, sync))
        };
        self.turn.take(sent).await
    }

    /// Sends it after all earlier ones; the reply comes later.
    pub(crate) fn send(self: &Arc<Self>, which: Which, words: Vec<String>, sync: Sync) -> Pending {
        let (answer, pending) = oneshot::channel();
        let mut queue = self.queue(which);
        queue.requests.push((words, sync));
        queue.answers.push(answer);
        if !queue.is_sending {
            queue.is_sending = true;
            let sending = Sending {
                node: self.clone(),
                which,
                is_done: false,
            };
            tokio::spawn(sending.all());
        }
        pending
    }
}

/// Sends the queue. If it is dropped with its runtime, no caller is left waiting for a reply.
struct Sending {
    node: Arc<Node>,
    which: Which,
    is_done: bool,
}

impl Drop for Sending {
    fn drop(&mut self) {
        if !self.is_done {
            *self.node.queue(self.which) = Queue::default();
        }
    }
}

impl Sending {
    async fn all(mut self) {
        while let Some((requests, answers)) = self.next() {
            self.some(&requests, answers).await;
        }
    }

    fn next(&mut self) -> Option<(Vec<Request>, Vec<Answer>)> {
        let mut queue = self.node.queue(self.which);
        let next = std::mem::take(&mut *queue);
        if next.requests.is_empty() {
            self.is_done = true;
            return None;
        }
        queue.is_sending = true;
        Some((next.requests, next.answers))
    }

    async fn some(&self, requests: &[Request], answers: Vec<Answer>) {
        let node = &self.node;
        let shared = &node.together(self.which).shared;
        let replies = async {
            let mut line = shared.line(node.open()).await?;
            line.exchange(requests, Some(node.longest), node.longest)
                .await
        };
        match replies.await {
            Ok(replies) => {
                for (answer, reply) in answers.into_iter().zip(replies) {
                    drop(answer.send(reply));
                }
            }
            Err(failure) => {
                shared.clear();
                for answer in answers {
                    drop(answer.send(Err(failure.clone())));
                }
            }
        }
    }
}

/// The outcome.
pub(crate) async fn reply_to(pending: &mut Pending) -> Outcome<Reply> {
    let ended = || Failure::Broken("its runtime has ended".to_owned());
    pending.await.unwrap_or_else(|_| Err(ended()))
}
