//! Curves as SVG: values by size on two logarithmic axes, latency under load by load.

use super::figures;
use super::groups::{self, Family, Group};
use crate::contestant::Role;
use crate::results::{Results, RowResult, Track};
use crate::work::Work;
use cci_measure::failure::{Failure, Outcome};
use cci_measure::plot::{Curve, Plot, RGBColor};
use cci_measure::units;

/// Pixels of the whole, and of the list of names on its right.
const SIZE: (u32, u32) = (860, 420);
const NAMES_WIDTH: u32 = 190;
/// Heights and widths of what stands beside the axes.
const LABEL_SIZES: (u32, u32) = (44, 78);

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
pub struct File {
    /// Its name.
    pub file: String,
    /// Its content.
    pub svg: String,
}

/// Of all groups that have more than one size.
pub fn all(results: &Results) -> Outcome<Vec<File>> {
    let mut plots = Vec::new();
    for family in Family::ALL {
        for group in groups::groups(results, family) {
            if let Some(file) = file(&group) {
                let drawn = draw(&group, &curves(&group, results));
                let svg = drawn.map_err(|failure| Failure::new(format!("{file}: {failure}")))?;
                plots.extend(svg.map(|svg| File { file, svg }));
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
                curves.push(Curve { name, colour, width, dashed, points: points(value), band: None });
            }
        } else {
            let points = points(|track| Some(track.values()?.median));
            let name = name.to_owned();
            curves.push(Curve { name, colour, width, dashed, points, band: None });
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

/// A peer has one colour in all plots; baselines and CCI's forms are distinguished within one.
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

fn draw(group: &Group<'_>, curves: &[Curve]) -> Outcome<Option<String>> {
    let Some(row) = group.rows.first() else { return Ok(None) };
    let (work, unit) = (row.work, row.work.unit());
    let plot = Plot {
        caption: &group.title,
        size: SIZE,
        names_width: NAMES_WIDTH,
        label_sizes: LABEL_SIZES,
        x_words: size_axis(work),
        y_words: "",
        x_label: &|size| size_tick(work, size),
        y_label: &|value| figures::value(unit, value),
        curves,
    };
    plot.svg()
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
