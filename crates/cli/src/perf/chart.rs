//! Curves over size as SVG: both axes logarithmic, no script, no external resource.

use super::markup::escape;
use std::fmt::Write;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 104.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 56.0;
/// Zero bytes have no logarithm: they get a place this many doublings below the smallest other size.
const ZERO_GAP: f64 = 2.0;

/// One curve.
pub struct Series {
    /// For the tooltip.
    pub name: String,
    /// Class of its colour.
    pub colour: usize,
    /// Classes by which the page shows and hides it.
    pub classes: String,
    /// Class of its dashes.
    pub dash: usize,
    /// Size in bytes, value.
    pub points: Vec<(u32, f64)>,
    /// Size, from, to: shaded.
    pub band: Vec<(u32, f64, f64)>,
}

/// A chart of several.
pub struct Chart<'a> {
    /// What the y axis is.
    pub y_label: &'a str,
    /// For screen readers.
    pub title: &'a str,
    /// A value as a tick and in tooltips.
    pub format: fn(f64) -> String,
    /// The curves.
    pub series: &'a [Series],
}

/// From values to places.
struct Scale {
    size_min: f64,
    doublings: f64,
    low: f64,
    decades: f64,
}

impl Chart<'_> {
    /// The SVG element; empty where there is nothing to draw.
    pub fn svg(&self) -> String {
        let Some(scale) = self.scale() else { return String::new() };
        let mut out = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n",
            escape(self.title)
        );
        self.grid(&scale, &mut out);
        for series in self.series.iter().filter(|series| series.points.iter().any(|point| point.1 > 0.0)) {
            let _ = writeln!(out, "<g class=\"{}\">", series.classes);
            band(series, &scale, &mut out);
            self.curve(series, &scale, &mut out);
            out.push_str("</g>\n");
        }
        out.push_str("</svg>\n");
        out
    }

    fn sizes(&self) -> Vec<u32> {
        let mut sizes: Vec<u32> = self
            .series
            .iter()
            .flat_map(|series| series.points.iter().filter(|point| point.1 > 0.0))
            .map(|point| point.0)
            .collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    fn scale(&self) -> Option<Scale> {
        let sizes = self.sizes();
        let largest = f64::from(*sizes.last()?);
        let smallest = sizes.iter().find(|&&size| size > 0).map_or(1.0, |&size| f64::from(size));
        let from = if sizes.first() == Some(&0) { smallest.log2() - ZERO_GAP } else { smallest.log2() };
        let points = self.series.iter().flat_map(|series| series.points.iter().map(|point| point.1));
        let bands =
            self.series.iter().flat_map(|series| series.band.iter().flat_map(|band| [band.1, band.2]));
        let values: Vec<f64> = points.chain(bands).filter(|&value| value > 0.0).collect();
        let (low, high) =
            values.iter().fold((f64::MAX, 0.0_f64), |(low, high), &value| (low.min(value), high.max(value)));
        if values.is_empty() {
            return None;
        }
        let (low, high) = (round_down(low * 0.9), round_up(high * 1.1));
        Some(Scale {
            size_min: from,
            doublings: (largest.max(1.0).log2() - from).max(1.0),
            low: low.log10(),
            decades: high.log10() - low.log10(),
        })
    }

    fn grid(&self, scale: &Scale, out: &mut String) {
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for value in scale.ticks() {
            let y = scale.y(value);
            let _ = writeln!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
            );
            let label = tick((self.format)(value));
            let _ = writeln!(
                out,
                "<text class=\"tick\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                LEFT - 8.0,
                y + 5.0
            );
        }
        let mut last_x = f64::MIN;
        for size in self.sizes() {
            let x = scale.x(size);
            let _ = writeln!(
                out,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>"
            );
            // Labels of neighbouring sizes must not run into each other.
            if x - last_x > 44.0 {
                let _ = writeln!(
                    out,
                    "<text class=\"tick\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                    bottom + 20.0,
                    size_tick(size)
                );
                last_x = x;
            }
        }
        let middle = (LEFT + right) / 2.0;
        let _ = writeln!(
            out,
            "<text class=\"axis\" x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">size in bytes</text>",
            HEIGHT - 8.0
        );
        let height = (TOP + bottom) / 2.0;
        let _ = writeln!(
            out,
            "<text class=\"axis\" transform=\"translate(16 {height}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            self.y_label
        );
    }

    fn curve(&self, series: &Series, scale: &Scale, out: &mut String) {
        let points: Vec<(f64, f64, u32, f64)> = series
            .points
            .iter()
            .filter(|(_, value)| *value > 0.0)
            .map(|&(size, value)| (scale.x(size), scale.y(value), size, value))
            .collect();
        let path = points.iter().map(|(x, y, ..)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ");
        let _ = writeln!(
            out,
            "<polyline class=\"line c{} dash{}\" points=\"{path}\"/>",
            series.colour, series.dash
        );
        for (x, y, size, value) in points {
            let _ = writeln!(
                out,
                "<circle class=\"dot c{}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{}, {size} B: {}</title></circle>",
                series.colour,
                escape(&series.name),
                (self.format)(value)
            );
        }
    }
}

