//! Where things lie: the sources, and what cargo and the tests build.

use std::path::{Path, PathBuf};

/// The folder of the repository.
pub fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("the folder above this crate's")
}

/// All files in a folder and those below.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let below = |path: PathBuf| {
        if path.is_dir() {
            files(&path)
        } else {
            vec![path]
        }
    };
    paths.flat_map(below).collect()
}

/// The folder that cargo builds into: above that of the profile, in whose `deps` tests lie.
pub fn target() -> PathBuf {
    let program = std::env::current_exe().expect("the path of this program");
    let mut above = program.ancestors();
    let profile = above.find(|folder| folder.join("deps").is_dir());
    let target = profile.and_then(Path::parent);
    target.expect("cargo's folder").to_owned()
}
