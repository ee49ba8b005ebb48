//! A server with TLS.

use std::process::Command;

use tempfile::TempDir;

use super::{FREE_PORT, Server};

impl Server {
    /// With the module, options, and TLS, for which clients need a certificate by default. Also its port for TLS, and a
    /// folder with a certificate for `locks.example` and its key: the server's, the authority's, and one for clients.
    pub fn with_tls(options: &[&str]) -> (Self, u16, TempDir) {
        let dir = TempDir::new().expect("a temporary directory");
        let path = |name: &str| dir.path().join(name).display().to_string();
        let (cert, key) = (path("cert"), path("key"));
        let new =
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=locks";
        let whose = "-addext subjectAltName=DNS:locks.example -addext basicConstraints=CA:FALSE";
        let line = format!("{new} {whose} -keyout {key} -out {cert}");
        let made = Command::new("openssl").args(line.split(' ')).output();
        let made = made.expect("openssl is there");
        assert!(made.status.success(), "{made:?}");
        let tls = ["--tls-port", FREE_PORT, "--tls-ca-cert-file", &cert];
        let own = ["--tls-cert-file", &cert, "--tls-key-file", &key];
        let (server, mut client) = Self::connected_with(&[&tls[..], &own, options].concat());
        let port = client.run("CONFIG GET tls-port");
        let port = port.trim_end_matches(']').rsplit(' ').next();
        let port = port.and_then(|port| port.parse().ok());
        (server, port.expect("a port"), dir)
    }
}
