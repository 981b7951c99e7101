//! On a small run that has one of everything; and the page in the repository.

use super::*;
use crate::args::repository;
use crate::contestant::Role;
use crate::reading::Reading;
use crate::results::tests::track;
use crate::results::{Machine, RowResult, Run, Track, Turn};
use crate::rows::{Against, Bound, Goal};
use crate::work::Work;
use cci_measure::noise::Noise;
use goals::State;

fn row(name: &str, title: &str, work: Work, goals: Vec<Goal>, tracks: Vec<Track>) -> RowResult {
    RowResult {
        name: name.into(),
        title: title.into(),
        work,
        goals,
        commit: "0123456789+".into(),
        cache_line_ns: vec![25.0, 230.4],
        tracks,
    }
}

fn goal(against: Against, bound: Bound) -> Goal {
    Goal { against, bound }
}

fn half_trips() -> Vec<RowResult> {
    let missing =
        Track { absent: Some("not installed: apt install it".into()), ..track("nobody", Role::Peer, &[]) };
    let goals = vec![
        goal(Against::Baseline, Bound::AtMost(1.5)),
        goal(Against::BestPeer, Bound::AtMost(1.0)),
        goal(Against::Baseline, Bound::AtMost(1.1)),
    ];
    let eight = vec![
        track("cache line", Role::Baseline, &[Some(100.0), Some(100.0), Some(200.0)]),
        track("cci shm", Role::Ours, &[Some(120.0), Some(140.0), Some(240.0)]),
        track("slow | peer", Role::Peer, &[Some(900.0), Some(900.0), None]),
        missing.clone(),
    ];
    let kilobyte = vec![
        track("cci shm", Role::Ours, &[Some(420.0), Some(440.0), Some(440.0)]),
        track("slow | peer", Role::Peer, &[Some(1900.0), Some(1900.0), Some(1900.0)]),
        missing,
    ];
    let title = |size: &str| format!("Half round trip over shared memory, {size}");
    let best = vec![goal(Against::BestPeer, Bound::AtMost(0.1))];
    vec![
        row("shm/half-trip/8", &title("8 B"), Work::HalfTrip { len: 8 }, goals, eight),
        row("shm/half-trip/1024", &title("1 KiB"), Work::HalfTrip { len: 1024 }, best, kilobyte),
    ]
}

fn loaded(percent: u32) -> RowResult {
    let reading =
        Reading { quantiles_ns: Some([900.0, 2_000.0, f64::from(percent) * 1e3]), ..Reading::of(900.0) };
    let turns = vec![Turn::Done(reading.clone()), Turn::Done(reading)];
    let ours = Track { turns, ..track("cci udp", Role::Ours, &[]) };
    let title = format!("Latency under load over UDP, 64 B, {percent} %");
    row(
        &format!("udp/loaded/64/{percent}"),
        &title,
        Work::Loaded { len: 64, percent },
        Vec::new(),
        vec![ours],
    )
}

fn sample() -> Results {
    let noise =
        Noise { clock_read_ns: 20.0, others_running: Some(2), steal_fraction: None, ..Noise::default() };
    let machine = Machine {
        processor: "A processor".into(),
        cores: 2,
        virtual_machine: true,
        kernel: "Linux 6.1".into(),
    };
    let run = Run {
        version: "0.1.0".into(),
        commit: "0123456789+".into(),
        machine,
        date: "2026-01-02T03:04:05Z".into(),
        took_s: 321,
        rounds: 3,
        turn_ms: 150,
        with_peers: true,
        noise_before: noise.clone(),
        noise_after: Some(noise),
        steal_fraction: Some(0.0123),
    };
    let mut rows = half_trips();
    let memory = vec![goal(Against::Itself, Bound::AtMost(120.0))];
    let ours = vec![track("cci udp", Role::Ours, &[Some(117.0), Some(119.0)])];
    let work = Work::IdleMemory { connections: 1_000_000 };
    rows.push(row("udp/idle-memory/1000000", "Memory of an idle connection, 1,000,000", work, memory, ours));
    let rate =
        vec![goal(Against::Baseline, Bound::AtLeast(10.0)), goal(Against::BestPeer, Bound::AtLeast(2.0))];
    let tracks = vec![
        track("sendto", Role::Baseline, &[Some(100e3), Some(100e3), Some(100e3), Some(100e3)]),
        track("cci udp", Role::Ours, &[Some(900e3), Some(950e3), Some(980e3), Some(1.2e6)]),
    ];
    rows.push(row("udp/rate/8", "Messages a second over UDP, 8 B", Work::Rate { len: 8 }, rate, tracks));
    rows.extend([loaded(10), loaded(80)]);
    Results { run, rows }
}

