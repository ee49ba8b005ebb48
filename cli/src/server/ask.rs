//! What a server is asked about locks.

use std::collections::HashSet;

use redis::{Cmd, Value};

use crate::lock::{Lock, page, value, waiters};

use super::{Link, Trouble};

/// Locks that a server is asked for at once.
pub const PAGE: usize = 1000;

impl Link {
    /// What the server says of a lock.
    pub async fn lock(&mut self, key: &[u8]) -> Result<Lock, Trouble> {
        let command = cmd("FAIRLOCK.INFO", key);
        self.read(&command, Lock::read).await
    }

    /// The lock as it is for each of its holders.
    pub async fn holders(&mut self, key: &[u8]) -> Result<Vec<Lock>, Trouble> {
        let command = cmd("FAIRLOCK.HOLDERS", key);
        let read = |reply: &Value| {
            let holders: Vec<Value> = value(reply)?;
            holders.iter().map(Lock::read_holder).collect()
        };
        self.read(&command, read).await
    }

    /// A lock's first waiters, in order.
    pub async fn waiters(&mut self, key: &[u8], count: usize) -> Result<Vec<Vec<u8>>, Trouble> {
        let mut command = cmd("FAIRLOCK.QUEUE", key);
        command.arg("LIMIT").arg(0).arg(count);
        self.read(&command, waiters).await
    }

    /// The server's locks; `all`: those without waiters, too.
    pub fn locks(self, all: bool) -> Listing {
        Listing {
            link: self,
            all,
            met: HashSet::new(),
            after: None,
            is_over: false,
        }
    }

    /// Frees a lock, or one holder's part in it; whether there was anything to free.
    pub async fn break_lock(
        &mut self,
        key: &[u8],
        owner: Option<&[u8]>,
        force: bool,
    ) -> Result<bool, Trouble> {
        let mut command = cmd("FAIRLOCK.BREAK", key);
        if let Some(owner) = owner {
            command.arg("OWNER").arg(owner);
        }
        if force {
            command.arg("FORCE");
        }
        self.read(&command, value).await
    }

    async fn read<T>(
        &mut self,
        command: &Cmd,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<T, Trouble> {
        let reply = self.ask(command).await?;
        read(&reply).ok_or_else(|| Trouble::odd(&self.target))
    }
}

/// The locks of a server, some at a time, each once.
#[derive(Debug)]
pub struct Listing {
    /// The server.
    pub link: Link,
    all: bool,
    met: HashSet<Vec<u8>>,
    /// The cursor behind those that were listed.
    after: Option<Vec<u8>>,
    /// There are no more.
    pub is_over: bool,
}

impl Listing {
    /// About [`PAGE`] more of them, those with waiters first, the busiest first; `None` behind the last.
    pub async fn next(&mut self) -> Result<Option<Vec<Lock>>, Trouble> {
        if self.is_over {
            return Ok(None);
        }
        let mut command = redis::cmd("FAIRLOCK.LOCKS");
        command.arg(self.all.then_some("ALL"));
        command.arg("COUNT").arg(PAGE);
        if let Some(cursor) = &self.after {
            command.arg("AFTER").arg(cursor);
        }
        let (mut locks, more) = self.link.read(&command, page).await?;
        // A lock that gets a waiter meanwhile is met twice.
        locks.retain(|lock| self.met.insert(lock.name.clone()));
        self.is_over = more.is_none();
        self.after = more;
        Ok(Some(locks))
    }
}

fn cmd(name: &str, key: &[u8]) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(key);
    command
}
