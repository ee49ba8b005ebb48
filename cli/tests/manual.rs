//! The manual, `packaging/man`, says what the program says of itself. After a change of the command line
//! `make manual` writes it anew.

#![allow(missing_docs)]
// A test that cannot go on panics; that is its way of failing.
#![allow(clippy::expect_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use clap::CommandFactory as _;
use fairlock_cli::args::Args;

fn pages(folder: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let read = |path: std::path::PathBuf| {
        let name = path.file_name().expect("a name").to_string_lossy();
        (
            name.into_owned(),
            fs::read_to_string(&path).expect("a page"),
        )
    };
    paths.map(read).collect()
}

#[test]
fn the_manual_says_what_the_program_does() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/man");
    let fresh = tempfile::tempdir().expect("a temporary directory");
    // A page for `help` would only say how to get help.
    let command = Args::command().disable_help_subcommand(true);
    clap_mangen::generate_to(command, fresh.path()).expect("the manual");
    let fresh = pages(fresh.path());
    if std::env::var_os("RECORD_MANUAL").is_some() {
        fs::create_dir_all(&folder).expect("a folder");
        for (name, page) in &fresh {
            fs::write(folder.join(name), page).expect("written");
        }
    }
    assert_eq!(pages(&folder), fresh);
}
