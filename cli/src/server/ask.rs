//! What a server is asked about locks.

use redis::{Cmd, Value};
use tokio::time::timeout;

use crate::lock::{Lock, Page, waiters};

use super::{Link, REPLY, Trouble};

impl Link {
    /// What the server says of a lock.
    pub async fn lock(&mut self, key: &[u8]) -> Result<Lock, Trouble> {
        let reply = timeout(REPLY, self.lock_for_long(key)).await;
        reply.unwrap_or_else(|_| Err(Trouble::silent(&self.target)))
    }

    /// As [`Link::lock`], without a time limit.
    pub async fn lock_for_long(&mut self, key: &[u8]) -> Result<Lock, Trouble> {
        let mut command = redis::cmd("FAIRLOCK.INFO");
        let reply = self.ask_for_long(command.arg(key)).await?;
        self.understood(&command, Lock::read(&reply))
    }

    /// What the server says of one of a lock's holders, without a time limit; a free lock if that owner does not hold
    /// it.
    pub async fn holder_for_long(&mut self, key: &[u8], owner: &[u8]) -> Result<Lock, Trouble> {
        let mut after = None;
        loop {
            let command = holders_command(key, after.as_deref());
            let reply = self.ask_for_long(&command).await?;
            let some = self.understood(&command, Page::read(&reply, Lock::read_holder))?;
            let is_it = |holder: &Lock| holder.owner.as_deref() == Some(owner);
            match some.locks.into_iter().find(is_it) {
                Some(found) => return Ok(found),
                None if some.more.is_none() => return Ok(Lock::default()),
                None => after = some.more,
            }
        }
    }

    /// The holders of a lock, some at a time.
    pub async fn holders(&mut self, key: &[u8], after: Option<&[u8]>) -> Result<Page, Trouble> {
        let command = holders_command(key, after);
        let reply = self.ask(&command).await?;
        self.understood(&command, Page::read(&reply, Lock::read_holder))
    }

    /// A lock's first waiters, in order.
    pub async fn waiters(&mut self, key: &[u8], count: usize) -> Result<Vec<Vec<u8>>, Trouble> {
        let mut command = redis::cmd("FAIRLOCK.QUEUE");
        command.arg(key).arg("LIMIT").arg(0).arg(count);
        let reply = self.ask(&command).await?;
        self.understood(&command, waiters(&reply))
    }

    /// About `count` locks; `all`: those without waiters, too. `after` is the cursor of an earlier listing.
    pub async fn locks(
        &mut self,
        all: bool,
        count: usize,
        after: Option<&[u8]>,
    ) -> Result<Page, Trouble> {
        let mut command = redis::cmd("FAIRLOCK.LOCKS");
        if all {
            command.arg("ALL");
        }
        command.arg("COUNT").arg(count);
        if let Some(cursor) = after {
            command.arg("AFTER").arg(cursor);
        }
        let reply = self.ask(&command).await?;
        self.understood(&command, Page::read(&reply, Lock::read))
    }

    /// Frees a lock, or one holder's part in it; whether there was anything to free.
    pub async fn break_lock(
        &mut self,
        key: &[u8],
        owner: Option<&[u8]>,
        force: bool,
    ) -> Result<bool, Trouble> {
        let mut command = redis::cmd("FAIRLOCK.BREAK");
        command.arg(key);
        if let Some(owner) = owner {
            command.arg("OWNER").arg(owner);
        }
        if force {
            command.arg("FORCE");
        }
        let freed = match self.ask(&command).await? {
            Value::Int(freed) => Some(freed == 1),
            _ => None,
        };
        self.understood(&command, freed)
    }

    /// The reply as it was read, or the error that it cannot be read.
    fn understood<T>(&self, command: &Cmd, read: Option<T>) -> Result<T, Trouble> {
        read.ok_or_else(|| {
            let name = command.args_iter().next();
            let name = match name {
                Some(redis::Arg::Simple(name)) => String::from_utf8_lossy(name).into_owned(),
                _ => "a command".to_owned(),
            };
            Trouble::odd(&name, &self.target)
        })
    }
}

fn holders_command(key: &[u8], after: Option<&[u8]>) -> Cmd {
    let mut command = redis::cmd("FAIRLOCK.HOLDERS");
    command.arg(key);
    if let Some(cursor) = after {
        command.arg("AFTER").arg(cursor);
    }
    command
}
