//! Curves as SVG: values by size on two logarithmic axes, latency under load by load.

use super::figures;
use super::groups::{self, Family, Group};
use crate::contestant::Role;
use crate::results::{Results, RowResult, Track};
use crate::work::Work;
use cci_measure::trouble::{Outcome, Trouble};
use cci_measure::units;
use plotters::prelude::*;

/// Pixels of the whole, and of the list of names on its right.
const SIZE: (u32, u32) = (860, 420);
const NAMES_WIDTH: u32 = 190;
const FONT: &str = "sans-serif";

/// CCI: one colour that nobody else has; its other forms are darker.
const OURS: [RGBColor; 4] =
    [RGBColor(213, 94, 0), RGBColor(140, 45, 4), RGBColor(90, 30, 0), RGBColor(230, 150, 90)];
const BASELINES: [RGBColor; 3] = [RGBColor(70, 70, 70), RGBColor(130, 130, 130), RGBColor(180, 180, 180)];
/// Tell apart by most people who see few colours.
const PEERS: [RGBColor; 10] = [
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(106, 61, 154),
    RGBColor(140, 86, 75),
    RGBColor(27, 110, 122),
    RGBColor(150, 150, 0),
    RGBColor(31, 31, 120),
];

/// One file.
pub struct Plot {
    /// Its name.
    pub file: String,
    /// Its content.
    pub svg: String,
}

/// One curve.
struct Curve {
    name: String,
    colour: RGBColor,
    width: u32,
    dashed: bool,
    points: Vec<(f64, f64)>,
}

/// Of all groups that have more than one size.
pub fn all(results: &Results) -> Outcome<Vec<Plot>> {
    let mut plots = Vec::new();
    for family in Family::ALL {
        for group in groups::groups(results, family) {
            if let Some(file) = file(&group) {
                let svg = draw(&group, &curves(&group, results))
                    .map_err(|error| Trouble::new(format!("{file}: {error}")))?;
                plots.push(Plot { file, svg });
            }
        }
    }
    Ok(plots)
}

/// The file's name, if there is something to draw: two sizes at least.
pub fn file(group: &Group<'_>) -> Option<String> {
    let measured = group.rows.iter().filter(|row| row.tracks.iter().any(|track| track.values().is_some()));
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    (measured.count() >= 2).then(|| format!("{}.svg", group.key.chars().map(plain).collect::<String>()))
}

fn curves(group: &Group<'_>, results: &Results) -> Vec<Curve> {
    let mut names: Vec<(Role, &str)> = Vec::new();
    for track in group.rows.iter().flat_map(|row| &row.tracks) {
        if !names.contains(&(track.role, &track.name)) {
            names.push((track.role, &track.name));
        }
    }
    names.sort_by_key(|(role, _)| *role);
    let mut curves = Vec::new();
    for (role, name) in names {
        let colour = colour(group, results, role, name);
        let (width, dashed) = (if role == Role::Ours { 3 } else { 2 }, role == Role::Baseline);
        let loaded = group.rows.iter().any(|row| matches!(row.work, Work::Loaded { .. }));
        let points = |value: fn(&Track) -> Option<f64>| points(group, name, value);
        if loaded {
            let names = [format!("{name}, p50"), format!("{name}, p99.9")];
            let values: [fn(&Track) -> Option<f64>; 2] = [
                |track| Some(track.quantiles_ns()?[0].median),
                |track| Some(track.quantiles_ns()?[2].median),
            ];
            for ((name, value), dashed) in names.into_iter().zip(values).zip([false, true]) {
                curves.push(Curve { name, colour, width, dashed, points: points(value) });
            }
        } else {
            let points = points(|track| Some(track.values()?.median));
            curves.push(Curve { name: name.to_owned(), colour, width, dashed, points });
        }
    }
    curves.retain(|curve| !curve.points.is_empty());
    curves
}

fn points(group: &Group<'_>, name: &str, value: fn(&Track) -> Option<f64>) -> Vec<(f64, f64)> {
    let point = |row: &&RowResult| {
        let track = row.tracks.iter().find(|track| track.name == name)?;
        Some((f64::from(groups::size(row.work)?.max(1)), value(track)?))
    };
    let mut points: Vec<(f64, f64)> = group.rows.iter().filter_map(point).collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    points
}

