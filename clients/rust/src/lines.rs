//! Connections, all made by the user's client of the redis crate.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Client, ErrorKind, Pipeline, ProtocolVersion, PushInfo, PushKind, RedisResult, Value};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::error::{Failure, Outcome};

pub(crate) type Work<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where the locks are: made of a client of the redis crate, which opens all connections.
pub struct Server {
    kind: Kind,
    /// For people.
    address: Mutex<String>,
}

enum Kind {
    One(Client),
    #[cfg(feature = "sentinel")]
    Sentinel(Box<tokio::sync::Mutex<redis::sentinel::SentinelClient>>),
    #[cfg(feature = "cluster")]
    Cluster(Box<redis::cluster::ClusterClient>),
}

impl From<Client> for Server {
    fn from(client: Client) -> Self {
        let address = Mutex::new(client.get_connection_info().addr().to_string());
        let kind = Kind::One(client);
        Self { kind, address }
    }
}

#[cfg(feature = "sentinel")]
impl From<redis::sentinel::SentinelClient> for Server {
    fn from(client: redis::sentinel::SentinelClient) -> Self {
        let kind = Kind::Sentinel(Box::new(client.into()));
        let address = Mutex::new("the Sentinels' master".to_owned());
        Self { kind, address }
    }
}

/// It must speak RESP3 (`use_protocol`), which is needed to be woken.
#[cfg(feature = "cluster")]
impl From<redis::cluster::ClusterClient> for Server {
    fn from(client: redis::cluster::ClusterClient) -> Self {
        let kind = Kind::Cluster(Box::new(client));
        let address = Mutex::new("the cluster".to_owned());
        Self { kind, address }
    }
}

#[derive(Clone)]
pub(crate) enum Connection {
    One(MultiplexedConnection),
    #[cfg(feature = "cluster")]
    Cluster(redis::cluster_async::ClusterConnection),
}

impl Connection {
    /// In a cluster it goes to the master of the first command's key.
    async fn send(&mut self, pipeline: &Pipeline) -> RedisResult<Vec<Value>> {
        let count = pipeline.len();
        match self {
            Self::One(one) => one.req_packed_commands(pipeline, 0, count).await,
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster.req_packed_commands(pipeline, 0, count).await,
        }
    }
}

impl Server {
    pub(crate) fn address(&self) -> String {
        locked(&self.address).clone()
    }

    pub(crate) fn is_cluster(&self) -> bool {
        match self.kind {
            #[cfg(feature = "cluster")]
            Kind::Cluster(_) => true,
            _ => false,
        }
    }

    async fn open(
        &self,
        longest: Duration,
        pushed: impl Fn(PushInfo) -> Result<(), ()> + Send + Sync + 'static,
    ) -> RedisResult<Connection> {
        let client = match &self.kind {
            Kind::One(client) => client.clone(),
            #[cfg(feature = "sentinel")]
            Kind::Sentinel(client) => {
                let client = client.lock().await.async_get_client().await?;
                *locked(&self.address) = client.get_connection_info().addr().to_string();
                client
            }
            #[cfg(feature = "cluster")]
            Kind::Cluster(client) => {
                let config = redis::cluster::ClusterConfig::new().set_connection_timeout(longest);
                let config = config.set_push_sender(pushed);
                let mut cluster = client.get_async_connection_with_config(config).await?;
                cluster.unsubscribe("fairlock").await?; // Refused at once unless it speaks RESP3.
                return Ok(Connection::Cluster(cluster));
            }
        };
        let info = client.get_connection_info().clone();
        let settings = info.redis_settings().clone();
        let settings = settings.set_protocol(ProtocolVersion::RESP3);
        let client = Client::open(info.set_redis_settings(settings))?;
        let config = redis::AsyncConnectionConfig::new().set_connection_timeout(Some(longest));
        let config = config.set_response_timeout(None).set_push_sender(pushed);
        let made = client.get_multiplexed_async_connection_with_config(&config);
        Ok(Connection::One(made.await?))
    }
}

/// One connection, which is opened when it is needed, and again when it has ended.
pub(crate) struct Line {
    server: Arc<Server>,
    longest: Duration,
    opened: tokio::sync::Mutex<Opened>,
    /// The number of the last connection that has ended.
    ended: watch::Sender<u64>,
    /// If this is the line that listens.
    channels: Mutex<HashMap<Vec<u8>, Arc<Channel>>>,
}

#[derive(Default)]
struct Opened {
    number: u64,
    connection: Option<Connection>,
    failed: Option<(Instant, Failure)>,
    is_closed: bool,
}

/// An owner's channel.
pub(crate) struct Channel {
    name: Vec<u8>,
    pub(crate) bell: Notify,
    /// The number of the connection that listens to it.
    number: Mutex<u64>,
}

impl Line {
    pub(crate) fn new(server: &Arc<Server>, longest: Duration) -> Arc<Self> {
        Arc::new(Self {
            server: server.clone(),
            longest,
            opened: tokio::sync::Mutex::default(),
            ended: watch::Sender::new(0),
            channels: Mutex::default(),
        })
    }

