//! What was admitted in each window, as rows of text and as an SVG.

use std::error::Error;
use std::fmt::Write as _;

use plotters::prelude::*;

use super::windows::{Busiest, peaks};
use crate::chart::{bar, human};

/// What is drawn.
#[derive(Debug)]
pub(crate) struct Plot<'a> {
    pub(crate) busiest: &'a Busiest,
    /// When the first window begins, in microseconds since the epoch.
    pub(crate) from: u64,
    /// When the load ended.
    pub(crate) to: u64,
    /// The length of a window, in microseconds.
    pub(crate) length: u64,
    pub(crate) threshold: Option<u64>,
}

/// The most rows of text.
const ROWS: u64 = 24;

/// Enough for the width of the picture, and few enough for a small file.
const POINTS: u64 = 800;
const SIZE: (u32, u32) = (900, 480);

impl Plot<'_> {
    /// A row for each window, or for several together. A row shows the most of its windows, in full
    /// blocks up to the threshold.
    pub(crate) fn rows(&self) -> String {
        let windows = self.to.saturating_sub(self.from).div_ceil(self.length).max(1);
        let span = self.length * windows.div_ceil(ROWS);
        let rows = windows.div_ceil(windows.div_ceil(ROWS));
        let peaks = peaks(&self.busiest.windows, self.from, span);
        let most = self.busiest.worst.admitted.max(self.threshold.unwrap_or(0)).max(1);
        let mut text = String::new();
        for row in 0..rows {
            let admitted = peaks.get(&row).copied().unwrap_or(0);
            let kept = admitted.min(self.threshold.unwrap_or(u64::MAX));
            let bar = bar(kept, admitted - kept, most);
            let mark = if kept < admitted { "  over" } else { "" };
            let (start, count) = (seconds(row * span), human(admitted));
            let _ = writeln!(text, "{start:>11.3} s {count:>11}{mark:6} │{bar}");
        }
        text
    }

    pub(crate) fn svg(&self) -> Result<String, Box<dyn Error>> {
        let mut svg = String::new();
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let end = seconds(self.to.saturating_sub(self.from)).max(seconds(self.length));
        let most = self.busiest.worst.admitted.max(self.threshold.unwrap_or(0)).max(1);
        let mut chart = ChartBuilder::on(&root)
            .caption(
                format!(
                    "Requests of key {} admitted in windows of {} s",
                    self.busiest.key,
                    seconds(self.length)
                ),
                ("sans-serif", 18),
            )
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(80)
            .build_cartesian_2d(0.0..end, 0.0..most as f64 * 1.1)?;
        let mut mesh = chart.configure_mesh();
        mesh.light_line_style(WHITE).x_desc("end of the window, in seconds").y_desc("requests").draw()?;
        let mut line = |points: Vec<(f64, f64)>, color: RGBColor, label: &str| {
            let style = ShapeStyle { color: color.into(), filled: false, stroke_width: 2 };
            let series = chart.draw_series(LineSeries::new(points, style))?;
            series.label(label).legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
            Ok::<_, Box<dyn Error>>(())
        };
        if let Some(threshold) = self.threshold {
            let threshold = threshold as f64;
            line(vec![(0.0, threshold), (end, threshold)], RGBColor(200, 30, 30), "threshold")?;
        }
        line(self.points(), RGBColor(40, 90, 200), "admitted")?;
        let mut labels = chart.configure_series_labels();
        labels
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE)
            .border_style(BLACK)
            .draw()?;
        root.present()?;
        drop(chart);
        drop(root);
        Ok(svg)
    }

    /// Seconds, and requests.
    fn points(&self) -> Vec<(f64, f64)> {
        let span = (self.to.saturating_sub(self.from) / POINTS).max(1);
        let peaks = peaks(&self.busiest.windows, self.from, span);
        peaks.into_iter().map(|(n, admitted)| (seconds((n + 1) * span), admitted as f64)).collect()
    }
}

pub(crate) fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}
