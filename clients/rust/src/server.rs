//! The server, or the cluster, which the user's client of the redis crate leads to.

use std::sync::Mutex;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Client, Pipeline, ProtocolVersion, PushInfo, RedisResult, Value};

use crate::lines::locked;

/// Where the locks are: made of a client of the redis crate, which opens all connections.
pub struct Server {
    kind: Kind,
    /// For people: that of the newest connection.
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
        let address = client.get_connection_info().addr().to_string();
        Self::new(Kind::One(client), address)
    }
}

#[cfg(feature = "sentinel")]
impl From<redis::sentinel::SentinelClient> for Server {
    fn from(client: redis::sentinel::SentinelClient) -> Self {
        let kind = Kind::Sentinel(Box::new(client.into()));
        Self::new(kind, "the Sentinels' master".to_owned())
    }
}

/// It must speak RESP3 (`use_protocol`), which is needed to be woken.
#[cfg(feature = "cluster")]
impl From<redis::cluster::ClusterClient> for Server {
    fn from(client: redis::cluster::ClusterClient) -> Self {
        Self::new(Kind::Cluster(Box::new(client)), "the cluster".to_owned())
    }
}

#[derive(Clone)]
pub enum Connection {
    One(MultiplexedConnection),
    #[cfg(feature = "cluster")]
    Cluster(redis::cluster_async::ClusterConnection),
}

impl Connection {
    /// In a cluster it goes to the master of the first command's key.
    pub async fn send(mut self, pipeline: &Pipeline) -> RedisResult<Vec<Value>> {
        let connection: &mut (dyn ConnectionLike + Send) = match &mut self {
            Self::One(one) => one,
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => cluster,
        };
        let count = pipeline.len();
        connection.req_packed_commands(pipeline, 0, count).await
    }
}

impl Server {
    fn new(kind: Kind, address: String) -> Self {
        let address = Mutex::new(address);
        Self { kind, address }
    }

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

    /// A new connection, and the address that it leads to.
    pub(crate) async fn open(
        &self,
        longest: Duration,
        pushed: impl Fn(PushInfo) -> Result<(), ()> + Send + Sync + 'static,
    ) -> RedisResult<(Connection, String)> {
        let client = match &self.kind {
            Kind::One(client) => client.clone(),
            #[cfg(feature = "sentinel")]
            Kind::Sentinel(client) => client.lock().await.async_get_client().await?,
            #[cfg(feature = "cluster")]
            Kind::Cluster(client) => {
                let config = redis::cluster::ClusterConfig::new().set_connection_timeout(longest);
                let config = config.set_push_sender(pushed);
                let mut cluster = client.get_async_connection_with_config(config).await?;
                cluster.unsubscribe("fairlock").await?; // Refused at once unless it speaks RESP3.
                return Ok((Connection::Cluster(cluster), self.address()));
            }
        };
        let info = client.get_connection_info().clone();
        let address = info.addr().to_string();
        locked(&self.address).clone_from(&address);
        let settings = info.redis_settings().clone();
        let settings = settings.set_protocol(ProtocolVersion::RESP3);
        let client = Client::open(info.set_redis_settings(settings))?;
        let config = redis::AsyncConnectionConfig::new().set_connection_timeout(Some(longest));
        let config = config.set_response_timeout(None).set_push_sender(pushed);
        let made = client.get_multiplexed_async_connection_with_config(&config);
        Ok((Connection::One(made.await?), address))
    }
}
