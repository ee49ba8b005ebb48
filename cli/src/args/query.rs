//! The command lines of `locks`, `info` and `break`.

use std::ffi::OsString;

use super::name;

/// The locks that are held, each on a line.
#[derive(Debug, clap::Args)]
pub struct LocksArgs {
    /// List only locks with waiters or a session: the keyspace is not searched.
    #[arg(long)]
    pub busy: bool,
    /// List only locks whose name, holder or next waiter contains this text, ignoring case.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub filter: String,
    /// Print a JSON object for each lock.
    #[arg(long)]
    pub json: bool,
}

/// A lock.
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
