//! Finds a script of the table by its text or its digest.

use std::cell::RefCell;
use std::collections::HashMap;

use foldhash::fast::RandomState;
use sha1::{Digest as _, Sha1};

use super::table::{Script, scripts};

/// How many words are remembered: all texts and digests of Redisson's, and as many of other clients, so that these are
/// not looked for each time either.
const WORDS: usize = 128;

/// Length of a digest. No script is as short.
const DIGITS: usize = 40;

type Known = HashMap<Box<[u8]>, Option<&'static Script>, RandomState>;

thread_local! {
    static KNOWN: RefCell<Known> = RefCell::default();
}

/// The script with this digest, given as hexadecimal digits.
pub fn by_digest(hex: &[u8]) -> Option<&'static Script> {
    (hex.len() == DIGITS).then(|| remembered(hex, search))?
}

/// The script with this text.
pub fn by_text(text: &[u8]) -> Option<&'static Script> {
    if !scripts().iter().any(|script| script.length == text.len()) {
        return None;
    }
    remembered(text, |text| {
        search(format!("{:x}", Sha1::digest(text)).as_bytes())
    })
}

fn search(hex: &[u8]) -> Option<&'static Script> {
    let mut scripts = scripts().iter();
    scripts.find(|script| hex.eq_ignore_ascii_case(script.hex.as_bytes()))
}

/// The answer for a text or a digest, which have different lengths.
fn remembered(word: &[u8], find: fn(&[u8]) -> Option<&'static Script>) -> Option<&'static Script> {
    KNOWN.with_borrow_mut(|known| {
        if let Some(script) = known.get(word) {
            return *script;
        }
        if known.len() == WORDS {
            known.clear();
        }
        let script = find(word);
        known.insert(Box::from(word), script);
        script
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_of_the_table_are_recognised_and_no_others() {
        for script in scripts() {
            let upper = script.hex.to_uppercase();
            assert!(by_digest(script.hex.as_bytes()).is_some_and(|found| found.hex == script.hex));
            let found = by_digest(upper.as_bytes()).map(|found| found.hex);
            assert_eq!(found, Some(script.hex));
        }
        assert!(by_digest(&[b'0'; 40]).is_none());
        assert!(by_digest(b"").is_none());
    }

    #[test]
    fn texts_of_others_are_not_taken_for_scripts_of_the_table() {
        let lengths = scripts().iter().map(|script| script.length);
        for length in lengths.chain([0, 1, 10_000]) {
            // More than are remembered, each twice.
            for round in 0..20_u8 {
                let text = vec![b'a' + round % 10; length];
                assert!(by_text(&text).is_none());
            }
        }
        assert!(KNOWN.with_borrow(HashMap::len) <= WORDS);
    }
}
