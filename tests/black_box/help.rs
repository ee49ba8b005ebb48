//! `FAIRLOCK.HELP`.

use crate::server::Server;

#[test]
fn help_names_every_command() {
    let server = Server::start();
    let help = server.connect().run("FAIRLOCK.HELP");
    for command in [
        "ACQUIRE", "RELEASE", "RENEW", "CANCEL", "BREAK", "QUEUE", "INFO", "HELP",
    ] {
        assert!(help.contains(&format!("FAIRLOCK.{command}")), "{command}");
    }
}
