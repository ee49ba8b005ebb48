//! `FAIRLOCK.HELP`, and what the server says of the module.

use fairlock_testing::Server;

#[test]
fn help_names_every_command() {
    let server = Server::start();
    let help = server.connect().run("FAIRLOCK.HELP");
    let commands = server
        .connect()
        .run("COMMAND LIST FILTERBY MODULE fairlock");
    for command in commands.trim_matches(['[', ']']).split(", ") {
        // What intercepted scripts become is nobody's to send.
        let shown = !command.starts_with("fairlock.eval");
        assert_eq!(help.contains(&command.to_uppercase()), shown, "{command}");
    }
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
