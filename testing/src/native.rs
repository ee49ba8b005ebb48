//! Libraries in C that tests build: modules for a test, and preloaded libraries.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::paths;

/// Builds a library from one source of the repository into a directory, by the compiler that `FAIRLOCK_TEST_CC` names
/// where the server is for another kind of machine.
pub fn library(source: &str, dir: &Path) -> PathBuf {
    let source = paths::root().join(source);
    let name = source.file_stem().expect("the name of a source");
    let library = dir.join(name).with_extension("so");
    let compiler = std::env::var_os("FAIRLOCK_TEST_CC").unwrap_or_else(|| "cc".into());
    let built = Command::new(compiler)
        .args(["-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&source)
        .status();
    assert!(built.expect("a C compiler").success());
    library
}
