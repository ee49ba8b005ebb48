//! TLS, with a certificate of the client, as servers want by default.

use fairlock_testing::{Ended, Server};

use crate::program;

const SECURE: &str = "rediss://127.0.0.1";
/// The certificate is not for this name.
const NAMED: &str = "rediss://localhost";

fn run(url: &str, port: u16, options: &str) -> Ended {
    program::ended(1, format!("--url {url}:{port} exec k {options} -- true"))
}

#[test]
fn it_speaks_tls_as_redis_cli_does() {
    let (server, port, files) = Server::with_tls(&[]);
    let [cert, key] = ["cert", "key"].map(|name| files.path().join(name).display().to_string());
    let (trust, keyless) = (format!("--cacert {cert}"), format!("--cert {cert}"));
    let own = format!("{keyless} --key {key}");
    let both = format!("{trust} {own}");
    run(SECURE, port, &both).said();
    run(NAMED, port, &format!("{own} --insecure")).said();
    for (url, port, options, code, text) in [
        (SECURE, port, trust.as_str(), 69, "--cert and --key"),
        (SECURE, port, &own, 69, "--cacert says whom to trust"),
        (NAMED, port, &both, 69, "has to be for the URL's host"),
        (SECURE, server.port, "", 69, "write redis://, not rediss"),
        ("redis://127.0.0.1", port, "--reconnect 0s", 69, "want TLS"),
        ("redis://127.0.0.1", server.port, &trust, 64, "write rediss"),
        (SECURE, port, &keyless, 64, "--key"),
        (SECURE, port, "--cacert /none", 64, "read /none"),
    ] {
        run(url, port, options).failed(code, text);
    }
}
