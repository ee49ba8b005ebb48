//! Going back to a server without the module where MODULE UNLOAD is not allowed, as on a stock server.

use fairlock_testing::Server;

use crate::scene::AOF;

#[test]
fn without_enable_module_command_unloading_needs_a_restart() {
    let (server, mut client) = Server::connected_with(AOF);
    let token = client.int("FAIRLOCK.ACQUIRE k ann LEASE 600000");
    client.run("FAIRLOCK.ACQUIRE k bob ENQUEUE");
    client.assert_has("MODULE UNLOAD fairlock", "enable-module-command");
    let error = client.run("CONFIG SET enable-module-command yes");
    assert!(
        error.starts_with("(error) ") && error.contains("immutable"),
        "{error}"
    );
    client.assert_has("FAIRLOCK.HELP", "FAIRLOCK.ACQUIRE");

    let server = server.kill_and_restart_without_module(AOF);
    let mut client = server.connect();
    client.assert_start("FAIRLOCK.HELP", "(error) ERR unknown command");
    // What scripts go on with: the holder, its hold count and the queue; and a field that they do not look at.
    client.assert_reply("HGET k ann", "1");
    assert_eq!(client.token("k"), token);
    client.assert_reply("LRANGE redisson_lock_queue:{k} 0 -1", "[bob]");
    assert!(client.int("PTTL k") > 0);
}

#[test]
fn a_server_without_the_module_refuses_its_options() {
    let server = Server::start();
    let mut command = std::process::Command::new("redis-server");
    command.args(["--port", "0", "--fairlock.lease", "10000", "--unixsocket"]);
    let socket = server.dir().join("other.sock");
    let output = command.arg(socket).output().expect("started");
    assert!(!output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("without loadmodule"), "{said}");
}
