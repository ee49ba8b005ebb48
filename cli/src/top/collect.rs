//! Asking the servers.

use tokio::time::Instant;

use crate::lock::Lock;
use crate::server::{Answer, Everyone, Sender, Target, Trouble};

use super::reading::{Counters, Node, Reading, Said, is_replica};

/// Asks all masters.
#[derive(Debug)]
pub struct Collector {
    masters: Everyone,
    limit: u32,
    start: Instant,
}

impl Collector {
    /// Begins with one server; asks each for so many locks.
    #[must_use]
    pub fn new(target: Target, limit: u32) -> Self {
        Self {
            masters: Everyone::new(target),
            limit,
            start: Instant::now(),
        }
    }

    /// Asks all masters at once. A trouble if there is nobody to ask.
    pub async fn read(&mut self) -> Result<Reading, Trouble> {
        let limit = self.limit;
        let answers = self.masters.ask(move |sender| said(sender, limit)).await?;
        let node = |Answer { address, said }| Node {
            address,
            said: said.map_err(|trouble: Trouble| trouble.text()),
        };
        Ok(Reading {
            at: self.start.elapsed(),
            nodes: answers.into_iter().map(node).collect(),
        })
    }
}

async fn said(mut server: Sender, limit: u32) -> Result<Said, Trouble> {
    // First the locks: where the module is missing, that says so best.
    let mut command = redis::cmd("FAIRLOCK.LOCKS");
    let reply = server.ask(command.arg("COUNT").arg(limit)).await?;
    let locks = Lock::read_all(&reply);
    let locks = locks.ok_or_else(|| Trouble::odd("FAIRLOCK.LOCKS", server.target()))?;
    let info = server.info(&["replication", "fairlock"]).await?;
    let counters = Counters::read(&info);
    Ok(Said {
        counters: counters.ok_or_else(|| Trouble::odd("INFO fairlock", server.target()))?,
        locks,
        is_replica: is_replica(&info),
    })
}
