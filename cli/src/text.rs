//! Names and durations as people read them.

use std::fmt::Write as _;
use std::time::Duration;

/// Any bytes on one line: printable text as it is, a backslash doubled, all else escaped.
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                // Rust would escape them in a literal; here they stand for themselves.
                '"' | '\'' => text.push(char),
                _ => text.extend(char.escape_debug()),
            }
        }
        for byte in chunk.invalid() {
            // Writing to a string does not fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// As [`escape`], and a name that could be taken for two words or for none is put in quotes.
pub fn word(bytes: &[u8]) -> String {
    let text = escape(bytes);
    if text.is_empty() || text.contains([' ', '"', '=']) {
        return format!("\"{}\"", text.replace('"', "\\\""));
    }
    text
}

/// A duration in its two greatest units, as the command line takes them: `850ms`, `18s240ms`, `2m5s`, `3days4h`.
pub fn duration(duration: Duration) -> String {
    let text = humantime::format_duration(duration).to_string();
    text.split(' ').take(2).collect()
}

/// Milliseconds as [`duration`] shows them; `?` if unknown.
pub fn millis(millis: i64) -> String {
    u64::try_from(millis).map_or_else(
        |_| "?".to_owned(),
        |millis| duration(Duration::from_millis(millis)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_become_one_printable_line_and_one_word() {
        for (bytes, escaped, as_word) in [
            (&b"orders:7"[..], "orders:7", "orders:7"),
            ("Zürich🔒".as_bytes(), "Zürich🔒", "Zürich🔒"),
            (b"it's \"so\"", "it's \"so\"", "\"it's \\\"so\\\"\""),
            (
                b"a\n\x1b[31m\\\0",
                "a\\n\\u{1b}[31m\\\\\\0",
                "a\\n\\u{1b}[31m\\\\\\0",
            ),
            (b"a\xffb\xc3", "a\\xffb\\xc3", "a\\xffb\\xc3"),
            ("\u{202e}a".as_bytes(), "\\u{202e}a", "\\u{202e}a"),
            (b"", "", "\"\""),
            (b"a=b", "a=b", "\"a=b\""),
        ] {
            assert_eq!(
                (escape(bytes).as_str(), word(bytes).as_str()),
                (escaped, as_word)
            );
        }
    }

    #[test]
    fn durations_show_two_units_and_can_be_typed_again() {
        for (micros, shown) in [
            (0, "0s"),
            (9_990, "9ms990us"),
            (850_000, "850ms"),
            (125_000_000, "2m5s"),
            (273_605_000_000, "3days4h"),
        ] {
            let text = duration(Duration::from_micros(micros));
            assert_eq!(text, shown);
            assert!(humantime::parse_duration(&text).is_ok());
        }
        assert_eq!(millis(-1), "?");
        assert_eq!(millis(1500), "1s500ms");
    }
}
