//! What a newcomer runs.

use std::process::Command;

use fairlock_testing::Server;

#[test]
fn the_demonstration_shows_what_it_says() {
    let server = Server::start();
    let output = Command::new("scripts/demo/on-a-server")
        .arg(server.port.to_string())
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("the script");
    let shown = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{shown}{errors}");
    assert!(shown.contains("dave holds the lock now"), "{shown}");
}