#[test]
fn goals_are_met_missed_or_unknown() {
    let verdicts = goals::verdicts(&sample());
    let states: Vec<&State> = verdicts.iter().map(|one| &one.state).collect();
    let no_peer = State::NotMeasured("no peer took part".into());
    assert_eq!(
        states[..7],
        [&State::Met, &State::Met, &State::NotMet, &State::NotMet, &State::Met, &State::NotQuite, &no_peer]
    );
    assert_eq!((verdicts[0].goal.as_str(), verdicts[0].result.as_str()), ("≤ 1.5 ×", "1.20 (1.20–1.30)"));
    assert_eq!(verdicts[1].against, "the best peer: slow | peer");
    assert_eq!((verdicts[4].goal.as_str(), verdicts[4].result.as_str()), ("≤ 120 B", "118 B"));
    // What has no row yet is not passed over.
    assert!(verdicts.last().is_some_and(|one| one.work.contains("libfabric")));
}

#[test]
fn a_median_beyond_the_bound_is_not_met_however_close() {
    let mut results = sample();
    let last = results.rows[3].tracks[1].turns.len() - 1;
    results.rows[3].tracks[1].turns[last - 1] = Turn::Done(Reading::of(1.1e6));
    let verdict = &goals::verdicts(&results)[5];
    assert_eq!(verdict.state, State::Met, "{}", verdict.result);
    results.rows[3].tracks[1].turns[0] = Turn::Done(Reading::of(1e3));
    results.rows[3].tracks[1].turns[1] = Turn::Done(Reading::of(0.5e6));
    results.rows[3].tracks[1].turns[2] = Turn::Done(Reading::of(0.9e6));
    results.rows[3].tracks[1].turns[3] = Turn::Done(Reading::of(4e6));
    assert_eq!(goals::verdicts(&results)[5].state, State::NotQuite);
}

#[test]
fn a_contestant_without_a_turn_says_so() {
    let mut results = sample();
    results.rows[0].tracks[1].turns.clear();
    let verdict = &goals::verdicts(&results)[0];
    assert_eq!(verdict.state, State::NotMeasured("CCI was not measured".into()));
    assert_eq!(verdict.against, "cache line");
}

