//! `fairlock top`: the locks that servers track, and how fast they change hands.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::args::{Sort, TopArgs};
use crate::failure::{Failure, UNAVAILABLE};
use crate::lock::Lock;
use crate::server::{Answer, Info, Link, Masters, Target, Trouble, troubles};
use crate::shown::line;
use crate::text::duration;

/// Shows the locks; the exit code.
pub async fn run(args: &TopArgs, target: Target) -> Result<u8, Failure> {
    let mut masters = Masters::new(target);
    let (start, before) = (Instant::now(), masters.ask(ask).await);
    // A wrong address or user is reported at once.
    if before.iter().all(|node| node.said.is_err()) {
        return Err(Failure::new(UNAVAILABLE, troubles(&before).join("\n")));
    }
    sleep(args.interval).await;
    let (elapsed, now) = (start.elapsed(), masters.ask(ask).await);
    let is_well = troubles(&now).is_empty();
    let board = Board::new(args.sort, &before, now, elapsed);
    io::stdout().write_all(board.lines().as_bytes())?;
    Ok(if is_well { 0 } else { UNAVAILABLE })
}

/// What a server said.
#[derive(Debug)]
struct Said {
    /// Its figures.
    info: Info,
    /// Locks that it tracks.
    locks: Vec<Lock>,
    /// It has more.
    has_more: bool,
}

async fn ask(mut link: Link) -> Result<Said, Trouble> {
    // First the locks: their error is the clearest if the module is missing.
    let (locks, more) = link.tracked(0).await?;
    Ok(Said {
        has_more: more.is_some(),
        info: link.fairlock_info().await?,
        locks,
    })
}

/// What is shown.
#[derive(Debug)]
struct Board {
    /// What to sort by.
    sort: Sort,
    /// What the servers said.
    nodes: Vec<Answer<Said>>,
    /// Hand-offs and acquisitions a second; `None` if no server was there at both looks.
    rates: Option<[f64; 2]>,
}

impl Board {
    /// After two looks, a time apart.
    fn new(sort: Sort, before: &[Answer<Said>], nodes: Vec<Answer<Said>>, apart: Duration) -> Self {
        let grown = |name| grown(before, &nodes, name);
        let rates = grown("acquisitions_handed_off")
            .zip(grown("acquisitions_immediate"))
            .map(|(handed_off, immediate)| {
                let all = handed_off.saturating_add(immediate);
                [handed_off, all].map(|count| f64::from(count) / apart.as_secs_f64())
            });
        Self { sort, nodes, rates }
    }

    /// What an operator should know before reading the table.
    fn notices(&self) -> Vec<String> {
        let mut notices = troubles(&self.nodes);
        for Answer { address, said } in &self.nodes {
            match said {
                Ok(said) if said.info.is_replica => notices.push(format!(
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

    /// The locks in order, each with its server's address.
    fn rows(&self) -> Vec<(&Lock, &str)> {
        let all = said(&self.nodes)
            .flat_map(|(node, said)| said.locks.iter().map(move |lock| (lock, node)));
        let mut rows: Vec<(&Lock, &str)> = all.collect();
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
    fn figures(&self) -> String {
        let all = |name| said(&self.nodes).map(move |(_, said)| said.info.number(name));
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
    fn lines(&self) -> String {
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

/// By how much a counter has grown, over the servers that were there at both looks; `None` if there are none. One that was
/// restarted in between counts from nothing.
fn grown(before: &[Answer<Said>], now: &[Answer<Said>], name: &str) -> Option<u32> {
    let growth = said(now).filter_map(|(address, after)| {
        let (_, earlier) = said(before).find(|(found, _)| *found == address)?;
        let (after, earlier) = (after.info.number(name), earlier.info.number(name));
        Some(after.checked_sub(earlier).unwrap_or(after))
    });
    let growth = growth.reduce(u64::saturating_add)?;
    Some(u32::try_from(growth).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(name: &str, owner: &str, waiting: i64, lease: i64, held: i64) -> Lock {
        Lock {
            name: name.into(),
            owner: Some(owner.into()),
            lease,
            token: Some(7),
            waiting,
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
                info: Info::read(&info).expect("fields"),
                locks,
                has_more: false,
            }),
        }
    }

    #[test]
    fn rows_are_sorted_by_what_was_asked_for() {
        for (sort, expected) in [
            (Sort::Waiting, "Stock orders mail"),
            (Sort::Held, "orders Stock mail"),
            (Sort::Lease, "orders Stock mail"),
            (Sort::Name, "Stock mail orders"),
            (Sort::Holder, "Stock mail orders"),
        ] {
            let locks = vec![
                lock("orders", "carol", 1, 500, 9_000),
                lock("Stock", "alice", 3, 30_000, 20),
                lock("mail", "bob", 0, -1, -1),
            ];
            let board = Board::new(sort, &[], vec![node("a", locks, 0)], Duration::ZERO);
            let name = |(lock, _): (&Lock, _)| String::from_utf8_lossy(&lock.name).into_owned();
            let names: Vec<String> = board.rows().into_iter().map(name).collect();
            assert_eq!(names.join(" "), expected, "{sort:?}");
        }
    }

    #[test]
    fn servers_add_up_and_one_that_does_not_answer_is_told_of() {
        let looked = |servers: &[(&str, u64)]| -> Vec<_> {
            let nodes = servers.iter();
            nodes
                .map(|(at, count)| node(at, Vec::new(), *count))
                .collect()
        };
        // One was restarted, one is new, one does not answer.
        let before = looked(&[("a", 10), ("b", 20), ("c", 9)]);
        let mut now = looked(&[("a", 14), ("b", 2), ("d", 99)]);
        now.push(Answer {
            address: "c".to_owned(),
            said: Err(Trouble::Gone("it is gone".to_owned())),
        });
        let lines = Board::new(Sort::Name, &before, now, Duration::from_millis(500)).lines();
        let figures =
            "hand-offs=12.0/s acquisitions=12.0/s wait-p50=0s wait-p99=99us wait-max=0s blocked=3 ";
        assert!(lines.starts_with(figures), "{lines}");
        assert!(lines.ends_with("\n! it is gone\n"), "{lines}");
        let new = Board::new(
            Sort::Name,
            &before,
            looked(&[("d", 9)]),
            Duration::from_secs(1),
        );
        assert!(new.lines().starts_with("hand-offs=? acquisitions=? "));
    }
}
