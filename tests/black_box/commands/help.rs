//! `FAIRLOCK.HELP`, and the server's information on the module.

use fairlock_testing::Server;
use fairlock_testing::commands::SCRIPTS;

#[test]
fn help_names_every_command() {
    let (_server, mut client) = Server::connected();
    let help = client.run("FAIRLOCK.HELP");
    let words = help.split(['[', ' ', ',']);
    let shown = words.filter(|word| word.starts_with("FAIRLOCK."));
    // Clients never send the commands that intercepted scripts become.
    client.assert_calls_all(shown.chain(SCRIPTS));
}

#[test]
fn the_server_knows_the_release() {
    let server = Server::start();
    let modules = server.connect().run("MODULE LIST");
    let parts = env!("CARGO_PKG_VERSION").split('.');
    let release = parts.fold(0, |all, part| {
        all * 100 + part.parse::<i32>().expect("a number")
    });
    assert!(
        modules.contains(&format!("name, fairlock, ver, {release},")),
        "{modules}"
    );
}
