//! `FAIRLOCK.HELP`.

use crate::server::Server;

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
