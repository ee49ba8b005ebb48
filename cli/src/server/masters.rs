//! The masters of a cluster, asked at once.

use futures_util::future::join_all;
use redis::Value;
use tokio::time::timeout;

use crate::lock::{Lock, value};

use super::{Link, REPLY, Target, Trouble};

/// A key can move again while its redirection is followed.
const REDIRECTIONS: usize = 8;

/// The masters of a server's cluster; without a cluster, the server itself.
pub struct Masters {
    given: Target,
    /// As they were when they were last asked for.
    known: Vec<Target>,
}

/// What one of them answered.
pub struct Answer<T> {
    pub address: String,
    /// What it said, or why it did not.
    pub said: Result<T, Trouble>,
}

/// Messages for an operator about those that did not answer.
pub fn troubles<T>(answers: &[Answer<T>]) -> Vec<String> {
    let troubles = answers
        .iter()
        .filter_map(|answer| answer.said.as_ref().err());
    let mut troubles: Vec<String> = troubles.map(Trouble::text).collect();
    troubles.dedup();
    troubles
}

impl Masters {
    pub fn new(given: Target) -> Self {
        Self {
            known: vec![given.clone()],
            given,
        }
    }

    /// Asks all at once; their answers in the order of their slots. If there is no server to ask, each of those that were
    /// known has not answered.
    pub async fn ask<T>(
        &mut self,
        question: impl AsyncFn(Link) -> Result<T, Trouble>,
    ) -> Vec<Answer<T>> {
        if let Err(trouble) = self.current().await {
            let text = trouble.text();
            let gone = |master: &Target| Answer {
                address: master.address(),
                said: Err(Trouble::Gone(text.clone())),
            };
            return self.known.iter().map(gone).collect();
        }
        let answers = self.known.iter().map(async |master| {
            let said = timeout(REPLY, async { question(master.connect().await?).await });
            let silent = |_| Err(Trouble::silent(master));
            Answer {
                address: master.address(),
                said: said.await.unwrap_or_else(silent),
            }
        });
        join_all(answers).await
    }

    pub async fn current(&mut self) -> Result<&[Target], Trouble> {
        let mut link = self.connect().await?;
        self.known = masters(&mut link).await?;
        Ok(&self.known)
    }

    /// Connects to the server that was given or, if it is gone, to one that it has named.
    async fn connect(&self) -> Result<Link, Trouble> {
        let mut first = None;
        let given = self.given.address();
        let others = self.known.iter().filter(|known| known.address() != given);
        for target in [&self.given].into_iter().chain(others) {
            match target.connect().await {
                Ok(link) => return Ok(link),
                Err(trouble) => first = first.or(Some(trouble)),
            }
        }
        Err(first.unwrap_or_else(|| Trouble::silent(&self.given)))
    }

    /// Connects to the server that has a lock, and asks for its state. This shows that the server has the module and
    /// that the user has the permission.
    pub async fn connect_for(&mut self, key: &[u8]) -> Result<(Link, Lock), Trouble> {
        let mut link = self.connect().await?;
        for _ in 0..REDIRECTIONS {
            match link.lock(key).await {
                Ok(lock) => {
                    // To ask them if this one is gone. The user may not be allowed to know them.
                    self.known = masters(&mut link).await.unwrap_or_default();
                    return Ok((link, lock));
                }
                Err(Trouble::Elsewhere(target)) => link = target.connect().await?,
                Err(trouble) => return Err(trouble),
            }
        }
        let text = "the nodes of the cluster do not agree on where the lock is: see CLUSTER NODES";
        Err(Trouble::Passing(text.to_owned()))
    }
}

/// Those of a server's cluster; without a cluster, the server itself.
async fn masters(link: &mut Link) -> Result<Vec<Target>, Trouble> {
    // INFO comes first: without a cluster, CLUSTER would count as an error at each look.
    let info = link.info(&["cluster"]).await?;
    if info.get("cluster_enabled") != Some(1) {
        return Ok(vec![link.target.clone()]);
    }
    let slots = link.ask(redis::cmd("CLUSTER").arg("SLOTS")).await?;
    let nodes = addresses(&slots).ok_or_else(|| Trouble::odd(&link.target))?;
    if nodes.is_empty() {
        let text = "the cluster serves no slots: see CLUSTER INFO";
        return Err(Trouble::Gone(text.to_owned()));
    }
    let targets = nodes.iter().map(|(host, port)| link.target.at(host, *port));
    Ok(targets.collect())
}

/// The masters that CLUSTER SLOTS names, each once, in order of their first slots.
fn addresses(reply: &Value) -> Option<Vec<(String, u16)>> {
    let ranges: Vec<Vec<Value>> = value(reply)?;
    let mut masters = Vec::new();
    for range in ranges {
        let master = master(&range)?;
        if !masters.contains(&master) {
            masters.push(master);
        }
    }
    Some(masters)
}

/// `[first slot, last slot, [host, port, ...] of the master, replicas...]`; the host is empty if it is the one that was
/// asked, which does not know its own address.
fn master(range: &[Value]) -> Option<(String, u16)> {
    let master: Vec<Value> = value(range.get(2)?)?;
    let host: Option<String> = value(master.first()?)?;
    let host = host.filter(|host| host != "?").unwrap_or_default();
    Some((host, value(master.get(1)?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_master_is_named_once() {
        let host = |host: &str| Value::BulkString(host.into());
        let node = |host, port| Value::Array(vec![host, Value::Int(port), Value::Nil]);
        let slots = |first, master| {
            let last = Value::Int(first + 1);
            Value::Array(vec![
                Value::Int(first),
                last,
                master,
                node(host("10.0.0.9"), 9),
            ])
        };
        let ranges = [
            slots(0, node(host("10.0.0.1"), 1)),
            slots(100, node(host("10.0.0.2"), 2)),
            slots(200, node(host("10.0.0.1"), 1)),
            slots(300, node(Value::Nil, 3)),
        ];
        let reply = Value::Array(ranges.to_vec());
        let expected = vec![
            ("10.0.0.1".to_owned(), 1),
            ("10.0.0.2".to_owned(), 2),
            (String::new(), 3),
        ];
        assert_eq!(addresses(&reply), Some(expected));
        assert_eq!(addresses(&Value::Array(vec![Value::Int(1)])), None);
    }
}
