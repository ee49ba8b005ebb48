//! Asking the servers.

use std::collections::HashMap;
use std::time::Duration;

use redis::Value;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::lock::Lock;
use crate::server::{Link, Seeds, Target, Trouble, masters};

use super::reading::{Counters, Node, Reading, Said, is_replica};

/// How long one server may keep the others waiting.
const LOOK: Duration = Duration::from_secs(2);

/// Asks all masters, on connections that it keeps.
#[derive(Debug)]
pub struct Collector {
    seeds: Seeds,
    limit: u32,
    links: HashMap<String, Link>,
    start: Instant,
}

impl Collector {
    /// Begins with one server; asks each for so many locks.
    #[must_use]
    pub fn new(target: Target, limit: u32) -> Self {
        Self {
            seeds: Seeds::new(target),
            limit,
            links: HashMap::new(),
            start: Instant::now(),
        }
    }

    /// Asks all masters at once. A trouble if there is nobody to ask.
    pub async fn read(&mut self) -> Result<Reading, Trouble> {
        let masters = self.masters().await?;
        self.seeds.remember(masters.clone());
        let mut asked = JoinSet::new();
        for (place, target) in masters.into_iter().enumerate() {
            let link = self.links.remove(&target.address());
            asked.spawn(ask(place, target, link, self.limit));
        }
        let mut nodes = Vec::new();
        while let Some(answer) = asked.join_next().await {
            // A task that was cancelled or panicked has no answer.
            let Ok((place, node, link)) = answer else {
                continue;
            };
            if let Some(link) = link {
                self.links.insert(node.address.clone(), link);
            }
            nodes.push((place, node));
        }
        nodes.sort_unstable_by_key(|(place, _)| *place);
        Ok(Reading {
            at: self.start.elapsed(),
            nodes: nodes.into_iter().map(|(_, node)| node).collect(),
        })
    }

    /// Who the masters are now, from the first server that says so.
    async fn masters(&mut self) -> Result<Vec<Target>, Trouble> {
        for link in self.links.values() {
            if let Ok(Ok(masters)) = timeout(LOOK, masters(link)).await {
                return Ok(masters);
            }
        }
        let link = self.seeds.connect().await?;
        let masters = masters(&link).await?;
        self.links.insert(link.target.address(), link);
        Ok(masters)
    }
}

/// Asks one server, on the connection that there is, or on a new one.
async fn ask(
    place: usize,
    target: Target,
    link: Option<Link>,
    limit: u32,
) -> (usize, Node, Option<Link>) {
    let address = target.address();
    let asked = timeout(LOOK, async {
        let link = match link {
            Some(link) => link,
            None => target.connect().await?,
        };
        let said = said(&link, limit).await?;
        Ok((said, link))
    });
    let (said, link) = match asked.await {
        Ok(Ok((said, link))) => (Ok(said), Some(link)),
        Ok(Err(trouble)) => (Err(trouble), None),
        Err(_) => (Err(Trouble::silent(&target)), None),
    };
    let said = said.map_err(|trouble: Trouble| trouble.text());
    (place, Node { address, said }, link)
}

async fn said(link: &Link, limit: u32) -> Result<Said, Trouble> {
    // First the locks: where the module is missing, that says so best.
    let mut command = redis::cmd("FAIRLOCK.LOCKS");
    let reply = link.ask(command.arg("COUNT").arg(limit)).await?;
    let locks = Lock::read_all(&reply);
    let locks = locks.ok_or_else(|| Trouble::odd("FAIRLOCK.LOCKS", &link.target))?;
    let mut command = redis::cmd("INFO");
    let info = link.ask(command.arg("replication").arg("fairlock")).await?;
    let info = match info {
        Value::VerbatimString { text, .. } => text,
        Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        _ => String::new(),
    };
    let counters = Counters::read(&info);
    Ok(Said {
        counters: counters.ok_or_else(|| Trouble::odd("INFO fairlock", &link.target))?,
        locks,
        is_replica: is_replica(&info),
    })
}
