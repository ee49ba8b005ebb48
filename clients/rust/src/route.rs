//! Where the connections for a lock go: to the one server, the master that Sentinels name, or a node of a cluster.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, Value};
use tokio::sync::{Notify, watch};

use crate::error::{Failure, Outcome};
use crate::line::{Line, Shared, items, text};
use crate::scripts::{Native, Server};
use crate::{Error, Result};

/// As `host:port`.
pub(crate) type Address = Arc<str>;

/// How long to wait for a Sentinel, or a node of a cluster, if there are others.
const LONGEST_WORD: Duration = Duration::from_secs(2);

pub(crate) enum Source {
    One(ConnectionInfo),
    Sentinel {
        sentinels: Vec<ConnectionInfo>,
        master: String,
        node: RedisConnectionInfo,
    },
    Cluster(Vec<ConnectionInfo>),
}

impl Source {
    pub(crate) fn sentinel<T: IntoConnectionInfo>(
        sentinels: impl IntoIterator<Item = T>,
        master: &str,
        node: Option<RedisConnectionInfo>,
    ) -> Result<Self> {
        Ok(Self::Sentinel {
            sentinels: addresses(sentinels, "a Sentinel")?,
            master: master.to_owned(),
            node: node.unwrap_or_default(),
        })
    }

    pub(crate) fn cluster<T: IntoConnectionInfo>(
        nodes: impl IntoIterator<Item = T>,
    ) -> Result<Self> {
        Ok(Self::Cluster(addresses(nodes, "a node of the cluster")?))
    }
}

fn addresses<T: IntoConnectionInfo>(
    all: impl IntoIterator<Item = T>,
    whose: &str,
) -> Result<Vec<ConnectionInfo>> {
    let wanted = format!("expected the address of {whose}, such as redis://host:6379");
    let mut infos = Vec::new();
    for each in all {
        let info = each.into_connection_info();
        let info = info.map_err(|error| Error::Argument(format!("{wanted}: {error}")))?;
        if matches!(info.addr(), ConnectionAddr::Unix(_)) {
            return Err(Error::Argument(format!("{wanted}; got a socket")));
        }
        infos.push(info);
    }
    if infos.is_empty() {
        return Err(Error::Argument(format!("{wanted}; got none")));
    }
    Ok(infos)
}

/// Slots of one master.
struct Range {
    first: u16,
    last: u16,
    master: Address,
    /// The master, and those that may succeed it.
    members: Vec<Address>,
    /// The most replicas that were ever known of it, or of its predecessor.
    replicas: usize,
}

impl Range {
    fn has(&self, slot: u16) -> bool {
        (self.first..=self.last).contains(&slot)
    }
}

#[derive(Default)]
struct Known {
    /// The master that Sentinels name, and the most replicas that they have known.
    master: Option<Address>,
    replicas: usize,
    slots: Vec<Range>,
    nodes: Vec<Address>,
    is_past: bool,
}

impl Known {
    fn replicas_of(&self, master: &Address) -> usize {
        let ranges = self.slots.iter();
        let ranges = ranges.filter(|range| range.members.contains(master));
        ranges.map(|range| range.replicas).max().unwrap_or(0)
    }
}

pub(crate) struct Route {
    source: Source,
    known: Mutex<Known>,
    /// The Sentinel or the node that is asked for the master, and which one that is.
    guide: Shared,
    which: AtomicUsize,
    /// A connection has ended.
    pub(crate) broken: Arc<Notify>,
    pub(crate) native: Arc<Native>,
}

impl Route {
    pub(crate) fn new(source: Source) -> Self {
        Self {
            source,
            known: Mutex::default(),
            guide: Shared::default(),
            which: AtomicUsize::new(0),
            broken: Arc::default(),
            native: Arc::default(),
        }
    }

