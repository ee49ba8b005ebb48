//! The releases of Redisson for tests, and where they lie.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::paths;

/// Releases whose scripts or client differ from the one before in a way that matters here. 3.24.0 was released without
/// its parent, so it cannot be resolved.
const ALL: &[&str] = &[
    "3.11.0", "3.11.1", "3.16.8", "3.24.1", "3.31.0", "3.32.0", "3.37.0", "3.45.0", "3.52.0",
    "4.7.0",
];
/// The newest release.
pub const NEWEST: &str = "4.7.0";
/// The first release with today's scores.
pub const OLD: &str = "3.11.1";

/// The releases to test: the newest, or those that `REDISSON_RELEASES` names.
pub fn releases() -> Vec<String> {
    let wanted = std::env::var("REDISSON_RELEASES").unwrap_or_default();
    let owned = |releases: &[&str]| releases.iter().map(ToString::to_string).collect();
    match wanted.trim() {
        "" => owned(&[NEWEST]),
        "all" => owned(ALL),
        list => list.split_whitespace().map(str::to_owned).collect(),
    }
}

/// Does something with each release to test.
pub fn each_release(test: impl Fn(&str)) {
    for release in releases() {
        // Shown when the test fails.
        println!("Redisson {release}");
        test(&release);
    }
}

/// The folder with a release, its dependencies and the driver compiled for it: a class path. It is fetched if missing.
pub fn folder(release: &str) -> PathBuf {
    let folder = paths::target().join("redisson");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("redisson/fetch");
    // It does nothing if nothing is missing, and several may run at a time.
    let fetched = Command::new(script).arg(&folder).arg(release).status();
    assert!(
        fetched.expect("the script").success(),
        "Redisson {release} is not to be had"
    );
    folder.join(release)
}
