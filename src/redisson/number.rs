//! Numbers as Redisson's scripts compute with them: Lua has doubles only.

use crate::config::LONGEST;

/// A whole number that Lua, the server and Rust read alike. Others are left to Lua.
pub use crate::keyspace::stored::number as whole;

/// As Lua holds it.
#[allow(clippy::cast_precision_loss)]
pub fn double(number: i64) -> f64 {
    number as f64
}

/// As the server replies it: cut off, and the least number where it does not fit.
#[allow(clippy::cast_possible_truncation)]
pub fn reply(number: f64) -> i64 {
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    if (-BEYOND..BEYOND).contains(&number) {
        number as i64
    } else {
        i64::MIN
    }
}

/// A time to live in whole milliseconds; what is out of range becomes the nearest end of it.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub fn duration(number: f64) -> u64 {
    (number as u64).min(LONGEST.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_whole_numbers_are_read() {
        assert_eq!(whole(b"0"), Some(0));
        assert_eq!(whole(b"-1"), Some(-1));
        assert_eq!(whole(b"1795248224275"), Some(1_795_248_224_275));
        assert_eq!(whole(b"9223372036854775807"), Some(i64::MAX));
        for text in [
            "",
            "-",
            "-0",
            "+1",
            "01",
            "1.5",
            "1e3",
            "0x10",
            " 1",
            "1 ",
            "inf",
            "9223372036854775808",
        ] {
            assert_eq!(whole(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn replies_are_cut_off_and_the_least_where_they_do_not_fit() {
        for (number, expected) in [
            (1.9, 1),
            (-1.9, -1),
            (-9_223_372_036_854_775_808.0, i64::MIN),
            (9_223_372_036_854_775_808.0, i64::MIN),
            (f64::INFINITY, i64::MIN),
            (f64::NEG_INFINITY, i64::MIN),
            (f64::NAN, i64::MIN),
        ] {
            assert_eq!(reply(number), expected, "{number}");
        }
    }
}
