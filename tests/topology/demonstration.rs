//! `make cluster` starts one on any machine, and leaves nothing behind.

use std::path::Path;
use std::process::{Command, Stdio};

use fairlock_testing::Server;
use tempfile::TempDir;

#[test]
fn the_cluster_that_is_started_for_users_is_complete_and_leaves_nothing_behind() {
    let module = Server::start().module_path();
    let work = TempDir::new().expect("a temporary directory");
    let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/demo/start"))
        .args(["6", &module])
        .env("DEMO_ONLY", "1")
        .env("TMPDIR", work.path())
        .stdin(Stdio::null())
        .output()
        .expect("the script starts");
    let shown = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{shown}\n{errors}");
    assert!(shown.starts_with("A cluster of six nodes"), "{shown}");
    let left = work.path().read_dir().expect("a directory").count();
    assert_eq!(left, 0, "it leaves its directory behind");
}
