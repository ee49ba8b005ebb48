//! `fairlock top`: the locks that servers track, and how fast they change hands.
//!
//! [`board`] decides what is shown, and in which order; `screen` paints it for a terminal.

pub mod board;
mod screen;

use std::io::{self, IsTerminal as _, Write as _};

use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::args::TopArgs;
use crate::failure::{Failure, UNAVAILABLE};
use crate::server::{Link, Masters, Target, Trouble, troubles};

use board::{Board, Said};

/// Shows the locks until told to stop; the exit code.
pub async fn run(args: &TopArgs, target: Target) -> Result<u8, Failure> {
    let mut masters = Masters::new(target);
    let mut board = Board::new(args, Instant::now(), masters.ask(look).await);
    // A wrong address or user is reported at once.
    if board.nodes.iter().all(|node| node.said.is_err()) {
        return Err(Failure::new(UNAVAILABLE, troubles(&board.nodes).join("\n")));
    }
    let mut looks = interval(args.interval);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    looks.tick().await;
    if !args.once && io::stdout().is_terminal() && io::stdin().is_terminal() {
        return screen::run(board, masters, looks).await;
    }
    // Rates are known from the second look on.
    looks.tick().await;
    board.show(Instant::now(), masters.ask(look).await);
    let mut out = io::stdout().lock();
    out.write_all(board.lines().as_bytes())?;
    out.flush()?;
    let is_well = troubles(&board.nodes).is_empty();
    Ok(if is_well { 0 } else { UNAVAILABLE })
}

async fn look(mut link: Link) -> Result<Said, Trouble> {
    // First the locks: their error is the clearest if the module is missing.
    let (locks, more) = link.tracked(0).await?;
    Ok(Said {
        has_more: more.is_some(),
        info: link.info(&["replication", "fairlock"]).await?,
        locks,
    })
}
