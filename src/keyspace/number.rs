//! Numbers as the keys have them.

use crate::lock::Wall;

/// A whole number as the server would read it in a command: not "+1", "-0" or "007", which Rust takes, too.
pub fn number(bytes: &[u8]) -> Option<i64> {
    let (sign, digits) = match bytes {
        b"0" => return Some(0),
        [b'-', digits @ ..] => (-1, digits),
        digits => (1, digits),
    };
    digits.first().filter(|first| **first != b'0')?;
    digits.iter().try_fold(0_i64, |number, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        let digit = sign * i64::from(digit);
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// A score as an instant. Foreign scores can be fractions, negative, huge.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub fn instant(score: f64) -> Wall {
    // `as` saturates at the ends of the range, and makes NaN 0.
    Wall::of(score as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_the_server_reads_them() {
        assert_eq!(number(b"42"), Some(42));
        assert_eq!(number(b"-7"), Some(-7));
        assert_eq!(number(b"0"), Some(0));
        assert_eq!(number(b"999999999999999999"), Some(999_999_999_999_999_999));
        assert_eq!(
            number(b"-999999999999999999"),
            Some(-999_999_999_999_999_999)
        );
        assert_eq!(number(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(number(b"-9223372036854775808"), Some(i64::MIN));
        for text in [
            &b""[..],
            b"+1",
            b"007",
            b"-0",
            b"-",
            b" 1",
            b"1.0",
            b"1e3",
            b"0x10",
            b"12345678901234567x",
            b"9\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            b"9223372036854775808",
            b"\xff",
        ] {
            assert_eq!(number(text), None, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn any_score_is_an_instant() {
        let millis = |score| instant(score).millis();
        assert_eq!(millis(1_700_000_000_000.75), 1_700_000_000_000);
        assert_eq!(millis(-5.0), 0);
        assert_eq!(millis(f64::INFINITY), u64::MAX);
        assert_eq!(millis(f64::NAN), 0);
    }
}
