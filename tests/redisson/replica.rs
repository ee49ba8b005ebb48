//! A replica that only listens: records what a server replicates, command by command.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use fairlock_testing::resp::Reply;

/// The connection to the master.
pub struct Replica {
    socket: BufReader<TcpStream>,
    /// Bytes of the stream so far, by which a master knows how far its replicas are.
    offset: u64,
}

impl Replica {
    /// Asks for everything, and lets the first copy pass: what comes then is new.
    pub fn follow(port: u16) -> Self {
        let socket = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        let mut replica = Self {
            socket: BufReader::new(socket),
            offset: 0,
        };
        // Without any other capability, the copy comes as one string of known length.
        for command in ["REPLCONF listening-port 1", "REPLCONF capa psync2"] {
            replica.send(command);
            assert_eq!(replica.line(), "+OK");
        }
        replica.send("PSYNC ? -1");
        let reply = replica.line();
        let offset = reply.rsplit(' ').next().and_then(|word| word.parse().ok());
        replica.offset = offset.unwrap_or_else(|| panic!("no full copy: {reply}"));
        replica.skip_copy();
        replica.acknowledge();
        replica
    }

    fn send(&mut self, command: &str) {
        let sent = self.socket.get_mut().write_all(command.as_bytes());
        sent.and_then(|()| self.socket.get_mut().write_all(b"\r\n"))
            .expect("sent");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.socket.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    fn skip_copy(&mut self) {
        // Empty lines tell that the master is still at it.
        let length = loop {
            let line = self.line();
            if let Some(length) = line.strip_prefix('$') {
                break length.parse().expect("a length");
            }
        };
        let mut copy = self.socket.by_ref().take(length);
        std::io::copy(&mut copy, &mut std::io::sink()).expect("the copy");
    }

    /// Tells the master how far we are; it waits for that where a client sends WAIT.
    fn acknowledge(&mut self) {
        let offset = self.offset.to_string();
        let length = offset.len();
        let command = format!("*3\r\n$8\r\nREPLCONF\r\n$3\r\nACK\r\n${length}\r\n{offset}");
        self.send(&command);
    }

    /// The next command. Nothing when the master has closed the connection.
    pub fn next(&mut self) -> Option<Vec<String>> {
        loop {
            let words = self.command()?;
            let word = words.first().map(|word| word.to_ascii_uppercase());
            match word.as_deref() {
                Some("PING" | "REPLCONF") => self.acknowledge(),
                Some("SELECT" | "PUBLISH" | "SPUBLISH") => (),
                _ => return Some(words),
            }
        }
    }

    fn command(&mut self) -> Option<Vec<String>> {
        let reply = Reply::read(&mut self.socket).ok()?;
        // As many bytes as the master has sent: there is one way to write a command.
        let mut command = redis::Cmd::new();
        for word in reply.items() {
            if let Reply::Bulk(bytes) = word {
                command.arg(bytes);
            }
        }
        self.offset += command.get_packed_command().len() as u64;
        let words = reply.items().iter();
        Some(words.map(|word| word.text().into_owned()).collect())
    }
}
