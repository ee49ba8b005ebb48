//! The server, or the cluster, which the user's client of the redis crate leads to.

use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Client, Pipeline, ProtocolVersion, PushInfo, RedisFuture, RedisResult, Value};

/// Where the locks are: made of a client of the redis crate, which opens all connections.
pub struct Server {
    /// A new connection, and the address that it leads to.
    pub(crate) open: Box<dyn Fn(Duration, Pushed) -> Opening + Send + Sync>,
    /// For people, before a connection is open.
    pub(crate) address: String,
    pub(crate) is_cluster: bool,
}

type Opening = RedisFuture<'static, (Sending, String)>;
pub type Pushed = Box<dyn Fn(PushInfo) -> Result<(), ()> + Send + Sync>;
/// In a cluster a pipeline goes to the master of its first command's key.
pub type Sending = Box<dyn Fn(Pipeline) -> RedisFuture<'static, Vec<Value>> + Send + Sync>;

fn sending<C: ConnectionLike + Clone + Send + Sync + 'static>(connection: C) -> Sending {
    Box::new(move |pipeline| {
        let mut connection = connection.clone();
        Box::pin(async move {
            let count = pipeline.len();
            connection.req_packed_commands(&pipeline, 0, count).await
        })
    })
}

impl From<Client> for Server {
    fn from(client: Client) -> Self {
        Self {
            address: client.get_connection_info().addr().to_string(),
            open: Box::new(move |longest, pushed| Box::pin(open(client.clone(), longest, pushed))),
            is_cluster: false,
        }
    }
}

#[cfg(feature = "sentinel")]
impl From<redis::sentinel::SentinelClient> for Server {
    fn from(client: redis::sentinel::SentinelClient) -> Self {
        let client = std::sync::Arc::new(tokio::sync::Mutex::new(client));
        let open = move |longest, pushed| -> Opening {
            let client = client.clone();
            Box::pin(async move {
                let master = client.lock().await.async_get_client().await?;
                open(master, longest, pushed).await
            })
        };
        Self {
            open: Box::new(open),
            address: "the Sentinels' master".to_owned(),
            is_cluster: false,
        }
    }
}

/// It must speak RESP3 (`use_protocol`), which is needed to be woken.
#[cfg(feature = "cluster")]
impl From<redis::cluster::ClusterClient> for Server {
    fn from(client: redis::cluster::ClusterClient) -> Self {
        let open = move |longest, pushed| -> Opening {
            let client = client.clone();
            let config = redis::cluster::ClusterConfig::new().set_connection_timeout(longest);
            let config = config.set_push_sender(pushed);
            Box::pin(async move {
                let mut cluster = client.get_async_connection_with_config(config).await?;
                cluster.unsubscribe("fairlock").await?; // Refused at once unless it speaks RESP3.
                Ok((sending(cluster), "the cluster".to_owned()))
            })
        };
        Self {
            open: Box::new(open),
            address: "the cluster".to_owned(),
            is_cluster: true,
        }
    }
}

async fn open(client: Client, longest: Duration, pushed: Pushed) -> RedisResult<(Sending, String)> {
    let info = client.get_connection_info().clone();
    let address = info.addr().to_string();
    let settings = info.redis_settings().clone();
    let settings = settings.set_protocol(ProtocolVersion::RESP3);
    let client = Client::open(info.set_redis_settings(settings))?;
    let config = redis::AsyncConnectionConfig::new().set_connection_timeout(Some(longest));
    let config = config.set_response_timeout(None).set_push_sender(pushed);
    let made = client.get_multiplexed_async_connection_with_config(&config);
    Ok((sending(made.await?), address))
}