    /// The connection, and its number.
    async fn get(self: &Arc<Self>) -> Outcome<(u64, Connection)> {
        let called = Instant::now();
        let mut opened = self.opened.lock().await;
        match (&opened.connection, &opened.failed) {
            (Some(connection), _) if self.is_open(opened.number) => {
                return Ok((opened.number, connection.clone()));
            }
            _ if opened.is_closed => return Err(Failure::Unsent("Locks is closed".to_owned())),
            // The failure of the try that this call has waited for.
            (_, Some((when, failure))) if *when > called => return Err(failure.clone()),
            _ => opened.number += 1,
        }
        opened.connection = None;
        let (number, line) = (opened.number, Arc::downgrade(self));
        let pushed = move |info: PushInfo| {
            if let Some(line) = line.upgrade() {
                line.pushed(number, &info);
            }
            Ok(())
        };
        // Boxed, since the types of the library's futures are too deep for some callers.
        let made: Work<'_, _> = Box::pin(self.server.open(self.longest, pushed));
        match self.judge(timeout(self.longest, made).await.ok()) {
            Ok(connection) => {
                opened.connection = Some(connection.clone());
                Ok((number, connection))
            }
            Err(failure) => {
                let failure = failure.unsent();
                opened.failed = Some((Instant::now(), failure.clone()));
                Err(failure)
            }
        }
    }

    /// The number of the last connection.
    pub(crate) async fn number(&self) -> u64 {
        self.opened.lock().await.number
    }

    /// What the library says, in time or not.
    fn judge<T>(&self, result: Option<RedisResult<T>>) -> Outcome<T> {
        let silent = || (ErrorKind::Io, "no answer in time").into();
        let result = result.unwrap_or_else(|| Err(silent()));
        result.map_err(|error| Failure::of(&error, &self.server.address()))
    }

    /// An outcome for each command.
    pub(crate) async fn send(
        self: &Arc<Self>,
        pipeline: &Pipeline,
        longest: Duration,
    ) -> Outcome<Vec<Outcome<Value>>> {
        let start = Instant::now();
        let got = timeout(longest, self.get()).await;
        let unsent = |_| Failure::Unsent("no connection in time".to_owned());
        let (number, mut connection) = got.map_err(unsent)??;
        let left = longest.saturating_sub(start.elapsed());
        let result = timeout(left, connection.send(pipeline)).await.ok();
        let is_in_doubt = result.is_some() || start.elapsed() >= self.longest;
        let values = self.judge(result);
        if values.is_err() && is_in_doubt {
            self.end(number); // It has ended, or may be half open.
        }
        let outcomes = values?.into_iter().map(Value::extract_error);
        let outcomes: Vec<_> = outcomes.map(|value| self.judge(Some(value))).collect();
        let is_replica = |each: &Outcome<_>| each.as_ref().is_err_and(|it| it.is("READONLY"));
        if outcomes.iter().any(is_replica) {
            self.end(number); // Another is the master.
        }
        Ok(outcomes)
    }

    fn is_open(&self, number: u64) -> bool {
        number > *self.ended.borrow()
    }

    pub(crate) async fn ended(&self, number: u64) {
        let mut ended = self.ended.subscribe();
        drop(ended.wait_for(|ended| *ended >= number).await);
    }

    /// Who needs it next opens another; all who listen ask again.
    fn end(&self, number: u64) {
        self.ended.send_if_modified(|ended| {
            let is_new = number > *ended;
            *ended = number.max(*ended);
            is_new
        });
        for channel in locked(&self.channels).values() {
            channel.bell.notify_one();
        }
    }

    fn pushed(&self, number: u64, info: &PushInfo) {
        let (channel, is_listening) = {
            let channels = locked(&self.channels);
            let channel = match info.data.first() {
                Some(Value::BulkString(name)) => channels.get(name).cloned(),
                _ => None,
            };
            (channel, !channels.is_empty())
        };
        match (&info.kind, channel) {
            (PushKind::Message | PushKind::SMessage, Some(channel)) => channel.bell.notify_one(),
            // Nobody here has asked for it: the slot has moved.
            (PushKind::Unsubscribe | PushKind::SUnsubscribe, Some(_)) => self.end(number),
            // A cluster's connection goes on by itself, but for messages.
            (PushKind::Disconnection, _) if is_listening || !self.server.is_cluster() => {
                self.end(number);
            }
            _ => {}
        }
    }

    pub(crate) async fn close(&self) {
        let mut opened = self.opened.lock().await;
        opened.is_closed = true;
        opened.connection = None;
    }

    // ------------------------------------------------------- the one that listens

    pub(crate) fn channel(&self, name: Vec<u8>) -> Arc<Channel> {
        let (bell, number) = (Notify::new(), Mutex::new(0));
        let channel = Arc::new(Channel { name, bell, number });
        locked(&self.channels).insert(channel.name.clone(), channel.clone());
        channel
    }

    pub(crate) fn has(&self, channel: &Channel) -> bool {
        self.is_open(*locked(&channel.number))
    }

    pub(crate) async fn listen(self: &Arc<Self>, channel: &Channel) -> Outcome<()> {
        let (number, _) = self.get().await?;
        self.subscribe("SUBSCRIBE", channel).await?;
        *locked(&channel.number) = number;
        Ok(())
    }

    pub(crate) async fn forget(self: &Arc<Self>, channel: &Channel) {
        locked(&self.channels).remove(&channel.name);
        if self.has(channel) {
            drop(self.subscribe("UNSUBSCRIBE", channel).await);
        }
    }

    /// In a cluster wake-ups come on either kind of channel (`fairlock.pubsub`).
    async fn subscribe(self: &Arc<Self>, word: &str, channel: &Channel) -> Outcome<()> {
        let mut outcome = Err(Failure::Broken("no reply".to_owned()));
        for sharded in ["S", ""]
            .into_iter()
            .skip(usize::from(!self.server.is_cluster()))
        {
            let mut pipeline = redis::pipe();
            pipeline.cmd(&format!("{sharded}{word}")).arg(&channel.name);
            let values = self.send(&pipeline, self.longest).await?;
            outcome = values.into_iter().next().map_or(outcome.clone(), |value| {
                value
                    .map(drop)
                    .or_else(|failure| outcome.map_err(|_| failure))
            });
        }
        outcome
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
