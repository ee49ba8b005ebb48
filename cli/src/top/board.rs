//! What is shown, and in which order.

use std::cmp::{Ordering, Reverse};

use crate::args::{Sort, TopArgs};
use crate::lock::Lock;
use crate::shown::matches;

use super::reading::Reading;
use super::recent::Window;
use super::summary::Summary;

/// A lock as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What the server says of it.
    pub lock: Lock,
    /// The server's address.
    pub node: String,
}

/// What is shown.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is switched by a key of its own"
)]
pub struct Board {
    /// The database.
    pub db: i64,
    /// What to sort by.
    pub sort: Sort,
    /// Whether the other way round.
    pub reverse: bool,
    /// What a name, holder or next waiter must contain.
    pub filter: String,
    /// Whether the filter is being typed.
    pub typing: bool,
    /// Whether the keys and columns are explained instead of the table.
    pub help: bool,
    /// Whether looks are left out.
    pub paused: bool,
    /// The row that is selected, of those that are shown.
    pub selected: usize,
    /// How many locks each server is asked for.
    pub limit: u32,
    /// Why no server could be asked at the last look.
    pub trouble: Option<String>,
    reading: Reading,
    summary: Summary,
    rows: Vec<Row>,
    window: Window,
    looks: u64,
}

impl Board {
    /// An empty one.
    #[must_use]
    pub fn new(args: &TopArgs, db: i64) -> Self {
        Self {
            db,
            sort: args.sort,
            reverse: args.reverse,
            filter: args.filter.clone(),
            typing: false,
            help: false,
            paused: false,
            selected: 0,
            limit: args.limit,
            trouble: None,
            reading: Reading::default(),
            summary: Summary::default(),
            rows: Vec::new(),
            window: Window::default(),
            looks: 0,
        }
    }

    /// Takes in a look.
    pub fn show(&mut self, reading: Reading) {
        let before = (self.looks > 0).then_some(&self.reading);
        self.summary = Summary::of(before, &reading);
        self.window.take(&reading);
        self.summary.recent = self.window.recent(&reading);
        self.rows.clear();
        for node in &reading.nodes {
            for lock in node.said.iter().flat_map(|said| &said.locks) {
                self.rows.push(Row {
                    lock: lock.clone(),
                    node: node.address.clone(),
                });
            }
        }
        self.reading = reading;
        self.looks += 1;
        self.trouble = None;
        self.stay_inside();
    }

    /// The figures above the table.
    #[must_use]
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// The servers, as they answered.
    #[must_use]
    pub fn reading(&self) -> &Reading {
        &self.reading
    }

    /// Whether a server did not answer.
    #[must_use]
    pub fn has_trouble(&self) -> bool {
        self.trouble.is_some() || self.reading.nodes.iter().any(|node| node.said.is_err())
    }

    /// What an operator should know before reading the table.
    #[must_use]
    pub fn notices(&self) -> Vec<String> {
        let mut notices: Vec<String> = self.trouble.iter().cloned().collect();
        for node in &self.reading.nodes {
            match &node.said {
                Err(why) => notices.push(why.clone()),
                Ok(said) if said.is_replica => notices.push(format!(
                    "{} is a replica, which knows of no waiters: its master's address shows more",
                    node.address
                )),
                Ok(said) if said.is_cut_short => notices.push(format!(
                    "of {} only {} locks are shown, those with most waiters first: --limit",
                    node.address, self.limit
                )),
                Ok(said) if said.is_searching => notices.push(format!(
                    "{} has many keys: locks without waiters are shown as they are found",
                    node.address
                )),
                Ok(_) => (),
            }
        }
        notices
    }

    /// The rows that are shown, in order.
    #[must_use]
    pub fn rows(&self) -> Vec<&Row> {
        let filter = self.filter.to_lowercase();
        let mut rows: Vec<&Row> = self
            .rows
            .iter()
            .filter(|row| matches(&row.lock, &filter))
            .collect();
        rows.sort_by(|one, other| {
            let order = compare(self.sort, &one.lock, &other.lock);
            let order = if self.reverse { order.reverse() } else { order };
            let place = |row: &Row| (row.lock.name.clone(), row.node.clone());
            order.then_with(|| place(one).cmp(&place(other)))
        });
        rows
    }

    /// Moves the selection down by some rows.
    pub fn move_by(&mut self, rows: isize) {
        self.selected = self.selected.saturating_add_signed(rows);
        self.stay_inside();
    }

    /// Sorts by a column; choosing the same again reverses the order.
    pub fn sort_by(&mut self, sort: Sort) {
        self.reverse = self.sort == sort && !self.reverse;
        self.sort = sort;
    }

    /// Changes the filter.
    pub fn edit_filter(&mut self, edit: impl FnOnce(&mut String)) {
        edit(&mut self.filter);
        self.stay_inside();
    }

    fn stay_inside(&mut self) {
        let last = self.rows().len().saturating_sub(1);
        self.selected = self.selected.min(last);
    }
}

