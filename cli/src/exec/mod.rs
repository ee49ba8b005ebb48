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
mod waiting;

use std::cell::Cell;
use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitStatus;

use futures_util::StreamExt as _;
use tokio::time::Instant;

use crate::args::{ExecArgs, OnLoss};
use crate::failure::{Failure, LOST, NOT_ACQUIRED, tell};
use crate::server::Target;
use crate::text::{duration, word};

use command::Running;
use guard::Guard;
use request::Request;
use signals::Signals;

/// Acquires, runs, releases; the exit code.
pub async fn run(args: &ExecArgs, target: Target) -> Result<u8, Failure> {
    // Also as PID 1, for which the kernel ignores signals that nobody listens to.
    let mut signals = signals::listen()?;
    let request = Request::new(args);
    let acquiring = async {
        match request.acquire(target).await? {
            Some((link, token)) => Guard::new(link, &request, token).await,
            None => Err(not_acquired(args)),
        }
    };
    let acquired = tokio::select! {
        // Without the lock there is nothing to run. The end of the connection gives up the place, or the lock.
        biased;
        Some(caught) = signals.next() => return Ok(command::of_signal(caught.signal)),
        acquired = acquiring => acquired,
    };
    let mut guard = acquired?;
    let mut running = Running::start(args, &request.owner, guard.token)?;
    let (status, is_lost) = accompany(&mut running, &mut guard, &mut signals, args).await?;
    if is_lost {
        return Ok(LOST);
    }
    guard.release().await.map_err(|loss| {
        let key = word(request.key());
        let text = format!(
            "the lock {key} was lost before the command had ended, or just then: {loss}. The command itself ended by {status}"
        );
        Failure::new(LOST, text)
    })?;
    Ok(command::exit_code(status))
}

/// Until the command has ended: passes signals on, and deals with a loss of the lock. Whether it was lost.
async fn accompany(
    running: &mut Running,
    guard: &mut Guard<'_>,
    signals: &mut Signals,
    args: &ExecArgs,
) -> Result<(ExitStatus, bool), Failure> {
    let (grace, is_lost) = (guard.grace, Cell::new(false));
    let ending = async {
        let loss = guard.lost().await;
        is_lost.set(true);
        report(&loss, args, grace);
        if args.on_loss == OnLoss::Terminate {
            command::end_all(Instant::now() + grace).await;
        }
    };
    let ended = async {
        loop {
            tokio::select! {
                status = running.wait() => return status,
                Some(caught) = signals.next() => running.pass_on(&caught),
            }
        }
    };
    tokio::pin!(ending, ended);
    let status = tokio::select! {
        status = &mut ended => {
            if is_lost.get() {
                ending.await;
            }
            status
        }
        () = &mut ending => ended.await,
    };
    Ok((status?, is_lost.get()))
}

fn not_acquired(args: &ExecArgs) -> Failure {
    let key = word(args.key.as_bytes());
    let why = match args.wait {
        Some(wait) if wait.is_zero() => "it is held, or others wait for it".to_owned(),
        Some(wait) => format!("not within {}", duration(wait)),
        None => "its wait was ended by FAIRLOCK.CANCEL or CLIENT UNBLOCK".to_owned(),
    };
    let text =
        format!("did not get the lock {key}: {why}. FAIRLOCK.HOLDERS {key} says who holds it");
    Failure::new(NOT_ACQUIRED, text)
}

fn report(loss: &str, args: &ExecArgs, grace: std::time::Duration) {
    let key = word(args.key.as_bytes());
    let what = match args.on_loss {
        OnLoss::Terminate => format!(
            "ending the command by SIGTERM, and by SIGKILL after {}",
            duration(grace)
        ),
        OnLoss::Ignore => "the command goes on without it, as --on-loss ignore says".to_owned(),
    };
    tell(format_args!("lost the lock {key}: {loss}; {what}"));
}
