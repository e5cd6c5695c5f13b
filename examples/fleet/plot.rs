//! A plot of what was admitted over time, the limit and the bound.

use std::collections::VecDeque;
use std::error::Error;
use std::path::Path;

use plotters::prelude::*;
use tollgate::Algorithm;

use crate::score::Score;
use crate::sim::bounds::with_leases;
use crate::sim::{Mode, Plan, START};
use crate::table;

/// Enough for the width of the picture, and few enough for a small file.
const POINTS: u64 = 400;

const SIZE: (u32, u32) = (900, 480);

/// Seconds, and units.
type Point = (f64, f64);

/// Draws the busiest key. The background is white, so that a dark page shows it too.
pub(crate) fn write(file: &Path, plan: &Plan, scores: &[Score]) -> Result<(), Box<dyn Error>> {
    let mut svg = String::new();
    draw(&mut svg, plan, scores)?;
    Ok(std::fs::write(file, svg)?)
}

fn draw(svg: &mut String, plan: &Plan, scores: &[Score]) -> Result<(), Box<dyn Error>> {
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let (limit, bound) = lines(plan, scores);
    let top = bound.iter().map(|(_, units)| *units).fold(0.0, f64::max) * 1.1;
    let mut chart = ChartBuilder::on(&root)
        .caption(title(plan), ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(80)
        .build_cartesian_2d(0.0..plan.length.as_secs_f64(), 0.0..top)?;
    chart.configure_mesh().light_line_style(WHITE).x_desc("seconds").y_desc("units").draw()?;

    let mut line = |points: Vec<Point>, color: RGBColor, width: u32, label: &str| {
        let style = ShapeStyle { color: color.into(), filled: false, stroke_width: width };
        let series = chart.draw_series(LineSeries::new(points, style))?;
        series.label(label).legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
        Ok::<_, Box<dyn Error>>(())
    };
    line(bound, RGBColor(200, 30, 30), 1, "bound of leases")?;
    line(limit, BLACK, 1, "limit")?;
    for score in scores.iter().rev() {
        let color = match score.mode {
            Mode::Exact => RGBColor(40, 90, 200),
            Mode::Leases => RGBColor(220, 130, 0),
            Mode::LocalShare => RGBColor(130, 130, 130),
        };
        line(admitted(plan, score), color, 2, table::name(score.mode))?;
    }
    let mut labels = chart.configure_series_labels();
    labels.position(SeriesLabelPosition::LowerRight).background_style(WHITE).border_style(BLACK).draw()?;
    root.present()?;
    drop(chart);
    Ok(())
}

fn title(plan: &Plan) -> &'static str {
    match plan.algorithm {
        Algorithm::Gcra | Algorithm::LeakyBucket { .. } => "Units that were admitted since the start",
        Algorithm::FixedWindow { .. } => "Units that were admitted in the current window",
        _ => "Units that were admitted in the last window",
    }
}

/// The limit and the bound, over time.
fn lines(plan: &Plan, scores: &[Score]) -> (Vec<Point>, Vec<Point>) {
    let nodes = scores.iter().map(|score| score.nodes).max().unwrap_or(0);
    let seconds = |step| plan.length.as_secs_f64() * f64::from(step);
    let flat = |units: f64| vec![(0.0, units), (seconds(1), units)];
    let limit = plan.quota.limit() as f64;
    match plan.algorithm {
        Algorithm::Gcra | Algorithm::LeakyBucket { .. } => {
            let rate = limit / plan.quota.window().as_secs_f64();
            let line = |from: f64| vec![(0.0, from), (seconds(1), from + rate * seconds(1))];
            let burst = plan.policy().capacity() as f64;
            (line(burst), line(burst + rate * plan.life.as_secs_f64()))
        }
        Algorithm::FixedWindow { .. } => (flat(limit), flat(limit)),
        _ => (flat(limit), flat(with_leases(&Plan { mode: Mode::Leases, ..plan.clone() }, nodes))),
    }
}

/// What was admitted of the busiest key: since the start, or in the window of each point.
fn admitted(plan: &Plan, score: &Score) -> Vec<Point> {
    let window = u64::try_from(plan.quota.window().as_micros()).unwrap_or(u64::MAX);
    let step = (plan.length_us() / POINTS).max(1);
    let mut times = score.admitted.iter().filter(|one| one.key == 0).map(|one| one.at).peekable();
    let mut counted = VecDeque::new();
    let mut points = Vec::new();
    for now in (0..=POINTS).map(|n| START + n * step) {
        while let Some(at) = times.next_if(|at| *at < now) {
            counted.push_back(at);
        }
        let from = match plan.algorithm {
            Algorithm::Gcra | Algorithm::LeakyBucket { .. } => 0,
            Algorithm::FixedWindow { .. } => (now - 1) / window * window,
            _ => now.saturating_sub(window),
        };
        while counted.front().is_some_and(|at| *at < from) {
            counted.pop_front();
        }
        points.push(((now - START) as f64 / 1e6, counted.len() as f64));
    }
    points
}
