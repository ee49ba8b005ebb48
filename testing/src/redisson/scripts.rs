//! Scripts of a release, taken from its jar: the compiler leaves each as one constant of the class.

use std::io::Read as _;
use std::path::Path;
use std::sync::LazyLock;

use anyhow::{Context as _, Result};
use sha1::{Digest as _, Sha1};

use crate::redisson::{NEWEST, jar};

/// SHA-1, length and role of the scripts that the module knows.
const TABLE: &str = include_str!("../../../src/redisson/scripts.tsv");

/// One script.
#[derive(Clone, Debug)]
pub struct Script {
    /// Its text.
    pub text: Vec<u8>,
    /// Its SHA-1 in hexadecimal digits.
    pub sha1: String,
}

/// The scripts that are measured.
#[derive(Clone, Debug)]
pub struct Scripts {
    /// Takes the lock if it is available now.
    pub try_lock: Script,
    /// Takes the lock or joins the queue.
    pub lock: Script,
    /// Gives up one hold.
    pub unlock: Script,
}

impl Scripts {
    /// Those of the newest release, which is fetched if missing.
    pub fn newest() -> &'static Self {
        static SCRIPTS: LazyLock<Scripts> =
            LazyLock::new(|| Scripts::of(&jar(NEWEST)).expect("its scripts"));
        &SCRIPTS
    }

    /// Those of a release's jar.
    pub fn of(jar: &Path) -> Result<Self> {
        let file = std::fs::File::open(jar).with_context(|| jar.display().to_string())?;
        let mut archive = zip::ZipArchive::new(file)?;
        let mut class = Vec::new();
        let mut entry = archive.by_name("org/redisson/RedissonFairLock.class")?;
        entry.read_to_end(&mut class)?;
        let constants = constants(&class).context("a class file")?;
        let of = |role| {
            let found = constants.iter().find_map(|text| known(text, role));
            found.with_context(|| format!("{}: no {role} script", jar.display()))
        };
        Ok(Self {
            try_lock: of("try-lock")?,
            lock: of("lock")?,
            unlock: of("unlock")?,
        })
    }
}

fn known(text: &[u8], role: &str) -> Option<Script> {
    let digest = Sha1::digest(text);
    let sha1 = format!("{digest:x}");
    let line = TABLE.lines().find(|line| line.starts_with(&sha1))?;
    (line.split('\t').nth(2) == Some(role)).then(|| Script {
        text: text.to_vec(),
        sha1,
    })
}

/// The strings in a class file's pool of constants (The Java Virtual Machine Specification, 4.4).
fn constants(class: &[u8]) -> Option<Vec<&[u8]>> {
    let number = |at: usize| {
        let bytes = class.get(at..at + 2)?;
        Some(usize::from(u16::from_be_bytes(bytes.try_into().ok()?)))
    };
    let count = number(8)?;
    let (mut at, mut index) = (10, 1);
    let mut strings = Vec::new();
    while index < count {
        let tag = class.get(at)?;
        let length = match tag {
            1 => {
                let length = number(at + 1)?;
                strings.push(class.get(at + 3..at + 3 + length)?);
                3 + length
            }
            7 | 8 | 16 | 19 | 20 => 3,
            15 => 4,
            3 | 4 | 9..=12 | 17 | 18 => 5,
            5 | 6 => 9,
            _ => return None,
        };
        // Numbers of eight bytes count for two.
        index += if matches!(tag, 5 | 6) { 2 } else { 1 };
        at += length;
    }
    Some(strings)
}
