//! Connections, and the channels on which owners are woken.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Pipeline, PushInfo, PushKind, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::error::silence;
use crate::scripts::channel;
use crate::server::{Sending, Server};

/// A connection, until it has ended.
pub struct Link {
    sending: Sending,
    /// The server that it leads to.
    pub address: String,
    longest: Duration,
    is_over: watch::Sender<bool>,
}

impl Link {
    /// An outcome for each command.
    pub async fn send(
        &self,
        pipeline: Pipeline,
        longest: Duration,
    ) -> RedisResult<Vec<RedisResult<Value>>> {
        let sent = timeout(longest, (self.sending)(pipeline)).await;
        // It has ended, or may be half open: one who cannot wait for that long does not know.
        let is_dead = sent
            .as_ref()
            .map_or(longest >= self.longest, Result::is_err);
        let values = sent.unwrap_or_else(|_| Err(silence()));
        let outcomes = values.map(|values| values.into_iter().map(Value::extract_error));
        let outcomes = outcomes.map(Iterator::collect::<Vec<_>>);
        let mut failures = outcomes.iter().flatten().filter_map(|it| it.as_ref().err());
        // A replica: another is the master.
        if is_dead || failures.any(|it| it.code() == Some("READONLY")) {
            self.is_over.send_replace(true);
        }
        outcomes
    }
}

/// By channel.
type Bells = HashMap<Vec<u8>, watch::Sender<()>>;

/// One connection, which is opened when it is needed, and again when it has ended.
pub struct Line {
    server: Arc<Server>,
    longest: Duration,
    link: tokio::sync::Mutex<Option<Arc<Link>>>,
    is_closed: AtomicBool,
    /// Of the line that listens.
    bells: Arc<Mutex<Bells>>,
}

impl Line {
    pub fn new(server: &Arc<Server>, longest: Duration) -> Arc<Self> {
        Arc::new(Self {
            server: server.clone(),
            longest,
            link: tokio::sync::Mutex::default(),
            is_closed: false.into(),
            bells: Arc::default(),
        })
    }

    /// The present connection, which is opened if need be. Who fails has not sent anything.
    pub async fn link(&self, longest: Duration) -> RedisResult<Arc<Link>> {
        let present = async {
            let mut link = self.link.lock().await;
            match &*link {
                _ if self.is_closed.load(Ordering::Relaxed) => Err(silence()),
                Some(link) if !*link.is_over.borrow() => Ok(link.clone()),
                _ => Ok(link.insert(self.open().await?).clone()),
            }
        };
        let made = timeout(longest, present).await;
        made.unwrap_or_else(|_| Err(silence()))
    }

    async fn open(&self) -> RedisResult<Arc<Link>> {
        let is_over = watch::Sender::new(false);
        let (its, is_cluster) = (is_over.clone(), self.server.is_cluster);
        let all = self.bells.clone();
        let pushed = move |info: PushInfo| {
            let all = locked(&all);
            let bell = match info.data.first() {
                Some(Value::BulkString(channel)) => all.get(channel),
                _ => None,
            };
            match (info.kind, bell) {
                (PushKind::Message | PushKind::SMessage, Some(bell)) => {
                    bell.send_replace(());
                }
                // Nobody here has asked for it: the slot has moved.
                (PushKind::Unsubscribe | PushKind::SUnsubscribe, Some(_)) => {
                    its.send_replace(true);
                }
                // A cluster's connection goes on by itself, but for messages.
                (PushKind::Disconnection, _) if !is_cluster || !all.is_empty() => {
                    its.send_replace(true);
                }
                _ => {}
            }
            Ok(())
        };
        let made = (self.server.open)(self.longest, Box::new(pushed));
        let made = timeout(self.longest, made).await;
        let (sending, address) = made.unwrap_or_else(|_| Err(silence()))?;
        Ok(Arc::new(Link {
            sending,
            address,
            longest: self.longest,
            is_over,
        }))
    }

    /// Until the present connection has ended.
    pub async fn ended(&self) {
        if let Ok(link) = self.link(self.longest).await {
            drop(link.is_over.subscribe().wait_for(|is_over| *is_over).await);
        }
    }

    pub async fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.hang_up().await;
    }

    /// The next use opens another connection.
    pub async fn hang_up(&self) {
        if let Some(link) = self.link.lock().await.take() {
            link.is_over.send_replace(true);
        }
    }

    /// In a cluster wake-ups come on either kind of channel (`fairlock.pubsub`).
    async fn subscribe(&self, word: &str, channel: &[u8]) -> RedisResult<Arc<Link>> {
        let link = self.link(self.longest).await?;
        let mut outcome = Err(silence());
        let kinds = ["S", ""].into_iter();
        for sharded in kinds.skip(usize::from(!self.server.is_cluster)) {
            let mut pipeline = redis::pipe();
            pipeline.cmd(&format!("{sharded}{word}")).arg(channel);
            for said in link.send(pipeline, self.longest).await? {
                outcome = outcome.or(said.map(drop));
            }
        }
        outcome.map(|()| link)
    }
}

/// An owner, and its channel.
pub struct Ear {
    pub owner: Vec<u8>,
    channel: Vec<u8>,
    line: Arc<Line>,
    /// The last token that the owner has released.
    pub released: i64,
    /// With other callers whose owner was given, until it leaves: whether one that has left may be known to the server.
    pub common: Arc<AtomicBool>,
    /// Told of each message.
    bell: Option<watch::Receiver<()>>,
    /// Whether the connection that listens to it has ended.
    is_over: Option<watch::Receiver<bool>>,
}

impl Ear {
    pub fn new(line: &Arc<Line>, name: &[u8], owner: Vec<u8>, common: Arc<AtomicBool>) -> Self {
        Self {
            channel: channel(name, &owner),
            owner,
            line: line.clone(),
            released: 0,
            common,
            bell: None,
            is_over: None,
        }
    }

    pub fn listens(&self) -> bool {
        let is_over = self.is_over.as_ref();
        is_over.is_some_and(|is_over| !*is_over.borrow())
    }

    pub async fn listen(&mut self) -> RedisResult<()> {
        self.bell.get_or_insert_with(|| {
            let mut all = locked(&self.line.bells);
            all.entry(self.channel.clone()).or_default().subscribe()
        });
        let link = self.line.subscribe("SUBSCRIBE", &self.channel).await?;
        self.is_over = Some(link.is_over.subscribe());
        Ok(())
    }

    /// Whether a message comes, in time, by the connection that listens.
    pub async fn hears(&mut self, longest: Duration) -> bool {
        let (Some(bell), Some(is_over)) = (&mut self.bell, &mut self.is_over) else {
            return false;
        };
        tokio::select! {
            Ok(()) = bell.changed() => true,
            _ = is_over.wait_for(|is_over| *is_over) => false,
            () = sleep(longest) => false,
        }
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        let mut all = locked(&self.line.bells);
        let (line, channel) = (self.line.clone(), std::mem::take(&mut self.channel));
        let has_asked = self.bell.take().is_some(); // Perhaps it was dropped before the answer.
        let is_over = self.is_over.is_some() && !self.listens();
        if all.get(&channel).map_or(0, watch::Sender::receiver_count) > 0 {
            return; // Callers with one given owner have one channel.
        }
        all.remove(&channel);
        if has_asked
            && !is_over
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(async move { line.subscribe("UNSUBSCRIBE", &channel).await });
        }
    }
}

pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
