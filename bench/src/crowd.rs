//! Many connections driven by one thread: each is a small state machine that answers replies with
//! the next commands at once.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::resp::{Reply, first};

/// What one connection does.
pub trait Member {
    /// Its first commands.
    fn begin(&mut self, out: &mut Vec<u8>);
    /// A reply has come: the next commands, if it is their time.
    ///
    /// # Errors
    /// A reply that should not have come.
    fn hear(&mut self, reply: Reply<'_>, out: &mut Vec<u8>) -> Result<()>;
    /// What it has done so far, in the unit that is measured.
    fn done(&self) -> u64;
}

struct Connection<M> {
    stream: TcpStream,
    input: Vec<u8>,
    output: Vec<u8>,
    member: M,
}

/// Connections with their members.
pub struct Crowd<M> {
    poll: Poll,
    events: Events,
    connections: Vec<Connection<M>>,
}

impl<M: Member> Crowd<M> {
    /// Connects all members; they begin in their order.
    pub fn connect(address: SocketAddr, members: impl IntoIterator<Item = M>) -> Result<Self> {
        let poll = Poll::new()?;
        let mut connections = Vec::new();
        for member in members {
            // Blocking, so that the server's backlog is never overrun.
            let stream = std::net::TcpStream::connect(address).context("connecting")?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            let interest = Interest::READABLE | Interest::WRITABLE;
            let token = Token(connections.len());
            poll.registry().register(&mut stream, token, interest)?;
            connections.push(Connection {
                stream,
                input: Vec::new(),
                output: Vec::new(),
                member,
            });
        }
        let mut crowd = Self {
            poll,
            events: Events::with_capacity(1024),
            connections,
        };
        for connection in &mut crowd.connections {
            connection.member.begin(&mut connection.output);
            connection.flush()?;
        }
        Ok(crowd)
    }

    /// The members, in their order.
    pub fn members(&self) -> impl Iterator<Item = &M> {
        self.connections.iter().map(|connection| &connection.member)
    }

    /// What all have done.
    pub fn done(&self) -> u64 {
        self.members().map(Member::done).sum()
    }

    /// Has every member say something.
    pub fn tell(&mut self, say: impl Fn(&M, &mut Vec<u8>)) -> Result<()> {
        for connection in &mut self.connections {
            say(&connection.member, &mut connection.output);
            connection.flush()?;
        }
        Ok(())
    }

    /// Lets them go on for so long.
    pub fn run(&mut self, duration: Duration) -> Result<()> {
        self.run_while(duration, |_| true).map(|_| ())
    }

    /// Lets them go on as long as `more` says, `longest` at most. False if the time was up.
    pub fn run_while(
        &mut self,
        longest: Duration,
        mut more: impl FnMut(&Self) -> bool,
    ) -> Result<bool> {
        let end = Instant::now() + longest;
        while more(self) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            self.turn(left)?;
        }
        Ok(true)
    }

    fn turn(&mut self, longest: Duration) -> Result<()> {
        match self.poll.poll(&mut self.events, Some(longest)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            other => other?,
        }
        for event in &self.events {
            if let Some(connection) = self.connections.get_mut(event.token().0) {
                connection.ready()?;
            }
        }
        Ok(())
    }
}

impl<M: Member> Connection<M> {
    fn ready(&mut self) -> Result<()> {
        let mut chunk = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => bail!("the server has closed the connection"),
                Ok(length) => {
                    self.input.extend(chunk.iter().take(length));
                    if length < chunk.len() {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        let mut taken = 0;
        while let Some((reply, length)) = self.input.get(taken..).and_then(first) {
            self.member.hear(reply, &mut self.output)?;
            taken += length;
        }
        self.input.drain(..taken);
        self.flush()
    }

    fn flush(&mut self) -> Result<()> {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(length) => drop(self.output.drain(..length)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
