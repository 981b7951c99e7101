//! The results as one page that needs nothing else: no script, no font, no address.

use super::results::{Cell, Results, RmaCell, Target};
use super::table;
use crate::failure::{Failure, Outcome};
use crate::text;
use cci_measure::plot::{Curve, Plot, RGBColor};
use cci_measure::table::Table;
use minijinja::{Environment, Error, ErrorKind, HtmlEscape, Value, context};

/// Colours and dashes that differ; further devices and kinds begin again.
const COLOURS: usize = 8;
const DASHES: usize = 4;
/// Width and height of a chart, and what its axes need for their words.
const SIZE: (u32, u32) = (720, 420);
const LABEL_SIZES: (u32, u32) = (56, 124);
/// The red part of the colours of lines and of shades. The other parts are the numbers of the device and of the kind:
/// what was drawn is found by its colour, and gets the classes by which the style sheet shows, hides and colours it.
const LINE: u8 = 1;
const SHADE: u8 = 2;

/// What one chart shows of cells: a value by size, for each device and kind.
struct Chart<C: 'static> {
    title: &'static str,
    what: &'static str,
    y_words: &'static str,
    y_label: fn(f64) -> String,
    value: fn(&C) -> f64,
    /// How far the shade reaches.
    p99: Option<fn(&C) -> f64>,
}

/// Charts whose kinds are chosen together.
struct Group<C: 'static> {
    /// The class of its kinds.
    class: &'static str,
    title: &'static str,
    cells: fn(&Target) -> &[C],
    kind: fn(&C) -> String,
    size: fn(&C) -> f64,
    charts: &'static [Chart<C>],
}

const MESSAGES: Group<Cell> = Group {
    class: "kind",
    title: "messages",
    cells: |target| &target.cells,
    kind: |cell| {
        let words = match cell.r#type {
            "RO" => ": reliable, ordered",
            "RU" => ": reliable, unordered",
            "UU" => ": unreliable",
            _ => "",
        };
        format!("{}{words}", cell.r#type)
    },
    size: |cell| f64::from(cell.size_bytes),
    charts: &[
        Chart {
            title: "Latency of messages",
            what: "Median. Lower is better.",
            y_words: "half a round trip",
            y_label: text::duration,
            value: |cell| cell.latency.half_round_trip.0.p50,
            p99: Some(|cell| cell.latency.half_round_trip.0.p99),
        },
        Chart {
            title: "Message rate",
            what: "Messages a second that came. Higher is better.",
            y_words: "messages a second",
            y_label: text::si,
            value: |cell| cell.rate.messages_per_s,
            p99: None,
        },
        Chart {
            title: "Bandwidth of messages",
            what: "Bytes of messages a second that came. Higher is better.",
            y_words: "bytes a second",
            y_label: bytes_per_s,
            value: |cell| cell.rate.bytes_per_s,
            p99: None,
        },
    ],
};

const MEMORY: Group<RmaCell> = Group {
    class: "mem",
    title: "memory",
    cells: |target| &target.rma,
    kind: |cell| format!("{}, {} memory", cell.operation, cell.memory),
    size: |cell| cell.size_bytes as f64,
    charts: &[
        Chart {
            title: "Remote memory: time of one operation",
            what: "From the call to the completion, median. Lower is better.",
            y_words: "time",
            y_label: text::duration,
            value: |cell| cell.latency.0.p50,
            p99: None,
        },
        Chart {
            title: "Remote memory: bandwidth",
            what: "Bytes written or read a second, many operations under way. Higher is better.",
            y_words: "bytes a second",
            y_label: bytes_per_s,
            value: |cell| cell.bytes_per_s,
            p99: None,
        },
        Chart {
            title: "Remote memory: times as fast as plain code",
            what: "Bandwidth over that of the plainest code: memcpy, process_vm_writev or a TCP stream. Higher is better.",
            y_words: "x",
            y_label: |value| format!("{value:.2}"),
            value: |cell| cell.plain.as_ref().map_or(0.0, |plain| plain.times_as_fast),
            p99: None,
        },
    ],
};

fn bytes_per_s(value: f64) -> String {
    format!("{}B/s", text::si(value))
}

/// The page.
pub fn render(results: &Results) -> Outcome<String> {
    page(results).map_err(|error| Failure::new(format!("the page: {error}")))
}

fn page(results: &Results) -> Result<String, Error> {
    let mut templates = Environment::new();
    templates.add_template("page.html", include_str!("page.html"))?;
    let ((messages, mut charts), (memory, of_memory)) = (MESSAGES.draw(results)?, MEMORY.draw(results)?);
    charts.extend(of_memory);
    templates.get_template("page.html")?.render(context! {
        interrupted => results.interrupted,
        date => results.machine.date.clone(),
        verified => results.verified_line(),
        lines => results.machine_lines().to_vec(),
        warning => results.noise.warning(),
        failures => results.failures(),
        groups => [messages, memory],
        charts,
        devices => results.targets.iter().map(device).collect::<Vec<_>>(),
    })
}