fn compare(sort: Sort, one: &Lock, other: &Lock) -> Ordering {
    // A lock without an end comes last, one that is free before all.
    let lease = |lock: &Lock| u64::try_from(lock.lease).unwrap_or(u64::MAX);
    match sort {
        Sort::Waiting => Reverse(one.waiting).cmp(&Reverse(other.waiting)),
        Sort::Held => Reverse(one.held).cmp(&Reverse(other.held)),
        Sort::Lease => lease(one).cmp(&lease(other)),
        Sort::Name => one.name.cmp(&other.name),
        Sort::Holder => one.owner.cmp(&other.owner),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use clap::Parser as _;

    use super::super::reading::{Counters, Node, Said};
    use super::*;
    use crate::args::{Args, Subcommand};
    use crate::text::escape;

    pub fn lock(name: &str, owner: &str, waiting: i64, lease: i64, held: i64) -> Lock {
        Lock {
            name: name.as_bytes().to_vec(),
            owner: Some(owner.as_bytes().to_vec()),
            holds: 1,
            lease,
            token: Some(7),
            session: false,
            waiting,
            next: (waiting > 0).then(|| b"next-one".to_vec()),
            holders: 1,
            limit: 1,
            held,
        }
    }

    pub fn reading(locks: Vec<Lock>) -> Reading {
        let counters = Counters {
            handed_off: 12,
            ..Counters::default()
        };
        let said = Ok(Said {
            counters,
            locks,
            ..Said::default()
        });
        Reading {
            at: Duration::from_secs(1),
            nodes: vec![Node {
                address: "127.0.0.1:6379".to_owned(),
                said,
            }],
        }
    }

    pub fn board(line: &str) -> Board {
        let line = format!("fairlock top {line}");
        let args = Args::try_parse_from(line.split_whitespace()).expect("a command line");
        let Subcommand::Top(args) = args.command else {
            panic!("another subcommand");
        };
        Board::new(&args, 0)
    }

    fn three() -> Reading {
        reading(vec![
            lock("orders", "carol", 1, 500, 9_000),
            lock("Stock", "alice", 3, 30_000, 20),
            lock("mail", "bob", 0, -1, -1),
        ])
    }

    fn names(board: &Board) -> Vec<String> {
        board
            .rows()
            .iter()
            .map(|row| escape(&row.lock.name))
            .collect()
    }

    #[test]
    fn rows_are_sorted_by_what_was_asked_for() {
        let mut board = board("");
        board.show(three());
        for (sort, expected) in [
            (Sort::Waiting, ["Stock", "orders", "mail"]),
            (Sort::Held, ["orders", "Stock", "mail"]),
            (Sort::Lease, ["orders", "Stock", "mail"]),
            (Sort::Name, ["Stock", "mail", "orders"]),
            (Sort::Holder, ["Stock", "mail", "orders"]),
        ] {
            board.sort = sort;
            board.reverse = false;
            assert_eq!(names(&board), expected, "{sort:?}");
            board.sort_by(sort);
            let mut reversed = expected;
            reversed.reverse();
            assert_eq!(names(&board), reversed, "{sort:?} reversed");
        }
    }

    #[test]
    fn the_filter_looks_at_names_holders_and_who_is_next() {
        let mut board = board("--filter STOCK");
        board.show(three());
        assert_eq!(names(&board), ["Stock"]);
        for (filter, expected) in [
            ("car", vec!["orders"]),
            ("next", vec!["Stock", "orders"]),
            ("nothing", vec![]),
            ("", vec!["Stock", "orders", "mail"]),
        ] {
            board.edit_filter(|text| *text = filter.to_owned());
            assert_eq!(names(&board), expected, "{filter}");
        }
    }

    #[test]
    fn the_selection_stays_on_a_row() {
        let mut board = board("");
        board.move_by(1);
        assert_eq!(board.selected, 0);
        board.show(three());
        board.move_by(100);
        assert_eq!(board.selected, 2);
        board.move_by(-1);
        assert_eq!(board.selected, 1);
        board.edit_filter(|filter| filter.push_str("mail"));
        assert_eq!(board.selected, 0);
    }

    #[test]
    fn an_operator_is_told_what_is_not_shown() {
        let mut board = board("--limit 3");
        board.show(three());
        assert!(board.notices().is_empty());
        let mut reading = three();
        reading.nodes[0].said = reading.nodes[0].said.clone().map(|said| Said {
            is_cut_short: true,
            ..said
        });
        board.show(reading);
        assert!(board.notices()[0].contains("only 3 locks are shown"));
        assert!(!board.has_trouble());
        let mut reading = three();
        reading.nodes[0].said = reading.nodes[0].said.clone().map(|said| Said {
            is_searching: true,
            ..said
        });
        board.show(reading);
        assert!(board.notices()[0].contains("as they are found"));
        assert!(!board.has_trouble());
        let mut reading = three();
        reading.nodes[0].said = Err("it is gone".to_owned());
        board.show(reading);
        assert_eq!(board.notices(), ["it is gone"]);
        assert!(board.has_trouble());
    }
}
