//! Replies as they are on the wire, RESP3. The redis crate's parser reads ahead and keeps what it has
//! read, so that nobody can wait for the next push with a time limit; this one leaves in the
//! buffered reader what it does not need.

use std::io::{self, BufRead};

/// A reply, or a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Nil,
    Int(i64),
    Text(String),
    /// From its code on.
    Error(String),
    /// An array, a set, or a map with its keys and values in turn.
    Many(Vec<Reply>),
    Push(Vec<Reply>),
}

impl Reply {
    /// The next one.
    pub fn read(from: &mut impl BufRead) -> io::Result<Self> {
        let line = read_line(from)?;
        let rest = line.get(1..).unwrap_or_default();
        Ok(match line.as_bytes().first() {
            Some(b'+') => Self::Text(rest.to_owned()),
            Some(b'-') => Self::Error(rest.to_owned()),
            Some(b':') => Self::Int(number(rest)?),
            Some(b'_') => Self::Nil,
            Some(b'#') => Self::Int(i64::from(rest == "t")),
            Some(b'$' | b'=') => read_text(from, number(rest)?)?,
            Some(b'*' | b'~') => read_many(from, number(rest)?)?.map_or(Self::Nil, Self::Many),
            Some(b'%') => read_many(from, number(rest)? * 2)?.map_or(Self::Nil, Self::Many),
            Some(b'>') => Self::Push(read_many(from, number(rest)?)?.unwrap_or_default()),
            _ => return Err(io::Error::other(format!("no reply: {line}"))),
        })
    }

    /// Its elements, if it has any.
    pub fn many(&self) -> &[Self] {
        match self {
            Self::Many(replies) | Self::Push(replies) => replies,
            _ => &[],
        }
    }

    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Error(text) => text,
            _ => "",
        }
    }

    /// Whether it is an error with this code.
    pub fn is_error(&self, code: &str) -> bool {
        matches!(self, Self::Error(error) if error.split(' ').next() == Some(code))
    }
}

fn read_line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    if line.pop() != Some('\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    line.pop();
    Ok(line)
}

fn number(text: &str) -> io::Result<i64> {
    text.parse().map_err(io::Error::other)
}

fn read_text(from: &mut impl BufRead, length: i64) -> io::Result<Reply> {
    let Ok(length) = usize::try_from(length) else {
        return Ok(Reply::Nil);
    };
    let mut bytes = vec![0; length + 2];
    from.read_exact(&mut bytes)?;
    bytes.truncate(length);
    Ok(Reply::Text(String::from_utf8_lossy(&bytes).into_owned()))
}

fn read_many(from: &mut impl BufRead, count: i64) -> io::Result<Option<Vec<Reply>>> {
    if count < 0 {
        return Ok(None);
    }
    (0..count)
        .map(|_| Reply::read(from))
        .collect::<io::Result<_>>()
        .map(Some)
}

#[test]
fn replies_are_read_one_by_one() {
    let mut bytes: &[u8] =
        b"+OK\r\n:7\r\n_\r\n$3\r\na\nb\r\n*2\r\n:1\r\n$-1\r\n>1\r\n+m\r\n-NOTHELD no\r\n:";
    let mut next = || Reply::read(&mut bytes);
    for expected in [
        Reply::Text("OK".to_owned()),
        Reply::Int(7),
        Reply::Nil,
        Reply::Text("a\nb".to_owned()),
        Reply::Many(vec![Reply::Int(1), Reply::Nil]),
        Reply::Push(vec![Reply::Text("m".to_owned())]),
    ] {
        assert_eq!(next().expect("a reply"), expected);
    }
    assert!(next().expect("a reply").is_error("NOTHELD"));
    assert!(next().is_err());
}
