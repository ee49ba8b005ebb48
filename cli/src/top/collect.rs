//! Asking the servers.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::args::TopArgs;
use crate::lock::Lock;
use crate::server::{Answer, Everyone, Sender, Target, Trouble};

use super::reading::{Counters, Node, Reading, Said, is_replica};
use super::recent::Waits;
use super::walk::Walk;

/// Locks that the server is asked for at once.
const PAGE: usize = 1000;
/// How often it is asked for them at one look, first for those with waiters, then for others. Each time takes it some
/// milliseconds.
const PAGES: usize = 10;
/// How long that may take: a server can be far away.
const SEARCH: Duration = Duration::from_millis(700);

/// How far the search of each server's keyspace has come.
type Walks = Arc<Mutex<HashMap<String, Walk>>>;

/// Asks all masters.
#[derive(Debug)]
pub struct Collector {
    masters: Everyone,
    question: Question,
}

/// What each server is asked.
#[derive(Clone, Debug)]
struct Question {
    limit: usize,
    busy: bool,
    start: Instant,
    walks: Walks,
}

impl Collector {
    /// Begins with one server; asks each for a number of locks.
    #[must_use]
    pub fn new(target: Target, args: &TopArgs) -> Self {
        Self {
            masters: Everyone::new(target),
            question: Question {
                limit: args.limit as usize,
                busy: args.busy,
                start: Instant::now(),
                walks: Walks::default(),
            },
        }
    }

    /// Asks all masters at once. An error if there is no server to ask.
    pub async fn read(&mut self) -> Result<Reading, Trouble> {
        let question = self.question.clone();
        let answers = self.masters.ask(move |sender| question.ask(sender)).await?;
        let node = |Answer { address, said }| Node {
            address,
            said: said.map_err(|trouble: Trouble| trouble.text()),
        };
        Ok(Reading {
            at: self.question.start.elapsed(),
            nodes: answers.into_iter().map(node).collect(),
        })
    }
}

impl Question {
    async fn ask(self, mut server: Sender) -> Result<Said, Trouble> {
        // First the locks: their error is the clearest if the module is missing.
        let (mut locks, is_cut_short) = busiest(&mut server, self.limit).await?;
        let mut said = Said {
            is_cut_short,
            ..Said::default()
        };
        if !self.busy && !said.is_cut_short {
            let walk = self.search(&mut server).await?;
            said.is_searching = walk.is_first();
            let listed: HashSet<Vec<u8>> = locks.iter().map(|lock| lock.name.clone()).collect();
            let others = walk.locks(self.start.elapsed());
            locks.extend(others.filter(|lock| !listed.contains(&lock.name)));
            said.is_cut_short = locks.len() > self.limit;
            locks.truncate(self.limit);
        }
        let info = server.info(&["replication", "fairlock"]).await?;
        let counters = Counters::read(&info);
        said.counters = counters.ok_or_else(|| Trouble::odd("INFO fairlock", server.target()))?;
        said.waits = Waits::read(&info);
        said.is_replica = is_replica(&info);
        said.locks = locks;
        Ok(said)
    }

    /// Searches a part of the server's keyspace, or all of it.
    async fn search(&self, server: &mut Sender) -> Result<Walk, Trouble> {
        let address = server.target().address();
        let began = Instant::now();
        // If the server does not answer, the next search begins anew.
        let mut walk = self
            .walks(|walks| walks.remove(&address))
            .unwrap_or_default();
        for _ in 0..PAGES {
            let some = server.locks(true, PAGE, walk.cursor()).await?;
            // One more than is shown tells that there are more.
            let is_over = walk.take(self.start.elapsed(), some, self.limit.saturating_add(1));
            if is_over || began.elapsed() > SEARCH {
                break;
            }
        }
        self.walks(|walks| walks.insert(address, walk.clone()));
        Ok(walk)
    }

    fn walks<T>(&self, change: impl FnOnce(&mut HashMap<String, Walk>) -> T) -> T {
        let mut walks = self.walks.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut walks)
    }
}

/// Locks with waiters or a session up to a number, those with most waiters first; and whether there are more.
async fn busiest(server: &mut Sender, limit: usize) -> Result<(Vec<Lock>, bool), Trouble> {
    let (mut locks, mut more) = (Vec::new(), None);
    for _ in 0..PAGES {
        let some = server.locks(false, PAGE, more.as_deref()).await?;
        locks.extend(some.locks);
        more = some.more;
        if more.is_none() {
            break;
        }
    }
    locks.sort_by(|one, other| {
        let by_waiting = other.waiting.cmp(&one.waiting);
        by_waiting.then_with(|| one.name.cmp(&other.name))
    });
    let is_cut_short = more.is_some() || locks.len() > limit;
    locks.truncate(limit);
    Ok((locks, is_cut_short))
}
