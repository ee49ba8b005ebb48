//! What `?` shows: the keys, and what the columns say.

use ratatui::style::Stylize as _;
use ratatui::text::Line;

/// Keys, columns and figures, each with what it is; an empty name begins a paragraph.
const TEXT: &[(&str, &str)] = &[
    (
        "n o h l w",
        "sort by name, holder, held, lease, waiting; again: the other way round",
    ),
    ("r", "reverse the order"),
    (
        "/",
        "show only locks whose name, holder or next waiter contains a text",
    ),
    (
        "arrows, j k",
        "select a lock, which is shown in full below; also Page Up/Down, Home, End",
    ),
    ("space", "pause, and go on"),
    ("? Esc", "this help, and back"),
    ("q, Ctrl-C", "quit"),
    ("", ""),
    (
        "HOLDER",
        "who holds it; +2: and two others. A long owner is cut, its host and process stay",
    ),
    (
        "HELD",
        "for how long; ? if it was taken by a script, or before the module was loaded",
    ),
    (
        "LEASE",
        "what is left of it; s: the server renews it while the holder is connected",
    ),
    ("WAITING", "the number of waiters"),
    ("NEXT", "the first of them"),
    ("", ""),
    (
        "waited",
        "how long waiters of the last minute have waited for their locks, at most",
    ),
    (
        "blocked",
        "clients whose connections are blocked, waiting for a lock",
    ),
    ("sessions", "locks that are bound to connections"),
    ("busy", "locks with waiters or a session, in all databases"),
];

/// The help, a line each.
pub fn lines() -> Vec<Line<'static>> {
    let line = |&(name, text): &(&'static str, &'static str)| {
        Line::from(vec![format!(" {name:<13}").bold(), text.into()])
    };
    TEXT.iter().map(line).collect()
}
