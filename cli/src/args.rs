//! The command line.

#![allow(clippy::doc_markdown, reason = "it is printed as help")]

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Parser, ValueEnum};
use clap_complete::Shell;

/// Longest duration that the server takes, in milliseconds.
const LONGEST: u128 = 4_503_599_627_370_496;

/// Most holders that the server takes for a limit.
const MOST_HOLDERS: i64 = 1_000_000;

const EXIT_CODES: &str = "\
Exit codes:
  1    any other failure on this machine
  64   the command line is invalid
  69   no server can be reached, or it refuses the request
  75   exec: the lock was not acquired in time
  76   exec: the lock was lost before the command had ended
  126  exec: the command cannot be executed
  127  exec: the command was not found
  else exec: the command's own status; 128 plus the signal's number if a signal ended it";

/// Runs commands under fairlock's locks, and shows the state of the locks.
#[derive(Debug, Parser)]
#[command(name = "fairlock", version, after_help = EXIT_CODES)]
pub struct Args {
    /// The server, or any node of a cluster: redis://USER:PASSWORD@HOST:PORT/DB, rediss:// for TLS,
    /// unix:///PATH for a socket [default: the environment variable FAIRLOCK_URL, which does not show a password
    /// to others, or redis://127.0.0.1:6379].
    #[arg(long, global = true, hide_default_value = true, default_value_t = url())]
    pub url: String,
    #[command(flatten)]
    pub tls: TlsArgs,
    #[command(subcommand)]
    pub command: Subcommand,
}

/// TLS, for a URL that begins with rediss://, as redis-cli has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "TLS, with rediss://")]
pub struct TlsArgs {
    /// The certificates to trust, a file in PEM [default: the machine's].
    #[arg(long, global = true, value_name = "FILE")]
    pub cacert: Option<PathBuf>,
    /// This client's certificate, a file in PEM.
    #[arg(long, global = true, value_name = "FILE", requires = "tls_key")]
    pub cert: Option<PathBuf>,
    /// The private key of --cert, a file in PEM.
    #[arg(
        id = "tls_key",
        long = "key",
        global = true,
        value_name = "FILE",
        requires = "cert"
    )]
    pub key: Option<PathBuf>,
    /// The host name that the server's certificate is for, if it is not the URL's.
    #[arg(long, global = true, value_name = "HOST")]
    pub sni: Option<String>,
    /// Trust any certificate.
    #[arg(long, global = true)]
    pub insecure: bool,
}

/// What to do.
#[derive(Debug, clap::Subcommand)]
#[allow(missing_docs, reason = "the arguments have them")]
pub enum Subcommand {
    Exec(ExecArgs),
    Top(TopArgs),
    Locks(LocksArgs),
    Info(InfoArgs),
    Break(BreakArgs),
    /// Prints a script by which a shell completes this program's command lines.
    ///
    /// For bash: source <(fairlock completions bash). The packages and `make install` put the scripts where the
    /// shells find them.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Writes the pages of the manual into a folder. For packages.
    #[command(hide = true)]
    Manual {
        /// The folder.
        folder: PathBuf,
    },
}

/// Runs a command while holding a lock, as flock(1) does.
///
/// The lock lives as long as this process is connected. The command finds FAIRLOCK_KEY,
/// FAIRLOCK_OWNER and FAIRLOCK_TOKEN, the fencing token, in its environment. If the lock is lost
/// while the command runs, the command is sent SIGTERM, and SIGKILL after --grace.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub struct ExecArgs {
    /// The lock.
    #[arg(value_parser = name())]
    pub key: OsString,
    /// How long to wait for the lock, such as 500ms, 10s or 2m; 0 tries once. Without this option it waits
    /// as long as it takes.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub wait: Option<Duration>,
    /// Hold the lock together with others that ask so, as readers do. Without this option the command holds it alone.
    #[arg(long)]
    pub shared: bool,
    /// Hold the lock together with others, at most this many at a time, 1 to 1000000.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=MOST_HOLDERS))]
    pub limit: Option<u32>,
    /// How long the lock outlives a server that dies [default: the server's fairlock.lease].
    #[arg(long, value_name = "DURATION", value_parser = positive)]
    pub lease: Option<Duration>,
    /// The owner [default: HOST:PID:UUID]. Two callers with the same owner hold the lock together.
    #[arg(long)]
    pub owner: Option<OsString>,
    /// What to do with the command if the lock is lost.
    #[arg(long, value_enum, default_value_t = OnLoss::Terminate)]
    pub on_loss: OnLoss,
    /// Time between SIGTERM and SIGKILL; at most a third of the lease.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    pub grace: Duration,
    /// How long to go on asking if the server is busy, or goes away during the wait.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub reconnect: Duration,
    /// The command and its arguments.
    #[arg(last = true, required = true, num_args = 1..)]
    pub command: Vec<OsString>,
}

