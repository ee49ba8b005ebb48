//! The program: reads the command line, and ends with the code that `fairlock --help` lists.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;
use fairlock_cli::args::{Args, Subcommand};
use fairlock_cli::failure::{self, Failure};
use fairlock_cli::server::Target;
use fairlock_cli::{exec, metrics, query, top};

fn main() -> ExitCode {
    if let Some(code) = exec::stand_in::run() {
        return code;
    }
    let line: Vec<_> = std::env::args_os().collect();
    let args = match Args::read(&line) {
        Ok(args) => args,
        Err(error) => return usage(&error),
    };
    match run(args) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            eprintln!("fairlock: {failure}");
            ExitCode::from(failure.code)
        }
    }
}

/// Prints clap's message: the help, or an error in the command line.
fn usage(error: &clap::Error) -> ExitCode {
    // The reader may be gone.
    let _ = error.print();
    let code = if error.use_stderr() {
        failure::USAGE
    } else {
        0
    };
    ExitCode::from(code)
}

fn run(args: Args) -> Result<u8, Failure> {
    let target = Target::new(&args.url, &args.tls)?;
    // One thread is enough. Also, the kernel signals the command when the thread dies that started it, not the process.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(async {
        match args.command {
            Subcommand::Exec(args) => exec::run(&args, target).await,
            Subcommand::Top(args) => top::run(&args, target).await,
            Subcommand::Metrics(args) => metrics::run(&args, target).await,
            Subcommand::Locks(args) => query::locks::run(&args, target).await,
            Subcommand::Info(args) => query::info::run(args, target).await,
            Subcommand::Queue(args) => query::queue::run(args, target).await,
            Subcommand::Break(args) => query::break_lock::run(args, target).await,
            Subcommand::Completions { shell } => completions(shell),
        }
    });
    // A thread may still be waiting for a key.
    runtime.shutdown_background();
    result
}

/// Prints a shell's completion script. No server is asked.
fn completions(shell: Shell) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "fairlock", &mut script);
    io::stdout().write_all(&script)?;
    Ok(0)
}
