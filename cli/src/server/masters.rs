//! The masters of a cluster, asked at once.

use futures_util::future::join_all;
use redis::Value;
use tokio::time::timeout;

use crate::lock::Lock;

use super::{Link, REPLY, Target, Trouble};

/// A key can move again while its redirection is followed.
const REDIRECTIONS: usize = 8;

/// The masters of a server's cluster; without a cluster, the server itself.
#[derive(Debug)]
pub struct Masters {
    given: Target,
    /// As they were when they were last asked for.
    known: Vec<Target>,
}

/// What one of them answered.
#[derive(Debug)]
pub struct Answer<T> {
    /// Where it is.
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
    /// Begins with one server.
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

    /// The current masters.
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
    if !info.contains("cluster_enabled:1") {
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
    let Value::Array(ranges) = reply else {
        return None;
    };
    let mut ranges: Vec<_> = ranges.iter().map(range).collect::<Option<_>>()?;
    ranges.sort_unstable_by_key(|(first, _)| *first);
    let mut masters = Vec::new();
    for (_, master) in ranges {
        if !masters.contains(&master) {
            masters.push(master);
        }
    }
    Some(masters)
}

/// `[first slot, last slot, [host, port, ...] of the master, replicas...]`; the host is empty if it is the one that was
/// asked, which does not know its own address.
fn range(range: &Value) -> Option<(i64, (String, u16))> {
    let Value::Array(parts) = range else {
        return None;
    };
    let [Value::Int(first), _, Value::Array(master), ..] = parts.as_slice() else {
        return None;
    };
    let [host, Value::Int(port), ..] = master.as_slice() else {
        return None;
    };
    let host: Option<String> = redis::from_redis_value_ref(host).ok()?;
    let host = host.filter(|host| host != "?").unwrap_or_default();
    Some((*first, (host, u16::try_from(*port).ok()?)))
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
            slots(200, node(host("10.0.0.2"), 2)),
            slots(0, node(host("10.0.0.1"), 1)),
            slots(100, node(host("10.0.0.2"), 2)),
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
