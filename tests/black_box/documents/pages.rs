//! The pages say what the server says: of each command, of INFO. Their links lead somewhere.

use std::fs;
use std::path::{Path, PathBuf};

use fairlock_testing::paths::{files, root};
use fairlock_testing::{Server, show};

/// All pages.
pub fn pages() -> Vec<PathBuf> {
    let folders = ["docs", "clients", "examples"];
    let mut pages: Vec<PathBuf> = folders.map(pages_in).concat();
    pages.extend(["README.md", "CHANGELOG.md", "SECURITY.md"].map(|name| root().join(name)));
    pages
}

/// The pages in a folder and those below.
fn pages_in(folder: &str) -> Vec<PathBuf> {
    let mut pages = files(&root().join(folder));
    pages.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages
}

pub fn text(path: &Path) -> String {
    fs::read_to_string(path).expect("a page")
}

/// The calls that a page shows: code that is indented, in README behind the command's link.
fn calls(page: &str) -> Vec<String> {
    let indented = |line: &str| Some(line.strip_prefix("    FAIRLOCK.")?.to_owned());
    let linked = |line: &str| {
        let (name, rest) = line.strip_prefix("- [`FAIRLOCK.")?.split_once("`](")?;
        let (_, arguments) = rest.split_once(")`")?;
        Some([name, arguments.split('`').next()?].concat())
    };
    let call = |line| indented(line).or_else(|| linked(line));
    page.lines().filter_map(call).collect()
}

#[test]
fn pages_show_each_command_with_the_arguments_that_help_says() {
    let (_server, mut client) = Server::connected();
    let help = client.raw(&[b"FAIRLOCK.HELP"]).expect("a reply");
    let lines = help.as_sequence().expect("lines").iter().map(show);
    let call = |line: String| Some(line.strip_prefix("FAIRLOCK.")?.to_owned());
    let help: Vec<String> = lines.filter_map(call).collect();
    let mut shown = calls(&text(&root().join("README.md")));
    assert_eq!(shown.len(), 4, "{shown:?}");
    for page in pages_in("docs/commands") {
        shown.extend(calls(&text(&page)));
    }
    // HELP is silent about commands that clients never send.
    shown.retain(|call| !call.starts_with("EVAL"));
    for call in &shown {
        assert!(help.contains(call), "HELP has no {call}: {help:?}");
    }
    for call in &help {
        assert!(shown.contains(call), "no page has {call}");
    }
}

#[test]
fn every_field_of_info_is_documented() {
    let info = Server::start().connect().run("INFO fairlock");
    let page = text(&root().join("docs/monitoring.md"));
    for line in info.lines().filter(|line| line.contains(':')) {
        let field = line.split(':').next().expect("a name");
        // `name_*` stands for many.
        let is_named = |name: &str| match name.strip_suffix('*') {
            Some(start) => field.starts_with(start),
            None => name == field,
        };
        assert!(page.split('`').any(is_named), "{field}");
    }
}

#[test]
fn links_between_pages_lead_somewhere() {
    for path in pages() {
        let (page, folder) = (text(&path), path.parent().expect("a folder"));
        let links = page.split("](").skip(1);
        for link in links.filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap_or_default();
            let leads = file.contains("://") || folder.join(file).exists();
            assert!(leads, "{}: {link}", path.display());
        }
    }
}
