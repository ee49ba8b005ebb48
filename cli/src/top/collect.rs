//! Asking the servers.

use tokio::time::Instant;

use crate::lock::Listing;
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
    let Listing { locks, more } = listing(&mut server, limit as usize).await?;
    let info = server.info(&["replication", "fairlock"]).await?;
    let counters = Counters::read(&info);
    Ok(Said {
        counters: counters.ok_or_else(|| Trouble::odd("INFO fairlock", server.target()))?,
        locks,
        is_cut_short: more.is_some(),
        is_replica: is_replica(&info),
    })
}

/// So many locks. The server gives some at a time.
async fn listing(server: &mut Sender, limit: usize) -> Result<Listing, Trouble> {
    let mut all = Listing::default();
    loop {
        let mut command = redis::cmd("FAIRLOCK.LOCKS");
        command.arg("COUNT").arg(limit - all.locks.len());
        if let Some(cursor) = &all.more {
            command.arg("AFTER").arg(cursor.as_slice());
        }
        let reply = server.ask(&command).await?;
        let some = Listing::read(&reply);
        let some = some.ok_or_else(|| Trouble::odd("FAIRLOCK.LOCKS", server.target()))?;
        all.locks.extend(some.locks);
        all.more = some.more;
        if all.more.is_none() || all.locks.len() >= limit {
            return Ok(all);
        }
    }
}
