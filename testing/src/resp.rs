//! Replies as they are on the wire, RESP2 and RESP3, read one by one.
//!
//! The redis crate's parser reads ahead and keeps what it has read, so a test could not wait for the next push with a
//! time limit. It also refuses errors whose text is not UTF-8, though servers repeat what they were sent. This parser
//! leaves in the buffered reader what it does not need, and takes any bytes.

use std::borrow::Cow;
use std::io::{self, BufRead};

/// A reply, or a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Nil of any kind.
    Nil,
    /// An integer.
    Int(i64),
    /// A simple string.
    Status(Vec<u8>),
    /// An error, from its code on.
    Error(Vec<u8>),
    /// A bulk string.
    Bulk(Vec<u8>),
    /// An array, a set, or a map with its keys and values in turn.
    Items(Vec<Reply>),
    /// A message that answers nothing.
    Push(Vec<Reply>),
    /// A truth, a fraction or a number of any length (RESP3).
    Other,
}

impl Reply {
    /// The next one.
    pub fn read(from: &mut impl BufRead) -> io::Result<Self> {
        let line = line(from)?;
        let (kind, rest) = line.split_first().ok_or_else(|| invalid(&line))?;
        let number = || {
            let text = std::str::from_utf8(rest).ok();
            let number = text.and_then(|text| text.parse::<i64>().ok());
            number.ok_or_else(|| invalid(&line))
        };
        let several = |from: &mut _, times: i64| {
            let items = (0..number()? * times).map(|_| Self::read(from));
            items.collect::<io::Result<Vec<_>>>()
        };
        match kind {
            b'_' => Ok(Self::Nil),
            b':' => Ok(Self::Int(number()?)),
            b'+' => Ok(Self::Status(rest.to_vec())),
            b'-' => Ok(Self::Error(rest.to_vec())),
            b',' | b'#' | b'(' => Ok(Self::Other),
            b'$' | b'*' if number()? == -1 => Ok(Self::Nil),
            b'$' | b'=' => {
                let length = usize::try_from(number()?).map_err(|_| invalid(&line))?;
                bulk(from, length).map(Self::Bulk)
            }
            b'*' | b'~' => several(from, 1).map(Self::Items),
            b'%' => several(from, 2).map(Self::Items),
            b'>' => several(from, 1).map(Self::Push),
            _ => Err(invalid(&line)),
        }
    }

    /// Its elements, if it has any.
    pub fn items(&self) -> &[Self] {
        match self {
            Self::Items(replies) | Self::Push(replies) => replies,
            _ => &[],
        }
    }

    /// Its text, if it has any.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Status(text) | Self::Error(text) | Self::Bulk(text) => {
                String::from_utf8_lossy(text)
            }
            _ => Cow::Borrowed(""),
        }
    }

    /// Whether it is an error with this code.
    pub fn is_error(&self, code: &str) -> bool {
        matches!(self, Self::Error(_)) && self.text().split(' ').next() == Some(code)
    }
}

/// A command as it is sent.
pub fn packed(words: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(word.as_ref());
    }
    command.get_packed_command()
}

fn line(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    from.read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') || line.pop() != Some(b'\r') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line)
}

fn bulk(from: &mut impl BufRead, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length + 2];
    from.read_exact(&mut bytes)?;
    bytes.truncate(length);
    Ok(bytes)
}

fn invalid(line: &[u8]) -> io::Error {
    let text = format!("no reply: {}", line.escape_ascii());
    io::Error::new(io::ErrorKind::InvalidData, text)
}