#[test]
fn results_are_read_as_they_were_written() {
    let results = sample();
    let text = json::render(&results).unwrap();
    assert_eq!(serde_json::from_str::<Results>(&text).unwrap(), results);
    assert_eq!(text.lines().count(), 2 + results.rows.len() + 1);
    assert!(text.contains(r#""work":"half-trip:1024""#), "{text}");
}

#[test]
fn the_page_tells_everything() {
    let page = page::page(&sample()).unwrap();
    for words in [
        "3 of 8 met",
        "| Half round trip over shared memory, 8 B | slow \\| peer | 6.96 (6.70–7.23) |",
        "## Shared memory",
        "### Half round trip over shared memory\n",
        "|  | 8 B | 1 KiB |",
        "| slow \\| peer | 900 ns | 1.90 µs |",
        "| ÷ cache line | 1.20 (1.20–1.30) | – |",
        "![Half round trip over shared memory](performance/shm-half-trip.svg)",
        "| *a bare cache line, before each round* | 128 ns (76.3–179) |",
        "shm/half-trip/8, slow | peer: 1 of 3 turns failed (it broke).",
        "900 ns · 2.00 µs · 80.0 µs",
        "| nobody | not installed: apt install it | shm/half-trip |",
        "| cci shm | cci shm 1.0 | shm/half-trip |",
        "**Do not decide by these figures**: only 3 rounds were measured; this machine is noisy",
        "1.23 % of the time",
        "a virtual machine",
        "2 other programs were running",
    ] {
        assert!(page.contains(words), "{words} is not in:\n{page}");
    }
    assert_eq!(page.matches("nobody").count(), 1, "once, however many rows it was missing in");
    assert!(!page.contains("NaN") && !page.contains("inf "), "{page}");
}

/// Figures 2 and 3 of the paper are plots by size, and the page says which ones.
#[test]
fn figures_of_the_ccs_paper_are_redone() {
    let mut results = sample();
    assert!(!page::page(&results).unwrap().contains("of the CCS paper redone"));
    for (key, work) in [
        ("ccs/am", [Work::HalfTrip { len: 4 }, Work::HalfTrip { len: 4096 }]),
        ("ccs/put", [Work::Write { len: 8 }, Work::Write { len: 1 << 20 }]),
    ] {
        for (size, work) in ["4", "4096"].into_iter().zip(work) {
            let tracks = ["ccs", "UCX shm"].map(|name| {
                let role = if name == "ccs" { Role::Ours } else { Role::Peer };
                track(name, role, &[Some(100.0), Some(120.0)])
            });
            let name = format!("{key}/{size}");
            results.rows.push(row(&name, &format!("{key}, {size} B"), work, Vec::new(), tracks.into()));
        }
    }
    let (page, plots) = (page::page(&results).unwrap(), plots::all(&results).unwrap());
    for (file, figure) in [("ccs-am.svg", "figure 2"), ("ccs-put.svg", "figure 3")] {
        let plot = plots.iter().find(|plot| plot.file == file).unwrap();
        assert_well_formed(&plot.svg);
        assert!(plot.svg.contains("UCX shm") && plot.svg.contains("\nccs\n"), "{}", plot.svg);
        let words = format!("(performance/{file})\n\nThis is {figure} of the CCS paper redone");
        assert!(page.contains(&words), "{words} is not in:\n{page}");
    }
}

#[test]
fn the_terminal_tells_who_is_missing() {
    let results = sample();
    let text = text::row(&results.rows[0]);
    assert!(
        text.contains("did not take part: not installed") && text.contains("1 of 3 turns failed"),
        "{text}"
    );
    assert!(text.contains("cci shm ÷ this: 1.20"), "{text}");
    assert!(text::goals(&results).lines().count() == 7, "{}", text::goals(&results));
}

#[test]
fn plots_are_whole_and_always_the_same() {
    let plots = plots::all(&sample()).unwrap();
    let files: Vec<&str> = plots.iter().map(|plot| plot.file.as_str()).collect();
    assert_eq!(files, ["shm-half-trip.svg", "udp-loaded-64.svg"]);
    for (plot, again) in plots.iter().zip(plots::all(&sample()).unwrap()) {
        assert_eq!(plot.svg, again.svg);
        assert_well_formed(&plot.svg);
        assert!(!plot.svg.contains("NaN") && !plot.svg.contains("inf"), "{}", plot.svg);
        assert!(!plot.svg.contains("href"), "nothing from elsewhere");
    }
    assert!(plots[0].svg.contains("slow | peer") && plots[0].svg.contains("1 KiB"), "{}", plots[0].svg);
    assert!(plots[1].svg.contains("cci udp, p99.9") && plots[1].svg.contains("80 %"), "{}", plots[1].svg);
}

/// Every element is closed, in order; quotes are in pairs.
fn assert_well_formed(svg: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut elements = 0;
    for part in svg.split('<').skip(1) {
        let (tag, _) = part.split_once('>').unwrap_or_else(|| panic!("not closed: {part}"));
        assert!(tag.matches('"').count().is_multiple_of(2), "{tag}");
        let name = tag.trim_start_matches('/').split([' ', '/', '\n']).next().unwrap();
        elements += 1;
        match () {
            () if tag.starts_with('/') => assert_eq!(open.pop(), Some(name), "in {svg}"),
            () if tag.ends_with('/') || tag.starts_with(['?', '!']) => {}
            () => open.push(name),
        }
    }
    assert!(open.is_empty() && elements > 10, "{open:?}");
}

/// Else a page that was just written would not be that of its results.
#[test]
fn numbers_are_read_as_they_were_written() {
    for number in [0.121_808_431_728_735_25, 11.105_044_938_242_667] {
        let text = serde_json::to_string(&number).unwrap();
        assert_eq!(serde_json::from_str::<f64>(&text).unwrap().to_bits(), f64::to_bits(number));
    }
}

/// `cargo xtask bench report docs/performance/results.json --write` draws it anew.
#[test]
fn the_page_in_the_repository_is_that_of_its_results() {
    let docs = repository().join("docs");
    let results = json::read(&docs.join(FOLDER).join(RESULTS)).unwrap();
    let due = files(&results).unwrap();
    for (name, content) in &due {
        let found = fs::read_to_string(docs.join(name)).unwrap_or_default();
        let remedy = "run: cargo xtask bench report docs/performance/results.json --write";
        assert!(found == *content, "{} is not what the results give; {remedy}", name.display());
    }
    let plots = due.iter().filter(|(name, _)| name.extension().is_some_and(|extension| extension == "svg"));
    assert_eq!(old_plots(&docs.join(FOLDER)).len(), plots.count(), "plots that no result gives");
}
