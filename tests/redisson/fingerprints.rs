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

/// A line of the table.
struct Row {
    /// Its digest, length, role, numbers of keys and of arguments.
    script: Vec<String>,
    /// Releases.
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
    rows.sort_by_key(|row| (place(&row.script[2]), version(&row.first)));
    let text = |row: &Row| format!("{}\t{}\t{}", row.script.join("\t"), row.first, row.last);
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
    let words: Vec<String> = line.split('\t').map(str::to_owned).collect();
    let [script @ .., first, last] = &words[..] else {
        panic!("{line}");
    };
    Row {
        script: script.to_vec(),
        first: first.clone(),
        last: last.clone(),
    }
}

fn add(rows: &mut Vec<Row>, release: &str, script: &Script) {
    let (keys, arguments) = if script.renews_many() {
        ("n".to_owned(), "n+1".to_owned())
    } else {
        (script.keys.to_string(), script.arguments.to_string())
    };
    let (bytes, role) = (script.text.len().to_string(), script.role.to_owned());
    let found = [script.sha1.clone(), bytes, role, keys, arguments];
    let Some(known) = rows.iter_mut().find(|row| row.script[0] == found[0]) else {
        rows.push(Row {
            script: found.to_vec(),
            first: release.to_owned(),
            last: release.to_owned(),
        });
        return;
    };
    assert_eq!(known.script, found, "Redisson {release}");
    if version(release) < version(&known.first) {
        release.clone_into(&mut known.first);
    }
    if version(release) > version(&known.last) {
        release.clone_into(&mut known.last);
    }
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
