//! The board, painted for a terminal.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row as TableRow, Table, TableState, Wrap};

use crate::args::Sort;
use crate::lock::Lock;
use crate::text::{duration, escape, millis};

use super::board::{Board, Row};
use super::cut;
use super::help;
use super::plain::rate;

/// The columns that have owners.
const HOLDER: usize = 1;
const NEXT: usize = 5;
/// More lines of notices than this would hide the locks.
const NOTICES: usize = 4;

/// Paints the whole screen.
pub fn draw(frame: &mut Frame<'_>, board: &Board) {
    let notices = board.notices();
    let lines = lines_of(&notices, frame.area().width);
    let [title, figures, notice, table, detail, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(2),
        Constraint::Length(lines),
        Constraint::Min(3),
        Constraint::Length(2),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    draw_title(frame, title, board);
    frame.render_widget(Paragraph::new(figures_of(board)), figures);
    let notices = notices.into_iter().map(|text| Line::from(text).yellow());
    let notices = Paragraph::new(notices.collect::<Vec<_>>());
    frame.render_widget(notices.wrap(Wrap { trim: true }), notice);
    let rows = board.rows();
    if board.help {
        frame.render_widget(Paragraph::new(help::lines()), table.union(detail));
    } else {
        draw_table(frame, table, board, &rows);
        if let Some(row) = rows.get(board.selected) {
            frame.render_widget(Paragraph::new(detail_of(row)), detail);
        }
    }
    frame.render_widget(Paragraph::new(keys_of(board)), keys);
}

/// How many lines the notices take; words are not broken, so a line is not always full.
fn lines_of(notices: &[String], width: u16) -> u16 {
    let width = usize::from(width - width / 8).max(1);
    let lines = notices
        .iter()
        .map(|text| text.chars().count().div_ceil(width));
    u16::try_from(lines.sum::<usize>().min(NOTICES)).unwrap_or(0)
}

fn draw_title(frame: &mut Frame<'_>, area: Rect, board: &Board) {
    let nodes = &board.reading().nodes;
    let whom = match nodes.as_slice() {
        [] => "no server".to_owned(),
        [node] => node.address.clone(),
        nodes => format!("{} masters", nodes.len()),
    };
    let style = Style::new().bg(Color::Blue).fg(Color::White);
    let left = Line::from(vec![
        " fairlock top ".bold(),
        format!(" {whom}  database {} ", board.db).into(),
    ]);
    frame.render_widget(Paragraph::new(left).style(style), area);
    if board.paused {
        let right = Paragraph::new(" PAUSED ".bold()).style(style);
        frame.render_widget(right.alignment(Alignment::Right), area);
    }
}

fn figures_of(board: &Board) -> Vec<Line<'static>> {
    let summary = board.summary();
    let usec = |usec| duration(Duration::from_micros(usec));
    let figure = |name: &str, value: String| {
        [
            Span::from(name.to_owned()).dim(),
            " ".into(),
            value.bold(),
            "   ".into(),
        ]
    };
    let recent = &summary.recent;
    let at_most = |bound: Option<u64>| {
        bound.map_or_else(|| "-".to_owned(), |bound| format!("≤{}", usec(bound)))
    };
    let waited = match recent.seconds {
        60 => " waited, last minute:".to_owned(),
        seconds => format!(" waited, last {seconds}s:"),
    };
    let first = [
        figure(" hand-offs", rate(summary.hand_offs_per_second)),
        figure("acquisitions", rate(summary.acquisitions_per_second)),
        figure("blocked", summary.blocked_clients.to_string()),
        figure("sessions", summary.session_locks.to_string()),
    ];
    let second = [
        figure(&waited, recent.waits.to_string()),
        figure("p50", at_most(recent.p50_usec)),
        figure("p99", at_most(recent.p99_usec)),
        figure("max", at_most(recent.max_usec)),
        figure("busy", summary.locks.to_string()),
        figure("shown", board.rows().len().to_string()),
    ];
    vec![
        first.into_iter().flatten().collect(),
        second.into_iter().flatten().collect(),
    ]
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, board: &Board, rows: &[&Row]) {
    let heads = [
        ("LOCK", Some(Sort::Name)),
        ("HOLDER", Some(Sort::Holder)),
        ("HELD", Some(Sort::Held)),
        ("LEASE", Some(Sort::Lease)),
        ("WAITING", Some(Sort::Waiting)),
        ("NEXT", None),
    ];
    let heads = heads.map(|(name, sort)| {
        if sort != Some(board.sort) {
            return Cell::from(name);
        }
        let arrow = if board.reverse { '▲' } else { '▼' };
        Cell::from(format!("{name} {arrow}")).bold()
    });
    let widths = [
        Constraint::Fill(3),
        Constraint::Fill(3),
        Constraint::Length(7),
        Constraint::Length(10),
        Constraint::Length(9),
        Constraint::Fill(2),
    ];
    let header = TableRow::new(heads).style(Style::new().fg(Color::Cyan));
    // As the table will divide its width.
    let columns = Layout::horizontal(widths).spacing(1).split(area);
    let width = |column: usize| {
        columns
            .get(column)
            .map_or(0, |cell| usize::from(cell.width))
    };
    let names = (width(HOLDER), width(NEXT));
    let table = Table::new(rows.iter().map(|row| row_of(row, names)), widths)
        .column_spacing(1)
        .header(header)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let selected = (!rows.is_empty()).then_some(board.selected);
    let mut state = TableState::new().with_selected(selected);
    frame.render_stateful_widget(table, area, &mut state);
}

