//! A connection that can be lost, and whose loss is an outcome like any other.
//!
//! One thread reads everything, wake-ups (RESP3 pushes) among the replies. The fault injector has a [`Handle`] on it:
//! the id by which the server knows it, and the socket, to cut it off.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fairlock_testing::resp::{Reply, packed};

/// Longest that a reply may take; a waiter that waits longer counts as forgotten.
pub const GIVE_UP: Duration = Duration::from_mins(1);

/// The connection is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

impl From<std::io::Error> for Gone {
    fn from(_: std::io::Error) -> Self {
        Self
    }
}

/// What others need to do harm to a connection.
#[derive(Debug)]
pub struct Handle {
    /// The server's number of it.
    pub id: i64,
    socket: TcpStream,
    cut: Arc<AtomicBool>,
}

impl Handle {
    /// Cuts the connection so that only the client notices. The server notices when the socket
    /// that is returned is dropped.
    pub fn cut(self) -> TcpStream {
        self.cut.store(true, Ordering::SeqCst);
        // Nothing is sent: the client reads an end that never came.
        let _ = self.socket.shutdown(Shutdown::Read);
        self.socket
    }

    /// By which the server knows it from a connection with the same number to a server before it.
    pub fn address(&self) -> Option<String> {
        self.socket.local_addr().ok().map(|of| of.to_string())
    }

    /// Ends the connection for both.
    pub fn close(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// A connection, RESP3.
#[derive(Debug)]
pub struct Wire {
    socket: BufReader<TcpStream>,
    id: i64,
    cut: Arc<AtomicBool>,
    /// Wake-ups that came among replies.
    wake_ups: usize,
}

impl Wire {
    pub fn connect(port: u16) -> Result<Self, Gone> {
        let socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(GIVE_UP))?;
        let mut wire = Self {
            socket: BufReader::new(socket),
            id: 0,
            cut: Arc::default(),
            wake_ups: 0,
        };
        wire.ask(&["HELLO", "3"])?;
        if let Reply::Int(id) = wire.ask(&["CLIENT", "ID"])? {
            wire.id = id;
        }
        Ok(wire)
    }

    /// Another hold on the connection.
    pub fn handle(&self) -> Result<Handle, Gone> {
        Ok(Handle {
            id: self.id,
            socket: self.socket.get_ref().try_clone()?,
            cut: Arc::clone(&self.cut),
        })
    }

    pub fn send(&mut self, words: &[&str]) -> Result<(), Gone> {
        Ok(self.socket.get_mut().write_all(&packed(words))?)
    }

    /// The next reply.
    pub fn reply(&mut self) -> Result<Reply, Gone> {
        loop {
            match self.value()? {
                Reply::Push(_) => (),
                reply => return Ok(reply),
            }
        }
    }

    pub fn ask(&mut self, words: &[&str]) -> Result<Reply, Gone> {
        self.send(words)?;
        self.reply()
    }

    /// Subscribes to a channel, or no longer; waits until that has been done.
    pub fn subscribe(&mut self, command: &str, channel: &str) -> Result<(), Gone> {
        self.send(&[command, channel])?;
        while !is_push(&self.value()?, "subscribe") {}
        Ok(())
    }

    /// Waits for a wake-up, up to a time limit.
    pub fn wake_up(&mut self, at_most: Duration) -> Result<(), Gone> {
        if self.wake_ups == 0 {
            let socket = self.socket.get_ref();
            socket.set_read_timeout(Some(at_most.max(Duration::from_millis(1))))?;
            let data = self.socket.fill_buf().map(<[u8]>::len);
            self.socket.get_ref().set_read_timeout(Some(GIVE_UP))?;
            match data {
                Ok(0) => return Err(Gone),
                Ok(_) => {
                    self.value()?;
                }
                Err(error) if is_time_out(&error) => (),
                Err(_) => return Err(Gone),
            }
        }
        self.wake_ups = 0;
        Ok(())
    }

    fn value(&mut self) -> Result<Reply, Gone> {
        let value = Reply::read(&mut self.socket)?;
        if is_push(&value, "message") {
            self.wake_ups += 1;
        }
        Ok(value)
    }
}

/// Whether it is a push of a kind, or of the opposite: `subscribe`, `unsubscribe`.
fn is_push(value: &Reply, kind: &str) -> bool {
    let Reply::Push(parts) = value else {
        return false;
    };
    parts
        .first()
        .is_some_and(|first| first.text().ends_with(kind))
}

fn is_time_out(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{TimedOut, WouldBlock};
    matches!(error.kind(), TimedOut | WouldBlock)
}

impl Drop for Wire {
    fn drop(&mut self) {
        // A connection that was cut stays open for the server, as long as it is held elsewhere.
        if !self.cut.load(Ordering::SeqCst) {
            let _ = self.socket.get_ref().shutdown(Shutdown::Both);
        }
    }
}
