//! The report of the soak: a table and a picture.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Result, anyhow};
use fairlock_testing::Server;
use plotters::coord::Shift;
use plotters::prelude::*;

use super::probe::{Figure, MORE_FDS, MORE_MB, MORE_PERCENT, Row, ends};
use crate::checker::Violation;

/// Lines of the table.
const LINES: usize = 6;

/// One chart: its title and its lines, each with a name.
type Chart = (&'static str, Vec<(&'static str, Figure)>);

pub fn write(rows: &[Row], found: &[Violation], seconds: u64, server: &Server) {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    fs::write(docs.join("soak.md"), text(rows, found, seconds, server)).expect("written");
    draw(&docs.join("soak.svg"), rows).expect("drawn");
}

fn text(rows: &[Row], found: &[Violation], seconds: u64, server: &Server) -> String {
    let version = server.info("server", "redis_version");
    let what_was_found = match found {
        [] => "nothing".to_owned(),
        found => format!("`{found:?}`"),
    };
    let mut text = format!(
        "# Soak

Written by `make soak`; do not edit. {seconds} seconds of the clients of [Chaos](chaos.md#what-runs) without its faults, and of locks with 50 new names
a second, on Redis {version} with an append-only file.

The run fails if the last tenth's median exceeds the second's by more than {MORE_PERCENT} % and {MORE_MB} MB of memory, or {MORE_FDS} descriptors, or if the
[checker](chaos.md#what-is-checked) finds a violation. In this run it found {what_was_found}.

![Memory, descriptors, latency over time](soak.svg)

| | start | end |
|---|---|---|
"
    );
    let figures: [(&str, Figure); 7] = [
        ("used memory, MB", |row| row.used_mb),
        ("RSS, MB", |row| row.rss_mb),
        ("file descriptors", descriptors),
        ("hand-offs a second", |row| row.hand_offs),
        ("acquisitions a second", |row| row.acquisitions),
        ("wait of a blocking ACQUIRE, p50, ms", |row| row.p50),
        ("wait of a blocking ACQUIRE, p99, ms", |row| row.p99),
    ];
    for (name, of) in figures {
        let [start, end] = ends(rows, of);
        writeln!(text, "| {name} | {start:.2} | {end:.2} |").expect("text");
    }
    text += "
Holders keep the lock for up to 16 ms: so the wait measures the load.

| second | used MB | RSS MB | descriptors | hand-offs/s | acquired/s | p50 ms | p99 ms |
|---|---|---|---|---|---|---|---|
";
    let every = rows.len().div_ceil(LINES).max(1);
    for row in rows.iter().skip(every - 1).step_by(every) {
        let Row {
            second,
            used_mb,
            rss_mb,
            fds,
            hand_offs,
            acquisitions,
            p50,
            p99,
        } = row;
        writeln!(
            text,
            "| {second} | {used_mb:.2} | {rss_mb:.2} | {fds} | {hand_offs:.1} | {acquisitions:.1} | {p50:.2} | {p99:.2} |"
        )
        .expect("text");
    }
    text
}

#[allow(clippy::cast_precision_loss, reason = "a small number")]
fn descriptors(row: &Row) -> f64 {
    row.fds as f64
}

fn draw(path: &Path, rows: &[Row]) -> Result<()> {
    let charts: [Chart; 4] = [
        (
            "memory, MB",
            vec![("used", |row| row.used_mb), ("RSS", |row| row.rss_mb)],
        ),
        ("file descriptors", vec![("open", descriptors)]),
        (
            "a second",
            vec![
                ("hand-offs", |row| row.hand_offs),
                ("acquisitions", |row| row.acquisitions),
            ],
        ),
        (
            "wait of a blocking ACQUIRE, ms",
            vec![("p50", |row| row.p50), ("p99", |row| row.p99)],
        ),
    ];
    let canvas = SVGBackend::new(path, (760, 720)).into_drawing_area();
    let failed = |error: &dyn std::fmt::Display| anyhow!("{}: {error}", path.display());
    canvas.fill(&WHITE).map_err(|error| failed(&error))?;
    for (area, chart) in canvas.split_evenly((charts.len(), 1)).iter().zip(charts) {
        draw_chart(area, rows, &chart).map_err(|error| failed(&error))?;
    }
    canvas.present().map_err(|error| failed(&error))
}

fn draw_chart<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    rows: &[Row],
    (title, lines): &Chart,
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    const COLOURS: [RGBColor; 2] = [RGBColor(0, 114, 178), RGBColor(213, 94, 0)];
    let minute = |row: &Row| super::probe::as_float(row.second) / 60.0;
    let longest = rows.last().map_or(1.0, minute).max(0.01);
    let values = lines.iter().flat_map(|(_, of)| rows.iter().map(of));
    let highest = values.fold(1.0, f64::max) * 1.2;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 15))
        .margin(8)
        .x_label_area_size(28)
        .y_label_area_size(55)
        .build_cartesian_2d(0.0..longest, 0.0..highest)?;
    chart
        .configure_mesh()
        .x_desc("minutes")
        .light_line_style(TRANSPARENT)
        .y_labels(5)
        .draw()?;
    for ((name, of), colour) in lines.iter().zip(COLOURS) {
        let points = rows.iter().map(|row| (minute(row), of(row)));
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(1)))?
            .label(*name)
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], colour));
    }
    if lines.len() > 1 {
        chart
            .configure_series_labels()
            .background_style(WHITE)
            .position(SeriesLabelPosition::UpperLeft)
            .draw()?;
    }
    Ok(())
}
