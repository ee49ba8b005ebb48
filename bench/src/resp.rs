//! Just enough of the protocol for a client that must never be the limit: commands are encoded
//! once, replies are looked at where they lie. (What tests read replies with takes each apart.)

use std::io::Write as _;

/// A reply, or a message that was pushed (RESP3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// An integer.
    Integer(i64),
    /// Nil of any kind.
    Nil,
    /// A simple or bulk string.
    Text(&'a [u8]),
    /// An array or a map of that many elements, which were skipped.
    Array(usize),
    /// An array of two integers.
    Pair(i64, i64),
    /// A pushed message, skipped.
    Push,
    /// An error.
    Error(&'a [u8]),
}

/// Appends a command.
pub fn encode(out: &mut Vec<u8>, words: &[&[u8]]) {
    // Writing to a vector cannot fail.
    let _ = write!(out, "*{}\r\n", words.len());
    for word in words {
        let _ = write!(out, "${}\r\n", word.len());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// A command alone.
pub fn encoded(words: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out, words);
    out
}

/// The first reply in `input` and its length in bytes; `None` if it is not all there yet.
pub fn first(input: &[u8]) -> Option<(Reply<'_>, usize)> {
    let end = input.iter().position(|byte| *byte == b'\n')? + 1;
    let (kind, line) = input.get(..end.checked_sub(2)?)?.split_first()?;
    let after = input.get(end..)?;
    Some(match kind {
        b':' => (Reply::Integer(number(line)), end),
        b'+' => (Reply::Text(line), end),
        b'-' => (Reply::Error(line), end),
        b'$' => match usize::try_from(number(line)) {
            Ok(length) => {
                after.get(length + 1)?;
                (Reply::Text(after.get(..length)?), end + length + 2)
            }
            Err(_) => (Reply::Nil, end),
        },
        b'*' | b'>' | b'%' => {
            let Ok(elements) = usize::try_from(number(line)) else {
                return Some((Reply::Nil, end));
            };
            let each = if *kind == b'%' { 2 } else { 1 };
            let mut length = end;
            let mut last = [Reply::Nil; 2];
            for _ in 0..elements * each {
                let (element, more) = first(input.get(length..)?)?;
                last = [last[1], element];
                length += more;
            }
            let reply = match (kind, last) {
                (b'>', _) => Reply::Push,
                (b'*', [Reply::Integer(one), Reply::Integer(other)]) if elements == 2 => {
                    Reply::Pair(one, other)
                }
                _ => Reply::Array(elements),
            };
            (reply, length)
        }
        // Null, booleans, doubles: lines of their own.
        _ => (Reply::Nil, end),
    })
}

fn number(digits: &[u8]) -> i64 {
    let text = std::str::from_utf8(digits).unwrap_or_default();
    text.parse().unwrap_or(-1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_taken_whole_or_not_at_all() {
        for (input, reply) in [
            (&b":42\r\n"[..], Reply::Integer(42)),
            (b"$-1\r\n", Reply::Nil),
            (b"_\r\n", Reply::Nil),
            (b"*-1\r\n", Reply::Nil),
            (b"+OK\r\n", Reply::Text(b"OK")),
            (b"$3\r\na\nb\r\n", Reply::Text(b"a\nb")),
            (b"-ERR no\r\n", Reply::Error(b"ERR no")),
            (b"*2\r\n:1\r\n$1\r\nx\r\n", Reply::Array(2)),
            (b"*2\r\n:1\r\n:-2\r\n", Reply::Pair(1, -2)),
            (b"%1\r\n+a\r\n*1\r\n:1\r\n", Reply::Array(1)),
            (b">3\r\n+message\r\n$1\r\nc\r\n$1\r\n0\r\n", Reply::Push),
        ] {
            let with_more = [input, b":1\r\n"].concat();
            assert_eq!(first(&with_more), Some((reply, input.len())));
            for cut in 0..input.len() {
                assert_eq!(first(&input[..cut]), None, "{}", input.escape_ascii());
            }
        }
    }
}
