//! `fairlock top`: the locks that are held, and how fast they change hands.
//!
//! [`collect`] asks the servers, and searches their keyspaces as [`walk`] says; [`reading`] is what they said;
//! [`summary`] compares two readings, [`recent`] those of a minute; [`board`] decides what is shown and in which
//! order; [`draw`] paints it for a terminal, and cuts names that are too long as [`cut`] says, [`plain`] prints it
//! as lines or JSON; `screen` has the terminal and its keys, `help`
//! explains them.

pub mod board;
pub mod collect;
pub mod cut;
pub mod draw;
mod help;
pub mod plain;
pub mod reading;
pub mod recent;
mod screen;
pub mod summary;
pub mod walk;

use std::io::{self, IsTerminal as _, Write as _};

use tokio::time::{MissedTickBehavior, interval};

use crate::args::TopArgs;
use crate::failure::{Failure, UNAVAILABLE};
use crate::server::{Target, Trouble};

use board::Board;
use collect::Collector;

/// Shows the locks until told to stop; the exit code.
pub async fn run(args: &TopArgs, target: Target) -> Result<u8, Failure> {
    let lines = args.once || args.json || !io::stdout().is_terminal() || !io::stdin().is_terminal();
    let mut board = Board::new(args, target.db());
    let mut collector = Collector::new(target, args);
    // A wrong address or user is reported at once.
    let first = collector.read().await.map_err(Trouble::into_failure)?;
    if let Some(why) = first.no_server_answered() {
        return Err(Failure::new(UNAVAILABLE, why));
    }
    board.show(first);
    if lines {
        return print(args, &mut board, &mut collector).await;
    }
    screen::run(args, &mut board, &mut collector).await
}

/// Prints each look. The first was only to compare with: rates are known from the second on.
async fn print(
    args: &TopArgs,
    board: &mut Board,
    collector: &mut Collector,
) -> Result<u8, Failure> {
    let mut looks = interval(args.interval);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    looks.tick().await;
    loop {
        looks.tick().await;
        match collector.read().await {
            Ok(reading) => board.show(reading),
            Err(trouble) if args.once => return Err(trouble.into_failure()),
            Err(trouble) => {
                eprintln!("fairlock: {}", trouble.text());
                continue;
            }
        }
        let text = if args.json {
            plain::json(board).map_err(io::Error::from)?
        } else {
            plain::lines(board)
        };
        let mut out = io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Ok(()) => (),
            // As `fairlock top | head` does.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(0),
            Err(error) => return Err(error.into()),
        }
        if args.once {
            return Ok(if board.has_trouble() { UNAVAILABLE } else { 0 });
        }
    }
}
