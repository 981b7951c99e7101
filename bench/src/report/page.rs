//! The page for readers who decide whether to use CCI: what `page.md`, the template beside this, is given.

use super::figures;
use super::goals::{self, State};
use super::groups::{self, Family, Group};
use super::{plots, summary, tables};
use crate::reading::Unit;
use crate::results::{Results, RowResult, Run, Track, Turn};
use cci_measure::failure::{Failure, Outcome};
use cci_measure::noise::Noise;
use cci_measure::statistics::spread;
use cci_measure::table;
use cci_measure::units;
use minijinja::{Environment, Value, context};
use std::collections::BTreeMap;

/// With fewer rounds, a median says little.
const QUICK_BELOW: u32 = 5;

/// From the results alone: the same results give the same page.
pub fn page(results: &Results) -> Outcome<String> {
    let templates = Environment::new();
    let run = &results.run;
    let page = context! {
        run => context! {
            rounds => run.rounds,
            turn_ms => run.turn_ms,
            version => run.version.clone(),
            commit => run.commit.clone(),
            date => run.date.clone(),
            with_peers => run.with_peers,
            machine => context! {
                processor => run.machine.processor.clone(),
                virtual_machine => run.machine.virtual_machine,
                kernel => run.machine.kernel.clone(),
            },
        },
        day => run.date.split('T').next().map(str::to_owned),
        doubts => doubts(run),
        summary => summary::table(results),
        goals => goals(results),
        groups => families(results),
        took => duration(run.took_s),
        cores => units::count(run.machine.cores, "core"),
        again => measured_again(results),
        noise => noise(run),
        steal => run.steal_fraction.map_or_else(|| "not known".to_owned(), |part| format!("{:.2} % of the time", part * 100.0)),
        warnings => warnings(run),
        took_part => contestants(results, ["who", "what exactly", "in"], |track| {
            track.absent.is_none().then_some(track.about.as_str())
        }),
        stayed_away => contestants(results, ["who", "why", "in"], |track| track.absent.as_deref()),
    };
    let drawn = templates.render_str(include_str!("page.md"), page);
    drawn.map_err(|error| Failure::new(format!("the page: {error}")))
}

/// What makes the whole page doubtful.
fn doubts(run: &Run) -> Vec<String> {
    let noisy = run.noise_before.warning().or_else(|| run.noise_after.as_ref().and_then(Noise::warning));
    let quick = (run.rounds < QUICK_BELOW).then(|| format!("only {} rounds were measured", run.rounds));
    quick.into_iter().chain(noisy).collect()
}

fn goals(results: &Results) -> Value {
    let verdicts = goals::verdicts(results);
    let counted = |wanted: fn(&State) -> bool| verdicts.iter().filter(|one| wanted(&one.state)).count();
    let met = counted(|state| *state == State::Met);
    let unknown = counted(|state| matches!(state, State::NotMeasured(_)));
    let missed = verdicts.iter().filter(|one| matches!(one.state, State::NotMet | State::NotQuite));
    let titles: BTreeMap<String, String> = missed.map(|one| (one.row.clone(), one.work.clone())).collect();
    context! {
        met,
        unknown,
        all => verdicts.len(),
        missed => verdicts.len() - met - unknown,
        table => tables::goals(&verdicts),
        missed_rows => titles,
    }
}

/// The groups that were measured, by the name of their family.
fn families(results: &Results) -> BTreeMap<String, Vec<Value>> {
    let all = Family::ALL.into_iter().map(|family| (format!("{family:?}"), groups::groups(results, family)));
    let measured = all.filter(|(_, groups)| !groups.is_empty());
    measured.map(|(family, groups)| (family, groups.iter().map(group).collect())).collect()
}

/// A table, the plot, what was lost, and who failed how often.
fn group(group: &Group<'_>) -> Value {
    let remarks = group.rows.iter().flat_map(|row| losses(row).into_iter().chain(failures(row)));
    context! {
        key => group.key.clone(),
        title => group.title.clone(),
        table => tables::group(group),
        plot => plots::file(group),
        remarks => remarks.collect::<Vec<_>>(),
    }
}

