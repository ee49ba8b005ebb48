//! `fairlock exec`: a command that runs while a lock is held.
//!
//! The lock is bound to this process's connection. So it cannot stay held after a signal, SIGKILL or a power failure.
//! Nor may the command go on without the lock: `guard` notices the loss, and `command` then ends the command. If this
//! process is killed, the kernel ends it ([`stand_in`]).

mod command;
mod guard;
mod request;
mod signals;
pub mod stand_in;

use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitStatus;

use nix::sys::signal::Signal;
use tokio::time::{Instant, sleep_until};

use crate::args::{ExecArgs, OnLoss};
use crate::failure::{Failure, LOST, NOT_ACQUIRED};
use crate::server::Target;
use crate::text::{duration, word};

use command::Running;
use guard::{Guard, Hold, Loss};
use request::{Held, Request};
use signals::Signals;

/// Acquires, runs, releases; the exit code.
pub async fn run(args: &ExecArgs, target: Target) -> Result<u8, Failure> {
    let request = Request::new(args);
    let Some(held) = request.acquire(target).await? else {
        return Err(not_acquired(args));
    };
    let Held { link, token } = held;
    let watched = Hold {
        key: request.key.clone(),
        owner: request.owner.clone(),
        token,
        is_shared: args.is_shared(),
    };
    let mut guard = Guard::new(link, watched, args.grace).await?;
    // Up to here a signal ends this process, and with it the wait or the lock.
    let mut signals = Signals::listen()?;
    let mut running = Running::start(args, &request.owner, token)?;
    let (status, loss) = accompany(&mut running, &mut guard, &mut signals, args).await?;
    match loss {
        Some(_) => running.end_what_is_left().await,
        None => {
            if let Err(loss) = guard.release().await {
                return Err(Failure::new(
                    LOST,
                    format!(
                        "the lock {} was lost before the command had ended, or just then: {loss}. {}",
                        word(&request.key),
                        how_it_ended(status)
                    ),
                ));
            }
        }
    }
    Ok(if loss.is_some() {
        LOST
    } else {
        command::exit_code(status)
    })
}

/// Until the command has ended: passes signals on, and deals with a loss of the lock.
async fn accompany(
    running: &mut Running,
    guard: &mut Guard,
    signals: &mut Signals,
    args: &ExecArgs,
) -> Result<(ExitStatus, Option<Loss>), Failure> {
    let (mut loss, mut kill_at) = (None, None);
    let grace = guard.grace();
    let watching = guard.lost();
    tokio::pin!(watching);
    loop {
        tokio::select! {
            status = running.wait() => return Ok((status?, loss)),
            Some(caught) = signals.next() => running.pass_on(caught),
            found = &mut watching, if loss.is_none() => {
                report(&found, args, grace);
                if args.on_loss == OnLoss::Terminate {
                    running.signal(Signal::SIGTERM);
                    kill_at = Some(Instant::now() + grace);
                    running.give_until(Instant::now() + grace);
                }
                loss = Some(found);
            }
            () = sleep_until(kill_at.unwrap_or_else(Instant::now)), if kill_at.is_some() => {
                running.signal(Signal::SIGKILL);
                kill_at = None;
            }
        }
    }
}

fn not_acquired(args: &ExecArgs) -> Failure {
    let key = word(args.key.as_bytes());
    let why = match args.wait {
        Some(wait) if wait.is_zero() => "it is held, or others wait for it".to_owned(),
        Some(wait) => format!("not within {}", duration(wait)),
        None => "its wait was ended by FAIRLOCK.CANCEL or CLIENT UNBLOCK".to_owned(),
    };
    let asking = if args.is_shared() {
        "FAIRLOCK.HOLDERS"
    } else {
        "FAIRLOCK.INFO"
    };
    Failure::new(
        NOT_ACQUIRED,
        format!("did not get the lock {key}: {why}. {asking} {key} says who holds it"),
    )
}

fn report(loss: &Loss, args: &ExecArgs, grace: std::time::Duration) {
    let key = word(args.key.as_bytes());
    let what = match args.on_loss {
        OnLoss::Terminate => format!(
            "ending the command by SIGTERM, and by SIGKILL after {}",
            duration(grace)
        ),
        OnLoss::Ignore => "the command goes on without it, as --on-loss ignore says".to_owned(),
    };
    eprintln!("fairlock: lost the lock {key}: {loss}; {what}");
}

fn how_it_ended(status: ExitStatus) -> String {
    format!("The command itself ended by {status}")
}
