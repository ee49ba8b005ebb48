//! A connection on which tests read the replies line by line.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use crate::wait::give_up;

/// A bare connection whose replies a test reads line by line.
pub struct Wire {
    socket: BufReader<TcpStream>,
    /// The connection's id; 0 if the server does not tell.
    pub id: i64,
}

impl Wire {
    /// Connects to a server of this machine.
    pub fn new(port: u16) -> Self {
        let socket = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        let timeout = Some(give_up());
        socket.set_read_timeout(timeout).expect("a timeout");
        let mut wire = Self {
            socket: BufReader::new(socket),
            id: 0,
        };
        wire.send("CLIENT ID");
        let id = wire.line();
        wire.id = id.trim_start_matches(':').parse().unwrap_or(0);
        wire
    }

    /// The port at this end.
    pub fn port(&self) -> u16 {
        let address = self.socket.get_ref().local_addr();
        address.expect("an address").port()
    }

    /// Sends commands, one a line, all at once.
    pub fn send(&mut self, commands: &str) {
        let bytes = format!("{}\r\n", commands.replace('\n', "\r\n"));
        // A closed connection shows when it is read.
        let _ = self.socket.get_mut().write_all(bytes.as_bytes());
    }

    /// The next line from the server, as in the protocol; empty when the connection is closed.
    pub fn line(&mut self) -> String {
        self.line_if_open().unwrap_or_default()
    }

    /// A token, or another integer, from the server.
    #[track_caller]
    pub fn token(&mut self) -> i64 {
        let line = self.line();
        let token = line.strip_prefix(':').and_then(|token| token.parse().ok());
        token.unwrap_or_else(|| panic!("no token: {line}"))
    }

    /// The lines before one that contains something. They must come.
    #[track_caller]
    pub fn until(&mut self, end: &str) -> Vec<String> {
        let next = || self.line_if_open().unwrap_or_else(|| panic!("no {end}"));
        let lines = std::iter::repeat_with(next);
        lines.take_while(|line| !line.contains(end)).collect()
    }

    /// The next line from the server, which can be an empty string; `None` when the connection is closed.
    pub fn line_if_open(&mut self) -> Option<String> {
        let mut line = String::new();
        // A reset closes it, too.
        let _ = self.socket.read_line(&mut line);
        (!line.is_empty()).then(|| line.trim_end().to_owned())
    }
}
