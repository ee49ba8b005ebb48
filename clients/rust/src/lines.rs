//! Connections, and the channels on which owners are woken.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use redis::{Pipeline, PushInfo, PushKind, RedisResult, Value};
use tokio::sync::{Notify, OnceCell, watch};
use tokio::time::timeout;

use crate::scripts::channel;
use crate::server::{Connection, Server};
use crate::{Error, Result};

pub type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A connection, until it has ended.
pub struct Link {
    connection: Box<dyn Connection>,
    /// The server that it leads to.
    pub address: String,
    is_over: watch::Sender<bool>,
}

impl Link {
    fn is_over(&self) -> bool {
        *self.is_over.borrow()
    }
}

type Opening = Arc<OnceCell<Result<Arc<Link>>>>;

/// One connection, which is opened when it is needed, and again when it has ended.
pub struct Line {
    server: Arc<Server>,
    longest: Duration,
    /// The connection, or the failure of a try that all who need it share; `None`: closed.
    opening: Mutex<Option<Opening>>,
    /// By channel, if this is the line that listens: callers with one given owner have one channel.
    ears: Mutex<HashMap<Vec<u8>, Vec<Arc<Ear>>>>,
}

/// An owner, and its channel.
pub struct Ear {
    pub owner: Vec<u8>,
    channel: Vec<u8>,
    pub bell: Notify,
    /// The last token that the owner has released.
    pub released: AtomicI64,
    /// The connection that listens to it.
    link: Mutex<Weak<Link>>,
}

impl Ear {
    pub fn new(name: &[u8], owner: Vec<u8>) -> Arc<Self> {
        Arc::new(Self {
            channel: channel(name, &owner),
            owner,
            bell: Notify::new(),
            released: AtomicI64::new(0),
            link: Mutex::default(),
        })
    }

    pub fn listens(&self) -> bool {
        let link = locked(&self.link).upgrade();
        link.is_some_and(|link| !link.is_over())
    }
}

impl Line {
    pub fn new(server: &Arc<Server>, longest: Duration) -> Arc<Self> {
        Arc::new(Self {
            server: server.clone(),
            longest,
            opening: Mutex::new(Some(Arc::default())),
            ears: Mutex::default(),
        })
    }

    /// The present connection, which is opened if need be.
    pub async fn link(self: &Arc<Self>, longest: Duration) -> Result<Arc<Link>> {
        let is_usable = |made: &Result<Arc<Link>>| made.as_ref().is_ok_and(|it| !it.is_over());
        let opening = match &mut *locked(&self.opening) {
            Some(opening) => {
                if !opening.get().is_none_or(is_usable) {
                    *opening = Arc::default();
                }
                opening.clone()
            }
            None => return Err(Error::silent("Locks is closed").unsent()),
        };
        let made = timeout(longest, opening.get_or_init(|| self.open())).await;
        made.map_or_else(|_| self.judge(None), Clone::clone)
            .map_err(Error::unsent)
    }

    async fn open(self: &Arc<Self>) -> Result<Arc<Link>> {
        let is_over = watch::Sender::new(false);
        let (line, its) = (Arc::downgrade(self), is_over.clone());
        let pushed = move |info: PushInfo| {
            if let Some(line) = line.upgrade() {
                line.pushed(&its, &info);
            }
            Ok(())
        };
        let made = (self.server.open)(self.longest, Box::new(pushed));
        let (connection, address) = self.judge(timeout(self.longest, made).await.ok())?;
        Ok(Arc::new(Link {
            connection,
            address,
            is_over,
        }))
    }

    /// Until the present connection has ended.
    pub async fn ended(self: &Arc<Self>) {
        if let Ok(link) = self.link(self.longest).await {
            drop(link.is_over.subscribe().wait_for(|is_over| *is_over).await);
        }
    }

    /// What the library says, in time or not.
    fn judge<T>(&self, result: Option<RedisResult<T>>) -> Result<T> {
        let address = &self.server.address;
        let silent = || Err(Error::silent(format!("{address}: no answer in time")));
        result.map_or_else(silent, |result| {
            result.map_err(|error| Error::of(&error, address))
        })
    }