fn band(series: &Series, scale: &Scale, out: &mut String) {
    if series.band.len() < 2 {
        return;
    }
    let upper = series.band.iter().map(|&(size, _, to)| (scale.x(size), scale.y(to)));
    let lower = series.band.iter().rev().map(|&(size, from, _)| (scale.x(size), scale.y(from)));
    let path = upper.chain(lower).map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ");
    let _ = writeln!(out, "<polygon class=\"band c{}\" points=\"{path}\"/>", series.colour);
}

impl Scale {
    fn x(&self, size: u32) -> f64 {
        let place = if size == 0 { self.size_min } else { f64::from(size).log2() };
        LEFT + 12.0 + (place - self.size_min) / self.doublings * (WIDTH - LEFT - RIGHT - 24.0)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - (value.log10() - self.low) / self.decades * (HEIGHT - TOP - BOTTOM)
    }

    /// Powers of ten; where those are few, twos and fives between them.
    fn ticks(&self) -> Vec<f64> {
        let steps: &[f64] = if self.decades > 3.2 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let first = self.low.floor() as i32;
        let last = (self.low + self.decades).ceil() as i32;
        let all = (first..=last).flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
        let inside = |value: &f64| (-1e-9..=self.decades + 1e-9).contains(&(value.log10() - self.low));
        all.filter(inside).collect()
    }
}

/// Bytes as below an axis: "64", "8 Ki".
fn size_tick(size: u32) -> String {
    let short = crate::text::bytes(size.into());
    short.trim_end_matches('B').trim_end().to_owned()
}

/// Round numbers need no decimals.
fn tick(label: String) -> String {
    label.replace(".00 ", " ").replace(".0 ", " ")
}

/// To 1, 2 or 5 times a power of ten.
fn round_down(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let step = [5.0, 2.0, 1.0].into_iter().find(|step| step * power <= value);
    step.unwrap_or(1.0) * power
}

fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let step = [1.0, 2.0, 5.0].into_iter().find(|step| step * power >= value);
    step.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(series: &[Series]) -> String {
        Chart { y_label: "y", title: "t", format: |value| format!("{value}"), series }.svg()
    }

    fn series(points: &[(u32, f64)]) -> Series {
        Series {
            name: "a<b".into(),
            colour: 0,
            classes: "dev0".into(),
            dash: 0,
            points: points.to_vec(),
            band: Vec::new(),
        }
    }

    #[test]
    fn nothing_gives_nothing_and_one_point_is_drawn() {
        assert_eq!(chart(&[]), "");
        assert_eq!(chart(&[series(&[(8, 0.0)])]), "");
        for size in [0, 1, 8192] {
            let svg = chart(&[series(&[(size, 5.0)])]);
            assert!(svg.contains("<circle") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }

    #[test]
    fn everything_stays_inside() {
        let svg = chart(&[series(&[(0, 1e-3), (8, 3.0), (8192, 9.9e9)])]);
        assert!(svg.contains("a&lt;b"));
        for part in svg.split("cy=\"").skip(1) {
            let y: f64 = part.split('"').next().unwrap().parse().unwrap();
            assert!((TOP..=HEIGHT - BOTTOM).contains(&y), "{y}");
        }
    }

    #[test]
    fn bounds_are_ones_twos_and_fives() {
        assert_eq!((round_down(0.9 * 230.0), round_up(1.1 * 230.0)), (200.0, 500.0));
        assert_eq!((round_down(1000.0), round_up(1000.0)), (1000.0, 1000.0));
        assert!((round_up(7e8) - 1e9).abs() < 1.0);
    }
}
