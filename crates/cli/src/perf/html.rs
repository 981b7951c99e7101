//! The results as one page that needs nothing else: no script, no font, no address.

use super::chart::{Chart, Series};
use super::markup::escape;
use super::results::{Cell, Results, RmaCell, Target};
use super::table;
use crate::text;
use std::fmt::Write;

/// Colours that differ; more devices than these begin again.
const COLOURS: usize = 6;

const STYLE: &str = r"
:root { color-scheme: light dark; --back: #fff; --card: #f6f7f9; --text: #1b1f24; --soft: #5b6470; --grid: #dde1e6;
  --c0: #1668c5; --c1: #c2410c; --c2: #0f8a5f; --c3: #8b3fc9; --c4: #a16207; --c5: #be185d; --bad: #b91c1c; }
@media (prefers-color-scheme: dark) { :root { --back: #14171b; --card: #1c2127; --text: #e8eaed; --soft: #9aa4b0;
  --grid: #323a44; --c0: #6cb0ff; --c1: #ff9d66; --c2: #4fd3a0; --c3: #cf9bff; --c4: #e6c15a; --c5: #ff8ab8;
  --bad: #ff7b7b; } }
* { box-sizing: border-box }
body { margin: 0 auto; padding: 28px 20px 48px; max-width: 1600px; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif }
h1 { font-size: 26px; margin: 0 0 4px } h2 { font-size: 18px; margin: 0 0 2px }
p { margin: 0 0 8px } .soft { color: var(--soft) } .bad { color: var(--bad) }
.cards { display: grid; gap: 18px; align-items: start; grid-template-columns: repeat(auto-fit, minmax(min(100%, var(--wide, 420px)), 1fr)); margin: 18px 0 }
.tables { --wide: 490px }
section { background: var(--card); border-radius: 10px; padding: 16px 18px; overflow-x: auto }
svg { display: block; width: 100%; height: auto }
.grid { stroke: var(--grid); stroke-width: 1 } .tick { fill: var(--soft); font-size: 12px }
.axis { fill: var(--soft); font-size: 13px }
.line { fill: none; stroke-width: 2 } .d1 { stroke-dasharray: 7 4 } .d2 { stroke-dasharray: 2 4 } .d3 { stroke-dasharray: 9 3 2 3 }
.dot { stroke: var(--card); stroke-width: 1 } .band { opacity: .13; stroke: none }
.legend { display: flex; flex-wrap: wrap; gap: 6px 22px; margin: 14px 0 0; padding: 0; list-style: none }
.legend svg { display: inline-block; width: 34px; height: 12px; margin-right: 7px; vertical-align: -1px }
.key { stroke: var(--soft) }
table { border-collapse: collapse; width: 100%; font-size: 13px; font-variant-numeric: tabular-nums; white-space: nowrap }
th, td { text-align: right; padding: 3px 0 3px 10px; border-top: 1px solid var(--grid) }
th { font-weight: 600; color: var(--soft); border-top: 0 } th:first-child, td:first-child { text-align: left; padding-left: 0 }
tr.first td { border-top-color: var(--soft) } .words td:nth-child(2) { text-align: left }
table + table { margin-top: 14px }
";

/// The page.
pub fn render(results: &Results) -> String {
    let mut out = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    out.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    let _ =
        writeln!(out, "<title>cci perf</title>\n<style>{STYLE}{}</style>\n</head>\n<body>", colour_rules());
    head(results, &mut out);
    legend(results, &mut out);
    out.push_str("<div class=\"cards\">\n");
    charts(results, &mut out);
    out.push_str("</div>\n<div class=\"cards tables\">\n");
    for (index, target) in results.targets.iter().enumerate() {
        device(index, target, &mut out);
    }
    out.push_str("</div>\n</body>\n</html>\n");
    out
}

fn colour_rules() -> String {
    (0..COLOURS).fold(String::new(), |mut rules, index| {
        let _ = writeln!(
            rules,
            ".line.c{index} {{ stroke: var(--c{index}) }} .dot.c{index}, .band.c{index} {{ fill: var(--c{index}) }}"
        );
        rules
    })
}

fn head(results: &Results, out: &mut String) {
    let (machine, noise) = (&results.machine, &results.noise);
    let _ = writeln!(out, "<h1>cci perf</h1>");
    let _ = writeln!(
        out,
        "<p>{}. Latency of messages is half of the round trip, and the receiver counts rates; operations on memory \
         are timed from the call to the completion.</p>",
        results.verified_line()
    );
    let _ = writeln!(
        out,
        "<p class=\"soft\">{}, {}, {}, cci {}; {}<br>{} ({} a reading); {}; {}<br>\
         noise: {:.2} % of a bare loop taken away, {} at once at most</p>",
        escape(&machine.processor),
        text::count(machine.cores, "core"),
        escape(&machine.kernel),
        machine.version,
        machine.date,
        machine.clock,
        text::duration(noise.clock_read_ns),
        escape(&machine.method),
        escape(&machine.budget),
        noise.interrupted_fraction * 100.0,
        text::duration(noise.longest_interruption_ns as f64),
    );
    if let Some(warning) = noise.warning() {
        let _ = writeln!(out, "<p class=\"bad\">{}; p99 and p99.9 suffer most.</p>", escape(&warning));
    }
    for failure in results.failures() {
        let _ = writeln!(out, "<p class=\"bad\">failed: {}</p>", escape(&failure));
    }
}

fn legend(results: &Results, out: &mut String) {
    out.push_str("<ul class=\"legend\">\n");
    let sample = |class: &str| {
        format!(
            "<svg viewBox=\"0 0 34 12\"><line class=\"{class}\" x1=\"0\" x2=\"34\" y1=\"6\" y2=\"6\"/></svg>"
        )
    };
    for (index, target) in results.targets.iter().enumerate() {
        let line = sample(&format!("line c{}", index % COLOURS));
        let _ = writeln!(out, "<li>{line}{}</li>", escape(&target.device));
    }
    for (dash, kind) in kinds(results).into_iter().enumerate() {
        let line = sample(&format!("line key d{dash}"));
        let _ = writeln!(out, "<li>{line}{}</li>", long_name(kind));
    }
    for (dash, (memory, operation)) in rma_kinds(results).into_iter().enumerate() {
        let line = sample(&format!("line key d{dash}"));
        let _ = writeln!(out, "<li>{line}{memory} memory, {operation}</li>");
    }
    out.push_str("</ul>\n");
}

/// Kinds of connection, in the order measured: their place decides their dashes.
fn kinds(results: &Results) -> Vec<&'static str> {
    let mut kinds = Vec::new();
    for cell in results.targets.iter().flat_map(|target| &target.cells) {
        if !kinds.contains(&cell.r#type) {
            kinds.push(cell.r#type);
        }
    }
    kinds
}

/// The same of remote memory, in charts of its own.
fn rma_kinds(results: &Results) -> Vec<(&'static str, &'static str)> {
    let mut kinds = Vec::new();
    for cell in results.targets.iter().flat_map(|target| &target.rma) {
        if !kinds.contains(&(cell.memory, cell.operation)) {
            kinds.push((cell.memory, cell.operation));
        }
    }
    kinds
}

fn long_name(kind: &str) -> &str {
    match kind {
        "RO" => "RO: reliable, ordered",
        "RU" => "RU: reliable, unordered",
        "UU" => "UU: unreliable",
        other => other,
    }
}

fn charts(results: &Results, out: &mut String) {
    let kinds = kinds(results);
    let shaded = kinds.first().copied().unwrap_or_default();
    let value = |of: fn(&Cell) -> f64, with_band: bool| -> Vec<Series> {
        let mut all = Vec::new();
        for (index, target) in results.targets.iter().enumerate() {
            for (dash, kind) in kinds.iter().enumerate() {
                let cells = || target.cells.iter().filter(|cell| cell.r#type == *kind);
                let spread = |cell: &Cell| {
                    (
                        cell.size_bytes,
                        cell.latency.half_round_trip_ns_p50,
                        cell.latency.half_round_trip_ns_p99,
                    )
                };
                all.push(Series {
                    name: format!("{} {kind}", target.device),
                    colour: index % COLOURS,
                    dash,
                    points: cells().map(|cell| (cell.size_bytes, of(cell))).collect(),
                    band: if with_band && *kind == shaded {
                        cells().map(spread).collect()
                    } else {
                        Vec::new()
                    },
                });
            }
        }
        all
    };
    let latency = value(|cell| cell.latency.half_round_trip_ns_p50, true);
    let what = format!("Median; shaded up to p99 for {shaded}. Lower is better.");
    card(out, "Latency", &what, "half round trip", text::duration, &latency);
    let bytes = value(|cell| cell.rate.bytes_per_s, false);
    let per_s = |value: f64| format!("{}B/s", text::si(value));
    card(
        out,
        "Bandwidth",
        "Bytes of messages that came, a second. Higher is better.",
        "bytes a second",
        per_s,
        &bytes,
    );
    let messages = value(|cell| cell.rate.messages_per_s, false);
    card(
        out,
        "Message rate",
        "Messages that came, a second. Higher is better.",
        "messages a second",
        text::si,
        &messages,
    );
    rma_charts(results, out);
}

fn rma_charts(results: &Results, out: &mut String) {
    let value = |of: fn(&RmaCell) -> f64| -> Vec<Series> {
        let mut all = Vec::new();
        for (index, target) in results.targets.iter().enumerate() {
            for (dash, (memory, operation)) in rma_kinds(results).into_iter().enumerate() {
                let cells =
                    target.rma.iter().filter(|cell| (cell.memory, cell.operation) == (memory, operation));
                all.push(Series {
                    name: format!("{} {memory} memory, {operation}", target.device),
                    colour: index % COLOURS,
                    dash,
                    points: cells.map(|cell| (cell.size_bytes as u32, of(cell))).collect(),
                    band: Vec::new(),
                });
            }
        }
        all
    };
    let latency = value(|cell| cell.latency.completion_ns_p50);
    let what = "From the call to the completion, median. Lower is better.";
    card(out, "Remote memory: time of one operation", what, "time", text::duration, &latency);
    let per_s = |value: f64| format!("{}B/s", text::si(value));
    let bytes = value(|cell| cell.bytes_per_s);
    let what = "Bytes written or read a second, many operations under way. Higher is better.";
    card(out, "Remote memory: bandwidth", what, "bytes a second", per_s, &bytes);
    let ratio = value(|cell| cell.floor.as_ref().map_or(0.0, |floor| floor.ratio));
    let what = "Bandwidth over that of memcpy, process_vm_writev or a TCP stream by hand. Higher is better.";
    card(
        out,
        "Remote memory: beside the plainest code",
        what,
        "ratio",
        |ratio| format!("{ratio:.2}"),
        &ratio,
    );
}

fn card(
    out: &mut String,
    title: &str,
    what: &str,
    y_label: &str,
    format: fn(f64) -> String,
    series: &[Series],
) {
    let svg = Chart { y_label, title, format, series }.svg();
    if !svg.is_empty() {
        let _ = writeln!(out, "<section><h2>{title}</h2><p class=\"soft\">{what}</p>\n{svg}</section>");
    }
}

fn device(index: usize, target: &Target, out: &mut String) {
    let _ = writeln!(
        out,
        "<section><h2 style=\"color: var(--c{})\">{}</h2>",
        index % COLOURS,
        escape(&target.device)
    );
    for line in target.uri.clone().into_iter().chain(target.notes()) {
        let _ = writeln!(out, "<p class=\"soft\">{}</p>", escape(&line));
    }
    if let Some(failure) = &target.failure {
        let _ = writeln!(out, "<p class=\"bad\">failed: {}</p>", escape(failure));
    }
    let cells = target.cells.iter().map(|cell| (cell.r#type, table::row(cell)));
    rows(table::HEAD, "", cells, out);
    let rma = target.rma.iter().map(|cell| (cell.operation, table::rma_row(cell)));
    rows(table::RMA_HEAD, "words", rma, out);
    rows(table::ATOMIC_HEAD, "", target.atomics.iter().map(|cell| ("", table::atomic_row(cell))), out);
    out.push_str("</section>\n");
}

/// A table whose rows belong together by the name that each comes with.
fn rows<'a>(head: &[&str], class: &str, all: impl Iterator<Item = (&'a str, Vec<String>)>, out: &mut String) {
    let mut last = None;
    for (group, row) in all {
        if last.is_none() {
            let head: String =
                head.iter().map(|title| format!("<th>{}</th>", title.trim_start_matches("½ rtt "))).collect();
            let _ = writeln!(out, "<table class=\"{class}\">\n<tr>{head}</tr>");
        }
        let first = if last == Some(group) { "" } else { " class=\"first\"" };
        last = Some(group);
        let row: String = row.iter().map(|text| format!("<td>{}</td>", escape(text))).collect();
        let _ = writeln!(out, "<tr{first}>{row}</tr>");
    }
    if last.is_some() {
        out.push_str("</table>\n");
    }
}
