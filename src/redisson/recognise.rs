//! Finds a script of the table by its text or its digest.

use std::cell::RefCell;
use std::collections::HashMap;

use foldhash::fast::RandomState;
use sha1::{Digest as _, Sha1};

use super::table::{Digest, Script, scripts, start};

/// How many texts of one length are remembered. Redisson's scripts rarely share a length. The other places are
/// for scripts of other clients, so that these are not digested each time either.
const TEXTS: usize = 4;

#[derive(Default)]
struct Texts {
    known: Vec<(Box<[u8]>, Option<&'static Script>)>,
    /// The index of the text that the next one replaces.
    oldest: usize,
}

struct Recogniser {
    by_digest: HashMap<Digest, &'static Script, RandomState>,
    /// The texts that were seen, for each length that a script of the table has.
    by_length: HashMap<usize, Texts, RandomState>,
    longest: usize,
}

impl Recogniser {
    fn new() -> Self {
        Self {
            by_digest: scripts()
                .iter()
                .map(|script| (script.digest, script))
                .collect(),
            by_length: scripts()
                .iter()
                .map(|script| (script.length, Texts::default()))
                .collect(),
            longest: scripts()
                .iter()
                .map(|script| script.length)
                .max()
                .unwrap_or(0),
        }
    }
}

thread_local! {
    static RECOGNISER: RefCell<Recogniser> = RefCell::new(Recogniser::new());
}

/// The script with this digest, given as hexadecimal digits. There are so few scripts that comparing the first
/// digits of each is cheaper than a hash table.
#[must_use]
pub fn by_digest(hex: &[u8]) -> Option<&'static Script> {
    let start = hex.first_chunk().copied().map(start)?;
    let mut scripts = scripts().iter().filter(|script| script.start == start);
    // Clients send lower-case digits.
    scripts.find(|script| {
        let digits = script.hex.as_bytes();
        hex == digits || hex.eq_ignore_ascii_case(digits)
    })
}

/// The script with this text. A text that is remembered costs only a comparison.
#[must_use]
pub fn by_text(text: &[u8]) -> Option<&'static Script> {
    RECOGNISER.with_borrow_mut(|memory| {
        if text.len() > memory.longest {
            return None;
        }
        let Recogniser {
            by_digest,
            by_length,
            ..
        } = memory;
        let texts = by_length.get_mut(&text.len())?;
        if let Some((_, script)) = texts.known.iter().find(|(known, _)| **known == *text) {
            return *script;
        }
        let digest: Digest = Sha1::digest(text).into();
        let script = by_digest.get(&digest).copied();
        texts.remember(text, script);
        script
    })
}

impl Texts {
    fn remember(&mut self, text: &[u8], script: Option<&'static Script>) {
        let entry = (Box::from(text), script);
        if self.known.len() < TEXTS {
            self.known.push(entry);
        } else if let Some(oldest) = self.known.get_mut(self.oldest) {
            *oldest = entry;
            self.oldest = (self.oldest + 1) % TEXTS;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_of_the_table_are_recognised_and_no_others() {
        for script in scripts() {
            let upper = script.hex.to_uppercase();
            assert!(by_digest(script.hex.as_bytes()).is_some_and(|found| found.hex == script.hex));
            let found = by_digest(upper.as_bytes()).map(|found| found.digest);
            assert_eq!(found, Some(script.digest));
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
        RECOGNISER.with_borrow(|memory| {
            let most = memory.by_length.values().map(|texts| texts.known.len());
            assert_eq!(most.max(), Some(TEXTS));
        });
    }
}