/// Of baselines, which promise nothing; what CCI and peers lose is a failed turn.
fn losses(row: &RowResult) -> Vec<String> {
    let lost = row.tracks.iter().filter_map(|track| {
        let arrived = track.turns.iter().filter_map(Turn::reading).filter_map(|reading| reading.arrived);
        let arrived = spread(arrived.collect())?.median;
        let words =
            format!("{}, {}: {:.1} % of the messages arrived.", row.name, track.name, arrived * 100.0);
        (arrived < 1.0).then_some(words)
    });
    lost.collect()
}

fn failures(row: &RowResult) -> Vec<String> {
    let failed = row.tracks.iter().filter_map(|track| {
        let (count, why) = (track.failures().count(), track.failures().last()?);
        Some(format!(
            "{}, {}: {count} of {} turns failed ({}).",
            row.name,
            track.name,
            track.turns.len(),
            one_line(why)
        ))
    });
    failed.collect()
}

fn duration(seconds: u64) -> String {
    if seconds < 120 { format!("{seconds} s") } else { format!("{} min", seconds.div_ceil(60)) }
}

/// The rows of another commit than that of the run.
fn measured_again(results: &Results) -> Vec<String> {
    let rows = results.rows.iter().filter(|row| row.commit != results.run.commit);
    rows.map(|row| format!("{} ({})", row.name, row.commit)).collect()
}

/// What is known of the noise.
type Words = fn(&Noise) -> Option<String>;

fn noise(run: &Run) -> String {
    let lines: [(&str, Words); 4] = [
        ("reading the clock", |noise| Some(figures::value(Unit::Nanoseconds, noise.clock_read_ns))),
        ("taken from a loop that only reads the clock", |noise| {
            Some(format!("{:.2} %", noise.interrupted_fraction * 100.0))
        }),
        ("longest interruption of it", |noise| Some(units::duration(noise.longest_interruption_ns as f64))),
        ("other programs that were running", |noise| noise.others_running.map(|count| count.to_string())),
    ];
    let cell = |noise: Option<&Noise>, words: Words| noise.and_then(words).unwrap_or_else(|| "–".to_owned());
    let rows = lines.map(|(what, words)| {
        vec![what.to_owned(), cell(Some(&run.noise_before), words), cell(run.noise_after.as_ref(), words)]
    });
    table::markdown(&["how noisy it was", "before", "after"], rows)
}

fn warnings(run: &Run) -> Vec<(String, String)> {
    let all = [
        ("before", run.noise_before.warning()),
        ("after", run.noise_after.as_ref().and_then(Noise::warning)),
    ];
    all.into_iter().filter_map(|(when, warning)| Some((when.to_owned(), warning?))).collect()
}

/// Those of whom there are such words, each contestant with the same words once, with the groups that it was in. Empty
/// where there are none.
fn contestants(results: &Results, head: [&str; 3], words: fn(&Track) -> Option<&str>) -> String {
    let mut lines: Vec<(&str, String, Vec<&str>)> = Vec::new();
    for row in &results.rows {
        let group = groups::key(&row.name);
        for (track, words) in row.tracks.iter().filter_map(|track| Some((track, one_line(words(track)?)))) {
            match lines.iter_mut().find(|line| line.0 == track.name && line.1 == words) {
                Some(line) if line.2.contains(&group) => {}
                Some(line) => line.2.push(group),
                None => lines.push((&track.name, words, vec![group])),
            }
        }
    }
    if lines.is_empty() {
        return String::new();
    }
    let rows = lines.into_iter().map(|(name, words, groups)| vec![name.to_owned(), words, groups.join(", ")]);
    table::markdown(&head, rows)
}

/// What programs say may have many lines, and words that Markdown would take for its own.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").replace('<', "&lt;")
}
