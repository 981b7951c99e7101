//! Curves over a number, such as a size, as SVG: both axes are logarithmic.

use crate::failure::{Failure, Outcome};
use plotters::coord::Shift;
use plotters::prelude::*;
pub use plotters::style::RGBColor;

const FONT: &str = "sans-serif";
/// Zero has no logarithm: its place is so many times below the smallest other number.
const ZERO_GAP: f64 = 4.0;
/// The least distance between two labels of the x axis, as a part of its logarithmic length.
const LABEL_GAP: f64 = 0.075;
const BAND_OPACITY: f64 = 0.15;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// One curve, with a dot at each of its points.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its name in the list beside the plot.
    pub name: String,
    /// The colour of the line and of its dots.
    pub colour: RGBColor,
    /// The width of the line, pixels.
    pub width: u32,
    /// Whether the line is dashed.
    pub dashed: bool,
    /// Number and value, ascending in the number; values are above 0.
    pub points: Vec<(f64, f64)>,
    /// The colour of a shade above the curve, and how far the shade reaches: number and value.
    pub band: Option<(RGBColor, Vec<(f64, f64)>)>,
}

/// A plot of several curves.
pub struct Plot<'a> {
    /// What stands above it, if anything.
    pub caption: &'a str,
    /// Width and height, pixels.
    pub size: (u32, u32),
    /// The width of the list of names on its right, pixels; 0 for none.
    pub names_width: u32,
    /// The heights and widths of what stands beside the axes: below the x axis, left of the y axis, pixels.
    pub label_sizes: (u32, u32),
    /// What the x axis shows.
    pub x_words: &'a str,
    /// What the y axis shows; empty where the caption says so.
    pub y_words: &'a str,
    /// A number of the x axis in words.
    pub x_label: &'a dyn Fn(f64) -> String,
    /// A value of the y axis in words.
    pub y_label: &'a dyn Fn(f64) -> String,
    /// The curves, in the order in which they are drawn.
    pub curves: &'a [Curve],
}

/// The x axis: its numbers, and the place of zero.
struct Numbers {
    sorted: Vec<f64>,
    zero: f64,
}

impl Plot<'_> {
    /// The SVG element; `None` where there is nothing to draw.
    ///
    /// # Errors
    /// What the library that draws has to say.
    pub fn svg(&self) -> Outcome<Option<String>> {
        let Some(numbers) = Numbers::of(self.curves) else { return Ok(None) };
        let mut svg = String::new();
        let drawn = self.draw(&SVGBackend::with_string(&mut svg, self.size).into_drawing_area(), &numbers);
        drawn.map_err(|error| Failure::new(format!("a plot: {error}")))?;
        // The text ends with one line break, as files of text do.
        Ok(Some(svg.trim_end().to_owned() + "\n"))
    }

    fn draw(&self, root: &Area<'_>, numbers: &Numbers) -> Drawn {
        root.fill(&WHITE).map_err(words)?;
        if self.names_width == 0 {
            self.axes_and_curves(root, numbers)?;
        } else {
            let (left, right) = root.split_horizontally(self.size.0 - self.names_width);
            self.axes_and_curves(&left, numbers)?;
            self.names(&right)?;
        }
        root.present().map_err(words)
    }

    fn axes_and_curves(&self, area: &Area<'_>, numbers: &Numbers) -> Drawn {
        let shades = self.curves.iter().flat_map(|curve| curve.band.iter().flat_map(|(_, band)| band));
        let points = self.curves.iter().flat_map(|curve| &curve.points).chain(shades);
        let (low, high) = points.fold((f64::MAX, f64::MIN_POSITIVE), |(low, high), &(_, value)| {
            (low.min(value), high.max(value))
        });
        let (low, high) = (low / 1.25, high * 1.25);
        let mut builder = ChartBuilder::on(area);
        if !self.caption.is_empty() {
            builder.caption(self.caption, (FONT, 16));
        }
        let labelled = numbers.labelled();
        let (x_label, y_label) = (
            |place: &f64| {
                if labelled.contains(place) { (self.x_label)(numbers.at(*place)) } else { String::new() }
            },
            // Round numbers need no decimals.
            |value: &f64| (self.y_label)(*value).replace(".00", "").replace(".0 ", " "),
        );
        let mut chart = builder
            .margin(10)
            .x_label_area_size(self.label_sizes.0)
            .y_label_area_size(self.label_sizes.1)
            .build_cartesian_2d(
                numbers.range().log_scale().with_key_points(numbers.places()),
                (low..high).log_scale().with_key_points(ticks(low, high)),
            )
            .map_err(words)?;
        let mut mesh = chart.configure_mesh();
        if !self.y_words.is_empty() {
            mesh.y_desc(self.y_words);
        }
        mesh.light_line_style(WHITE)
            .bold_line_style(RGBColor(225, 225, 225))
            .axis_style(RGBColor(120, 120, 120))
            .label_style((FONT, 13))
            .axis_desc_style((FONT, 13))
            .x_desc(self.x_words)
            .x_label_formatter(&x_label)
            .y_label_formatter(&y_label)
            .draw()
            .map_err(words)?;
        for curve in self.curves {
            let style = curve.colour.stroke_width(curve.width);
            let placed = |points: &[(f64, f64)]| -> Vec<(f64, f64)> {
                points.iter().map(|&(number, value)| (numbers.place(number), value)).collect()
            };
            let points = placed(&curve.points);
            if let Some((colour, band)) = &curve.band {
                let around = points.iter().copied().chain(placed(band).into_iter().rev());
                let shade = Polygon::new(around.collect::<Vec<_>>(), colour.mix(BAND_OPACITY));
                chart.draw_series([shade]).map_err(words)?;
            }
            if curve.dashed {
                chart
                    .draw_series(DashedLineSeries::new(points.iter().copied(), 6, 4, style))
                    .map_err(words)?;
            } else {
                chart.draw_series(LineSeries::new(points.iter().copied(), style)).map_err(words)?;
            }
            let dots = points.iter().map(|&point| Circle::new(point, 3, curve.colour.filled()));
            chart.draw_series(dots).map_err(words)?;
        }
        Ok(())
    }

    /// Draws the list of names on the right, where no curve is.
    fn names(&self, area: &Area<'_>) -> Drawn {
        for (curve, y) in self.curves.iter().zip((44..).step_by(20)) {
            let style = curve.colour.stroke_width(curve.width);
            let pieces: &[(i32, i32)] =
                if curve.dashed { &[(4, 10), (14, 20), (24, 30)] } else { &[(4, 30)] };
            for &(from, to) in pieces {
                area.draw(&PathElement::new(vec![(from, y), (to, y)], style)).map_err(words)?;
            }
            area.draw(&Text::new(curve.name.clone(), (38, y - 7), (FONT, 13))).map_err(words)?;
        }
        Ok(())
    }
}

