//! Where the connections for a lock go: to the one server, the master that sentinels name, or a node of a cluster.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::io::tcp::socket2::TcpKeepalive;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, RedisConnectionInfo, Value,
};

use crate::error::Failure;
use crate::fake::FakeServer;
use crate::line::Line;

/// A node of a cluster.
pub(crate) type Address = (String, u16);
pub(crate) type Outcome<T> = std::result::Result<T, Failure>;

pub(crate) enum Source {
    One(ConnectionInfo),
    Sentinel {
        sentinels: Vec<ConnectionInfo>,
        master: String,
        node: RedisConnectionInfo,
    },
    Cluster(Vec<ConnectionInfo>),
    #[cfg_attr(not(feature = "testing"), allow(dead_code))]
    Fake(Arc<FakeServer>),
}

#[derive(Default)]
struct Known {
    slots: HashMap<u16, Address>,
    nodes: Vec<Address>,
}

pub(crate) struct Route {
    source: Source,
    known: Mutex<Known>,
}

impl Route {
    pub(crate) fn new(source: Source) -> Self {
        let mut known = Known::default();
        if let Source::Cluster(seeds) = &source {
            known.nodes = seeds.iter().filter_map(address_of).collect();
        }
        Self {
            source,
            known: Mutex::new(known),
        }
    }

    pub(crate) fn is_fake(&self) -> bool {
        matches!(self.source, Source::Fake(_))
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.source, Source::Cluster(_))
    }

    /// Opens a connection of ours. `longest` is for connecting alone.
    pub(crate) async fn open(&self, address: Option<&Address>, longest: Duration) -> Outcome<Line> {
        match &self.source {
            Source::Fake(server) => Ok(Line::fake(server)),
            Source::One(info) => open(info.clone(), longest).await,
            Source::Cluster(seeds) => {
                let seed = seeds
                    .first()
                    .ok_or_else(|| Failure::Broken("no nodes are known".to_owned()))?;
                open(
                    address.map_or_else(|| seed.clone(), |address| at(seed, address)),
                    longest,
                )
                .await
            }
            Source::Sentinel {
                sentinels,
                master,
                node,
            } => {
                let (sentinel, address) = master_of(sentinels, master, longest).await?;
                open(
                    at(sentinel, &address).set_redis_settings(node.clone()),
                    longest,
                )
                .await
            }
        }
    }

    pub(crate) fn describe(&self, address: Option<&Address>) -> String {
        match (&self.source, address) {
            (_, Some((host, port))) => format!("{host}:{port}"),
            (Source::One(info), None) => info.addr().to_string(),
            (Source::Fake(_), None) => "the fake".to_owned(),
            _ => "the master that the sentinels name".to_owned(),
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node for a lock, as far as it is known.
    pub(crate) fn address(&self, name: &str) -> Option<Address> {
        self.known().slots.get(&slot(name)).cloned()
    }

    pub(crate) fn nodes(&self) -> Vec<Address> {
        self.known().nodes.clone()
    }

    pub(crate) fn forget(&self) {
        self.known().slots.clear();
    }

    /// Takes the reply to CLUSTER SLOTS.
    pub(crate) fn learn(&self, ranges: &Value, asked: &Address) {
        let mut known = self.known();
        known.slots.clear();
        for range in items(ranges) {
            let [Value::Int(first), Value::Int(last), members @ ..] = items(range) else {
                continue;
            };
            let hosts: Vec<_> = members
                .iter()
                .filter_map(|member| member_address(member, asked))
                .collect();
            if let Some(master) = hosts.first() {
                for slot in *first..=*last {
                    known
                        .slots
                        .insert(u16::try_from(slot).unwrap_or_default(), master.clone());
                }
            }
            for host in hosts {
                if !known.nodes.contains(&host) {
                    known.nodes.push(host); // Nodes that are not in the reply may be back later.
                }
            }
        }
    }

    /// The address in a MOVED, which is kept, or ASK.
    pub(crate) fn redirect(&self, failure: &Failure, asked: Option<&Address>) -> Option<Address> {
        let Failure::Refusal(text) = failure else {
            return None;
        };
        let mut words = text.split(' ');
        let is_moved = words.next()? == "MOVED";
        let slot = words.next()?.parse().ok()?;
        let (host, port) = words.next()?.rsplit_once(':')?;
        let host = if host.is_empty() {
            asked?.0.clone()
        } else {
            host.to_owned()
        };
        let address = (host, port.parse().ok()?);
        if is_moved && self.is_cluster() {
            self.known().slots.insert(slot, address.clone());
        }
        self.is_cluster().then_some(address)
    }
}

fn items(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) => items,
        _ => &[],
    }
}