impl<C> Group<C> {
    /// What there is to choose, and the charts.
    fn draw(&self, results: &Results) -> Result<(Value, Vec<Value>), Error> {
        // In the order in which they were measured: their place decides their dashes.
        let mut kinds: Vec<String> = Vec::new();
        for kind in results.targets.iter().flat_map(self.cells).map(self.kind) {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        let charts = self.charts.iter().map(|chart| self.chart(chart, &kinds, results));
        let charts: Result<Vec<Option<Value>>, Error> = charts.collect();
        let choice = context! { class => self.class, title => self.title, names => kinds };
        Ok((choice, charts?.into_iter().flatten().collect()))
    }

    /// The chart with its words; `None` where there is nothing to draw.
    fn chart(&self, chart: &Chart<C>, kinds: &[String], results: &Results) -> Result<Option<Value>, Error> {
        let (mut curves, mut classes, mut tips) = (Vec::new(), Vec::new(), Vec::new());
        for (device, target) in results.targets.iter().enumerate() {
            for (place, kind) in kinds.iter().enumerate() {
                let of_kind = |cell: &&C| (self.kind)(cell) == *kind && (chart.value)(cell) > 0.0;
                let cells: Vec<&C> = (self.cells)(target).iter().filter(of_kind).collect();
                if cells.is_empty() {
                    continue;
                }
                let points = |value: fn(&C) -> f64| -> Vec<(f64, f64)> {
                    cells.iter().map(|cell| ((self.size)(cell), value(cell))).collect()
                };
                let colour = |part| RGBColor(part, device as u8, place as u8);
                let kind = kind.split(':').next().unwrap_or_default();
                for (size, value) in points(chart.value) {
                    tips.push(format!("{} {kind}, {size} B: {}", target.device, (chart.y_label)(value)));
                }
                curves.push(Curve {
                    name: String::new(),
                    colour: colour(LINE),
                    width: 2,
                    dashed: false,
                    points: points(chart.value),
                    band: chart.p99.map(|p99| (colour(SHADE), points(p99))),
                });
                let of = format!("c{} dev{device} {1} {1}{place}", device % COLOURS, self.class);
                for (attribute, part, class) in [
                    ("stroke", LINE, format!("line dash{} {of}", place % DASHES)),
                    ("fill", LINE, format!("dot {of}")),
                    ("fill", SHADE, format!("band {of}")),
                ] {
                    let drawn = format!("{attribute}=\"#{part:02X}{device:02X}{place:02X}\"");
                    classes.push((drawn, format!("class=\"{class}\"")));
                }
            }
        }
        let plot = Plot {
            caption: "",
            size: SIZE,
            names_width: 0,
            label_sizes: LABEL_SIZES,
            x_words: "size in bytes",
            y_words: chart.y_words,
            x_label: &|size| text::bytes(size as u64).trim_end_matches('B').trim_end().to_owned(),
            y_label: &chart.y_label,
            curves: &curves,
        };
        let svg =
            plot.svg().map_err(|failure| Error::new(ErrorKind::InvalidOperation, failure.to_string()))?;
        Ok(svg.map(|svg| {
            let svg = embedded(chart.title, &svg, &classes, &tips);
            context! { title => chart.title, what => chart.what, svg => Value::from_safe_string(svg) }
        }))
    }
}

/// As a part of the page: with classes in place of colours, a tooltip for each dot, and the size that the page gives.
fn embedded(title: &str, svg: &str, classes: &[(String, String)], tips: &[String]) -> String {
    let described = format!("role=\"img\" aria-label=\"{}\"", title);
    let svg = svg
        .replace(
            &format!("width=\"{}\" height=\"{}\" viewBox", SIZE.0, SIZE.1),
            &format!("{described} viewBox"),
        )
        .replace(" xmlns=\"http://www.w3.org/2000/svg\"", "");
    let svg = classes.iter().fold(svg, |svg, (drawn, class)| svg.replace(drawn, class));
    let mut tips = tips.iter();
    let element = |element: &str| match element.trim_start().starts_with("<circle") {
        true => {
            let tip = tips.next().map_or("", String::as_str);
            element.replacen("/>", &format!("><title>{}</title></circle>", HtmlEscape(tip)), 1)
        }
        false => element.to_owned(),
    };
    svg.split_inclusive("/>").map(element).collect()
}

fn device(target: &Target) -> Value {
    let tables = [
        ("Messages", grouped(&table::messages(target), target.cells.iter().map(|cell| cell.r#type))),
        ("Remote memory", grouped(&table::memory(target), target.rma.iter().map(|cell| cell.operation))),
        ("Atomic operations", grouped(&table::atomics(target), target.atomics.iter().map(|_| ""))),
    ];
    let tables = tables.into_iter().filter_map(|(title, table)| Some((title, table?)));
    context! {
        name => target.device.clone(),
        notes => target.uri.clone().into_iter().chain(target.notes()).collect::<Vec<_>>(),
        failure => target.failure.clone(),
        tables => tables.map(|(title, (columns, rows))| context! { title, columns, rows }).collect::<Vec<_>>(),
    }
}

/// Columns and rows of a table with their classes; rows belong together by the name that each comes with. `None` of a table
/// without rows.
fn grouped<'a>(table: &Table, names: impl Iterator<Item = &'a str>) -> Option<(Vec<Value>, Vec<Value>)> {
    let class = |name: &str| Value::from_safe_string(format!(" class=\"{name}\""));
    let columns = table.columns().iter().map(|column| {
        let class = if column.is_words { class("word") } else { Value::from("") };
        context! { title => column.title.trim().to_owned(), class }
    });
    let mut last = None;
    let rows = table.rows().iter().zip(names).map(|(cells, name)| {
        let is_first = last.replace(name) != Some(name);
        let cells: Vec<String> = cells.iter().map(|cell| cell.trim().to_owned()).collect();
        context! { cells, class => if is_first { class("first") } else { Value::from("") } }
    });
    let rows: Vec<Value> = rows.collect();
    (!rows.is_empty()).then(|| (columns.collect(), rows))
}
