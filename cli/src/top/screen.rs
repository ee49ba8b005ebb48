//! The terminal: painting at each look, and keys in between.

use std::io;
use std::thread;
use std::time::Duration;

use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{MissedTickBehavior, interval};

use crate::args::{Sort, TopArgs};
use crate::failure::{Failure, SIGNALLED};

use super::board::Board;
use super::collect::Collector;
use super::draw::draw;

/// The second look comes soon, because rates need two.
const SECOND_LOOK: Duration = Duration::from_millis(300);
/// Rows of a page.
const PAGE: isize = 10;

/// Shows the board until `q`; the exit code.
pub async fn run(
    args: &TopArgs,
    board: &mut Board,
    collector: &mut Collector,
) -> Result<u8, Failure> {
    let mut ends = [SignalKind::terminate(), SignalKind::hangup()].map(signal);
    let [Ok(terminated), Ok(hung_up)] = &mut ends else {
        return Err(Failure::new(1, "cannot listen for signals"));
    };
    // Puts the terminal back in order when the program panics, too.
    let mut terminal = ratatui::try_init()?;
    let ended = show(args, board, collector, &mut terminal, terminated, hung_up).await;
    ratatui::try_restore()?;
    ended
}

async fn show(
    args: &TopArgs,
    board: &mut Board,
    collector: &mut Collector,
    terminal: &mut ratatui::DefaultTerminal,
    terminated: &mut Signal,
    hung_up: &mut Signal,
) -> Result<u8, Failure> {
    let mut keys = keys();
    let mut looks = interval(args.interval);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    looks.reset_after(SECOND_LOOK.min(args.interval));
    loop {
        terminal.draw(|frame| draw(frame, board))?;
        tokio::select! {
            _ = looks.tick(), if !board.paused => match collector.read().await {
                Ok(reading) => board.show(reading),
                Err(trouble) => board.trouble = Some(trouble.text()),
            },
            event = keys.recv() => match event {
                Some(Ok(Event::Key(key))) if key.kind != KeyEventKind::Release => {
                    if !press(board, key) {
                        return Ok(0);
                    }
                }
                Some(Ok(_)) => (),
                Some(Err(error)) => return Err(error.into()),
                None => return Ok(0),
            },
            _ = terminated.recv() => return Ok(SIGNALLED + 15),
            _ = hung_up.recv() => return Ok(SIGNALLED + 1),
        }
    }
}

/// Keys, and changes of the terminal's size.
fn keys() -> UnboundedReceiver<io::Result<Event>> {
    let (sender, keys) = unbounded_channel();
    thread::spawn(move || {
        loop {
            let event = event::read();
            let failed = event.is_err();
            if sender.send(event).is_err() || failed {
                return;
            }
        }
    });
    keys
}

/// Does what a key says; false if it says to end.
fn press(board: &mut Board, key: KeyEvent) -> bool {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    if control && key.code == KeyCode::Char('c') {
        return false;
    }
    if board.typing {
        type_filter(board, key.code);
        return true;
    }
    if board.help && key.code != KeyCode::Char('q') {
        board.help = false;
        return true;
    }
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return false,
        KeyCode::Char('n') => board.sort_by(Sort::Name),
        KeyCode::Char('o') => board.sort_by(Sort::Holder),
        KeyCode::Char('h') => board.sort_by(Sort::Held),
        KeyCode::Char('l') => board.sort_by(Sort::Lease),
        KeyCode::Char('w') => board.sort_by(Sort::Waiting),
        KeyCode::Char('r') => board.reverse = !board.reverse,
        KeyCode::Char('/') => board.typing = true,
        KeyCode::Char('?') => board.help = true,
        KeyCode::Char(' ') => board.paused = !board.paused,
        KeyCode::Up | KeyCode::Char('k') => board.move_by(-1),
        KeyCode::Down | KeyCode::Char('j') => board.move_by(1),
        KeyCode::PageUp => board.move_by(-PAGE),
        KeyCode::PageDown => board.move_by(PAGE),
        KeyCode::Home => board.move_by(isize::MIN),
        KeyCode::End => board.move_by(isize::MAX),
        _ => (),
    }
    true
}

