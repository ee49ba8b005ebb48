//! Many connections driven by one thread: each is a small state machine that answers replies with
//! the next commands at once.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use fairlock_testing::resp::{Reply, packed};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

/// What one connection does.
pub trait Member {
    /// Its first commands.
    fn begin(&mut self, out: &mut Vec<u8>);
    /// A reply has come: the next commands, if it is their time.
    ///
    /// # Errors
    /// A reply that should not have come.
    fn receive(&mut self, reply: &Reply, out: &mut Vec<u8>) -> Result<()>;
    /// What it has done so far, in the unit that is measured.
    fn done(&self) -> u64;
    /// When it goes on if no reply comes.
    fn due(&self) -> Option<Instant> {
        None
    }
    /// That time has come.
    fn time_up(&mut self, _out: &mut Vec<u8>) {}
}

/// Appends a command.
pub fn encode(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.extend(packed(words));
}

struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    output: Vec<u8>,
    member: Box<dyn Member>,
    /// When the member is due, as the crowd has noted it.
    due: Option<Instant>,
}

/// Connections with their members.
pub struct Crowd {
    poll: Poll,
    events: Events,
    connections: Vec<Connection>,
    /// Members that want to go on at a time, by their place among the connections.
    due: BTreeSet<(Instant, usize)>,
}

impl Crowd {
    /// Connects all members; they begin in their order.
    pub fn connect<M: Member + 'static>(
        address: SocketAddr,
        members: impl Iterator<Item = M>,
    ) -> Result<Self> {
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
                member: Box::new(member),
                due: None,
            });
        }
        let mut crowd = Self {
            poll,
            events: Events::with_capacity(1024),
            connections,
            due: BTreeSet::new(),
        };
        for connection in &mut crowd.connections {
            connection.member.begin(&mut connection.output);
            connection.flush()?;
        }
        Ok(crowd)
    }

    /// What all have done.
    pub fn done(&self) -> u64 {
        let members = self.connections.iter().map(|of| &of.member);
        members.map(|member| member.done()).sum()
    }

    /// Lets them go on for a time.
    pub fn run(&mut self, duration: Duration) -> Result<()> {
        self.run_while(duration, |_| true).map(|_| ())
    }

    /// Lets them go on while `more` is true, `longest` at most. False if the time was up.
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
        let first = self.due.first().map(|(due, _)| *due);
        let until_due = first.map(|due| due.saturating_duration_since(Instant::now()));
        let longest = until_due.map_or(longest, |until_due| until_due.min(longest));
        match self.poll.poll(&mut self.events, Some(longest)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            other => other?,
        }
        for event in &self.events {
            let place = event.token().0;
            if let Some(connection) = self.connections.get_mut(place) {
                connection.ready()?;
                connection.note_due(place, &mut self.due);
            }
        }
        self.wake_due()
    }

    /// Lets the members go on that are due.
    fn wake_due(&mut self) -> Result<()> {
        if self.due.is_empty() {
            return Ok(());
        }
        let now = Instant::now();
        while let Some(&(due, place)) = self.due.first()
            && due <= now
        {
            self.due.pop_first();
            if let Some(connection) = self.connections.get_mut(place) {
                connection.due = None;
                connection.member.time_up(&mut connection.output);
                connection.flush()?;
                connection.note_due(place, &mut self.due);
            }
        }
        Ok(())
    }
}

impl Connection {
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
        while let Some(mut rest) = self.input.get(taken..) {
            match Reply::read(&mut rest) {
                Ok(reply) => self.member.receive(&reply, &mut self.output)?,
                // It is not all there yet.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
                Err(error) => return Err(error.into()),
            }
            taken = self.input.len() - rest.len();
        }
        self.input.drain(..taken);
        self.flush()
    }

    fn note_due(&mut self, place: usize, all: &mut BTreeSet<(Instant, usize)>) {
        let due = self.member.due();
        if due == self.due {
            return;
        }
        if let Some(before) = self.due {
            all.remove(&(before, place));
        }
        all.extend(due.map(|due| (due, place)));
        self.due = due;
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
