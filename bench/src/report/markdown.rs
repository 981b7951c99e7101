//! The page for readers who decide whether to use CCI.

use super::figures;
use super::goals::{self, State, Verdict};
use super::groups::{self, Family, Group};
use super::{FOLDER, RESULTS, notes, plots, tables};
use crate::reading::Unit;
use crate::results::{Results, RowResult, Run, Turn};
use crate::statistics::spread;
use cci_measure::noise::Noise;
use cci_measure::units;
use std::fmt::Write;

/// From the results alone: the same results give the same page.
pub fn page(results: &Results) -> String {
    let mut out = opening(results);
    goals_section(results, &mut out);
    for family in Family::ALL {
        family_section(results, family, &mut out);
    }
    out += NOT_SHOWN;
    method(results, &mut out);
    machine(results, &mut out);
    contestants(results, &mut out);
    out
}

/// With fewer rounds, a median says little.
const QUICK_BELOW: u32 = 5;

fn opening(results: &Results) -> String {
    let Run { rounds, machine, date, .. } = &results.run;
    format!(
        "# Performance\n\n\
         CCI beside the *baseline*, which is the same exchange written by hand with nothing above the primitive, and beside what\n\
         people would use instead. Everybody took turns on the same two cores in {rounds} rounds, on {}, on {}. A ratio\n\
         is CCI's figure divided by the other's of the same round; given is the median of the rounds, and in brackets between which\n\
         bounds the middle half of them lies. Compare ratios: absolute figures belong to this machine and this hour.\n\n\
         Written by `cargo xtask bench --write`, not by hand; every reading is in [{RESULTS}]({FOLDER}/{RESULTS}).\n\
         How to run it: [bench/README.md](../bench/README.md).\n\n{}",
        machine.processor,
        date.split('T').next().unwrap_or_default(),
        warning(&results.run),
    )
}

/// What makes the whole page doubtful comes first.
fn warning(run: &Run) -> String {
    let noisy = run.noise_before.warning().or_else(|| run.noise_after.as_ref().and_then(Noise::warning));
    let quick = (run.rounds < QUICK_BELOW).then(|| format!("only {} rounds were measured", run.rounds));
    let reasons: Vec<String> = quick.into_iter().chain(noisy).collect();
    if reasons.is_empty() {
        return String::new();
    }
    format!("**Do not decide by these figures**: {}.\n\n", reasons.join("; "))
}

fn goals_section(results: &Results, out: &mut String) {
    let verdicts = goals::verdicts(results);
    let counted = |wanted: fn(&State) -> bool| verdicts.iter().filter(|one| wanted(&one.state)).count();
    let met = counted(|state| *state == State::Met);
    let unknown = counted(|state| matches!(state, State::NotMeasured(_)));
    let _ = write!(
        out,
        "## Goals\n\nWhat was promised before it was built: {met} of {} met, {} not met, {unknown} not measured.\n\n{}\n",
        verdicts.len(),
        verdicts.len() - met - unknown,
        tables::goals(&verdicts)
    );
    let missed = |row: &str| {
        let not_met = |one: &&Verdict| matches!(one.state, State::NotMet | State::NotQuite);
        verdicts.iter().filter(not_met).any(|one| one.row == row)
    };
    let notes: Vec<_> = notes::NOTES.iter().filter(|(row, _)| missed(row)).collect();
    if !notes.is_empty() {
        out.push_str("What stands in the way:\n\n");
        for (row, note) in notes {
            let title = results.rows.iter().find(|one| one.name == *row).map_or(*row, |one| &one.title);
            let _ = writeln!(out, "- *{title}*: {note}");
        }
        out.push('\n');
    }
}

fn family_section(results: &Results, family: Family, out: &mut String) {
    let groups = groups::groups(results, family);
    if groups.is_empty() {
        return;
    }
    let (heading, words) = family.words();
    let _ = write!(out, "## {heading}\n\n{words}");
    if family == Family::UnderLoad {
        out.push_str(" In each cell p50 · p99 · p99.9.");
    }
    out.push_str("\n\n");
    for group in groups {
        let _ = write!(out, "### {}\n\n{}\n", group.title, tables::group(&group));
        below_table(&group, out);
    }
}