impl ExecArgs {
    /// Whether others may hold the lock at the same time.
    pub fn is_shared(&self) -> bool {
        self.shared || self.limit.is_some()
    }
}

/// What to do with the command if the lock is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnLoss {
    /// End the command.
    Terminate,
    /// Let the command go on; the exit code is still 76.
    Ignore,
}

/// Shows the locks with waiters, a session or SHARED holders, and how fast they change hands.
///
/// On a terminal it is a screen. Without a terminal, or with --once, it prints lines. In a cluster it shows all
/// masters.
#[derive(Debug, clap::Args)]
pub struct TopArgs {
    /// Time between two refreshes; with --once the time over which rates are taken.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = positive)]
    pub interval: Duration,
    /// What to sort by.
    #[arg(long, value_enum, default_value_t = Sort::Waiting)]
    pub sort: Sort,
    /// Show only locks whose name, holder or next waiter contains this text, ignoring case.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub filter: String,
    /// Print lines, once, and exit.
    #[arg(long)]
    pub once: bool,
}

/// What to sort by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// Most waiters first.
    Waiting,
    /// Longest held first.
    Held,
    /// Leases that end soonest first.
    Lease,
    /// By the lock's name.
    Name,
    /// By the holder.
    Holder,
}

/// Lists the locks that are held, each on a line.
///
/// First come those with waiters, a session or SHARED holders. Then the keyspace is searched for all
/// others, some keys at a time, so that the server goes on serving its clients. In a cluster it lists
/// those of all masters.
#[derive(Debug, clap::Args)]
pub struct LocksArgs {
    /// List only locks with waiters, a session or SHARED holders: the keyspace is not searched.
    #[arg(long)]
    pub busy: bool,
    /// List only locks whose name, holder or next waiter contains this text, ignoring case.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub filter: String,
    /// Print a JSON object for each lock.
    #[arg(long)]
    pub json: bool,
}

/// Shows a lock: its holders, their leases and tokens, and who is next.
#[derive(Debug, clap::Args)]
pub struct InfoArgs {
    /// The lock.
    #[arg(value_name = "KEY", value_parser = name())]
    pub key: OsString,
    /// Print a JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Takes a lock away from its holders.
///
/// The holder is not told. It finds out at its next RENEW or RELEASE, or by its token, if what it writes to
/// checks that. Needs an administrator: a user with permission for commands that are @admin and @dangerous.
#[derive(Debug, clap::Args)]
pub struct BreakArgs {
    /// The lock.
    #[arg(value_name = "KEY", value_parser = name())]
    pub key: OsString,
    /// Free only the hold of this owner: of a lock with several holders the others keep theirs.
    #[arg(long)]
    pub owner: Option<OsString>,
    /// Free a lock without a lease, too. Such a hash may not be a lock.
    #[arg(long)]
    pub force: bool,
}

/// Where no URL is given. Not by clap's own `env`, which counts as given: it would stand in the usage of each error.
fn url() -> String {
    std::env::var_os("FAIRLOCK_URL").map_or_else(
        || "redis://127.0.0.1:6379".to_owned(),
        |url| url.to_string_lossy().into_owned(),
    )
}

/// A lock's name: any bytes, at least one.
fn name() -> impl TypedValueParser<Value = OsString> {
    OsStringValueParser::new().try_map(|name| {
        let named = Some(name).filter(|name| !name.is_empty());
        named.ok_or("the name of a lock cannot be empty")
    })
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write 500ms, 10s or 2m"))?;
    if duration.as_millis() > LONGEST {
        return Err(format!("longer than {LONGEST}ms"));
    }
    Ok(duration)
}

fn positive(text: &str) -> Result<Duration, String> {
    let duration = duration(text)?;
    if duration.as_millis() == 0 {
        return Err("shorter than 1ms".to_owned());
    }
    Ok(duration)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use fairlock_testing::paths::root;

    use super::*;

    #[test]
    fn command_lines_of_the_pages_are_understood() {
        let mut count = 0;
        let pages = "README.md docs/companion.md docs/recipes.md docs/shared-locks.md";
        for page in pages.split(' ') {
            let page = fs::read_to_string(root().join(page)).expect("a page");
            let code = page.lines().filter_map(|line| line.strip_prefix("    "));
            let typed = code.map(|line| line.strip_prefix("$ ").unwrap_or(line));
            for line in typed.filter(|line| line.starts_with("fairlock ")) {
                if let Err(error) = Args::try_parse_from(shlex::split(line).expect(line)) {
                    panic!("{line}\n{error}");
                }
                count += 1;
            }
        }
        assert!(count > 10, "{count}");
    }

    #[test]
    fn durations_have_units_and_a_range() {
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        for text in ["", "10", "-1s", "ten", "1000000000 years"] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert!(positive("0").is_err());
        assert!(positive("1us").is_err());
        assert_eq!(positive("1ms"), Ok(Duration::from_millis(1)));
    }
}
