//! What the servers say at one look, and how it differs from the look before.

use std::collections::HashSet;
use std::time::Instant;

use serde::Serialize;

use crate::lock::Lock;
use crate::server::{Answer, Info, Link, Masters, Trouble};

/// Locks that a server is asked for at once.
const PAGE: usize = 1000;
/// How often it is asked for them. Each time takes it some milliseconds.
const PAGES: usize = 10;

/// All servers at one look.
#[derive(Debug)]
pub struct Look {
    at: Instant,
    /// The servers.
    pub nodes: Vec<Answer<Said>>,
}

/// What a server said.
#[derive(Debug)]
pub struct Said {
    /// Its figures.
    pub info: Info,
    /// Its locks, the busiest first.
    pub locks: Vec<Lock>,
    /// It has more, or more keys than were looked at.
    pub has_more: bool,
}

impl Look {
    /// Asks all masters at once, each for a number of locks. An error if there is no server to ask.
    pub async fn at(masters: &mut Masters, limit: usize) -> Result<Self, Trouble> {
        let at = Instant::now();
        let nodes = masters.ask(async |link| Said::by(link, limit).await);
        Ok(Self {
            at,
            nodes: nodes.await?,
        })
    }

    /// What the first server says, if none has answered.
    #[must_use]
    pub fn no_server_answered(&self) -> Option<String> {
        if self.nodes.iter().any(|node| node.said.is_ok()) {
            return None;
        }
        self.nodes.first()?.said.as_ref().err().map(Trouble::text)
    }

    fn said(&self) -> impl Iterator<Item = (&str, &Said)> {
        let said = |node: &'_ Answer<Said>| node.said.is_ok();
        let nodes = self.nodes.iter().filter(move |node| said(node));
        nodes.filter_map(|node| Some((node.address.as_str(), node.said.as_ref().ok()?)))
    }
}

impl Said {
    async fn by(mut link: Link, limit: usize) -> Result<Self, Trouble> {
        // First the locks: their error is the clearest if the module is missing.
        let (mut locks, mut names, mut after) = (Vec::new(), HashSet::new(), None);
        for _ in 0..PAGES {
            let some = link.locks(true, PAGE, after.as_deref()).await?;
            // A lock that gets a waiter meanwhile is met twice.
            let mut some_locks = some.locks;
            some_locks.retain(|lock| names.insert(lock.name.clone()));
            locks.extend(some_locks);
            after = some.more;
            if after.is_none() || locks.len() > limit {
                break;
            }
        }
        let has_more = after.is_some() || locks.len() > limit;
        locks.truncate(limit);
        Ok(Self {
            info: link.fairlock_info().await?,
            locks,
            has_more,
        })
    }
}

/// The figures of all servers together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Hand-offs a second since the look before; `None` if there is nothing to compare with.
    pub hand_offs_per_second: Option<f64>,
    /// Acquisitions a second, hand-offs included.
    pub acquisitions_per_second: Option<f64>,
    /// Median wait in microseconds since the module was loaded; of several servers the worst.
    pub wait_p50_usec: u64,
    /// The 99th percentile.
    pub wait_p99_usec: u64,
    /// The longest wait.
    pub wait_max_usec: u64,
    /// Clients blocked now.
    pub blocked_clients: u64,
    /// Locks bound to a connection now.
    pub session_locks: u64,
    /// Locks with waiters or a session, of all databases.
    pub locks: u64,
}

impl Summary {
    /// Compares two looks.
    #[must_use]
    pub fn of(before: Option<&Look>, now: &Look) -> Self {
        let all = |name| now.said().map(move |(_, said)| said.info.number(name));
        let worst = |name| all(name).max().unwrap_or(0);
        let rate = |names: &[&str]| rate(before?, now, names);
        Self {
            hand_offs_per_second: rate(&["acquisitions_handed_off"]),
            acquisitions_per_second: rate(&["acquisitions_handed_off", "acquisitions_immediate"]),
            wait_p50_usec: worst("wait_time_p50_usec"),
            wait_p99_usec: worst("wait_time_p99_usec"),
            wait_max_usec: worst("wait_time_max_usec"),
            blocked_clients: all("blocked_clients").sum(),
            session_locks: all("session_locks").sum(),
            locks: all("locks_with_waiters_or_session").sum(),
        }
    }
}

/// How fast counters grow, over the servers that were there at both looks. One that was restarted in between counts
/// from nothing.
fn rate(before: &Look, now: &Look, names: &[&str]) -> Option<f64> {
    let seconds = now.at.checked_duration_since(before.at)?.as_secs_f64();
    let count = |said: &Said| -> u64 { names.iter().map(|name| said.info.number(name)).sum() };
    let mut grown: Option<u64> = None;
    for (address, after) in now.said() {
        if let Some((_, earlier)) = before.said().find(|(found, _)| *found == address) {
            let (after, earlier) = (count(after), count(earlier));
            *grown.get_or_insert(0) += after.checked_sub(earlier).unwrap_or(after);
        }
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "no counter grows by 2^53 in a second"
    )]
    grown
        .filter(|_| seconds > 0.0)
        .map(|grown| grown as f64 / seconds)
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;

    /// A server with these locks, so many hand-offs, and that many clients blocked.
    pub fn said(locks: Vec<Lock>, hand_offs: u64, blocked: u64) -> Said {
        let info = format!(
            "fairlock_acquisitions_handed_off:{hand_offs}\nfairlock_blocked_clients:{blocked}\nfairlock_wait_time_p99_usec:{hand_offs}"
        );
        Said {
            info: Info::read(&info).expect("fields"),
            locks,
            has_more: false,
        }
    }

    pub fn look(at: Instant, nodes: Vec<(&str, Result<Said, Trouble>)>) -> Look {
        let nodes = nodes.into_iter().map(|(address, said)| Answer {
            address: address.to_owned(),
            said,
        });
        Look {
            at,
            nodes: nodes.collect(),
        }
    }

    #[test]
    fn servers_add_up_and_the_worst_wait_is_shown() {
        let start = Instant::now();
        let node = |count| Ok(said(Vec::new(), count, 1));
        let first = look(
            start,
            vec![("a", node(10)), ("b", node(20)), ("c", node(9))],
        );
        assert_eq!(Summary::of(None, &first).hand_offs_per_second, None);
        let at_once = Summary::of(Some(&first), &first);
        assert_eq!(at_once.hand_offs_per_second, None);
        // One was restarted, one does not answer, one is new.
        let gone = Err(Trouble::Gone("gone".to_owned()));
        let now = vec![
            ("a", node(14)),
            ("b", node(2)),
            ("c", gone),
            ("d", node(99)),
        ];
        let now = look(start + Duration::from_millis(500), now);
        let summary = Summary::of(Some(&first), &now);
        assert_eq!(summary.hand_offs_per_second, Some(12.0));
        assert_eq!((summary.wait_p99_usec, summary.blocked_clients), (99, 3));
    }
}