/// A lock, with the widths of the columns that have owners.
fn row_of(row: &Row, (holder, next): (usize, usize)) -> TableRow<'static> {
    let lock = &row.lock;
    let name = |bytes: &Option<Vec<u8>>, width: usize| match bytes {
        Some(bytes) => cut::owner(&escape(bytes), width),
        None => "-".to_owned(),
    };
    let holder = match lock.owner {
        Some(_) if lock.holders > 1 => {
            let others = format!("+{} ", lock.holders - 1);
            let left = holder.saturating_sub(others.len());
            Cell::from(others + &name(&lock.owner, left))
        }
        Some(_) => Cell::from(name(&lock.owner, holder)),
        None => Cell::from("(free)").dim(),
    };
    let held = match lock.owner {
        Some(_) => millis(lock.held),
        None => String::new(),
    };
    TableRow::new([
        Cell::from(escape(&lock.name)),
        holder,
        Cell::from(held),
        Cell::from(lease_of(lock)),
        Cell::from(Line::from(lock.waiting.to_string()).alignment(Alignment::Left)),
        Cell::from(name(&lock.next, next)),
    ])
}

/// What remains; `s` for one that the server renews.
fn lease_of(lock: &Lock) -> Line<'static> {
    if lock.owner.is_none() {
        return Line::default();
    }
    if lock.lease < 0 {
        return Line::from("has no end".red());
    }
    let session = if lock.session { " s" } else { "" };
    Line::from(vec![millis(lock.lease).into(), session.dim()])
}

/// All of the selected lock, for where the columns are too narrow.
fn detail_of(row: &Row) -> Vec<Line<'static>> {
    let lock = &row.lock;
    let name = |bytes: &Option<Vec<u8>>| bytes.as_deref().map_or_else(|| "-".to_owned(), escape);
    let token = lock
        .token
        .map_or_else(|| "-".to_owned(), |token| token.to_string());
    vec![
        Line::from(vec![
            " ".into(),
            escape(&lock.name).bold(),
            format!("  at {}  token {token}  holds {}", row.node, lock.holds).into(),
        ]),
        Line::from(format!(
            " holder {}{}  next {}",
            name(&lock.owner),
            others_of(lock),
            name(&lock.next)
        )),
    ]
}

/// How many hold a lock that is held by several, or could be.
fn others_of(lock: &Lock) -> String {
    match (lock.is_shared(), lock.limit) {
        (false, _) => String::new(),
        (true, 0) => format!("  first of {} holders", lock.holders),
        (true, limit) => format!("  first of {} holders, at most {limit}", lock.holders),
    }
}

