//! TLS, with a certificate of the client, as servers want by default.

use std::process::Command;

use fairlock_testing::{Ended, Server, free_port};
use tempfile::TempDir;

use crate::program;

/// A server for `locks.example`, and its port for TLS. All is one certificate.
fn scene(cert: &str, key: &str) -> (Server, u16) {
    let port = free_port();
    let new = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=locks";
    let whose = "-addext subjectAltName=DNS:locks.example -addext basicConstraints=CA:FALSE";
    let line = format!("{new} {whose} -keyout {key} -out {cert}");
    let made = Command::new("openssl").args(line.split(' ')).output();
    let made = made.expect("openssl is there");
    assert!(made.status.success(), "{made:?}");
    let files = format!("--tls-ca-cert-file {cert} --tls-cert-file {cert} --tls-key-file {key}");
    let options = format!("--tls-port {port} {files}");
    let server = Server::with(&options.split(' ').collect::<Vec<_>>());
    (server, port)
}

fn run(scheme: &str, port: u16, options: &str) -> Ended {
    let url = format!("{scheme}://127.0.0.1:{port}");
    program::ended(1, format!("--url {url} exec k {options} -- echo done"))
}

#[test]
fn it_speaks_tls_as_redis_cli_does() {
    let dir = TempDir::new().expect("a directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let (cert, key) = (path("cert"), path("key"));
    let (server, port) = scene(&cert, &key);
    let (trust, sni) = (format!("--cacert {cert}"), "--sni locks.example");
    let own = format!("--cert {cert} --key {key}");
    for options in [format!("{trust} {own} {sni}"), format!("{own} --insecure")] {
        let ended = run("rediss", port, &options);
        assert_eq!((ended.code, ended.out.as_str()), (0, "done\n"), "{ended:?}");
    }
    let (anonymous, nameless) = (format!("{trust} {sni}"), format!("{trust} {own}"));
    let keyless = format!("--cert {cert}");
    for (scheme, port, options, code, text) in [
        ("rediss", port, anonymous.as_str(), 69, "--cert and --key"),
        ("rediss", port, &own, 69, "--cacert says whom to trust"),
        ("rediss", port, &nameless, 69, "--sni for which host"),
        ("rediss", server.port, "", 69, "write redis://, not rediss"),
        ("redis", port, "--reconnect 0s", 69, "want TLS, rediss"),
        ("redis", server.port, &trust, 64, "write rediss://"),
        ("rediss", port, &keyless, 64, "--key"),
        ("rediss", port, "--cacert /none", 64, "read /none"),
    ] {
        run(scheme, port, options).failed(code, text);
    }
}