/// The plot, what was lost, and who failed how often.
fn below_table(group: &Group<'_>, out: &mut String) {
    if let Some(file) = plots::file(group) {
        let _ = write!(out, "![{}]({FOLDER}/{file})\n\n", group.title);
    }
    let mut remarks = Vec::new();
    for row in &group.rows {
        remarks.extend(losses(row));
        remarks.extend(failures(row));
    }
    if !remarks.is_empty() {
        let _ = write!(out, "{}\n\n", remarks.join(" "));
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

const NOT_SHOWN: &str = "\
## What the figures do not show

- **No network card.** Both processes are on one machine: UDP and TCP go over loopback, raw Ethernet over virtual interfaces. This is what
  software costs; a card, a cable and a switch add their own, which is the same for everybody.
- **Two processes alone.** Each has a core to itself and, except where it says *waiting*, polls it; with more processes than cores, everybody
  is slower, and by other factors. Nothing here tells how a hundred peers at once share an endpoint, except what idle ones cost.
- **Means hide tails.** A half round trip is the mean of a turn. Tails are under *latency under load*, and on a virtual machine they are the
  hypervisor's as much as anybody's.
- **Our hands set up the peers.** Each has the best configuration that we know of, named below. Who knows a better one is asked to say so.
- **They do different things.** An MPI library matches tags, gRPC encodes and multiplexes, ZeroMQ queues without bound, a baseline promises nothing. A ratio
  tells the price of the whole, not who is the better engineer.

";

fn method(results: &Results, out: &mut String) {
    let Run { rounds, turn_ms, took_s, .. } = results.run;
    let _ = write!(
        out,
        "## How it was measured\n\n\
         Each turn is two processes of their own, pinned to the two cores, which do nothing else and are gone afterwards. A first turn finds how much\n\
         work takes about {turn_ms} ms; then come {rounds} rounds (memory of connections and polling many of them: 3 at most), each beginning with another contestant. Before each\n\
         round one bare cache line is handed back and forth between the two cores, since its time decides that of everything in shared memory, and\n\
         a hypervisor changes it by where it puts the cores. Baselines, CCI and those peers that can, poll. Reliable messages are counted at the\n\
         receiver: a turn that lost one fails, and says so above. All of it took {}.\n\n",
        duration(took_s),
    );
}

fn duration(seconds: u64) -> String {
    if seconds < 120 { format!("{seconds} s") } else { format!("{} min", seconds.div_ceil(60)) }
}

fn machine(results: &Results, out: &mut String) {
    let run = &results.run;
    let virtual_words = if run.machine.virtual_machine { ", a virtual machine" } else { "" };
    let commit = if run.commit.is_empty() { String::new() } else { format!(" ({})", run.commit) };
    let _ = write!(
        out,
        "## The machine\n\n{}, {}{virtual_words}; {}; CCI {}{commit}; begun {}.\n\n",
        run.machine.processor,
        units::count(run.machine.cores, "core"),
        run.machine.kernel,
        run.version,
        run.date,
    );
    let other: Vec<String> = results
        .rows
        .iter()
        .filter(|row| row.commit != run.commit)
        .map(|row| format!("{} ({})", row.name, row.commit))
        .collect();
    if !other.is_empty() {
        let _ = write!(out, "Measured again at another commit: {}.\n\n", other.join(", "));
    }
    let after = run.noise_after.as_ref();
    let lines = [
        noise_line("reading the clock", &run.noise_before, after, |noise| {
            Some(figures::value(Unit::Nanoseconds, noise.clock_read_ns))
        }),
        noise_line("taken from a loop that only reads the clock", &run.noise_before, after, |noise| {
            Some(format!("{:.2} %", noise.interrupted_fraction * 100.0))
        }),
        noise_line("longest interruption of it", &run.noise_before, after, |noise| {
            Some(units::duration(noise.longest_interruption_ns as f64))
        }),
        noise_line("other programs that were running", &run.noise_before, after, |noise| {
            noise.others_running.map(|count| count.to_string())
        }),
    ];
    *out += &tables::table(&["how noisy it was", "before", "after"], lines.into_iter());
    let steal = run.steal_fraction.map(|part| format!("{:.2} % of the time", part * 100.0));
    let _ = write!(
        out,
        "\nThe hypervisor gave to others during the run: {}.\n",
        steal.as_deref().unwrap_or("not told")
    );
    let warnings = [("before", run.noise_before.warning()), ("after", after.and_then(Noise::warning))];
    for (when, warning) in warnings {
        if let Some(warning) = warning {
            let _ = write!(out, "\n**Warning** ({when}): {warning}.\n");
        }
    }
    out.push('\n');
}

fn noise_line(
    what: &str,
    before: &Noise,
    after: Option<&Noise>,
    words: fn(&Noise) -> Option<String>,
) -> Vec<String> {
    let cell = |noise: Option<&Noise>| noise.and_then(words).unwrap_or_else(|| "–".to_owned());
    vec![what.to_owned(), cell(Some(before)), cell(after)]
}

fn contestants(results: &Results, out: &mut String) {
    out.push_str("## Who took part\n\n");
    let tracks = || results.rows.iter().flat_map(|row| row.tracks.iter().map(move |track| (row, track)));
    let took_part = tracks().filter(|(_, track)| track.absent.is_none());
    let lines = merged(took_part.map(|(row, track)| (row, track.name.clone(), one_line(&track.about))));
    *out += &tables::table(&["who", "what exactly", "in"], lines.into_iter());
    let absent = tracks()
        .filter_map(|(row, track)| Some((row, track.name.clone(), one_line(track.absent.as_deref()?))));
    let lines = merged(absent);
    out.push('\n');
    if !lines.is_empty() {
        out.push_str("Who did not:\n\n");
        *out += &tables::table(&["who", "why", "in"], lines.into_iter());
    } else if results.run.with_peers {
        out.push_str("Nobody stayed away.\n");
    }
    if !results.run.with_peers {
        out.push_str("Peers were not asked in this run (`--no-peers`).\n");
    }
}

/// Lists each contestant with the same description once, with the groups that it was in.
fn merged<'a>(tracks: impl Iterator<Item = (&'a RowResult, String, String)>) -> Vec<Vec<String>> {
    let mut lines: Vec<(String, String, Vec<&str>)> = Vec::new();
    for (row, name, words) in tracks {
        let group = groups::key(&row.name);
        match lines.iter_mut().find(|line| line.0 == name && line.1 == words) {
            Some(line) if line.2.contains(&group) => {}
            Some(line) => line.2.push(group),
            None => lines.push((name, words, vec![group])),
        }
    }
    lines.into_iter().map(|(name, words, groups)| vec![name, words, groups.join(", ")]).collect()
}

/// What programs say may have many lines, and words that Markdown would take for its own.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").replace('<', "&lt;")
}
