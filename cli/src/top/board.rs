//! What is shown, and in which order.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::json;

use crate::args::{Sort, TopArgs};
use crate::lock::Lock;
use crate::shown::{self, matches, object};
use crate::text::{duration, now};

use super::look::{Look, Summary};

/// What is shown.
#[derive(Debug)]
pub struct Board {
    /// What to sort by.
    pub sort: Sort,
    /// Why no server could be asked at the last look.
    pub trouble: Option<String>,
    /// The figures above the table.
    pub summary: Summary,
    /// What a name, holder or next waiter must contain, in lower case.
    filter: String,
    look: Look,
}

impl Board {
    /// Begins with a look.
    #[must_use]
    pub fn new(args: &TopArgs, look: Look) -> Self {
        Self {
            sort: args.sort,
            trouble: None,
            summary: Summary::of(None, &look),
            filter: args.filter.to_lowercase(),
            look,
        }
    }

    /// Takes in a look.
    pub fn show(&mut self, look: Look) {
        self.summary = Summary::of(Some(&self.look), &look);
        self.look = look;
        self.trouble = None;
    }

    /// The servers' addresses.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.look.nodes.iter().map(|node| node.address.as_str())
    }

    /// Whether a server did not answer.
    #[must_use]
    pub fn has_trouble(&self) -> bool {
        self.trouble.is_some() || self.look.nodes.iter().any(|node| node.said.is_err())
    }

    /// What an operator should know before reading the table.
    #[must_use]
    pub fn notices(&self) -> Vec<String> {
        let mut notices: Vec<String> = self.trouble.iter().cloned().collect();
        for node in &self.look.nodes {
            match &node.said {
                Err(trouble) => notices.push(trouble.text()),
                Ok(said) if said.info.is_replica => notices.push(format!(
                    "{} is a replica, which knows of no waiters: its master's address shows more",
                    node.address
                )),
                Ok(said) if said.has_more => notices.push(format!(
                    "of {} only {} locks are shown, those with most waiters first: `fairlock locks` lists all",
                    node.address,
                    said.locks.len()
                )),
                Ok(_) => (),
            }
        }
        notices
    }

    /// The locks that are shown, in order, each with its server's address.
    #[must_use]
    pub fn rows(&self) -> Vec<(&Lock, &str)> {
        let mut rows: Vec<(&Lock, &str)> = self
            .look
            .nodes
            .iter()
            .flat_map(|node| {
                let locks = node.said.iter().flat_map(|said| &said.locks);
                locks.map(|lock| (lock, node.address.as_str()))
            })
            .filter(|(lock, _)| matches(lock, &self.filter))
            .collect();
        rows.sort_by_key(|(lock, node)| (&lock.name, *node));
        match self.sort {
            Sort::Waiting => rows.sort_by_key(|(lock, _)| Reverse(lock.waiting)),
            Sort::Held => rows.sort_by_key(|(lock, _)| Reverse(lock.held)),
            // A lock without an end comes last.
            Sort::Lease => {
                rows.sort_by_key(|(lock, _)| u64::try_from(lock.lease).unwrap_or(u64::MAX));
            }
            Sort::Name => (),
            Sort::Holder => rows.sort_by_key(|(lock, _)| &lock.owner),
        }
        rows
    }

    /// The figures in one line.
    #[must_use]
    pub fn figures(&self) -> String {
        let summary = &self.summary;
        let usec = |usec| duration(Duration::from_micros(usec));
        let rate =
            |rate: Option<f64>| rate.map_or_else(|| "?".to_owned(), |rate| format!("{rate:.1}/s"));
        format!(
            "hand-offs={} acquisitions={} wait-p50={} wait-p99={} wait-max={} blocked={} sessions={} locks={}",
            rate(summary.hand_offs_per_second),
            rate(summary.acquisitions_per_second),
            usec(summary.wait_p50_usec),
            usec(summary.wait_p99_usec),
            usec(summary.wait_max_usec),
            summary.blocked_clients,
            summary.session_locks,
            summary.locks,
        )
    }

    /// As lines: the figures, what an operator should know, a line a lock.
    #[must_use]
    pub fn lines(&self) -> String {
        let mut text = format!("{} {}\n", now(), self.figures());
        for notice in self.notices() {
            // Writing to a string does not fail.
            let _ = writeln!(text, "! {notice}");
        }
        for (lock, node) in self.rows() {
            let _ = writeln!(text, "{}", shown::line(lock, node));
        }
        text
    }

    /// As one line of JSON.
    #[must_use]
    pub fn json(&self) -> String {
        let rows = self.rows();
        let locks: Vec<_> = rows.iter().map(|(lock, node)| object(lock, node)).collect();
        let (notices, summary) = (self.notices(), self.summary);
        format!(
            "{}\n",
            json!({ "time": now(), "notices": notices, "summary": summary, "locks": locks })
        )
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Instant;

    use clap::Parser as _;

    use super::super::look::tests::{look, said};
    use super::*;
    use crate::args::{Args, Subcommand};
    use crate::server::Trouble;

    pub fn lock(name: &str, owner: &str, waiting: i64, lease: i64, held: i64) -> Lock {
        Lock {
            name: name.into(),
            owner: Some(owner.into()),
            lease,
            token: Some(7),
            waiting,
            next: (waiting > 0).then(|| b"next-one".to_vec()),
            holders: 1,
            limit: 1,
            held,
            ..Lock::default()
        }
    }

    pub fn board(line: &str, locks: Vec<Lock>) -> Board {
        let line = format!("fairlock top {line}");
        let args = Args::try_parse_from(line.split_whitespace()).expect("a command line");
        let Subcommand::Top(args) = args.command else {
            panic!("another subcommand");
        };
        let first = vec![("here:1", Ok(said(locks, 0, 0)))];
        Board::new(&args, look(Instant::now(), first))
    }

    fn three() -> Vec<Lock> {
        vec![
            lock("orders", "carol", 1, 500, 9_000),
            lock("Stock", "alice", 3, 30_000, 20),
            lock("mail", "bob", 0, -1, -1),
        ]
    }

    fn names(board: &Board) -> Vec<String> {
        let name = |(lock, _): (&Lock, _)| String::from_utf8_lossy(&lock.name).into_owned();
        board.rows().into_iter().map(name).collect()
    }

    #[test]
    fn rows_are_sorted_by_what_was_asked_for() {
        let mut board = board("", three());
        for (sort, expected) in [
            (Sort::Waiting, ["Stock", "orders", "mail"]),
            (Sort::Held, ["orders", "Stock", "mail"]),
            (Sort::Lease, ["orders", "Stock", "mail"]),
            (Sort::Name, ["Stock", "mail", "orders"]),
            (Sort::Holder, ["Stock", "mail", "orders"]),
        ] {
            board.sort = sort;
            assert_eq!(names(&board), expected, "{sort:?}");
        }
    }

    #[test]
    fn the_filter_looks_at_names_holders_and_who_is_next() {
        for (filter, expected) in [
            ("STOCK", vec!["Stock"]),
            ("car", vec!["orders"]),
            ("next", vec!["Stock", "orders"]),
            ("nothing", vec![]),
        ] {
            let board = board(&format!("--filter {filter}"), three());
            assert_eq!(names(&board), expected, "{filter}");
        }
    }

    #[test]
    fn an_operator_is_told_what_is_not_shown() {
        let mut board = board("", three());
        assert!(board.notices().is_empty() && !board.has_trouble());
        let gone = Err(Trouble::Gone("it is gone".to_owned()));
        board.show(look(Instant::now(), vec![("here:1", gone)]));
        assert!(board.has_trouble());
        board.trouble = Some("no server".to_owned());
        assert!(board.lines().ends_with("\n! no server\n! it is gone\n"));
    }
}