    /// An outcome for each command.
    pub async fn send(
        self: &Arc<Self>,
        pipeline: Pipeline,
        longest: Duration,
    ) -> Result<Vec<Result<Value>>> {
        let start = Instant::now();
        let link = self.link(longest).await?;
        let left = longest.saturating_sub(start.elapsed());
        let result = timeout(left, link.connection.send(Arc::new(pipeline))).await;
        let is_in_doubt = result.is_ok() || start.elapsed() >= self.longest;
        let values = self.judge(result.ok());
        if values.is_err() && is_in_doubt {
            self.end(&link.is_over); // It has ended, or may be half open.
        }
        let outcomes = values?.into_iter().map(Value::extract_error);
        let outcomes: Vec<_> = outcomes.map(|value| self.judge(Some(value))).collect();
        let is_replica = |each: &Result<_>| each.as_ref().is_err_and(|it| it.is("READONLY"));
        if outcomes.iter().any(is_replica) {
            self.end(&link.is_over); // Another is the master.
        }
        Ok(outcomes)
    }

    /// Who needs it next opens another; all who listen ask again.
    fn end(&self, is_over: &watch::Sender<bool>) {
        is_over.send_replace(true);
        for ear in locked(&self.ears).values().flatten() {
            ear.bell.notify_one();
        }
    }

    fn pushed(&self, is_over: &watch::Sender<bool>, info: &PushInfo) {
        let (its, is_listening) = {
            let ears = locked(&self.ears);
            let its = match info.data.first() {
                Some(Value::BulkString(channel)) => ears.get(channel).cloned(),
                _ => None,
            };
            (its, !ears.is_empty())
        };
        match (&info.kind, its) {
            (PushKind::Message | PushKind::SMessage, Some(its)) => {
                for ear in its {
                    ear.bell.notify_one();
                }
            }
            // Nobody here has asked for it: the slot has moved.
            (PushKind::Unsubscribe | PushKind::SUnsubscribe, Some(_)) => self.end(is_over),
            // A cluster's connection goes on by itself, but for messages.
            (PushKind::Disconnection, _) if is_listening || !self.server.is_cluster => {
                self.end(is_over);
            }
            _ => {}
        }
    }

    pub fn close(&self) {
        *locked(&self.opening) = None;
    }

    // ------------------------------------------------------- the one that listens

    pub async fn listen(self: &Arc<Self>, ear: &Arc<Ear>) -> Result<()> {
        {
            let mut ears = locked(&self.ears);
            let its = ears.entry(ear.channel.clone()).or_default();
            its.retain(|other| !Arc::ptr_eq(other, ear));
            its.push(ear.clone());
        }
        let link = self.link(self.longest).await?;
        self.subscribe("SUBSCRIBE", ear).await?;
        *locked(&ear.link) = Arc::downgrade(&link);
        Ok(())
    }

    pub async fn forget(self: &Arc<Self>, ear: &Arc<Ear>) {
        let is_last = {
            let mut ears = locked(&self.ears);
            let its = ears.entry(ear.channel.clone()).or_default();
            its.retain(|other| !Arc::ptr_eq(other, ear));
            its.is_empty() && ears.remove(&ear.channel).is_some()
        };
        if is_last && ear.listens() {
            drop(self.subscribe("UNSUBSCRIBE", ear).await);
        }
    }

    /// In a cluster wake-ups come on either kind of channel (`fairlock.pubsub`).
    async fn subscribe(self: &Arc<Self>, word: &str, ear: &Ear) -> Result<()> {
        let mut outcome = Err(Error::silent("no reply"));
        let kinds = ["S", ""].into_iter();
        for sharded in kinds.skip(usize::from(!self.server.is_cluster)) {
            let mut pipeline = redis::pipe();
            pipeline.cmd(&format!("{sharded}{word}")).arg(&ear.channel);
            for said in self.send(pipeline, self.longest).await? {
                outcome = said.map(drop).or(outcome);
            }
        }
        outcome
    }
}

pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
