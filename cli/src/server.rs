//! Servers: where they are, connections to them, and what their refusals mean.

mod ask;
mod masters;
mod tls;
mod trouble;

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, ConnectionInfo, InfoDict, IntoConnectionInfo as _,
    ProtocolVersion, PushInfo, RedisError, Value,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use crate::args::TlsArgs;
use crate::failure::{Failure, USAGE};

pub use masters::{Answer, Masters, troubles};
pub use trouble::Trouble;

/// How long a server may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a server may take to reply to a command that does not block.
pub const REPLY: Duration = Duration::from_secs(5);
/// Time between two attempts to reach a server that is busy or has gone away.
pub const PAUSE: Duration = Duration::from_millis(200);

/// A server's address, and the user for it.
#[derive(Clone, Debug)]
pub struct Target {
    info: ConnectionInfo,
    /// The name that its certificate is for, if that is another one than the host's.
    sni: Option<String>,
}

impl Target {
    /// Reads a URL, and the files for TLS.
    pub fn new(url: &str, tls: &TlsArgs) -> Result<Self, Failure> {
        let info = url.into_connection_info().map_err(|error| {
            // Not the URL itself, which can have a password.
            let why = error.detail().map_or_else(|| error.to_string(), ToOwned::to_owned);
            Failure::new(
                USAGE,
                format!("--url or FAIRLOCK_URL is not a Redis URL ({why}): write redis://HOST:PORT, redis://USER:PASSWORD@HOST:PORT/DB, rediss:// for TLS, or unix:///PATH"),
            )
        })?;
        let settings = info.redis_settings().clone();
        // In RESP3 a connection receives pushes between replies.
        let settings = settings
            .set_protocol(ProtocolVersion::RESP3)
            .set_lib_name("fairlock", env!("CARGO_PKG_VERSION"));
        // A peer that vanishes without closing is noticed within half a minute.
        let keepalive = TcpKeepalive::new()
            .with_time(Duration::from_secs(10))
            .with_interval(Duration::from_secs(5))
            .with_retries(3);
        let tcp = TcpSettings::default()
            .set_nodelay(true)
            .set_keepalive(keepalive);
        let info = info.set_redis_settings(settings).set_tcp_settings(tcp);
        Ok(Self {
            info: tls::applied(info, tls)?,
            sni: tls.sni.clone(),
        })
    }

    /// Another server, for the same user. An empty host means the same one, as in what nodes of a cluster say.
    fn at(&self, host: &str, port: u16) -> Self {
        let named = Some(host).filter(|host| !host.is_empty());
        let host = named.unwrap_or(self.host_and_port().0).to_owned();
        let addr = match self.info.addr() {
            ConnectionAddr::TcpTls {
                insecure,
                tls_params,
                ..
            } => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(host, port),
        };
        let info = self.info.clone().set_addr(addr);
        let sni = self.sni.clone();
        Self { info, sni }
    }

    /// Where it is.
    pub fn address(&self) -> String {
        self.info.addr().to_string()
    }

    /// The host's name, if it has one, and the port.
    fn host_and_port(&self) -> (&str, u16) {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                (host, *port)
            }
            _ => ("127.0.0.1", 0),
        }
    }

    pub async fn connect(&self) -> Result<Link, Trouble> {
        let trouble = |error: &RedisError| {
            if error.is_connection_dropped()
                && !error.is_connection_refusal()
                && tls::hint(error).is_none()
            {
                return Trouble::Passing(format!(
                    "the server at {} closes new connections ({error}): has it as many clients as its maxclients, or does it want TLS, rediss://?",
                    self.address()
                ));
            }
            if error.is_timeout() && matches!(self.info.addr(), ConnectionAddr::TcpTls { .. }) {
                return Trouble::Gone(format!(
                    "the server at {} does not answer in TLS ({error}): if it speaks no TLS at this port, write redis://, not rediss://",
                    self.address()
                ));
            }
            Trouble::of(error, self)
        };
        let mut info = self.info.clone();
        let (sender, pushes) = unbounded_channel();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT))
            // Waiting for a lock takes as long as it takes.
            .set_response_timeout(None)
            .set_push_sender(sender);
        let config = match &self.sni {
            Some(name) => {
                let (host, port) = self.host_and_port();
                info = self.at(name, port).info;
                config.set_dns_resolver(tls::Here(host.to_owned()))
            }
            None => config,
        };
        let client = redis::Client::open(info).map_err(|error| trouble(&error))?;
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        let connection = timeout(CONNECT + REPLY, connecting)
            .await
            .map_err(|_| Trouble::silent(self))?
            .map_err(|error| trouble(&error))?;
        Ok(Link {
            connection,
            pushes,
            target: self.clone(),
        })
    }
}

pub struct Link {
    connection: MultiplexedConnection,
    /// The server's pushes, the end of the connection included.
    pub pushes: UnboundedReceiver<PushInfo>,
    pub target: Target,
}

impl Link {
    /// Sends a command and waits for its reply, however long that takes.
    pub async fn wait_for(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        command.query_async(&mut self.connection).await
    }

    /// Sends a command that does not block.
    pub async fn ask(&mut self, command: &Cmd) -> Result<Value, Trouble> {
        self.ask_within(REPLY, command).await
    }

    /// As [`Self::ask`], where the reply is waited for as long as that.
    pub async fn ask_within(&mut self, longest: Duration, command: &Cmd) -> Result<Value, Trouble> {
        let reply = timeout(longest, self.wait_for(command)).await;
        let reply = reply.map_err(|_| Trouble::silent(&self.target))?;
        reply.map_err(|error| Trouble::of(&error, &self.target))
    }

    pub async fn info(&mut self, sections: &[&str]) -> Result<InfoDict, Trouble> {
        let reply = self.ask(redis::cmd("INFO").arg(sections)).await?;
        redis::from_redis_value(reply).map_err(|_| Trouble::odd(&self.target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_nodes_are_asked_by_the_same_user_in_the_same_way() {
        let target = Target::new("rediss://ann:secret@example.org:7000", &TlsArgs::default())
            .expect("a URL");
        let other = target.at("10.0.0.2", 7001);
        assert_eq!(other.address(), "10.0.0.2:7001");
        assert!(matches!(other.info.addr(), ConnectionAddr::TcpTls { .. }));
        assert_eq!(other.info.redis_settings().username(), Some("ann"));
        assert_eq!(target.at("", 7001).address(), "example.org:7001");
    }
}
