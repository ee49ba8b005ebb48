//! `fairlock top`: the locks that are held, and how fast they change hands.
//!
//! [`look`] asks the servers; [`board`] decides what is shown, and in which order, as lines and JSON too; `screen`
//! paints it for a terminal.

pub mod board;
pub mod look;
mod screen;

use std::io::{self, IsTerminal as _, Write as _};

use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::args::TopArgs;
use crate::failure::{Failure, UNAVAILABLE};
use crate::server::{Masters, Target, Trouble};

use board::Board;
use look::Look;

/// Shows the locks until told to stop; the exit code.
pub async fn run(args: &TopArgs, target: Target) -> Result<u8, Failure> {
    let mut masters = Masters::new(target);
    // A wrong address or user is reported at once.
    let first = Look::at(&mut masters, args.limit).await;
    let first = first.map_err(Trouble::into_failure)?;
    if let Some(why) = first.no_server_answered() {
        return Err(Failure::new(UNAVAILABLE, why));
    }
    let board = Board::new(args, first);
    let mut looks = interval(args.interval);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    looks.tick().await;
    if args.once || args.json || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return print(args, board, masters, looks).await;
    }
    screen::run(args, board, masters, looks).await
}

/// Prints each look. The first was only to compare with: rates are known from the second on.
async fn print(
    args: &TopArgs,
    mut board: Board,
    mut masters: Masters,
    mut looks: Interval,
) -> Result<u8, Failure> {
    loop {
        looks.tick().await;
        match Look::at(&mut masters, args.limit).await {
            Ok(look) => board.show(look),
            Err(trouble) if args.once => return Err(trouble.into_failure()),
            Err(trouble) => {
                eprintln!("fairlock: {}", trouble.text());
                continue;
            }
        }
        let text = if args.json {
            board.json()
        } else {
            board.lines()
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
