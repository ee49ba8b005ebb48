//! Which script a text or a digest is, beside a plain search of the table.

use fairlock::redisson::recognise::{by_digest, by_text};
use fairlock::redisson::table::{Script, scripts};
use fastrand::Rng;
use sha1::{Digest, Sha1};

use crate::words::bytes;

#[test]
fn scripts_are_recognised_whatever_was_asked_before() {
    let mut rng = Rng::with_seed(1);
    for _ in 0..20_000 {
        let script = &scripts()[rng.usize(..scripts().len())];
        match rng.usize(..5) {
            0 => check_digest(script.hex.to_uppercase().as_bytes()),
            1 => check_digest(&nearly(script.hex, &mut rng)),
            2 => check_digest(&bytes(&mut rng)),
            3 => check_text(&bytes(&mut rng)),
            // As long as one of the table's, or nearly so; few, so that they are asked for again.
            _ => check_text(&vec![rng.u8(..2); script.length - rng.usize(..2)]),
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

/// A digest but for one byte.
fn nearly(digest: &str, rng: &mut Rng) -> Vec<u8> {
    let mut digest = digest.as_bytes().to_vec();
    let at = rng.usize(..digest.len());
    digest[at] = rng.u8(..);
    digest
}
