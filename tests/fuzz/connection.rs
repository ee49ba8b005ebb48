//! A connection on which commands are sent without waiting for their replies; a thread of its own
//! reads these and holds each to its command.

use std::collections::VecDeque;
use std::io::{BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use fairlock_testing::resp::{Reply, packed};

use crate::reply::fault;
use crate::words::Words;

/// What has been sent, and what was wrong with what came back.
#[derive(Debug, Default)]
struct Traffic {
    /// Commands without a reply so far, the next one to be answered first.
    unanswered: VecDeque<Words>,
    /// What was wrong.
    fault: Option<String>,
}

/// A client of the server.
#[derive(Debug)]
pub struct Connection {
    socket: TcpStream,
    traffic: Arc<Mutex<Traffic>>,
    /// The connection's id.
    pub id: i64,
}

impl Connection {
    pub fn new(port: u16) -> Self {
        let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        let mut reader = BufReader::new(socket.try_clone().expect("a second handle"));
        socket.write_all(b"CLIENT ID\r\n").expect("sent");
        let Ok(Reply::Int(id)) = Reply::read(&mut reader) else {
            panic!("no id");
        };
        let traffic = Arc::new(Mutex::new(Traffic::default()));
        let shared = Arc::clone(&traffic);
        thread::spawn(move || {
            loop {
                let reply = Reply::read(&mut reader);
                if !take(&shared, reply) {
                    break;
                }
            }
        });
        Self {
            socket,
            traffic,
            id,
        }
    }

    fn traffic<T>(&self, look: impl FnOnce(&mut Traffic) -> T) -> T {
        look(&mut self.traffic.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sends commands, of which all are answered.
    pub fn send(&mut self, commands: Vec<Words>) {
        let bytes: Vec<u8> = commands.iter().flat_map(|words| packed(words)).collect();
        self.traffic(|traffic| traffic.unanswered.extend(commands));
        self.write(&bytes);
    }

    /// Sends what is not answered.
    pub fn write(&mut self, bytes: &[u8]) {
        // A closed connection shows when it is read.
        let _ = self.socket.write_all(bytes);
    }

    /// How many commands have no reply yet.
    pub fn unanswered(&self) -> usize {
        self.traffic(|traffic| traffic.unanswered.len())
    }

    /// The first command that has no reply yet.
    pub fn oldest(&self) -> String {
        let oldest = self.traffic(|traffic| traffic.unanswered.front().cloned());
        oldest.map_or_else(String::new, |words| show(&words))
    }

    /// Panics if a reply was wrong, or the server has closed the connection unasked.
    pub fn check(&self) {
        if let Some(fault) = self.traffic(|traffic| traffic.fault.clone()) {
            panic!("client {}: {fault}", self.id);
        }
    }

    /// Closes the connection, even in the middle of a request.
    pub fn close(&self) {
        // It may be closed already.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// Takes note of a reply. False at the end.
fn take(traffic: &Mutex<Traffic>, reply: std::io::Result<Reply>) -> bool {
    let mut traffic = traffic.lock().unwrap_or_else(PoisonError::into_inner);
    let reply = match reply {
        Ok(Reply::Push(_)) => return true,
        Ok(reply) => reply,
        Err(error) => {
            traffic.fault.get_or_insert(format!("closed: {error}"));
            return false;
        }
    };
    let fault = match traffic.unanswered.pop_front() {
        None => Some(format!("a reply to nothing: {reply:?}")),
        Some(words) => {
            fault(&words, &reply).map(|fault| format!("{fault}: {}: {reply:?}", show(&words)))
        }
    };
    if let Some(fault) = fault {
        traffic.fault.get_or_insert(fault);
    }
    true
}

/// A command in one line.
pub fn show(words: &Words) -> String {
    let words: Vec<String> = words
        .iter()
        .map(|word| match word.escape_ascii().to_string() {
            long if long.len() > 100 => format!("\"{}...\"", &long[..100]),
            word => format!("\"{word}\""),
        })
        .collect();
    words.join(" ")
}