fn keys_of(board: &Board) -> Line<'static> {
    if board.help {
        return Line::from(" any key goes back, q quits").dim();
    }
    if board.typing {
        return Line::from(vec![
            " filter: ".bold(),
            board.filter.clone().into(),
            "█".dim(),
            "   Enter keeps it, Esc drops it".dim(),
        ]);
    }
    let filter = match board.filter.as_str() {
        "" => "/ filter".to_owned(),
        filter => format!("/ filter: {filter}"),
    };
    Line::from(format!(
        " ? help  q quit  sort: n name o holder h held l lease w waiting r reverse  {filter}  space pause"
    ))
    .dim()
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::board::tests::{board, lock, reading};
    use super::*;

    fn screen(board: &Board) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(100, 12)).expect("a terminal");
        terminal.draw(|frame| draw(frame, board)).expect("drawn");
        let buffer = terminal.backend().buffer();
        let rows = buffer.content().chunks(100);
        let rows = rows.map(|row| {
            row.iter()
                .map(ratatui::buffer::Cell::symbol)
                .collect::<String>()
        });
        rows.map(|row| row.trim_end().to_owned()).collect()
    }

    #[test]
    fn every_lock_is_a_row_and_the_selected_one_is_told_in_full() {
        let mut board = board("");
        let mut free = lock("free", "", 1, 0, 0);
        free.owner = None;
        let bound = Lock {
            session: true,
            ..lock("orders", "alice", 3, 20_000, 1_500)
        };
        board.show(reading(vec![lock("orders", "alice", 3, 40_000, 0)]));
        board.show(reading(vec![bound, free]));
        let screen = screen(&board);
        assert_eq!(screen[0], " fairlock top  127.0.0.1:6379  database 0");
        assert_eq!(
            screen[1],
            " hand-offs ?   acquisitions ?   blocked 0   sessions 0"
        );
        assert_eq!(
            screen[2],
            " waited, last 0s: 0   p50 -   p99 -   max -   busy 0   shown 2"
        );
        assert_eq!(
            screen[3].split_whitespace().collect::<Vec<_>>(),
            ["LOCK", "HOLDER", "HELD", "LEASE", "WAITING", "▼", "NEXT"]
        );
        assert_eq!(
            screen[4].split_whitespace().collect::<Vec<_>>(),
            ["orders", "alice", "1.5s", "20.0s", "s", "3", "next-one"]
        );
        assert_eq!(
            screen[5].split_whitespace().collect::<Vec<_>>(),
            ["free", "(free)", "1", "next-one"]
        );
        assert_eq!(screen[9], " orders  at 127.0.0.1:6379  token 7  holds 1");
        assert_eq!(screen[10], " holder alice  next next-one");
        assert!(screen[11].starts_with(" ? help  q quit"));
    }

    #[test]
    fn a_lock_with_several_holders_tells_how_many() {
        let mut board = board("");
        let pool = Lock {
            holders: 3,
            limit: 5,
            ..lock("pool", "alice", 0, 20_000, 1_500)
        };
        board.show(reading(vec![pool.clone()]));
        let limited = screen(&board);
        let words: Vec<&str> = limited[4].split_whitespace().collect();
        assert_eq!(words[..4], ["pool", "+2", "alice", "1.5s"]);
        assert_eq!(
            limited[10],
            " holder alice  first of 3 holders, at most 5  next -"
        );
        board.show(reading(vec![Lock { limit: 0, ..pool }]));
        assert_eq!(
            screen(&board)[10],
            " holder alice  first of 3 holders  next -"
        );
    }

    #[test]
    fn a_long_owner_shows_its_host_and_process() {
        let mut board = board("");
        let owner = "web-3:8841:0a1b2c3d-0000-4000-8000-00000000000f";
        let next = "a-host-with-a-long-name:77:0a1b2c3d-0000-4000-8000-00000000000f";
        let mut long = lock("orders", owner, 1, 20_000, 1_500);
        long.next = Some(next.into());
        board.show(reading(vec![long]));
        let screen = screen(&board);
        assert!(screen[4].contains(" web-3:8841:"), "{}", screen[4]);
        assert!(screen[4].ends_with("…:77"), "{}", screen[4]);
        // Both are below, as far as the screen goes.
        assert_eq!(screen[10], format!(" holder {owner}  next {}", &next[..38]));
    }

    #[test]
    fn the_help_takes_the_place_of_the_table() {
        let mut board = board("");
        board.show(reading(vec![lock("orders", "alice", 3, 40_000, 0)]));
        board.help = true;
        let screen = screen(&board);
        assert!(screen[3].starts_with(" n o h l w"), "{}", screen[3]);
        assert!(!screen.join(" ").contains("orders"));
        assert!(screen[11].starts_with(" any key"));
    }

    #[test]
    fn notices_and_the_filter_have_their_lines() {
        let mut board = board("");
        board.show(reading(Vec::new()));
        board.trouble = Some("no server".to_owned());
        board.typing = true;
        board.filter = "ord".to_owned();
        board.paused = true;
        let screen = screen(&board);
        assert!(screen[0].ends_with("PAUSED"));
        assert_eq!(screen[3], "no server");
        board.trouble = Some("a long story ".repeat(10));
        let long = self::screen(&board);
        assert_eq!(long.join(" ").matches("story").count(), 10);
        assert!(screen[11].starts_with(" filter: ord█"));
    }

    #[test]
    fn names_cannot_play_with_the_terminal() {
        let mut board = board("");
        board.show(reading(vec![lock("a\x1b[2Jb\n", "\u{9b}x", 0, 1, 1)]));
        let screen = screen(&board);
        assert!(screen[4].starts_with("a\\u{1b}[2Jb\\n"), "{}", screen[4]);
    }
}
