//! A number of commands, each sent once, by many connections.

use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::crowd::{Crowd, Member};
use crate::resp::Reply;
use crate::server::Server;

/// Commands in one write.
const BATCH: usize = 16;
const CONNECTIONS: usize = 50;

/// Encodes the command of a number.
type Command = Rc<dyn Fn(usize, &mut Vec<u8>)>;

/// One connection's part of it.
pub struct Part {
    command: Command,
    next: usize,
    end: usize,
    unanswered: usize,
    done: u64,
}

impl Part {
    fn send(&mut self, out: &mut Vec<u8>) {
        while self.unanswered < BATCH && self.next < self.end {
            (self.command)(self.next, out);
            self.next += 1;
            self.unanswered += 1;
        }
    }
}

impl Member for Part {
    fn begin(&mut self, out: &mut Vec<u8>) {
        self.send(out);
    }

    fn hear(&mut self, reply: Reply<'_>, out: &mut Vec<u8>) -> Result<()> {
        if let Reply::Error(text) = reply {
            bail!("{}", String::from_utf8_lossy(text));
        }
        self.done += 1;
        self.unanswered -= 1;
        if self.unanswered == 0 {
            self.send(out);
        }
        Ok(())
    }

    fn done(&self) -> u64 {
        self.done
    }
}

/// What has been done.
pub struct Done {
    /// Commands a second.
    pub rate: f64,
    /// The connections that did it, open for as long as this is kept.
    _crowd: Crowd<Part>,
}

/// Sends the commands of the numbers from 0 over many connections, and waits for their answers.
pub fn all(
    server: &Server,
    number: usize,
    command: impl Fn(usize, &mut Vec<u8>) + 'static,
) -> Result<Done> {
    by(server, CONNECTIONS, number, command)
}

/// Sends them in their order, over one connection.
pub fn in_order(
    server: &Server,
    number: usize,
    command: impl Fn(usize, &mut Vec<u8>) + 'static,
) -> Result<Done> {
    by(server, 1, number, command)
}

fn by(
    server: &Server,
    connections: usize,
    number: usize,
    command: impl Fn(usize, &mut Vec<u8>) + 'static,
) -> Result<Done> {
    let command: Command = Rc::new(command);
    let share = number.div_ceil(connections);
    let members = (0..connections).map(|connection| Part {
        command: Rc::clone(&command),
        next: (connection * share).min(number),
        end: ((connection + 1) * share).min(number),
        unanswered: 0,
        done: 0,
    });
    let start = Instant::now();
    let mut crowd = Crowd::connect(server.address(), members)?;
    let all = number as u64;
    if !crowd.run_while(Duration::from_mins(2), |crowd| crowd.done() < all)? {
        bail!(
            "{} of {number} commands were answered in two minutes",
            crowd.done()
        );
    }
    let elapsed = start.elapsed().as_secs_f64();
    #[allow(clippy::cast_precision_loss)] // Far below 2^53.
    let number = number as f64;
    Ok(Done {
        rate: number / elapsed,
        _crowd: crowd,
    })
}