impl Numbers {
    fn of(curves: &[Curve]) -> Option<Numbers> {
        let all = curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.0));
        let mut sorted: Vec<f64> = all.collect();
        sorted.sort_by(f64::total_cmp);
        sorted.dedup();
        let smallest = sorted.iter().copied().find(|&number| number > 0.0);
        (!sorted.is_empty()).then(|| Numbers { sorted, zero: smallest.unwrap_or(1.0) / ZERO_GAP })
    }

    fn place(&self, number: f64) -> f64 {
        if number == 0.0 { self.zero } else { number }
    }

    fn at(&self, place: f64) -> f64 {
        if place == self.zero { 0.0 } else { place }
    }

    fn places(&self) -> Vec<f64> {
        self.sorted.iter().map(|&number| self.place(number)).collect()
    }

    fn range(&self) -> std::ops::Range<f64> {
        let places = self.places();
        let (first, last) = (places.first().copied(), places.last().copied());
        first.unwrap_or(1.0) / 1.2..last.unwrap_or(1.0) * 1.2
    }

    /// The places whose labels do not run into each other.
    fn labelled(&self) -> Vec<f64> {
        let range = self.range();
        let gap = (range.end / range.start).powf(LABEL_GAP);
        let mut labelled: Vec<f64> = Vec::new();
        for place in self.places() {
            if labelled.last().is_none_or(|last| place / last >= gap) {
                labelled.push(place);
            }
        }
        labelled
    }
}

/// The errors of the library borrow from what it draws on: their words do not.
fn words(error: impl std::fmt::Display) -> Box<dyn std::error::Error> {
    error.to_string().into()
}

/// Powers of ten; where those are few, twos and fives between them.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let decades = (high / low).log10();
    let steps: &[f64] = if decades > 3.2 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let powers = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
    let all = powers.flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
    all.filter(|tick| (low..=high).contains(tick)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn svg(points: &[(f64, f64)]) -> Option<String> {
        let curve = Curve {
            name: "a<b".into(),
            colour: RGBColor(1, 2, 3),
            width: 2,
            dashed: false,
            points: points.to_vec(),
            band: None,
        };
        let plot = Plot {
            caption: "",
            size: (600, 400),
            names_width: 100,
            label_sizes: (40, 40),
            x_words: "x",
            y_words: "y",
            x_label: &|number| format!("[{number}]"),
            y_label: &|value| format!("{value}"),
            curves: &[curve],
        };
        plot.svg().unwrap()
    }

    #[test]
    fn nothing_gives_nothing_and_one_point_is_drawn() {
        assert_eq!(svg(&[]), None);
        for number in [0.0, 1.0, 8192.0] {
            let svg = svg(&[(number, 5.0)]).unwrap();
            assert!(svg.contains("<circle") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            assert!(svg.contains(&format!("[{number}]")) && svg.contains("a&lt;b"), "{svg}");
        }
    }

    #[test]
    fn everything_stays_inside() {
        let svg = svg(&[(0.0, 1e-3), (8.0, 3.0), (8192.0, 9.9e9)]).unwrap();
        for part in svg.split("cy=\"").skip(1) {
            let y: f64 = part.split('"').next().unwrap().parse().unwrap();
            assert!((0.0..=360.0).contains(&y), "{y}");
        }
    }

    #[test]
    fn labels_keep_their_distance() {
        let svg = svg(&[(8.0, 1.0), (1000.0, 1.0), (1024.0, 1.0)]).unwrap();
        assert!(svg.contains("[1000]") && !svg.contains("[1024]"), "{svg}");
    }
}