fn type_filter(board: &mut Board, key: KeyCode) {
    match key {
        KeyCode::Enter => board.typing = false,
        KeyCode::Esc => {
            board.edit_filter(String::clear);
            board.typing = false;
        }
        KeyCode::Backspace => board.edit_filter(|filter| {
            filter.pop();
        }),
        KeyCode::Char(char) => board.edit_filter(|filter| filter.push(char)),
        _ => (),
    }
}

#[cfg(test)]
mod tests {
    use super::super::board::tests::{board, lock, reading};
    use super::*;

    fn press_all(board: &mut Board, keys: &[KeyCode]) -> bool {
        let mut pressed = keys.iter().map(|key| press(board, KeyEvent::from(*key)));
        pressed.all(|goes_on| goes_on)
    }

    #[test]
    fn keys_sort_and_reverse() {
        let mut board = board("");
        assert!(press_all(&mut board, &[KeyCode::Char('n')]));
        assert_eq!((board.sort, board.reverse), (Sort::Name, false));
        press_all(&mut board, &[KeyCode::Char('n')]);
        assert!(board.reverse);
        press_all(&mut board, &[KeyCode::Char('h')]);
        assert_eq!((board.sort, board.reverse), (Sort::Held, false));
        press_all(&mut board, &[KeyCode::Char('r')]);
        assert!(board.reverse);
    }

    #[test]
    fn a_filter_is_typed_kept_and_dropped() {
        let mut board = board("");
        board.show(reading(vec![
            lock("quay", "a", 1, 1, 1),
            lock("b", "b", 1, 1, 1),
        ]));
        // `q` is a letter while a filter is typed.
        let typed = ['/', 'q', 'x'].map(KeyCode::Char);
        assert!(press_all(&mut board, &typed));
        assert!(board.rows().is_empty());
        press_all(&mut board, &[KeyCode::Backspace, KeyCode::Enter]);
        assert_eq!(board.rows().len(), 1);
        assert!(!board.typing);
        press_all(&mut board, &[KeyCode::Char('/'), KeyCode::Esc]);
        assert_eq!(board.rows().len(), 2);
        assert!(!press_all(&mut board, &[KeyCode::Char('q')]));
    }

    #[test]
    fn a_question_mark_asks_for_help_and_any_key_goes_back() {
        let mut board = board("");
        for back in [KeyCode::Char('?'), KeyCode::Esc, KeyCode::Char('n')] {
            assert!(press_all(&mut board, &[KeyCode::Char('?')]));
            assert!(board.help);
            assert!(press_all(&mut board, &[back]));
            assert!(!board.help);
        }
        // It does not sort in between.
        assert_eq!(board.sort, Sort::Waiting);
        assert!(!press_all(&mut board, &['?', 'q'].map(KeyCode::Char)));
    }

    #[test]
    fn control_c_ends_it_whatever_is_typed() {
        let mut board = board("");
        press_all(&mut board, &[KeyCode::Char('/')]);
        let key = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert!(!press(&mut board, key));
    }

    #[test]
    fn arrows_select_and_space_pauses() {
        let mut board = board("");
        let locks = (0..30).map(|n| lock(&format!("{n:02}"), "a", 1, 1, 1));
        board.show(reading(locks.collect()));
        press_all(&mut board, &[KeyCode::Down, KeyCode::Down, KeyCode::Up]);
        assert_eq!(board.selected, 1);
        press_all(&mut board, &[KeyCode::PageDown]);
        assert_eq!(board.selected, 11);
        press_all(&mut board, &[KeyCode::End]);
        assert_eq!(board.selected, 29);
        press_all(&mut board, &[KeyCode::Home]);
        assert_eq!(board.selected, 0);
        press_all(&mut board, &[KeyCode::Char(' ')]);
        assert!(board.paused);
    }
}
