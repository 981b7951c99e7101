//! Tables in Markdown.

use super::figures;
use super::goals::Verdict;
use super::groups::{self, Group};
use crate::contestant::Role;
use crate::reading::Unit;
use crate::results::{RowResult, Track};
use crate::work::Work;
use cci_measure::statistics::spread;
use cci_measure::table::markdown as table;
use std::fmt::Write;

const NOTHING: &str = "–";

/// What was promised, one goal a line.
pub fn goals(verdicts: &[Verdict]) -> String {
    let lines = verdicts.iter().map(|verdict| {
        let Verdict { work, against, goal, result, state, .. } = verdict;
        let result = if result.is_empty() { NOTHING } else { result };
        vec![work.clone(), against.clone(), goal.clone(), result.to_owned(), state.words()]
    });
    table(&["work", "against", "goal", "CCI ÷ other", ""], lines)
}

/// Values, then CCI's ratio to everybody else; quantiles where there are some.
pub fn group(group: &Group<'_>) -> String {
    let names = names(group);
    let sizes = group.rows.iter().map(|row| groups::size_words(row.work));
    let head: Vec<String> = std::iter::once(String::new()).chain(sizes).collect();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let values = names.iter().map(|name| line(group, name, value_cell));
    let mut out = table(&head, cache_lines(group).into_iter().chain(values));
    let others: Vec<Vec<String>> = names
        .iter()
        .map(|name| line(group, name, ratio_cell))
        .filter(|cells| cells.iter().skip(1).any(|cell| cell != NOTHING))
        .collect();
    if !others.is_empty() {
        let _ = writeln!(out, "\n{}\n", ratio_words(group));
        out += &table(
            &head,
            others.into_iter().map(|mut cells| {
                if let Some(name) = cells.first_mut() {
                    *name = format!("÷ {name}");
                }
                cells
            }),
        );
    }
    out
}

/// Where the hypervisor had put the two cores while each row was measured: rows may differ by that alone.
fn cache_lines(group: &Group<'_>) -> Option<Vec<String>> {
    let cell = |row: &&RowResult| {
        let words =
            spread(row.cache_line_ns.clone()).map(|spread| figures::spread(Unit::Nanoseconds, &spread));
        words.unwrap_or_else(|| NOTHING.to_owned())
    };
    let cells: Vec<String> = group.rows.iter().map(cell).collect();
    let known = cells.iter().any(|cell| cell != NOTHING);
    known.then(|| std::iter::once("*a bare cache line, before each round*".to_owned()).chain(cells).collect())
}

/// Which contestant CCI is here, and which side of 1 is the good one.
fn ratio_words(group: &Group<'_>) -> String {
    let ours = group.rows.iter().find_map(|row| row.ours()).map_or("cci", |track| track.name.as_str());
    let good = match group.rows.first() {
        Some(row) if row.work.unit().more_is_better() => "above 1, it is faster",
        Some(row) if matches!(row.work, Work::IdleMemory { .. }) => "below 1, it needs less",
        _ => "below 1, it is faster",
    };
    format!("{ours} ÷ other ({good}):")
}

/// The number in which a row is, or all of them are: contestants in the order in which they appear, each once.
fn names<'a>(group: &Group<'a>) -> Vec<&'a str> {
    let mut names: Vec<(Role, &str)> = Vec::new();
    for track in group.rows.iter().flat_map(|row| &row.tracks).filter(|track| track.values().is_some()) {
        if !names.iter().any(|(_, name)| *name == track.name) {
            names.push((track.role, &track.name));
        }
    }
    names.sort_by_key(|(role, _)| *role);
    names.into_iter().map(|(_, name)| name).collect()
}

fn line(group: &Group<'_>, name: &str, cell: fn(&RowResult, &Track) -> Option<String>) -> Vec<String> {
    let cell = |row: &&RowResult| {
        let track = row.tracks.iter().find(|track| track.name == name)?;
        cell(row, track)
    };
    let cells = group.rows.iter().map(|row| cell(row).unwrap_or_else(|| NOTHING.to_owned()));
    std::iter::once(name.to_owned()).chain(cells).collect()
}

fn value_cell(row: &RowResult, track: &Track) -> Option<String> {
    let unit = row.work.unit();
    match track.quantiles_ns() {
        Some(quantiles) => {
            let words: Vec<String> =
                quantiles.iter().map(|quantile| figures::value(unit, quantile.median)).collect();
            Some(words.join(" · "))
        }
        None => Some(figures::spread(unit, &track.values()?)),
    }
}

fn ratio_cell(row: &RowResult, track: &Track) -> Option<String> {
    let ours = row.ours()?;
    (ours.name != track.name).then(|| ours.ratio_to(track))?.map(|ratio| figures::ratio(&ratio))
}
