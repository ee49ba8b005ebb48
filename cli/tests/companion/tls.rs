//! TLS, with a certificate of the client, as servers want by default.

use fairlock_testing::{Ended, Server};

use crate::program;

fn run(scheme: &str, port: u16, options: &str) -> Ended {
    let url = format!("{scheme}://127.0.0.1:{port}");
    program::ended(1, format!("--url {url} exec k {options} -- echo done"))
}

#[test]
fn it_speaks_tls_as_redis_cli_does() {
    let (server, port, files) = Server::with_tls(&[]);
    let [cert, key] = ["cert", "key"].map(|name| files.path().join(name).display().to_string());
    let (trust, sni) = (format!("--cacert {cert}"), "--sni locks.example");
    let own = format!("--cert {cert} --key {key}");
    for options in [format!("{trust} {own} {sni}"), format!("{own} --insecure")] {
        assert_eq!(run("rediss", port, &options).said(), "done\n");
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
