//! Finds a script of the table by its text or its digest.

use std::cell::RefCell;
use std::collections::HashMap;

use foldhash::fast::RandomState;
use sha1::{Digest as _, Sha1};

use super::table::{Script, scripts};

/// How many texts are remembered: all of Redisson's, and as many of other clients, so that these are not hashed each
/// time either.
const TEXTS: usize = 64;

type Known = HashMap<Box<[u8]>, Option<&'static Script>, RandomState>;

thread_local! {
    static KNOWN: RefCell<Known> = RefCell::default();
}

/// The script with this digest, given as hexadecimal digits.
pub fn by_digest(hex: &[u8]) -> Option<&'static Script> {
    let mut scripts = scripts().iter();
    scripts.find(|script| hex.eq_ignore_ascii_case(script.hex.as_bytes()))
}

/// The script with this text.
pub fn by_text(text: &[u8]) -> Option<&'static Script> {
    if !scripts().iter().any(|script| script.length == text.len()) {
        return None;
    }
    KNOWN.with_borrow_mut(|known| {
        if let Some(script) = known.get(text) {
            return *script;
        }
        if known.len() == TEXTS {
            known.clear();
        }
        let script = by_digest(format!("{:x}", Sha1::digest(text)).as_bytes());
        known.insert(Box::from(text), script);
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
            let all_but_one = [&script.hex.as_bytes()[1..], b"x"].concat();
            assert!(by_digest(&all_but_one).is_none() && by_digest(&all_but_one[..39]).is_none());
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
        assert!(KNOWN.with_borrow(HashMap::len) <= TEXTS);
    }
}
