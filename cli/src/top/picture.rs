//! A painted screen as an SVG.

use std::fmt::Write as _;

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

/// Pixels of a cell.
const WIDTH: usize = 9;
const HEIGHT: usize = 20;
/// Pixels around all.
const MARGIN: usize = 12;
const FOREGROUND: &str = "#d8dee9";
const BACKGROUND: &str = "#1b1f27";

/// How a run of cells looks.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Look {
    foreground: &'static str,
    background: &'static str,
    bold: bool,
    dim: bool,
}

impl Look {
    fn of(cell: &Cell) -> Self {
        let foreground = colour(cell.fg).unwrap_or(FOREGROUND);
        let background = colour(cell.bg).unwrap_or(BACKGROUND);
        let reversed = cell.modifier.contains(Modifier::REVERSED);
        let (foreground, background) = if reversed {
            (background, foreground)
        } else {
            (foreground, background)
        };
        Self {
            foreground,
            background,
            bold: cell.modifier.contains(Modifier::BOLD),
            dim: cell.modifier.contains(Modifier::DIM),
        }
    }
}

/// The colours that the board is painted in.
fn colour(colour: Color) -> Option<&'static str> {
    match colour {
        Color::Red => Some("#e06c75"),
        Color::Green => Some("#98c379"),
        Color::Yellow => Some("#e5c07b"),
        Color::Blue => Some("#3b5b8c"),
        Color::Cyan => Some("#56b6c2"),
        Color::White => Some("#ffffff"),
        _ => None,
    }
}

/// Draws a screen.
#[must_use]
pub fn svg(buffer: &Buffer) -> String {
    let columns = usize::from(buffer.area.width);
    let (width, height) = (
        columns * WIDTH + 2 * MARGIN,
        usize::from(buffer.area.height) * HEIGHT + 2 * MARGIN,
    );
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"ui-monospace, Menlo, Consolas, monospace\" font-size=\"15\">\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n"
    );
    for (y, row) in buffer.content().chunks(columns.max(1)).enumerate() {
        let mut x = 0;
        for run in row.chunk_by(|one, other| Look::of(one) == Look::of(other)) {
            draw_run(&mut svg, x, y, run);
            x += run.len();
        }
    }
    svg + "</svg>\n"
}

fn draw_run(svg: &mut String, x: usize, y: usize, run: &[Cell]) {
    let Some(look) = run.first().map(Look::of) else {
        return;
    };
    let (left, top) = (x * WIDTH + MARGIN, y * HEIGHT + MARGIN);
    let width = run.len() * WIDTH;
    if look.background != BACKGROUND {
        // Writing to a string does not fail.
        let _ = writeln!(
            svg,
            "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{HEIGHT}\" fill=\"{}\"/>",
            look.background
        );
    }
    let text: String = run.iter().map(Cell::symbol).collect();
    if text.trim().is_empty() {
        return;
    }
    let weight = if look.bold {
        " font-weight=\"bold\""
    } else {
        ""
    };
    let opacity = if look.dim { " opacity=\"0.65\"" } else { "" };
    let _ = writeln!(
        svg,
        "<text x=\"{left}\" y=\"{}\" fill=\"{}\"{weight}{opacity} textLength=\"{width}\" \
         lengthAdjust=\"spacingAndGlyphs\" xml:space=\"preserve\">{}</text>",
        top + HEIGHT * 3 / 4,
        look.foreground,
        escaped(&text)
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;
    use ratatui::style::Style;

    use super::*;

    #[test]
    fn a_run_of_cells_that_look_alike_is_one_text() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 12, 2));
        buffer.set_string(0, 0, "a<b", Style::new().red().bold());
        buffer.set_string(4, 1, "two words", Style::new().on_blue());
        let svg = svg(&buffer);
        assert_eq!(svg.matches("<text").count(), 2, "{svg}");
        assert!(svg.contains("fill=\"#e06c75\" font-weight=\"bold\""));
        assert!(svg.contains(">a&lt;b</text>"));
        assert!(svg.contains(">two word</text>"));
        assert!(svg.contains("width=\"72\" height=\"20\" fill=\"#3b5b8c\""));
    }
}
