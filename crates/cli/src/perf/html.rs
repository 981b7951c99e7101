//! The results as one page that needs nothing else: no script, no font, no address.

use super::chart::{Chart, Series};
use super::markup::escape;
use super::results::{Cell, Results, RmaCell, Target};
use super::table::{self, Column};
use crate::text;
use std::fmt::Write;

/// Colours that differ; more devices than these begin again.
const COLOURS: usize = 8;
/// Dashes that differ.
const DASHES: usize = 4;

const STYLE: &str = r"
:root { color-scheme: light dark; --back: #fff; --card: #f6f7f9; --text: #1b1f24; --soft: #5b6470; --grid: #dde1e6;
  --c0: #1668c5; --c1: #c2410c; --c2: #0f8a5f; --c3: #8b3fc9; --c4: #a16207; --c5: #be185d; --c6: #0e7490; --c7: #57534e;
  --bad: #b91c1c }
@media (prefers-color-scheme: dark) { :root { --back: #14171b; --card: #1c2127; --text: #e8eaed; --soft: #9aa4b0;
  --grid: #323a44; --c0: #6cb0ff; --c1: #ff9d66; --c2: #4fd3a0; --c3: #cf9bff; --c4: #e6c15a; --c5: #ff8ab8;
  --c6: #5fd4ea; --c7: #c8c2bc; --bad: #ff7b7b } }
* { box-sizing: border-box }
body { margin: 0 auto; padding: 28px 20px 48px; max-width: 1720px; background: var(--back); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif }
h1 { font-size: 26px; margin: 0 0 4px } h2 { font-size: 19px; margin: 0 0 2px } h3 { font-size: 16px; margin: 16px 0 4px }
p { margin: 0 0 8px } .soft { color: var(--soft) } .bad { color: var(--bad) }
.choose { position: sticky; top: 0; z-index: 1; background: var(--back); border-bottom: 1px solid var(--grid);
  padding: 10px 0; margin: 14px 0 0; display: flex; flex-wrap: wrap; gap: 8px 36px }
.choose fieldset { border: 0; margin: 0; padding: 0; display: flex; flex-wrap: wrap; gap: 4px 16px; align-items: center }
.choose legend { float: left; color: var(--soft); padding: 0; margin-right: 6px }
.choose label { white-space: nowrap; cursor: pointer }
.choose svg { display: inline-block; width: 26px; height: 12px; margin: 0 5px 0 3px; vertical-align: -1px }
.charts { display: grid; gap: 18px; align-items: start; grid-template-columns: repeat(auto-fit, minmax(min(100%, 580px), 1fr)); margin: 18px 0 }
section { background: var(--card); border-radius: 10px; padding: 16px 18px; overflow-x: auto; margin: 0 0 18px }
.charts section { margin: 0 }
section > svg { display: block; width: 100%; min-width: 540px; height: auto }
.grid { stroke: var(--grid); stroke-width: 1 } .tick { fill: var(--text); font-size: 16px }
.axis { fill: var(--soft); font-size: 15px }
.line { fill: none; stroke-width: 2.5 } .dash1 { stroke-dasharray: 8 5 } .dash2 { stroke-dasharray: 2 5 } .dash3 { stroke-dasharray: 10 4 2 4 }
.dot { stroke: var(--card); stroke-width: 1 } .band { opacity: .15; stroke: none } .key { stroke: var(--soft) }
table { border-collapse: collapse; font-size: 15px; font-variant-numeric: tabular-nums; white-space: nowrap }
th, td { text-align: right; padding: 3px 0 3px 26px; border-top: 1px solid var(--grid) }
th { font-weight: 600; color: var(--soft); border-top: 0 }
th.word, td.word { text-align: left } th:first-child, td:first-child { padding-left: 0 }
tr.first td { border-top-color: var(--soft) }
";

/// The page.
pub fn render(results: &Results) -> String {
    let mut out = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    out.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    let _ = writeln!(
        out,
        "<title>cci perf</title>\n<style>{STYLE}{}{}</style>\n</head>\n<body>",
        colour_rules(),
        choice_rules(results)
    );
    head(results, &mut out);
    choices(results, &mut out);
    out.push_str("<div class=\"charts\">\n");
    charts(results, &mut out);
    out.push_str("</div>\n");
    for (index, target) in results.targets.iter().enumerate() {
        device(index, target, &mut out);
    }
    out.push_str("</body>\n</html>\n");
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
         are timed from the call to the completion. <b>x</b> is how many times as fast the library is as the plainest code for \
         the same work: above 1 it is faster, in every chart and column. n/a: there is no such thing here.</p>",
        results.verified_line()
    );
    if results.interrupted {
        out.push_str("<p class=\"bad\">Interrupted: not all was measured.</p>\n");
    }
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
        escape(&machine.budget()),
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

/// What to show: style sheets alone do it, so that no script is needed.
fn choices(results: &Results, out: &mut String) {
    let sample = |class: &str| {
        format!(
            "<svg viewBox=\"0 0 26 12\"><line class=\"{class}\" x1=\"0\" x2=\"26\" y1=\"6\" y2=\"6\"/></svg>"
        )
    };
    out.push_str("<form class=\"choose\">\n<fieldset><legend>devices</legend>\n");
    for (index, target) in results.targets.iter().enumerate() {
        let line = sample(&format!("line c{}", index % COLOURS));
        let name = escape(&target.device);
        let _ =
            writeln!(out, "<label><input type=\"checkbox\" id=\"dev{index}\" checked>{line}{name}</label>");
    }
    out.push_str("</fieldset>\n");
    let kinds = kinds(results).into_iter().map(|kind| long_name(kind).to_owned()).collect();
    radio("messages", "kind", kinds, &sample, out);
    let memory =
        rma_kinds(results).into_iter().map(|(memory, kind)| format!("{kind}, {memory} memory")).collect();
    radio("memory", "mem", memory, &sample, out);
    if results.targets.iter().any(|target| !target.cells.is_empty()) {
        out.push_str(
            "<fieldset><label><input type=\"checkbox\" id=\"p99\">shade latency up to p99</label></fieldset>\n",
        );
    }
    out.push_str("</form>\n");
}

/// One of several kinds, or all of them; nothing where there is no choice.
fn radio(title: &str, group: &str, names: Vec<String>, sample: &dyn Fn(&str) -> String, out: &mut String) {
    if names.len() < 2 {
        return;
    }
    let _ = writeln!(out, "<fieldset><legend>{title}</legend>");
    for (index, name) in names.iter().enumerate() {
        let line = sample(&format!("line key dash{}", index % DASHES));
        let checked = if index == 0 { " checked" } else { "" };
        let _ = writeln!(
            out,
            "<label><input type=\"radio\" name=\"{group}\" id=\"{group}{index}\"{checked}>{line}{}</label>",
            escape(name)
        );
    }
    let _ = writeln!(
        out,
        "<label><input type=\"radio\" name=\"{group}\" id=\"{group}-all\"> all</label>\n</fieldset>"
    );
}

/// What the choices hide.
fn choice_rules(results: &Results) -> String {
    let mut rules = String::from("body:not(:has(#p99:checked)) .band { display: none }\n");
    for index in 0..results.targets.len() {
        let _ = writeln!(rules, "body:has(#dev{index}:not(:checked)) .dev{index} {{ display: none }}");
    }
    for (group, count) in [("kind", kinds(results).len()), ("mem", rma_kinds(results).len())] {
        for index in 0..count {
            let _ = writeln!(
                rules,
                "body:has(#{group}{index}:checked) .{group}:not(.{group}{index}) {{ display: none }}"
            );
        }
    }
    rules
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

/// The kinds of remote operations that were measured; each has charts of its own.
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
    let value = |of: fn(&Cell) -> f64, with_band: bool| -> Vec<Series> {
        let mut all = Vec::new();
        for (index, target) in results.targets.iter().enumerate() {
            for (place, kind) in kinds.iter().enumerate() {
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
                    classes: format!("dev{index} kind kind{place}"),
                    dash: place % DASHES,
                    points: cells().map(|cell| (cell.size_bytes, of(cell))).collect(),
                    band: if with_band { cells().map(spread).collect() } else { Vec::new() },
                });
            }
        }
        all
    };
    let latency = value(|cell| cell.latency.half_round_trip_ns_p50, true);
    card(
        out,
        "Latency of messages",
        "Median. Lower is better.",
        "half a round trip",
        text::duration,
        &latency,
    );
    let messages = value(|cell| cell.rate.messages_per_s, false);
    let what = "Messages a second that came. Higher is better.";
    card(out, "Message rate", what, "messages a second", text::si, &messages);
    let bytes = value(|cell| cell.rate.bytes_per_s, false);
    let per_s = |value: f64| format!("{}B/s", text::si(value));
    let what = "Bytes of messages a second that came. Higher is better.";
    card(out, "Bandwidth of messages", what, "bytes a second", per_s, &bytes);
    rma_charts(results, out);
}

fn rma_charts(results: &Results, out: &mut String) {
    let value = |of: fn(&RmaCell) -> f64| -> Vec<Series> {
        let mut all = Vec::new();
        for (index, target) in results.targets.iter().enumerate() {
            for (place, (memory, operation)) in rma_kinds(results).into_iter().enumerate() {
                let cells =
                    target.rma.iter().filter(|cell| (cell.memory, cell.operation) == (memory, operation));
                all.push(Series {
                    name: format!("{} {memory} memory, {operation}", target.device),
                    colour: index % COLOURS,
                    classes: format!("dev{index} mem mem{place}"),
                    dash: place % DASHES,
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
    let times = value(|cell| cell.plain.as_ref().map_or(0.0, |plain| plain.times_as_fast));
    let what = "Bandwidth over that of the plainest code: memcpy, process_vm_writev or a TCP stream. Higher is better.";
    card(out, "Remote memory: times as fast as plain code", what, "x", |value| format!("{value:.2}"), &times);
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
    let name = escape(&target.device);
    let colour = index % COLOURS;
    let _ = writeln!(out, "<section class=\"dev{index}\"><h2 style=\"color: var(--c{colour})\">{name}</h2>");
    for line in target.uri.clone().into_iter().chain(target.notes()) {
        let _ = writeln!(out, "<p class=\"soft\">{}</p>", escape(&line));
    }
    if let Some(failure) = &target.failure {
        let _ = writeln!(out, "<p class=\"bad\">failed: {}</p>", escape(failure));
    }
    if target.cells.is_empty() && target.rma.is_empty() && target.atomics.is_empty() {
        let _ = writeln!(out, "<p>{}</p>", table::NOT_MEASURED);
    }
    let columns = table::message_columns(target);
    let cells = target.cells.iter().map(|cell| (cell.r#type, table::row(cell, target)));
    rows("Messages", &columns, cells, out);
    let rma = target.rma.iter().map(|cell| (cell.operation, table::rma_row(cell, target)));
    rows("Remote memory", &[table::MEMORY], rma, out);
    let atomics = target.atomics.iter().map(|cell| ("", table::atomic_row(cell)));
    rows("Atomic operations", &[table::ATOMICS], atomics, out);
    out.push_str("</section>\n");
}

/// A table whose rows belong together by the name that each comes with.
fn rows<'a>(
    title: &str,
    columns: &[&[Column]],
    all: impl Iterator<Item = (&'a str, Vec<String>)>,
    out: &mut String,
) {
    let columns: Vec<&Column> = columns.iter().flat_map(|part| part.iter()).collect();
    let class = |column: &Column| if column.is_words() { " class=\"word\"" } else { "" };
    let mut last = None;
    for (group, row) in all {
        if last.is_none() {
            let head: String = columns
                .iter()
                .map(|column| format!("<th{}>{}</th>", class(column), column.title().trim()))
                .collect();
            let _ = writeln!(out, "<h3>{title}</h3>\n<table>\n<tr>{head}</tr>");
        }
        let first = if last == Some(group) { "" } else { " class=\"first\"" };
        last = Some(group);
        let row: String = columns
            .iter()
            .zip(&row)
            .map(|(column, text)| format!("<td{}>{}</td>", class(column), escape(text.trim())))
            .collect();
        let _ = writeln!(out, "<tr{first}>{row}</tr>");
    }
    if last.is_some() {
        out.push_str("</table>\n");
    }
}