/// A peer has one colour in all plots; baselines and CCI's forms are told apart within one.
fn colour(group: &Group<'_>, results: &Results, role: Role, name: &str) -> RGBColor {
    let place = |tracks: &mut dyn Iterator<Item = &Track>| {
        let mut seen: Vec<&str> = Vec::new();
        for track in tracks.filter(|track| track.role == role) {
            if !seen.contains(&track.name.as_str()) {
                seen.push(&track.name);
            }
        }
        seen.iter().position(|seen| *seen == name).unwrap_or_default()
    };
    let colours: &[RGBColor] = match role {
        Role::Baseline => &BASELINES,
        Role::Ours => &OURS,
        Role::Peer => &PEERS,
    };
    let at = match role {
        Role::Peer => place(&mut results.rows.iter().flat_map(|row| &row.tracks)),
        _ => place(&mut group.rows.iter().flat_map(|row| &row.tracks)),
    };
    colours[at % colours.len()]
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw(group: &Group<'_>, curves: &[Curve]) -> Result<String, Box<dyn std::error::Error>> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE).map_err(words)?;
        let (left, right) = root.split_horizontally(SIZE.0 - NAMES_WIDTH);
        axes_and_curves(&left, group, curves)?;
        names(&right, curves)?;
        root.present().map_err(words)?;
    }
    // A final line break, as text files have.
    Ok(svg.trim_end().to_owned() + "\n")
}

/// The backend's errors borrow from it.
fn words(error: impl std::fmt::Display) -> Box<dyn std::error::Error> {
    error.to_string().into()
}

fn axes_and_curves(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    group: &Group<'_>,
    curves: &[Curve],
) -> Drawn {
    let mut sizes: Vec<f64> =
        curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.0)).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    let (Some(&first), Some(&last)) = (sizes.first(), sizes.last()) else { return Ok(()) };
    let values = curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.1));
    let (low, high) =
        values.fold((f64::MAX, f64::MIN_POSITIVE), |(low, high), value| (low.min(value), high.max(value)));
    let (low, high) = (low / 1.25, high * 1.25);
    let Some(row) = group.rows.first() else { return Ok(()) };
    let (work, unit) = (row.work, row.work.unit());
    let mut chart = ChartBuilder::on(area)
        .caption(&group.title, (FONT, 16))
        .margin(10)
        .x_label_area_size(44)
        .y_label_area_size(78)
        .build_cartesian_2d(
            (first / 1.2..last * 1.2).log_scale().with_key_points(sizes),
            (low..high).log_scale().with_key_points(ticks(low, high)),
        )
        .map_err(words)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .bold_line_style(RGBColor(225, 225, 225))
        .axis_style(RGBColor(120, 120, 120))
        .label_style((FONT, 13))
        .axis_desc_style((FONT, 13))
        .x_desc(size_axis(work))
        .x_label_formatter(&|size| size_tick(work, *size))
        .y_label_formatter(&|value| figures::value(unit, *value).replace(".00", "").replace(".0 ", " "))
        .draw()
        .map_err(words)?;
    for curve in curves {
        let style = curve.colour.stroke_width(curve.width);
        let points = curve.points.iter().copied();
        if curve.dashed {
            chart.draw_series(DashedLineSeries::new(points, 6, 4, style)).map_err(words)?;
        } else {
            chart.draw_series(LineSeries::new(points, style)).map_err(words)?;
        }
        let dots = curve.points.iter().map(|&point| Circle::new(point, 3, curve.colour.filled()));
        chart.draw_series(dots).map_err(words)?;
    }
    Ok(())
}

/// On the right, where no curve is.
fn names(area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>, curves: &[Curve]) -> Drawn {
    for (curve, y) in curves.iter().zip((44..).step_by(20)) {
        let style = curve.colour.stroke_width(curve.width);
        let pieces: &[(i32, i32)] = if curve.dashed { &[(4, 10), (14, 20), (24, 30)] } else { &[(4, 30)] };
        for &(from, to) in pieces {
            area.draw(&PathElement::new(vec![(from, y), (to, y)], style)).map_err(words)?;
        }
        area.draw(&Text::new(curve.name.clone(), (38, y - 7), (FONT, 13))).map_err(words)?;
    }
    Ok(())
}

/// Powers of ten; where those are few, twos and fives between them.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let decades = (high / low).log10();
    let steps: &[f64] = if decades > 3.2 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let powers = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
    let all = powers.flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
    all.filter(|tick| (low..=high).contains(tick)).collect()
}

const fn size_axis(work: Work) -> &'static str {
    match work {
        Work::IdleMemory { .. } => "connections",
        Work::Loaded { .. } => "part of the highest rate",
        _ => "size",
    }
}

fn size_tick(work: Work, size: f64) -> String {
    match work {
        Work::IdleMemory { .. } => figures::grouped(size.round() as u64),
        Work::Loaded { .. } => format!("{size:.0} %"),
        _ => units::bytes(size.round() as u64),
    }
}