    /// Whether the master can change.
    pub(crate) fn may_change(&self) -> bool {
        matches!(self.source, Source::Sentinel { .. } | Source::Cluster(_))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The known masters may be out of date.
    pub(crate) fn forget(&self) {
        self.known().is_past = true;
    }

    pub(crate) fn close(&self) {
        self.guide.clear();
    }

    // --------------------------------------------------------------------- what is known

    /// The server for a lock.
    pub(crate) async fn locate(&self, name: &str, longest: Duration) -> Outcome<Address> {
        if let Source::One(info) = &self.source {
            return Ok(info.addr().to_string().into());
        }
        if let Some(address) = self.known_address(name) {
            return Ok(address);
        }
        self.look(longest).await?;
        let nowhere = || Failure::Refusal("CLUSTERDOWN no node has the slot".to_owned());
        self.known_address(name).ok_or_else(nowhere)
    }

    fn known_address(&self, name: &str) -> Option<Address> {
        let known = self.known();
        if known.is_past {
            return None;
        }
        let slot = slot(name);
        let range = known.slots.iter().find(|range| range.has(slot));
        known
            .master
            .clone()
            .or_else(|| range.map(|range| range.master.clone()))
    }

    /// The most replicas that the Sentinels, or the cluster, ever knew of the master for this lock.
    pub(crate) fn replicas(&self, name: &str) -> usize {
        let (known, slot) = (self.known(), slot(name));
        let range = known.slots.iter().find(|range| range.has(slot));
        known.replicas.max(range.map_or(0, |range| range.replicas))
    }

    /// Whether another is known to be the master there.
    pub(crate) fn is_past(&self, address: &Address) -> bool {
        let known = self.known();
        let mut masters = known.slots.iter().map(|range| &range.master);
        match &known.master {
            Some(master) => master != address,
            None => !known.slots.is_empty() && !masters.any(|master| master == address),
        }
    }

    /// Asks the Sentinels for the master, or a node of the cluster for those of all slots.
    pub(crate) async fn look(&self, longest: Duration) -> Outcome<()> {
        if let Source::Sentinel { master, .. } = &self.source {
            let word = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", master].map(str::to_owned);
            let state = ["SENTINEL", "MASTER", master].map(str::to_owned);
            self.ask_guides(&[&word, &state], longest, |_, replies| {
                self.learn_master(replies)
            })
            .await
        } else {
            let slots = ["CLUSTER", "SLOTS"].map(str::to_owned);
            let nodes = ["CLUSTER", "NODES"].map(str::to_owned);
            self.ask_guides(&[&slots, &nodes], longest, |guide, replies| {
                self.learn_slots(guide, replies)
            })
            .await
        }
    }

    fn guides(&self) -> Vec<ConnectionInfo> {
        match &self.source {
            Source::Sentinel { sentinels, .. } => sentinels.clone(),
            Source::Cluster(seeds) => {
                let nodes = self.known().nodes.clone();
                let known = nodes.iter().map(|node| at(&seeds[0], node));
                known.chain(seeds.iter().cloned()).collect()
            }
            Source::One(_) => Vec::new(),
        }
    }

    /// Any of them may answer; the one that did last is asked first.
    async fn ask_guides(
        &self,
        words: &[&[String]],
        longest: Duration,
        learn: impl Fn(&ConnectionInfo, &[Outcome<Value>]) -> Outcome<()>,
    ) -> Outcome<()> {
        let (guides, longest) = (self.guides(), longest.min(LONGEST_WORD));
        let mut last = None;
        for _ in 0..guides.len() {
            let which = self.which.load(Ordering::Relaxed);
            let guide = &guides[which % guides.len()];
            let opening = self.connect(guide.clone(), None, &Arc::default(), longest);
            let asked = async {
                let mut line = self.guide.line(opening).await?;
                let replies = line.run(words, Some(longest)).await?;
                learn(guide, &replies)
            };
            match asked.await {
                Ok(()) => return Ok(()),
                Err(failure) => last = Some(failure),
            }
            let next = which.wrapping_add(1);
            let swap = |from, to| {
                let (order, atomic) = (Ordering::Relaxed, &self.which);
                atomic.compare_exchange(from, to, order, order)
            };
            if swap(which, next).is_ok() {
                self.guide.clear();
            }
        }
        Err(last.unwrap_or_else(|| Failure::Broken("no other address is known".to_owned())))
    }

    fn learn_master(&self, replies: &[Outcome<Value>]) -> Outcome<()> {
        let [word, state] = replies else {
            return Ok(());
        };
        let word = word.clone()?;
        let [host, port] = items(&word) else {
            let Source::Sentinel { master, .. } = &self.source else {
                return Ok(());
            };
            let unknown = format!("the Sentinel does not know a master of the name {master}");
            return Err(Failure::Broken(unknown));
        };
        let replicas = state.as_ref().ok().and_then(|state| {
            let state: std::collections::HashMap<String, String> =
                redis::from_redis_value_ref(state).ok()?;
            state.get("num-slaves")?.parse().ok()
        });
        let mut known = self.known();
        known.replicas = known.replicas.max(replicas.unwrap_or(0));
        known.master = Some(format!("{}:{}", text(host), text(port)).into());
        known.is_past = false;
        Ok(())
    }

    fn learn_slots(&self, guide: &ConnectionInfo, replies: &[Outcome<Value>]) -> Outcome<()> {
        let [slots, nodes] = replies else {
            return Ok(());
        };
        let slots = slots.clone()?;
        let nodes = nodes.as_ref().map(text).unwrap_or_default();
        let mut known = self.known();
        let mut ranges = Vec::new();
        for range in items(&slots) {
            let [Value::Int(first), Value::Int(last), members @ ..] = items(range) else {
                continue;
            };
            let (first, last) = (number(*first), number(*last));
            let hosts: Vec<_> = members
                .iter()
                .filter_map(|member| member_address(member, guide))
                .collect();
            for (host, _) in &hosts {
                if !known.nodes.contains(host) {
                    known.nodes.push(host.clone()); // Nodes that are not in the reply may be back later.
                }
            }
            let Some((master, id)) = hosts.first() else {
                continue;
            };
            ranges.push(Range {
                first,
                last,
                master: master.clone(),
                replicas: known.replicas_of(master).max(replicas_of(id, &nodes)),
                members: hosts.into_iter().map(|(host, _)| host).collect(),
            });
        }
        known.slots = ranges;
        known.is_past = false;
        Ok(())
    }

    /// The address in a MOVED, which is kept, or ASK.
    pub(crate) fn redirect(&self, failure: &Failure, asked: &Address) -> Option<Address> {
        let (Failure::Refusal(text), Source::Cluster(_)) = (failure, &self.source) else {
            return None;
        };
        let mut words = text.split(' ');
        let is_moved = words.next()? == "MOVED";
        let slot = words.next()?.parse().ok()?;
        let address: Address = match words.next()?.rsplit_once(':')? {
            ("", port) => format!("{}:{port}", asked.rsplit_once(':')?.0).into(),
            (host, port) => format!("{host}:{port}").into(),
        };
        if is_moved {
            let known = &mut *self.known();
            let range = Range {
                first: slot,
                last: slot,
                master: address.clone(),
                members: vec![address.clone()],
                replicas: known.replicas_of(&address),
            };
            known.slots.insert(0, range);
        }
        Some(address)
    }

    // ---------------------------------------------------------------------- connections

    /// Opens a connection to a server that is a master, by the Sentinels' answer and its own.
    pub(crate) async fn open(
        &self,
        address: &Address,
        gone: watch::Receiver<bool>,
        server: &Arc<Server>,
        longest: Duration,
    ) -> Outcome<Line> {
        let info = match &self.source {
            Source::One(info) => info.clone(),
            Source::Cluster(seeds) => at(&seeds[0], address),
            Source::Sentinel {
                sentinels, node, ..
            } => {
                self.look(longest).await?;
                if self.is_past(address) {
                    return Err(not_master(address));
                }
                at(&sentinels[0], address).set_redis_settings(node.clone())
            }
        };
        let mut line = self.connect(info, Some(gone), server, longest).await?;
        match line.is_master(longest).await {
            Ok(true) => Ok(line),
            Ok(false) => Err(not_master(address)),
            // A service of its own kind. Masters under Sentinels know ROLE.
            Err(failure)
                if failure.is_unknown() && !matches!(self.source, Source::Sentinel { .. }) =>
            {
                Ok(line)
            }
            Err(failure) => Err(failure),
        }
    }

    fn connect(
        &self,
        info: ConnectionInfo,
        gone: Option<watch::Receiver<bool>>,
        server: &Arc<Server>,
        longest: Duration,
    ) -> impl Future<Output = Outcome<Line>> + use<> {
        Line::open(
            info,
            gone,
            self.broken.clone(),
            self.native.clone(),
            server.clone(),
            longest,
        )
    }

    /// Where messages for one lock go: a cluster has channels in slots.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.source, Source::Cluster(_))
    }
}

