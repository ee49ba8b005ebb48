//! Connections, all made by the user's client of the redis crate.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Client, Pipeline, ProtocolVersion, PushInfo, PushKind, RedisResult,
    Value,
};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::error::{Failure, Outcome};

pub(crate) type Work<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where the locks are: made of a client of the redis crate, which opens all connections.
pub struct Server(Kind);

enum Kind {
    One(Client),
    #[cfg(feature = "sentinel")]
    Sentinel(Box<tokio::sync::Mutex<redis::sentinel::SentinelClient>>),
    #[cfg(feature = "cluster")]
    Cluster(Box<redis::cluster::ClusterClient>),
}

impl From<&Client> for Server {
    fn from(client: &Client) -> Self {
        Self(Kind::One(client.clone()))
    }
}

impl From<Client> for Server {
    fn from(client: Client) -> Self {
        Self(Kind::One(client))
    }
}

#[cfg(feature = "sentinel")]
impl From<redis::sentinel::SentinelClient> for Server {
    fn from(client: redis::sentinel::SentinelClient) -> Self {
        Self(Kind::Sentinel(Box::new(client.into())))
    }
}

/// It must speak RESP3 (`use_protocol`), which is needed to be woken.
#[cfg(feature = "cluster")]
impl From<redis::cluster::ClusterClient> for Server {
    fn from(client: redis::cluster::ClusterClient) -> Self {
        Self(Kind::Cluster(Box::new(client)))
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
        match self {
            Self::One(one) => one.req_packed_commands(pipeline, 0, pipeline.len()).await,
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => {
                cluster
                    .req_packed_commands(pipeline, 0, pipeline.len())
                    .await
            }
        }
    }

    async fn subscribe(&mut self, channel: &[u8]) -> RedisResult<()> {
        match self {
            Self::One(one) => one.subscribe(channel).await,
            // Wake-ups come on either kind of channel (`fairlock.pubsub`).
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => {
                let sharded = cluster.ssubscribe(channel).await;
                cluster.subscribe(channel).await.or(sharded)
            }
        }
    }

    async fn unsubscribe(&mut self, channel: &[u8]) -> RedisResult<()> {
        match self {
            Self::One(one) => one.unsubscribe(channel).await,
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster
                .sunsubscribe(channel)
                .await
                .and(cluster.unsubscribe(channel).await),
        }
    }
}

/// A client, and the address that it has led to.
pub(crate) struct Source {
    kind: Kind,
    address: Mutex<String>,
    pub(crate) is_cluster: bool,
}

impl Source {
    pub(crate) fn new(server: Server) -> Self {
        let (address, is_cluster) = match &server.0 {
            Kind::One(client) => (client.get_connection_info().addr().to_string(), false),
            #[cfg(feature = "sentinel")]
            Kind::Sentinel(_) => ("the master of the Sentinels".to_owned(), false),
            #[cfg(feature = "cluster")]
            Kind::Cluster(_) => ("the cluster".to_owned(), true),
        };
        let (kind, address) = (server.0, address.into());
        Self {
            kind,
            address,
            is_cluster,
        }
    }

    pub(crate) fn address(&self) -> String {
        locked(&self.address).clone()
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
        let settings = info
            .redis_settings()
            .clone()
            .set_protocol(ProtocolVersion::RESP3);
        let config = AsyncConnectionConfig::new().set_connection_timeout(Some(longest));
        let config = config.set_response_timeout(None).set_push_sender(pushed);
        let client = Client::open(info.set_redis_settings(settings))?;
        Ok(Connection::One(
            client
                .get_multiplexed_async_connection_with_config(&config)
                .await?,
        ))
    }
}

/// One connection, which is opened when it is needed, and again when it has ended.
pub(crate) struct Line {
    pub(crate) source: Arc<Source>,
    longest: Duration,
    opened: tokio::sync::Mutex<Opened>,
    /// The number of the last connection that has ended.
    ended: watch::Sender<u64>,
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
    pub(crate) name: Vec<u8>,
    pub(crate) bell: Notify,
    /// The number of the connection that listens to it.
    number: Mutex<u64>,
}

impl Line {
    pub(crate) fn new(source: &Arc<Source>, longest: Duration) -> Arc<Self> {
        Arc::new(Self {
            source: source.clone(),
            longest,
            opened: tokio::sync::Mutex::default(),
            ended: watch::Sender::new(0),
            channels: Mutex::default(),
        })
    }

