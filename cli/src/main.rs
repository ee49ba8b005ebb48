//! `fairlock`, the command line beside the module: runs a command under a lock, shows what the
//! locks do.
//!
//! The map, in reading order:
//!
//! - [`args`]: the command line. [`failure`]: exit codes, and what an operator is told.
//! - [`server`]: addresses, connections, the nodes of a cluster. [`lock`]: what a server replies.
//! - [`exec`]: a command under a lock. [`top`]: the screen of all locks.
//!   [`query`]: one question, one answer.
//! - [`text`]: names and durations as people read them. [`shown`]: a lock as lines and JSON show it.
//!
//! Computations (rates, order, filters, the screen, when a lock counts as lost) are apart from servers and terminals,
//! with their tests beside them.

mod args;
mod exec;
mod failure;
mod lock;
mod query;
mod server;
mod shown;
mod text;
mod top;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};
use tokio::signal::unix::{SignalKind, signal};

use args::{Args, Subcommand};
use failure::{Failure, SIGNALLED};
use server::Target;

fn main() -> ExitCode {
    if let Some(code) = exec::stand_in::run() {
        return code;
    }
    let args = match Args::try_parse() {
        Ok(args) => args,
        // The help, or an error in the command line.
        Err(error) => {
            // The reader may be gone.
            let _ = error.print();
            let is_error = error.use_stderr();
            return ExitCode::from(if is_error { failure::USAGE } else { 0 });
        }
    };
    match run(args) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            if failure.code != 0 {
                failure::tell(failure.text);
            }
            ExitCode::from(failure.code)
        }
    }
}

fn run(args: Args) -> Result<u8, Failure> {
    let target = Target::new(&args.url, &args.tls)?;
    // One thread is enough. Also, the kernel signals the command when the thread dies that started it, not the process.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(async {
        match &args.command {
            // Its signals are for the command that it runs.
            Subcommand::Exec(_) => run_command(args.command, target).await,
            _ => until_told(args.command, target).await,
        }
    });
    // A thread may still be waiting for a key.
    runtime.shutdown_background();
    result
}

/// Runs it until a signal ends it, also as PID 1, for which the kernel ignores signals that nobody listens to.
async fn until_told(command: Subcommand, target: Target) -> Result<u8, Failure> {
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    tokio::select! {
        ended = run_command(command, target) => ended,
        _ = terminated.recv() => Ok(SIGNALLED + 15),
        _ = interrupted.recv() => Ok(SIGNALLED + 2),
    }
}

async fn run_command(command: Subcommand, target: Target) -> Result<u8, Failure> {
    match command {
        Subcommand::Exec(args) => exec::run(&args, target).await,
        Subcommand::Top(args) => top::run(&args, target).await,
        Subcommand::Locks(args) => query::locks(&args, target).await,
        Subcommand::Info(args) => query::info(args, target).await,
        Subcommand::Break(args) => query::break_lock(args, target).await,
        Subcommand::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "fairlock", &mut script);
            io::stdout().write_all(&script)?;
            Ok(0)
        }
        Subcommand::Manual { folder } => {
            // A page for `help` would only say how to get help.
            let command = Args::command().disable_help_subcommand(true);
            clap_mangen::generate_to(command, folder)?;
            Ok(0)
        }
    }
}
