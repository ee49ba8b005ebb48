//! Where things lie: the sources, and what cargo and the tests build.

use std::path::{Path, PathBuf};

/// The folder of the repository.
pub fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("the folder above this crate's")
}

/// The folder that cargo builds into, which it marks: the nearest such one above the running program.
pub fn target() -> PathBuf {
    let program = std::env::current_exe().expect("the path of this program");
    let mut above = program.ancestors();
    let target = above.find(|folder| folder.join("CACHEDIR.TAG").exists());
    target.expect("cargo's folder").to_owned()
}