/// The server's own text for a request that comes too late.
fn not_master(address: &Address) -> Failure {
    Failure::Refusal(format!("READONLY {address} is not the master"))
}

fn number(slot: i64) -> u16 {
    slot.try_into().unwrap_or_default()
}

/// The address of a node in the reply to CLUSTER SLOTS, and its id.
fn member_address(member: &Value, asked: &ConnectionInfo) -> Option<(Address, String)> {
    let [host, Value::Int(port), id, ..] = items(member) else {
        return None;
    };
    let host = match (text(host), asked.addr()) {
        (host, ConnectionAddr::Tcp(asked, _) | ConnectionAddr::TcpTls { host: asked, .. })
            if host.is_empty() =>
        {
            asked.clone()
        }
        (host, _) => host,
    };
    Some((format!("{host}:{port}").into(), text(id)))
}

/// How many replicas the reply to CLUSTER NODES has of this master, those that are down included.
fn replicas_of(master: &str, nodes: &str) -> usize {
    let follows = |line: &&str| line.split(' ').nth(3) == Some(master);
    nodes.lines().filter(follows).count()
}

/// The same connection settings for another address.
fn at(info: &ConnectionInfo, address: &Address) -> ConnectionInfo {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    let (host, port) = (host.to_owned(), port.parse().unwrap_or_default());
    let addr = match info.addr() {
        ConnectionAddr::TcpTls {
            insecure,
            tls_params,
            ..
        } => ConnectionAddr::TcpTls {
            host,
            port,
            insecure: *insecure,
            tls_params: tls_params.clone(),
        },
        _ => ConnectionAddr::Tcp(host, port),
    };
    info.clone().set_addr(addr)
}

/// The slot of a key: CRC16 (XMODEM) of it, or of the text between its braces.
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
