//! What is shown, and in which order.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::time::Duration;

use redis::InfoDict;
use tokio::time::Instant;

use crate::args::{Sort, TopArgs};
use crate::lock::Lock;
use crate::server::{Answer, troubles};
use crate::shown::{line, matches};
use crate::text::duration;

/// What a server said.
pub struct Said {
    pub info: InfoDict,
    /// Locks that it tracks.
    pub locks: Vec<Lock>,
    pub has_more: bool,
}

pub struct Board {
    pub sort: Sort,
    /// What a name, holder or next waiter must contain, in lower case.
    filter: String,
    /// When the servers were asked.
    at: Instant,
    pub nodes: Vec<Answer<Said>>,
    /// Hand-offs and acquisitions a second since the look before; `None` if there is nothing to compare with.
    rates: Option<[f64; 2]>,
}

impl Board {
    pub fn new(args: &TopArgs, at: Instant, nodes: Vec<Answer<Said>>) -> Self {
        Self {
            sort: args.sort,
            filter: args.filter.to_lowercase(),
            at,
            nodes,
            rates: None,
        }
    }

    /// Takes in a look.
    pub fn show(&mut self, at: Instant, nodes: Vec<Answer<Said>>) {
        let seconds = (at - self.at).as_secs_f64();
        let grown = ["acquisitions_handed_off", "acquisitions_immediate"]
            .map(|name| grown(&self.nodes, &nodes, name));
        self.rates = match grown {
            [Some(handed_off), Some(immediate)] if seconds > 0.0 => {
                let all = handed_off.saturating_add(immediate);
                Some([handed_off, all].map(|count| f64::from(count) / seconds))
            }
            _ => None,
        };
        (self.at, self.nodes) = (at, nodes);
    }

    /// What an operator should know before reading the table.
    pub fn notices(&self) -> Vec<String> {
        let mut notices = troubles(&self.nodes);
        for Answer { address, said } in &self.nodes {
            match said {
                Ok(said) if said.info.get("role") == Some("slave".to_owned()) => notices.push(format!(
                    "{address} is a replica, which knows of no waiters: its master's address shows more"
                )),
                Ok(said) if said.has_more => notices.push(format!(
                    "of {address} only {} locks are shown: `fairlock locks` lists all",
                    said.locks.len()
                )),
                _ => (),
            }
        }
        notices
    }

    /// The locks that are shown, in order, each with its server's address.
    pub fn rows(&self) -> Vec<(&Lock, &str)> {
        let all = said(&self.nodes)
            .flat_map(|(node, said)| said.locks.iter().map(move |lock| (lock, node)));
        let mut rows: Vec<(&Lock, &str)> = all
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

    /// The figures of all servers together, in one line; of waits the worst server's.
    pub fn figures(&self) -> String {
        let all = |name| said(&self.nodes).map(move |(_, said)| number(said, name));
        let worst = |name| duration(Duration::from_micros(all(name).max().unwrap_or(0)));
        let sum = |name| all(name).sum::<u64>();
        let rate = |which: usize| {
            let rate = self.rates.and_then(|rates| rates.get(which).copied());
            rate.map_or_else(|| "?".to_owned(), |rate| format!("{rate:.1}/s"))
        };
        format!(
            "hand-offs={} acquisitions={} wait-p50={} wait-p99={} wait-max={} blocked={} sessions={} locks={}",
            rate(0),
            rate(1),
            worst("wait_time_p50_usec"),
            worst("wait_time_p99_usec"),
            worst("wait_time_max_usec"),
            sum("blocked_clients"),
            sum("session_locks"),
            sum("locks_with_waiters_or_session"),
        )
    }

    /// As lines: the figures, what an operator should know, a line a lock.
    pub fn lines(&self) -> String {
        let mut text = self.figures() + "\n";
        for notice in self.notices() {
            // Writing to a string does not fail.
            let _ = writeln!(text, "! {notice}");
        }
        for (lock, node) in self.rows() {
            let _ = writeln!(text, "{}", line(lock, node));
        }
        text
    }
}

/// The servers that have answered.
fn said(nodes: &[Answer<Said>]) -> impl Iterator<Item = (&str, &Said)> {
    nodes
        .iter()
        .filter_map(|node| Some((node.address.as_str(), node.said.as_ref().ok()?)))
}

/// One of a server's figures; 0 for one that it does not know.
fn number(said: &Said, name: &str) -> u64 {
    said.info.get(&format!("fairlock_{name}")).unwrap_or(0)
}

/// By how much a counter has grown, over the servers that were there at both looks; `None` if there are none. One that was
/// restarted in between counts from nothing.
fn grown(before: &[Answer<Said>], now: &[Answer<Said>], name: &str) -> Option<u32> {
    let growth = said(now).filter_map(|(address, after)| {
        let (_, earlier) = said(before).find(|(found, _)| *found == address)?;
        let (after, earlier) = (number(after, name), number(earlier, name));
        Some(after.checked_sub(earlier).unwrap_or(after))
    });
    let growth = growth.reduce(u64::saturating_add)?;
    Some(u32::try_from(growth).unwrap_or(u32::MAX))
}

#[cfg(test)]
pub(super) mod tests {
    use clap::Parser as _;

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

