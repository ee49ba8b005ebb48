//! The terminal: painting at each look, and keys in between.

use crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use futures_util::StreamExt as _;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Stylize as _;
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table, Wrap};
use tokio::time::{Instant, Interval};

use crate::args::Sort;
use crate::failure::Failure;
use crate::lock::Lock;
use crate::server::Masters;
use crate::shown::or_dash;
use crate::text::{escape, millis};

use super::board::Board;
use super::look;

/// What a column shows, how wide it is, and what it is sorted by.
const COLUMNS: [(&str, Constraint, Option<Sort>); 6] = [
    ("LOCK", Constraint::Fill(3), Some(Sort::Name)),
    ("HOLDER", Constraint::Fill(3), Some(Sort::Holder)),
    ("HELD", Constraint::Length(7), Some(Sort::Held)),
    ("LEASE", Constraint::Length(9), Some(Sort::Lease)),
    ("WAITING", Constraint::Length(9), Some(Sort::Waiting)),
    ("NEXT", Constraint::Fill(2), None),
];

/// The terminal is as it was when this is dropped, also when a signal ends the program.
struct Screen;

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows the board until `q`; the exit code.
pub async fn run(
    mut board: Board,
    mut masters: Masters,
    mut looks: Interval,
) -> Result<u8, Failure> {
    let _screen = Screen;
    // Puts the terminal back in order when the program panics, too.
    let mut terminal = ratatui::try_init()?;
    let mut events = EventStream::new();
    loop {
        terminal.draw(|frame| draw(frame, &board))?;
        tokio::select! {
            _ = looks.tick() => board.show(Instant::now(), masters.ask(look).await),
            event = events.next() => match event {
                Some(Ok(Event::Key(key))) if key.kind != KeyEventKind::Release => {
                    if !press(&mut board, key) {
                        return Ok(0);
                    }
                }
                Some(Ok(_)) => (),
                Some(Err(error)) => return Err(error.into()),
                None => return Ok(0),
            },
        }
    }
}

/// What a key does; false ends the program.
fn press(board: &mut Board, key: KeyEvent) -> bool {
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
        KeyCode::Char('q') | KeyCode::Esc => return false,
        KeyCode::Char('n') => board.sort = Sort::Name,
        KeyCode::Char('o') => board.sort = Sort::Holder,
        KeyCode::Char('h') => board.sort = Sort::Held,
        KeyCode::Char('l') => board.sort = Sort::Lease,
        KeyCode::Char('w') => board.sort = Sort::Waiting,
        _ => (),
    }
    true
}

fn draw(frame: &mut Frame<'_>, board: &Board) {
    let notices = board.notices();
    let [title, figures, notice, table, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Max(if notices.is_empty() { 0 } else { 3 }),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let whom = match board.nodes.as_slice() {
        [node] => node.address.clone(),
        nodes => format!("{} masters", nodes.len()),
    };
    let whom = Line::from(vec![" fairlock top".bold(), format!("  {whom}").into()]);
    frame.render_widget(whom, title);
    frame.render_widget(format!(" {}", board.figures()), figures);
    let notices: Vec<_> = notices
        .into_iter()
        .map(|text| Line::from(text).yellow())
        .collect();
    frame.render_widget(Paragraph::new(notices).wrap(Wrap { trim: true }), notice);
    draw_table(frame, table, board);
    let help = " sort: n name  o holder  h held  l lease  w waiting   q quit";
    frame.render_widget(Line::from(help).dim(), keys);
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, board: &Board) {
    let header = COLUMNS.map(|(name, _, sort)| {
        let is_sorted = sort == Some(board.sort);
        Cell::from(if is_sorted {
            format!("{name} ▼")
        } else {
            name.to_owned()
        })
    });
    let rows = board.rows();
    let rows = rows.iter().map(|(lock, _)| row_of(lock));
    let table = Table::new(rows, COLUMNS.map(|(_, width, _)| width));
    frame.render_widget(table.header(Row::new(header).bold()), area);
}

fn row_of(lock: &Lock) -> Row<'static> {
    let (holder, held, lease) = match &lock.owner {
        None => ("(free)".dim().into(), Cell::default(), Cell::default()),
        Some(owner) => {
            let others = match lock.holders {
                ..=1 => String::new(),
                several => format!("+{} ", several - 1),
            };
            let session = if lock.session { " s" } else { "" };
            let lease = match lock.lease {
                0.. => Line::from(vec![millis(lock.lease).into(), session.dim()]),
                _ => "no end".red().into(),
            };
            let holder = Cell::from(others + &escape(owner));
            (holder, millis(lock.held).into(), lease.into())
        }
    };
    let waiting = lock.waiting.to_string().into();
    let next = or_dash(lock.next.as_deref().map(escape)).into();
    Row::new([
        escape(&lock.name).into(),
        holder,
        held,
        lease,
        waiting,
        next,
    ])
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::board::tests::{board, lock};
    use super::*;
    use crate::server::Trouble;

    fn screen(board: &Board) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(100, 9)).expect("a terminal");
        terminal.draw(|frame| draw(frame, board)).expect("drawn");
        let buffer = terminal.backend().buffer();
        let text = |row: &[ratatui::buffer::Cell]| -> String {
            row.iter().map(ratatui::buffer::Cell::symbol).collect()
        };
        let rows = buffer.content().chunks(100).map(text);
        rows.map(|row| row.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect()
    }

    #[test]
    fn every_lock_is_a_row() {
        let bound = Lock {
            session: true,
            ..lock("orders", "alice", 3, 20_000, 1_500)
        };
        let pool = Lock {
            holders: 3,
            limit: 5,
            ..lock("pool", "bob", 2, -1, 1_500)
        };
        let mut free = lock("free", "", 1, 0, 0);
        free.owner = None;
        // Names cannot play with the terminal.
        let odd = lock("a\x1b[2Jb\n", "\u{9b}x", 0, 1, 1);
        let mut board = board("", vec![bound, free, pool, odd]);
        let rows = screen(&board);
        assert_eq!(rows[0], "fairlock top here:1");
        assert!(rows[1].starts_with("hand-offs=? acquisitions=? wait-p50=0us "));
        assert_eq!(rows[2], "LOCK HOLDER HELD LEASE WAITING ▼ NEXT");
        assert_eq!(rows[3], "orders alice 1.5s 20.0s s 3 next-one");
        assert_eq!(rows[4], "pool +2 bob 1.5s no end 2 next-one");
        assert_eq!(rows[5], "free (free) 1 next-one");
        assert_eq!(rows[6], "a\\u{1b}[2Jb\\n \\u{9b}x 1.0ms 1.0ms 0 -");
        assert!(rows[8].starts_with("sort: n name"));
        let long = Trouble::Gone("a long story ".repeat(10));
        board.nodes[0].said = Err(long);
        let told = screen(&board).join(" ");
        assert_eq!(told.matches("story").count(), 10);
    }

    #[test]
    fn keys_sort_and_end_it() {
        let mut board = board("", Vec::new());
        let key = |letter| KeyEvent::from(KeyCode::Char(letter));
        for (letter, sort) in [('n', Sort::Name), ('h', Sort::Held), ('w', Sort::Waiting)] {
            assert!(press(&mut board, key(letter)));
            assert_eq!(board.sort, sort);
        }
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert!(!press(&mut board, key('q')) && !press(&mut board, control_c));
    }
}
