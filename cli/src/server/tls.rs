//! TLS: the files that the command line names, and what its errors mean.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use redis::io::AsyncDNSResolver;
use redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, RedisError, RedisFuture,
    TlsCertificates,
};
use tokio::net::lookup_host;

use crate::args::TlsArgs;
use crate::failure::{Failure, USAGE};

/// A server's address, with what the command line says about TLS.
pub fn applied(info: ConnectionInfo, args: &TlsArgs) -> Result<ConnectionInfo, Failure> {
    if *args == TlsArgs::default() {
        return Ok(info);
    }
    let ConnectionAddr::TcpTls { host, port, .. } = info.addr() else {
        let text = "--cacert, --cert, --key, --sni and --insecure are for TLS: write rediss://HOST:PORT as --url or FAIRLOCK_URL";
        return Err(Failure::new(USAGE, text));
    };
    let addr = ConnectionAddr::TcpTls {
        host: host.clone(),
        port: *port,
        insecure: args.insecure,
        tls_params: None,
    };
    let client_tls = match (read(args.cert.as_ref())?, read(args.key.as_ref())?) {
        (Some(client_cert), Some(client_key)) => Some(ClientTlsConfig {
            client_cert,
            client_key,
        }),
        _ => None,
    };
    let certificates = TlsCertificates {
        client_tls,
        root_cert: read(args.cacert.as_ref())?,
    };
    let client = Client::build_with_tls(info.set_addr(addr), certificates)
        .map_err(|error| Failure::new(USAGE, format!("--cacert, --cert or --key: {error}")))?;
    Ok(client.get_connection_info().clone())
}

fn read(file: Option<&PathBuf>) -> Result<Option<Vec<u8>>, Failure> {
    let bytes = |file: &PathBuf| {
        let failure = |error| format!("cannot read {}: {error}", file.display());
        fs::read(file).map_err(|error| Failure::new(USAGE, failure(error)))
    };
    file.map(bytes).transpose()
}

/// Where a server is, whatever its certificate calls it.
pub struct Here(pub String);

impl AsyncDNSResolver for Here {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        _: &'b str,
        port: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        Box::pin(async move {
            let found = lookup_host((self.0.as_str(), port)).await?;
            let found: Box<dyn Iterator<Item = SocketAddr> + Send> = Box::new(found);
            Ok(found)
        })
    }
}

/// What to do about an error, if it is one of TLS.
pub fn hint(error: &RedisError) -> Option<&'static str> {
    let text = error.to_string();
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if has(&["InvalidContentType", "corrupt message"]) {
        Some("it speaks no TLS at this port: write redis://, not rediss://")
    } else if has(&["CertificateRequired", "HandshakeFailure"]) {
        Some("it wants a certificate of the client: --cert and --key")
    } else if has(&["invalid peer certificate", "UnknownIssuer"]) {
        Some("--cacert says whom to trust, --sni for which host the certificate is")
    } else {
        None
    }
}