    /// A server with these locks, and so many hand-offs.
    fn node(address: &str, locks: Vec<Lock>, hand_offs: u64) -> Answer<Said> {
        let info = format!(
            "fairlock_acquisitions_handed_off:{hand_offs}\nfairlock_blocked_clients:1\nfairlock_wait_time_p99_usec:{hand_offs}"
        );
        Answer {
            address: address.to_owned(),
            said: Ok(Said {
                info: InfoDict::new(&info),
                locks,
                has_more: false,
            }),
        }
    }

    pub fn board(line: &str, locks: Vec<Lock>) -> Board {
        let line = format!("fairlock top {line}");
        let args = Args::try_parse_from(line.split_whitespace()).expect("a command line");
        let Subcommand::Top(args) = args.command else {
            panic!("another subcommand");
        };
        Board::new(&args, Instant::now(), vec![node("here:1", locks, 0)])
    }

    #[test]
    fn rows_are_filtered_and_sorted_by_what_was_asked_for() {
        let three = || {
            vec![
                lock("orders", "carol", 1, 500, 9_000),
                lock("Stock", "alice", 3, 30_000, 20),
                lock("mail", "bob", 0, -1, -1),
            ]
        };
        for (line, expected) in [
            ("", "Stock orders mail"),
            ("--sort held", "orders Stock mail"),
            ("--sort lease", "orders Stock mail"),
            ("--sort name", "Stock mail orders"),
            ("--sort holder", "Stock mail orders"),
            ("--filter STOCK", "Stock"),
            ("--filter car", "orders"),
            ("--filter next", "Stock orders"),
            ("--filter nothing", ""),
        ] {
            let board = board(line, three());
            let name = |(lock, _): (&Lock, _)| String::from_utf8_lossy(&lock.name).into_owned();
            let names: Vec<String> = board.rows().into_iter().map(name).collect();
            assert_eq!(names.join(" "), expected, "{line}");
        }
    }

    #[test]
    fn servers_add_up_and_one_that_does_not_answer_is_told_of() {
        let mut board = board("", Vec::new());
        let start = board.at;
        assert!(board.figures().starts_with("hand-offs=? acquisitions=? "));
        let servers = [("a", 10), ("b", 20), ("c", 9)];
        board.show(
            start,
            servers
                .map(|(at, count)| node(at, Vec::new(), count))
                .into(),
        );
        assert!(board.figures().starts_with("hand-offs=? ") && board.notices().is_empty());
        // One was restarted, one is new, one does not answer.
        let servers = [("a", 14), ("b", 2), ("d", 99)];
        let mut now = Vec::from(servers.map(|(at, count)| node(at, Vec::new(), count)));
        now.push(Answer {
            address: "c".to_owned(),
            said: Err(Trouble::Gone("it is gone".to_owned())),
        });
        board.show(start + Duration::from_millis(500), now);
        let figures = "hand-offs=12.0/s acquisitions=12.0/s wait-p50=0us wait-p99=99us wait-max=0us blocked=3 ";
        assert!(board.lines().starts_with(figures), "{}", board.lines());
        assert!(board.lines().ends_with("\n! it is gone\n"));
    }
}
