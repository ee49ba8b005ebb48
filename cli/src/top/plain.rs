//! The board as lines for people and other programs.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use crate::shown::{self, Shown, lease};
use crate::text::{duration, now};

use super::board::{Board, Row};
use super::recent::Recent;
use super::summary::Summary;

/// A look as an object of JSON.
#[derive(Serialize)]
struct Look<'a> {
    time: String,
    db: i64,
    nodes: Vec<NodeLine<'a>>,
    notices: Vec<String>,
    summary: &'a Summary,
    locks: Vec<Shown>,
}

#[derive(Serialize)]
struct NodeLine<'a> {
    address: &'a str,
    error: Option<&'a str>,
}

/// The board as one line of JSON.
pub fn json(board: &Board) -> serde_json::Result<String> {
    let nodes = board.reading().nodes.iter().map(|node| NodeLine {
        address: &node.address,
        error: node.said.as_ref().err().map(String::as_str),
    });
    let look = Look {
        time: now(),
        db: board.db,
        nodes: nodes.collect(),
        notices: board.notices(),
        summary: board.summary(),
        locks: board
            .rows()
            .iter()
            .map(|row| Shown::new(&row.lock, &row.node))
            .collect(),
    };
    Ok(serde_json::to_string(&look)? + "\n")
}

/// The board as lines: the figures, what an operator should know, a line a lock.
#[must_use]
pub fn lines(board: &Board) -> String {
    let mut text = format!("{} {}\n", now(), figures(board.summary()));
    for notice in board.notices() {
        // Writing to a string does not fail.
        let _ = writeln!(text, "! {notice}");
    }
    for row in board.rows() {
        let _ = writeln!(text, "{}", line(row));
    }
    text
}

/// The figures in one line.
#[must_use]
pub fn figures(summary: &Summary) -> String {
    let usec = |usec| duration(Duration::from_micros(usec));
    format!(
        "hand-offs={} acquisitions={} wait-p50={} wait-p99={} wait-max={} {} blocked={} sessions={} locks={}",
        rate(summary.hand_offs_per_second),
        rate(summary.acquisitions_per_second),
        usec(summary.wait_p50_usec),
        usec(summary.wait_p99_usec),
        usec(summary.wait_max_usec),
        recent(&summary.recent),
        summary.blocked_clients,
        summary.session_locks,
        summary.locks,
    )
}

/// The waits of the last minute: of as much of it as was seen.
fn recent(recent: &Recent) -> String {
    let usec = |usec: Option<u64>| {
        usec.map_or_else(
            || "-".to_owned(),
            |usec| duration(Duration::from_micros(usec)),
        )
    };
    format!(
        "recent={}s recent-waits={} recent-p50={} recent-p99={} recent-max={}",
        recent.seconds,
        recent.waits,
        usec(recent.p50_usec),
        usec(recent.p99_usec),
        usec(recent.max_usec),
    )
}

/// A rate a second.
#[must_use]
pub fn rate(rate: Option<f64>) -> String {
    rate.map_or_else(|| "?".to_owned(), |rate| format!("{rate:.1}/s"))
}

fn line(row: &Row) -> String {
    shown::line(&row.lock, &row.node, &lease(row.lock.lease))
}

#[cfg(test)]
mod tests {
    use super::super::board::tests::{board, lock, reading};
    use super::*;

    fn shown() -> Board {
        let mut board = board("");
        let mut odd = lock("two words\u{7}", "a", 0, -1, -1);
        odd.session = true;
        board.show(reading(vec![
            lock("orders", "alice", 2, 18_200, 1_500),
            odd,
        ]));
        board
    }

    #[test]
    fn a_lock_is_a_line() {
        let text = lines(&shown());
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].contains(" hand-offs=? acquisitions=? wait-p50=0us "),
            "{text}"
        );
        assert_eq!(
            lines[1],
            "orders holder=alice held=1.5s lease=18.2s waiting=2 next=next-one token=7 session=no node=127.0.0.1:6379"
        );
        assert_eq!(
            lines[2],
            "\"two words\\u{7}\" holder=a held=? lease=none waiting=0 next=- token=7 session=yes node=127.0.0.1:6379"
        );
    }

    #[test]
    fn a_lock_with_several_holders_tells_how_many() {
        let mut board = board("");
        let mut pool = lock("pool", "alice", 0, 18_200, 1_500);
        (pool.holders, pool.limit) = (3, 5);
        board.show(reading(vec![pool]));
        let text = lines(&board);
        assert!(
            text.contains("\npool holder=alice holders=3 limit=5 held=1.5s "),
            "{text}"
        );
        let look: serde_json::Value =
            serde_json::from_str(&json(&board).expect("JSON")).expect("JSON");
        assert_eq!(look["locks"][0]["holders"], 3);
        assert_eq!(look["locks"][0]["limit"], 5);
    }

    #[test]
    fn a_look_is_a_line_of_json() {
        let text = json(&shown()).expect("JSON");
        assert_eq!(text.lines().count(), 1);
        let look: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(
            look["summary"]["hand_offs_per_second"],
            serde_json::Value::Null
        );
        assert_eq!(look["locks"][0]["name"], "orders");
        assert_eq!(look["locks"][0]["lease_ms"], 18_200);
        assert_eq!(look["locks"][1]["lease_ms"], serde_json::Value::Null);
        assert_eq!(look["locks"][1]["next"], serde_json::Value::Null);
        assert_eq!(look["nodes"][0]["address"], "127.0.0.1:6379");
    }

    #[test]
    fn a_notice_is_a_line_of_its_own() {
        let mut board = shown();
        board.trouble = Some("no server".to_owned());
        assert!(lines(&board).contains("\n! no server\n"));
    }
}
