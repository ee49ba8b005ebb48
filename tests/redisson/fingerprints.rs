//! The table of scripts in `src/redisson/scripts.tsv` says what the releases themselves show.
//!
//! `make fingerprints RELEASES="4.8.0"` runs the clients of these releases and writes what is new
//! into the table. A script that changed then needs a native form in `src/redisson/table.rs`.

use std::path::Path;

use fairlock_testing::redisson::harvest::{Script, harvest};
use fairlock_testing::redisson::releases;

const TABLE: &str = "src/redisson/scripts.tsv";
const HEADER: &str = "sha1\tbytes\trole\tkeys\targuments\tfirst\tlast";

/// Roles in the table's order.
const ROLES: [&str; 8] = [
    "try-lock",
    "lock",
    "unlock",
    "force-unlock",
    "leave",
    "renew",
    "try-lock-non-reentrant",
    "lock-non-reentrant",
];

#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    sha1: String,
    bytes: String,
    role: String,
    keys: String,
    arguments: String,
    first: String,
    last: String,
}

#[test]
fn the_table_knows_every_script_of_the_releases() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(TABLE);
    let written = std::fs::read_to_string(&path).expect("the table");
    let mut rows: Vec<Row> = written.lines().skip(1).map(row).collect();
    for release in releases() {
        for script in harvest(&release) {
            add(&mut rows, &release, &script);
        }
    }
    rows.sort_by_key(|row| (place(&row.role), version(&row.first)));
    let lines = rows.iter().map(text);
    let lines: Vec<String> = std::iter::once(HEADER.to_owned()).chain(lines).collect();
    let table = lines.join("\n") + "\n";
    if std::env::var_os("RECORD_FINGERPRINTS").is_some() {
        std::fs::write(path, table).expect("written");
    } else {
        assert_eq!(table, written, "run make fingerprints");
    }
}

fn row(line: &str) -> Row {
    let mut words = line.split('\t').map(str::to_owned);
    let mut word = || words.next().expect("seven columns");
    Row {
        sha1: word(),
        bytes: word(),
        role: word(),
        keys: word(),
        arguments: word(),
        first: word(),
        last: word(),
    }
}

fn text(row: &Row) -> String {
    [
        &row.sha1,
        &row.bytes,
        &row.role,
        &row.keys,
        &row.arguments,
        &row.first,
        &row.last,
    ]
    .map(String::as_str)
    .join("\t")
}

fn add(rows: &mut Vec<Row>, release: &str, script: &Script) {
    let mut found = Row {
        sha1: script.sha1.clone(),
        bytes: script.text.len().to_string(),
        role: script.role.to_owned(),
        keys: script.keys.to_string(),
        arguments: script.arguments.to_string(),
        first: release.to_owned(),
        last: release.to_owned(),
    };
    if script.renews_many() {
        "n".clone_into(&mut found.keys);
        "n+1".clone_into(&mut found.arguments);
    }
    let Some(known) = rows.iter_mut().find(|row| row.sha1 == found.sha1) else {
        rows.push(found);
        return;
    };
    if version(release) < version(&known.first) {
        release.clone_into(&mut known.first);
    }
    if version(release) > version(&known.last) {
        release.clone_into(&mut known.last);
    }
    found.first.clone_from(&known.first);
    found.last.clone_from(&known.last);
    assert_eq!(*known, found, "Redisson {release}");
}

fn place(role: &str) -> usize {
    let place = ROLES.iter().position(|other| *other == role);
    place.expect("a known role")
}

fn version(release: &str) -> Vec<u32> {
    let parts = release
        .split('.')
        .map(|part| part.parse().expect("a number"));
    parts.collect()
}
