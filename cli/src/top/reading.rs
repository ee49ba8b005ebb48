//! What the servers said at one look.

use std::time::Duration;

use crate::lock::Lock;

use super::recent::Waits;

/// What `INFO fairlock` says of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Acquisitions without waiting.
    pub immediate: u64,
    /// Acquisitions by a waiter.
    pub handed_off: u64,
    /// Median wait in microseconds.
    pub wait_p50: u64,
    /// The 99th percentile.
    pub wait_p99: u64,
    /// The longest wait.
    pub wait_max: u64,
    /// Clients blocked now.
    pub blocked: u64,
    /// Locks bound to a connection now.
    pub sessions: u64,
    /// Locks with waiters or a session, of all databases.
    pub tracked: u64,
}

/// One server at one look.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its address.
    pub address: String,
    /// Its reply, or its error.
    pub said: Result<Said, String>,
}

/// What a server said.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// Its counters and gauges.
    pub counters: Counters,
    /// How long its waiters have waited.
    pub waits: Waits,
    /// Its locks.
    pub locks: Vec<Lock>,
    /// It has more.
    pub is_cut_short: bool,
    /// Not all of its keys were looked at yet.
    pub is_searching: bool,
    /// It is a replica, which knows of no waiters.
    pub is_replica: bool,
}

/// All servers at one look.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// When, since the first look.
    pub at: Duration,
    /// The servers.
    pub nodes: Vec<Node>,
}

impl Reading {
    /// What the first server says of itself, if none has answered.
    #[must_use]
    pub fn no_server_answered(&self) -> Option<&str> {
        if self.nodes.iter().any(|node| node.said.is_ok()) {
            return None;
        }
        self.nodes.first()?.said.as_ref().err().map(String::as_str)
    }
}

impl Counters {
    /// Reads the section of INFO; `None` if the module is not loaded.
    #[must_use]
    pub fn read(info: &str) -> Option<Self> {
        let number = |name: &str| {
            let mut lines = info.lines().filter_map(|line| line.split_once(':'));
            let found = lines.find(|(found, _)| found.strip_prefix("fairlock_") == Some(name));
            found.and_then(|(_, value)| value.trim().parse().ok())
        };
        Some(Self {
            handed_off: number("acquisitions_handed_off")?,
            immediate: number("acquisitions_immediate")?,
            wait_p50: number("wait_time_p50_usec").unwrap_or(0),
            wait_p99: number("wait_time_p99_usec").unwrap_or(0),
            wait_max: number("wait_time_max_usec").unwrap_or(0),
            blocked: number("blocked_clients").unwrap_or(0),
            sessions: number("session_locks").unwrap_or(0),
            tracked: number("locks_with_waiters_or_session").unwrap_or(0),
        })
    }
}

/// Whether INFO is that of a replica.
#[must_use]
pub fn is_replica(info: &str) -> bool {
    info.lines().any(|line| line.trim_end() == "role:slave")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_section_of_info_is_read() {
        let info = "# Replication\r\nrole:master\r\n# fairlock\r\n\
            fairlock_acquisitions_immediate:7\r\nfairlock_acquisitions_handed_off:5\r\n\
            fairlock_blocked_clients:3\r\nfairlock_session_locks:2\r\n\
            fairlock_locks_with_waiters_or_session:4\r\nfairlock_wait_time_p50_usec:100\r\n\
            fairlock_wait_time_p99_usec:200\r\nfairlock_wait_time_max_usec:300\r\n";
        let expected = Counters {
            immediate: 7,
            handed_off: 5,
            wait_p50: 100,
            wait_p99: 200,
            wait_max: 300,
            blocked: 3,
            sessions: 2,
            tracked: 4,
        };
        assert_eq!(Counters::read(info), Some(expected));
        assert!(!is_replica(info));
        assert!(is_replica("role:slave\r\n"));
    }

    #[test]
    fn without_the_module_there_is_no_section() {
        assert_eq!(Counters::read("# Replication\r\nrole:master\r\n"), None);
    }
}
