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

/// A duration in the two units that matter: `850ms`, `18.2s`, `2m05s`, `1h02m`, `3d04h`.
pub fn duration(duration: Duration) -> String {
    let micros = duration.as_micros();
    let (millis, seconds) = (duration.as_millis(), duration.as_secs());
    if micros < 1000 {
        return format!("{micros}us");
    }
    if micros < 10_000 {
        return format!("{}.{}ms", millis, micros % 1000 / 100);
    }
    if millis < 1000 {
        return format!("{millis}ms");
    }
    if seconds < 60 {
        return format!("{seconds}.{}s", millis % 1000 / 100);
    }
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    if hours == 0 {
        return format!("{minutes}m{:02}s", seconds % 60);
    }
    if days == 0 {
        return format!("{hours}h{:02}m", minutes % 60);
    }
    format!("{days}d{:02}h", hours % 24)
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
    fn durations_show_the_units_that_matter() {
        for (micros, shown) in [
            (0, "0us"),
            (999, "999us"),
            (1_000, "1.0ms"),
            (9_990, "9.9ms"),
            (850_000, "850ms"),
            (18_240_000, "18.2s"),
            (59_999_000, "59.9s"),
            (125_000_000, "2m05s"),
            (3_720_000_000, "1h02m"),
            (273_600_000_000, "3d04h"),
        ] {
            assert_eq!(duration(Duration::from_micros(micros)), shown);
        }
        assert_eq!(millis(-1), "?");
        assert_eq!(millis(1500), "1.5s");
    }
}
