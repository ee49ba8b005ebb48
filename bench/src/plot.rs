//! Pictures for the documentation.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

/// One line: its name and its points.
pub type Line = (&'static str, Vec<(f64, f64)>);

/// The palette of Okabe and Ito, for colour-blind readers.
const COLOURS: [RGBColor; 5] = [
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
];

/// Draws lines over two logarithmic axes.
pub fn draw(path: &Path, title: &str, axes: [&str; 2], lines: &[Line]) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| anyhow!("{}: {error}", path.display());
    let ends = |values: Vec<f64>| {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = values.iter().copied().fold(0.0, f64::max);
        (least * 0.8)..(greatest * 1.5)
    };
    let points = || lines.iter().flat_map(|(_, points)| points);
    let across = ends(points().map(|(x, _)| *x).collect());
    let up = ends(points().map(|(_, y)| *y).collect());
    let canvas = SVGBackend::new(path, (760, 420)).into_drawing_area();
    canvas.fill(&WHITE).map_err(|error| failed(&error))?;
    let mut chart = ChartBuilder::on(&canvas)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(across.log_scale(), up.log_scale())
        .map_err(|error| failed(&error))?;
    let [x, y] = axes;
    chart
        .configure_mesh()
        .x_desc(x)
        .y_desc(y)
        .light_line_style(TRANSPARENT)
        .draw()
        .map_err(|error| failed(&error))?;
    for ((name, points), colour) in lines.iter().zip(COLOURS) {
        let style = colour.stroke_width(2);
        chart
            .draw_series(LineSeries::new(points.iter().copied(), style).point_size(3))
            .map_err(|error| failed(&error))?
            .label(*name)
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .background_style(WHITE)
        .border_style(BLACK)
        .position(SeriesLabelPosition::LowerMiddle)
        .draw()
        .map_err(|error| failed(&error))?;
    canvas.present().map_err(|error| failed(&error))?;
    Ok(())
}
