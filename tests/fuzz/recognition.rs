//! Which script a text or a digest is, beside a plain search of the table.

use fairlock::redisson::recognise::{by_digest, by_text};
use fairlock::redisson::table::{Script, scripts};
use sha1::{Digest, Sha1};

/// Asks for texts and digests in turn: which ones were asked for before must not matter.
pub fn check(data: &[u8]) {
    for question in data.split(|byte| *byte == b'\n') {
        let Some((kind, rest)) = question.split_first() else {
            continue;
        };
        match kind % 4 {
            0 => check_digest(rest),
            1 => check_digest(&nearly_known(rest)),
            2 => check_text(rest),
            _ => check_text(&of_a_known_length(rest)),
        }
    }
}

fn hex(script: Option<&Script>) -> Option<&str> {
    script.map(|script| script.hex)
}

fn check_digest(text: &[u8]) {
    let known = |script: &&Script| text.eq_ignore_ascii_case(script.hex.as_bytes());
    let expected = scripts().iter().find(known);
    assert_eq!(hex(by_digest(text)), hex(expected));
}

fn check_text(text: &[u8]) {
    let digest = format!("{:x}", Sha1::digest(text));
    let expected = scripts().iter().find(|script| script.hex == digest);
    for _ in 0..2 {
        assert_eq!(hex(by_text(text)), hex(expected));
    }
}

/// A digest of the table, but for one byte.
fn nearly_known(bytes: &[u8]) -> Vec<u8> {
    let byte = |at: usize| bytes.get(at).copied().unwrap_or_default();
    let script = &scripts()[usize::from(byte(0)) % scripts().len()];
    let mut digest = script.hex.as_bytes().to_vec();
    if byte(1) > 0 {
        let at = usize::from(byte(1)) % digest.len();
        digest[at] = byte(2);
    }
    digest
}

/// A text as long as one of the table's, or nearly so.
fn of_a_known_length(bytes: &[u8]) -> Vec<u8> {
    let Some((first, rest)) = bytes.split_first() else {
        return Vec::new();
    };
    let script = &scripts()[usize::from(*first) % scripts().len()];
    let length = script.length - usize::from(*first > 250);
    let fill = if rest.is_empty() { b" " } else { rest };
    fill.iter().copied().cycle().take(length).collect()
}
