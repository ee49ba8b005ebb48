//! A connection of ours: to a server, or to the fake.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::sync::watch;

use crate::error::Failure;
use crate::fake::FakeServer;
use crate::route::Outcome;

/// Clones share the connection; it closes when the last is dropped.
#[derive(Clone)]
pub(crate) enum Line {
    Redis(Box<MultiplexedConnection>, watch::Receiver<bool>),
    Fake(Arc<FakeServer>),
}

impl Line {
    pub(crate) fn redis(connection: MultiplexedConnection, ended: watch::Receiver<bool>) -> Self {
        Self::Redis(Box::new(connection), ended)
    }

    pub(crate) fn fake(server: &Arc<FakeServer>) -> Self {
        Self::Fake(server.clone())
    }

    /// A command; `None`: the answer may take for ever.
    pub(crate) async fn call(
        &mut self,
        words: &[String],
        longest: Option<Duration>,
    ) -> Outcome<Value> {
        let reply = async {
            match self {
                Self::Fake(server) => server.run(words).await,
                Self::Redis(connection, _) => {
                    let mut command = redis::Cmd::new();
                    for word in words {
                        command.arg(word);
                    }
                    let reply = connection.send_packed_command(&command).await?;
                    Ok(reply.extract_error()?)
                }
            }
        };
        match longest {
            None => reply.await,
            Some(longest) => tokio::time::timeout(longest, reply)
                .await
                .unwrap_or_else(|_| Err(Failure::Broken("no answer in time".to_owned()))),
        }
    }

    /// Waits until the connection has ended.
    pub(crate) async fn ended(&self) {
        match self {
            Self::Fake(_) => std::future::pending().await,
            // An error: the connection is gone, and with it what would tell.
            Self::Redis(_, ended) => drop(ended.clone().wait_for(|is_so| *is_so).await),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        match self {
            Self::Fake(_) => true,
            Self::Redis(_, ended) => !*ended.borrow(),
        }
    }
}
