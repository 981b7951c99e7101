//! Bytes a second by the length of the file, as SVG.

use super::page;
use super::readings::{By, Line, Readings, Site};
use cci_measure::failure::{Failure, Outcome};
use cci_measure::plot::{Curve, Plot, RGBColor};
use cci_measure::units;

/// Pixels of the whole, and of the list of names on its right.
const SIZE: (u32, u32) = (860, 420);
const NAMES_WIDTH: u32 = 190;
/// Heights and widths of what stands beside the axes.
const LABEL_SIZES: (u32, u32) = (44, 78);

const RIPC: RGBColor = RGBColor(213, 94, 0);
const TCP: RGBColor = RGBColor(0, 114, 178);
const MEMCPY: RGBColor = RGBColor(130, 130, 130);

/// Of files that are fetched one after another.
pub fn draw(readings: &Readings) -> Outcome<String> {
    let curves = [
        curve("RIPC, cache", RIPC, By::Ripc, readings, true),
        curve("RIPC, no cache", RIPC, By::Ripc, readings, false),
        curve("TCP, cache", TCP, By::Tcp, readings, true),
        curve("TCP, no cache", TCP, By::Tcp, readings, false),
        curve("memcpy", MEMCPY, By::Memcpy, readings, true),
    ];
    let plot = Plot {
        caption: match readings.site {
            Site::Host => "Jetty on one host, bytes a second",
            Site::Wire => "Jetty across a virtual wire, bytes a second",
        },
        size: SIZE,
        names_width: NAMES_WIDTH,
        label_sizes: LABEL_SIZES,
        x_words: "length of the file",
        y_words: "",
        x_label: &|bytes| units::bytes(bytes.round() as u64),
        y_label: &|value| page::rate(value),
        curves: &curves,
    };
    plot.svg()?.ok_or_else(|| Failure::new("no file was fetched by itself"))
}

fn curve(name: &str, colour: RGBColor, by: By, readings: &Readings, is_cached: bool) -> Curve {
    let is_shown = |line: &&Line| line.at_once == 1 && line.is_cached == is_cached;
    let mut points: Vec<(f64, f64)> = readings
        .lines
        .iter()
        .filter(is_shown)
        .map(|line| (line.bytes as f64, line.bytes_per_second(by)))
        .collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    let width = if by == By::Ripc { 3 } else { 2 };
    Curve { name: name.to_owned(), colour, width, dashed: !is_cached, points, band: None }
}
