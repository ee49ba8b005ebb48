//! Where things lie: the sources, and what cargo and the tests build.

use std::path::{Path, PathBuf};

/// The folder of the repository.
pub fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("the folder above this crate's")
}

/// The folder that cargo builds into: above that of the profile, in whose `deps` tests lie.
pub fn target() -> PathBuf {
    let program = std::env::current_exe().expect("the path of this program");
    let mut above = program.ancestors();
    let profile = above.find(|folder| folder.join("deps").is_dir());
    let target = profile.and_then(Path::parent);
    target.expect("cargo's folder").to_owned()
}
