//! TLS, with a certificate of the client, as servers want by default.

use std::process::Command;

use fairlock_testing::{Server, free_port};
use tempfile::TempDir;

use crate::program::{Ended, Program};

/// A server for `locks.example`, its port for TLS, and the words for whom to trust and for a client's certificate. All is
/// one certificate.
fn scene(dir: &TempDir) -> (Server, u16, [String; 2], [String; 4]) {
    let new =
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key -out cert";
    let whose = "-subj /CN=locks -addext subjectAltName=DNS:locks.example -addext basicConstraints=CA:FALSE";
    let mut openssl = Command::new("openssl");
    openssl.args(new.split(' ').chain(whose.split(' ')));
    let made = openssl.current_dir(dir.path()).output();
    let made = made.expect("openssl is there");
    assert!(made.status.success(), "{made:?}");
    let path = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let (cert, key) = (path("cert"), path("key"));
    let port = free_port();
    let files = format!("--tls-ca-cert-file {cert} --tls-cert-file {cert} --tls-key-file {key}");
    let options = format!("--tls-port {port} {files}");
    let server = Server::with(&options.split(' ').collect::<Vec<_>>());
    let trust = ["--cacert".to_owned(), cert.clone()];
    let own = ["--cert".to_owned(), cert, "--key".to_owned(), key];
    (server, port, trust, own)
}

fn run(scheme: &str, port: u16, options: &[&str]) -> Ended {
    let url = format!("{scheme}://127.0.0.1:{port}");
    let exec = ["--url", &url, "exec", "k"];
    Program::ended(1, &[&exec, options, &["--", "echo", "done"]].concat())
}

#[test]
fn it_speaks_tls_as_redis_cli_does() {
    let dir = TempDir::new().expect("a directory");
    let (server, port, trust, own) = scene(&dir);
    let (trust, own) = (
        trust.each_ref().map(String::as_str),
        own.each_ref().map(String::as_str),
    );
    let sni = ["--sni", "locks.example"];
    let insecure = [&own[..], &["--insecure"]].concat();
    for options in [[&trust[..], &own, &sni].concat(), insecure] {
        let ended = run("rediss", port, &options);
        assert_eq!((ended.code, ended.out.as_str()), (0, "done\n"), "{ended:?}");
    }
    let anonymous = [&trust[..], &sni].concat();
    let nameless = [&trust[..], &own].concat();
    for (scheme, port, options, code, text) in [
        ("rediss", port, &anonymous[..], 69, "--cert and --key"),
        ("rediss", port, &own, 69, "--cacert says whom to trust"),
        ("rediss", port, &nameless, 69, "--sni for which host"),
        ("rediss", server.port, &[], 69, "write redis://, not rediss"),
        (
            "redis",
            port,
            &["--reconnect", "0s"],
            69,
            "want TLS, rediss",
        ),
        ("redis", server.port, &trust, 64, "write rediss://"),
        ("rediss", port, &own[..2], 64, "--key"),
        ("rediss", port, &["--cacert", "/none"], 64, "read /none"),
    ] {
        let ended = run(scheme, port, options);
        ended.failed(code, text);
    }
}
