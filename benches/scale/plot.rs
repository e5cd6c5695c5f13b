//! Two panels next to each other, with the same logarithmic x axis.

use std::error::Error;
use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

const SIZE: (u32, u32) = (900, 400);

const COLORS: [RGBColor; 2] = [RGBColor(40, 90, 200), RGBColor(220, 130, 0)];

pub(crate) struct Panel {
    pub(crate) title: &'static str,
    /// Whether the y axis is logarithmic too.
    pub(crate) is_log: bool,
    pub(crate) curves: Vec<Curve>,
}

pub(crate) struct Curve {
    pub(crate) label: &'static str,
    /// The number of keys or tasks, and the least, the median and the most of the runs.
    pub(crate) points: Vec<(f64, [f64; 3])>,
}

/// Draws panels whose x axis has a mark at each power of `base`. The background is white, so that a
/// dark page shows it too.
pub(crate) fn write(file: &Path, title: &str, base: f64, panels: [Panel; 2]) -> Result<(), Box<dyn Error>> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let halves = root.titled(title, ("sans-serif", 18))?.split_evenly((1, 2));
        for (area, panel) in halves.iter().zip(&panels) {
            let highest = panel.curves.iter().flat_map(|curve| &curve.points).map(|(_, [.., most])| *most);
            let top = highest.fold(0.0, f64::max) * 1.15;
            let lowest = panel.curves.iter().flat_map(|curve| &curve.points).map(|(_, [least, ..])| *least);
            if panel.is_log {
                draw(area, panel, base, (lowest.fold(f64::INFINITY, f64::min) / 1.15..top).log_scale())?;
            } else {
                draw(area, panel, base, 0.0..top)?;
            }
        }
        root.present()?;
    }
    Ok(std::fs::write(file, svg)?)
}

fn draw<Y>(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    panel: &Panel,
    base: f64,
    y: Y,
) -> Result<(), Box<dyn Error>>
where
    Y: AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64>>,
{
    let points = || panel.curves[0].points.iter().map(|(at, _)| *at);
    let x = points().fold(f64::INFINITY, f64::min)..points().fold(0.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(panel.title, ("sans-serif", 15))
        .margin(12)
        .margin_right(30)
        .x_label_area_size(30)
        .y_label_area_size(70)
        .build_cartesian_2d(x.log_scale().base(base), y)?;
    let whole = |value: &f64| format!("{value:.0}");
    let mut mesh = chart.configure_mesh();
    mesh.light_line_style(WHITE).x_label_formatter(&whole).y_label_formatter(&whole).draw()?;
    for (curve, color) in panel.curves.iter().zip(COLORS) {
        let medians = curve.points.iter().map(|&(at, [_, median, _])| (at, median));
        let style = color.stroke_width(2);
        chart
            .draw_series(LineSeries::new(medians, style))?
            .label(curve.label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
        let ranges = curve.points.iter().map(|&(at, [least, _, most])| {
            PathElement::new([(at, least), (at, most)], color.stroke_width(1))
        });
        chart.draw_series(ranges)?;
    }
    if panel.curves.len() > 1 {
        let mut labels = chart.configure_series_labels();
        labels.position(SeriesLabelPosition::UpperLeft).background_style(WHITE).border_style(BLACK).draw()?;
    }
    Ok(())
}