    /// The connection, and its number.
    pub(crate) async fn get(self: &Arc<Self>) -> Outcome<(u64, Connection)> {
        let called = Instant::now();
        let mut opened = self.opened.lock().await;
        if let Some(connection) = &opened.connection
            && self.is_open(opened.number)
        {
            return Ok((opened.number, connection.clone()));
        }
        if opened.is_closed {
            return Err(Failure::Unsent("Locks is closed".to_owned()));
        }
        if let Some((when, failure)) = &opened.failed
            && *when > called
        {
            return Err(failure.clone()); // Of the try that this call has waited for.
        }
        opened.number += 1;
        opened.connection = None;
        let (number, line) = (opened.number, Arc::downgrade(self));
        let pushed = move |info: PushInfo| {
            if let Some(line) = line.upgrade() {
                line.pushed(number, &info);
            }
            Ok(())
        };
        // Boxed, since the types of the library's futures are too deep for some callers.
        let made: Work<'_, _> = Box::pin(self.source.open(self.longest, pushed));
        let made = timeout(self.longest, made).await;
        let made = made
            .map_err(|_| self.silent())
            .and_then(|made| made.map_err(|error| self.failure(&error)));
        match made.map_err(Failure::unsent) {
            Ok(connection) => {
                opened.connection = Some(connection.clone());
                Ok((number, connection))
            }
            Err(failure) => {
                opened.failed = Some((Instant::now(), failure.clone()));
                Err(failure)
            }
        }
    }

    /// The number of the last connection.
    pub(crate) async fn number(&self) -> u64 {
        self.opened.lock().await.number
    }

    fn failure(&self, error: &redis::RedisError) -> Failure {
        Failure::of(error, &self.source.address())
    }

    fn silent(&self) -> Failure {
        Failure::Broken(format!("{}: no answer in time", self.source.address()))
    }

    /// The values, one for each command.
    pub(crate) async fn send(
        self: &Arc<Self>,
        pipeline: &Pipeline,
        longest: Duration,
    ) -> Outcome<Vec<Outcome<Value>>> {
        let sent = Instant::now();
        let got = timeout(longest, self.get())
            .await
            .map_err(|_| self.silent().unsent())?;
        let (number, mut connection) = got?;
        let values = timeout(
            longest.saturating_sub(sent.elapsed()),
            connection.send(pipeline),
        )
        .await;
        let values = match values {
            Ok(values) => values.map_err(|error| self.failure(&error)),
            Err(_) => Err(self.silent()),
        };
        let is_over = matches!(values, Err(Failure::Broken(_))) && sent.elapsed() >= self.longest;
        if is_over && self.is_open(number) {
            self.end(number);
        }
        let outcomes = values?.into_iter();
        let outcomes =
            outcomes.map(|value| value.extract_error().map_err(|error| self.failure(&error)));
        let outcomes: Vec<_> = outcomes.collect();
        if outcomes
            .iter()
            .any(|each| each.as_ref().is_err_and(|failure| failure.is("READONLY")))
        {
            self.end(number); // It is a replica now; another may be the master.
        }
        Ok(outcomes)
    }

    pub(crate) fn is_open(&self, number: u64) -> bool {
        number > *self.ended.borrow()
    }

    pub(crate) async fn ended(&self, number: u64) {
        let mut ended = self.ended.subscribe();
        drop(ended.wait_for(|ended| *ended >= number).await);
    }

    /// The next one who needs it opens another; all who listen ask again.
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
        let channels = locked(&self.channels);
        let channel = match info.data.first() {
            Some(Value::BulkString(name)) => channels.get(name).cloned(),
            _ => None,
        };
        // Only messages need more of a cluster than that it connects again to a node that is lost.
        let is_doubtful = !self.source.is_cluster || !channels.is_empty();
        drop(channels);
        match (&info.kind, channel) {
            (PushKind::Message | PushKind::SMessage, Some(channel)) => channel.bell.notify_one(),
            // Nobody here has asked for it: the slot has moved.
            (PushKind::Unsubscribe | PushKind::SUnsubscribe, Some(_)) => self.end(number),
            (PushKind::Disconnection, _) if is_doubtful => self.end(number),
            _ => {}
        }
    }

    pub(crate) async fn close(&self) {
        let mut opened = self.opened.lock().await;
        opened.is_closed = true;
        opened.connection = None;
    }
}

/// As the line that listens, for all waiters.
impl Line {
    pub(crate) fn channel(&self, name: Vec<u8>) -> Arc<Channel> {
        let (bell, number) = (Notify::new(), Mutex::new(0));
        let channel = Arc::new(Channel { name, bell, number });
        locked(&self.channels).insert(channel.name.clone(), channel.clone());
        channel
    }

    pub(crate) fn hears(&self, channel: &Channel) -> bool {
        self.is_open(*locked(&channel.number))
    }

    pub(crate) async fn listen(self: &Arc<Self>, channel: &Channel) -> Outcome<()> {
        let (number, mut connection) = self.get().await?;
        match timeout(self.longest, connection.subscribe(&channel.name)).await {
            Ok(Ok(())) => {
                *locked(&channel.number) = number;
                Ok(())
            }
            Ok(Err(error)) => Err(self.failure(&error).unsent()),
            Err(_) => {
                self.end(number);
                Err(self.silent().unsent())
            }
        }
    }

    pub(crate) async fn forget(self: &Arc<Self>, channel: &Channel) {
        locked(&self.channels).remove(&channel.name);
        if self.hears(channel)
            && let Ok((_, mut connection)) = self.get().await
        {
            drop(timeout(self.longest, connection.unsubscribe(&channel.name)).await);
        }
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
