//! What a server is asked about locks.

use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::time::timeout;

use crate::lock::{Lock, page, value, waiters};

use super::{Link, REPLY, Trouble};

/// Locks or keys that a server is asked for at once.
const PAGE: usize = 1000;

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

    /// Some locks that the server tracks, behind a cursor, 0 for the first; and the cursor of the rest, if there is any.
    pub async fn tracked(&mut self, after: u64) -> Result<(Vec<Lock>, Option<u64>), Trouble> {
        let mut command = redis::cmd("FAIRLOCK.LOCKS");
        command.arg("COUNT").arg(PAGE).arg("AFTER").arg(after);
        self.read(&command, page).await
    }

    /// The locks among some keys of the server, from a cursor of SCAN on, 0 for the first; and the cursor of the rest, 0
    /// if there is none. For how long they are held is not known.
    pub async fn held(&mut self, cursor: u64) -> Result<(Vec<Lock>, u64), Trouble> {
        let mut command = redis::cmd("SCAN");
        command.arg(cursor).arg("COUNT").arg(PAGE);
        command.arg("TYPE").arg("hash");
        let (next, keys): (u64, Vec<Vec<u8>>) = self.read(&command, value).await?;
        // The redis crate refuses a pipeline of nothing.
        if keys.is_empty() {
            return Ok((Vec::new(), next));
        }
        let mut infos = redis::pipe();
        for key in &keys {
            infos.add_command(cmd("FAIRLOCK.INFO", key));
        }
        let replies = infos.ignore_errors().query_async(&mut self.connection);
        let replies = timeout(REPLY, replies).await;
        let replies = replies.map_err(|_| Trouble::silent(&self.target))?;
        let replies: Vec<RedisResult<Value>> =
            replies.map_err(|error| Trouble::of(&error, &self.target))?;
        let mut locks = Vec::new();
        for (name, reply) in keys.into_iter().zip(replies) {
            match reply {
                Ok(reply) => {
                    let lock = Lock::read(&reply);
                    let mut lock = lock.ok_or_else(|| Trouble::odd(&self.target))?;
                    if lock.is_held() {
                        (lock.name, lock.held) = (name, -1);
                        locks.push(lock);
                    }
                }
                Err(error) if is_of_key(&error) => (),
                Err(error) => return Err(Trouble::of(&error, &self.target)),
            }
        }
        Ok((locks, next))
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

fn cmd(name: &str, key: &[u8]) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(key);
    command
}

/// Whether a server refuses to tell of a key, and would tell of others: the user may not read it, it holds something
/// else, has moved, or cannot be a lock in a cluster.
fn is_of_key(error: &RedisError) -> bool {
    let is_of_command = |text: &str| text.contains("'fairlock.info'");
    match error.code() {
        Some("NOPERM") => !error.detail().is_some_and(is_of_command),
        Some(code) => ["ASK", "CROSSSLOT", "ERR", "MOVED", "TRYAGAIN", "WRONGTYPE"].contains(&code),
        None => false,
    }
}