fn text(value: &Value) -> String {
    redis::from_redis_value_ref(value).unwrap_or_default()
}

fn member_address(member: &Value, asked: &Address) -> Option<Address> {
    let [host, Value::Int(port), ..] = items(member) else {
        return None;
    };
    let host = match text(host) {
        host if host.is_empty() => asked.0.clone(),
        host => host,
    };
    Some((host, u16::try_from(*port).ok()?))
}

fn address_of(info: &ConnectionInfo) -> Option<Address> {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Some((host.clone(), *port))
        }
        _ => None,
    }
}

/// The same way of connecting, to another address.
fn at(info: &ConnectionInfo, (host, port): &Address) -> ConnectionInfo {
    let addr = match info.addr() {
        ConnectionAddr::TcpTls {
            insecure,
            tls_params,
            ..
        } => ConnectionAddr::TcpTls {
            host: host.clone(),
            port: *port,
            insecure: *insecure,
            tls_params: tls_params.clone(),
        },
        _ => ConnectionAddr::Tcp(host.clone(), *port),
    };
    info.clone().set_addr(addr)
}

/// RESP3, because only there the library tells that a connection has ended while nothing is asked.
async fn open(info: ConnectionInfo, longest: Duration) -> Outcome<Line> {
    let redis = info
        .redis_settings()
        .clone()
        .set_protocol(redis::ProtocolVersion::RESP3);
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    let tcp = tcp.set_keepalive(TcpKeepalive::new().with_time(Duration::from_mins(1)));
    let client = Client::open(info.set_redis_settings(redis).set_tcp_settings(tcp))?;
    let (ended, watch) = tokio::sync::watch::channel(false);
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(longest))
        .set_response_timeout(None)
        .set_push_sender(move |push: redis::PushInfo| {
            if push.kind == redis::PushKind::Disconnection {
                ended.send_replace(true);
            }
            Ok::<_, redis::aio::SendError>(())
        });
    let opening = client.get_multiplexed_async_connection_with_config(&config);
    let connection = tokio::time::timeout(longest, opening)
        .await
        .map_err(|_| Failure::Broken("no connection in time".to_owned()))??;
    Ok(Line::redis(connection, watch))
}

async fn master_of<'a>(
    sentinels: &'a [ConnectionInfo],
    master: &str,
    longest: Duration,
) -> Outcome<(&'a ConnectionInfo, Address)> {
    let mut last = Failure::Broken("no sentinels are known".to_owned());
    for sentinel in sentinels {
        let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", master].map(str::to_owned);
        let asked = async {
            open(sentinel.clone(), longest)
                .await?
                .call(&words, Some(longest))
                .await
        };
        match asked.await {
            Ok(reply) => match items(&reply) {
                [host, port] => {
                    return Ok((
                        sentinel,
                        (text(host), text(port).parse().unwrap_or_default()),
                    ));
                }
                _ => last = Failure::Broken(format!("the sentinel does not know {master}")),
            },
            Err(failure) => last = Failure::Broken(failure.to_string()),
        }
    }
    Err(last)
}

/// The slot of a key: CRC16 (XMODEM) of it, or of what is between its braces.
pub(crate) fn slot(key: &str) -> u16 {
    let tag = key
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'))
        .map(|(tag, _)| tag);
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    let crc = hashed.bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| {
            if crc & 0x8000 == 0 {
                crc << 1
            } else {
                crc << 1 ^ 0x1021
            }
        })
    });
    crc % 16384
}
