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

#[test]
fn every_command_has_a_page_that_says_what_the_server_says() {
    let (_server, mut client) = Server::connected();
    let commands = client.commands();
    let list = text(&root().join("docs/commands/README.md"));
    for command in &commands {
        // One page has both commands that intercepted scripts become.
        let name = command.to_lowercase().replace("evalsha", "eval");
        let path = root().join(format!("docs/commands/{name}.md"));
        let page = text(&path);
        assert!(list.contains(&format!("]({name}.md)")), "{name}");
        let docs = client.run(&format!("COMMAND DOCS fairlock.{command}"));
        for field in ["summary", "since", "complexity"] {
            let value = field_of(&docs, field);
            assert!(
                page.contains(&value),
                "{name}: the server says {field}: {value}"
            );
        }
    }
    assert!(commands.len() >= 12, "{commands:?}");
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

/// A field of COMMAND DOCS; the next field ends it.
fn field_of(docs: &str, field: &str) -> String {
    let start = docs.split(&format!("{field}, ")).nth(1).expect(field);
    let ends = ["since", "group", "complexity", "module", "arguments"];
    let ends = ends.map(|next| start.find(&format!(", {next}, ")).unwrap_or(start.len()));
    let value = &start[..ends.into_iter().min().expect("an end")];
    // The client library's way to show bytes.
    value.replace("\\'", "'")
}

#[test]
fn every_field_of_info_is_documented_and_no_other() {
    let server = Server::start();
    let info = server.connect().run("INFO fairlock");
    let page = text(&root().join("docs/monitoring.md"));
    let fields: Vec<&str> = info
        .lines()
        .filter_map(|line| line.strip_prefix("fairlock_")?.split(':').next())
        .collect();
    let documented: Vec<&str> = page
        .split("`fairlock_")
        .skip(1)
        .filter_map(|rest| rest.split('`').next())
        .collect();
    // `name_*` stands for many: all bounds of a histogram.
    let is = |documented: &str, field: &str| match documented.strip_suffix('*') {
        Some(start) => field.starts_with(start),
        None => documented == field,
    };
    for field in &fields {
        let found = documented.iter().any(|name| is(name, field));
        assert!(found, "not documented: {field}");
    }
    for name in &documented {
        let found = fields.iter().any(|field| is(name, field));
        assert!(found, "not in INFO: {name}");
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
