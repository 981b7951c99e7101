//! The conformance suite through the Java interface. The test `org.cci.conformance.ConformanceTest` of `bindings/java` starts this
//! program with the names of devices; `CCI_CONFORMANCE_AGENT` has the command that starts the Java side, a line for each word. One
//! line on standard output for each case: the word `case`, device, group, case, how it ended, milliseconds, and why, with tabs between them.
#![forbid(unsafe_code)]

mod agent;
mod frame;
mod memory;
mod port;

use cci_testkit::conformance::{Case, DeviceUnderTest, SHM, TCP4, UDP4, cases, leave_out};
use port::Java;
use std::any::Any;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const NO_DESCRIPTOR: &str = "Java has no descriptors: its threads wait in `await`";
const NO_LOANS: &str = "messages from Java are copied: it has no loans";
const NO_BURSTS: &str = "Java sends one message a call";
const NO_FILES: &str = "Java has files as buffers of services, and not as regions";

/// What Java has no calls for. Each must be a case; every other one is run.
const LEFT_OUT: &[(&str, &str)] = &[
    ("descriptor_says_when_an_event_is_there", NO_DESCRIPTOR),
    ("no_wake_up_is_lost_on_the_descriptor", NO_DESCRIPTOR),
    ("deadlines_wake_the_descriptor", NO_DESCRIPTOR),
    ("connecting_wakes_the_descriptor", NO_DESCRIPTOR),
    ("loans_arrive_in_their_places", NO_LOANS),
    ("loans_are_kept_and_come_back", NO_LOANS),
    ("loans_that_are_not_sent_come_back", NO_LOANS),
    ("what_is_lent_outlives_the_connection", NO_LOANS),
    ("bursts_complete_once", NO_BURSTS),
    ("partial_bursts_say_how_many_were_taken", NO_BURSTS),
    ("a_burst_stops_at_what_cannot_be_sent", NO_BURSTS),
    ("a_burst_fails_as_its_first_failure", NO_BURSTS),
    ("bursts_end_with_the_peer", NO_BURSTS),
    ("files_are_read_like_memory", NO_FILES),
    ("files_are_only_read", NO_FILES),
    ("files_may_change", NO_FILES),
    ("many_files_at_once", NO_FILES),
];

/// Cases at a time for each processor: most of their time they wait for each other's events.
const CASES_AT_A_TIME: usize = 4;

/// The name by which a case starts this program as its child.
const CHILD: &str = "java::child";

/// The cases that there are for a device.
macro_rules! cases_on {
    ($device:expr; $($of:ident),+) => {{
        let mut all: Vec<Case> = Vec::new();
        $(all.extend(cci_testkit::conformance!(cases of @$of: Java, $device));)+
        ($device, all)
    }};
}

fn devices() -> Vec<(DeviceUnderTest, Vec<Case>)> {
    vec![
        cases_on!(SHM; endpoints, remote_memory),
        cases_on!(UDP4; endpoints, remote_memory, multicast),
        cases_on!(TCP4; endpoints, remote_memory),
    ]
}

/// Whether this is the second process of a case.
fn is_child() -> bool {
    std::env::args().nth(1).is_some_and(|first| CHILD.ends_with(first.as_str()))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if is_child() {
        for (about, _) in devices() {
            cases::child::child(Java, about);
        }
        agent::clean();
        return ExitCode::SUCCESS;
    }
    let (names, only) =
        arguments.split_at(arguments.iter().position(|word| word == "--").unwrap_or(arguments.len()));
    let wanted = |case: &Case| only.len() < 2 || only.iter().any(|name| name == case.name);
    let chosen: Vec<(DeviceUnderTest, Vec<Case>)> =
        devices().into_iter().filter(|(about, _)| names.iter().any(|name| name == about.name)).collect();
    assert_eq!(chosen.len(), names.len(), "devices are named, each once");
    for (name, _) in LEFT_OUT {
        let is_case = chosen.iter().all(|(_, cases)| cases.iter().any(|case| case.name == *name));
        assert!(is_case, "{name} is no case any more: it need not be left out");
    }
    let all: Vec<(DeviceUnderTest, Case)> = chosen
        .into_iter()
        .flat_map(|(about, cases)| cases.into_iter().map(move |case| (about, case)))
        .filter(|(_, case)| wanted(case))
        .collect();
    let failed = run_all(&all);
    agent::clean();
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs some at a time; returns how many failed.
fn run_all(all: &[(DeviceUnderTest, Case)]) -> usize {
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..processors * CASES_AT_A_TIME {
            scope.spawn(|| {
                while let Some((about, case)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    failed.fetch_add(usize::from(!run_one(about, case)), Ordering::Relaxed);
                }
            });
        }
    });
    failed.into_inner()
}

fn run_one(about: &DeviceUnderTest, case: &Case) -> bool {
    let started = Instant::now();
    if let Some((_, reason)) = LEFT_OUT.iter().find(|(name, _)| *name == case.name) {
        leave_out::<Java>(case, about, reason);
        say(about, case, "left out", Duration::ZERO, reason);
        return true;
    }
    let ended = (case.run)(CHILD);
    let (how, why) = match &ended {
        Ok(None) => ("passed", String::new()),
        Ok(Some(reason)) => ("skipped", reason.clone()),
        Err(panic) => ("failed", text_of(panic.as_ref())),
    };
    say(about, case, how, started.elapsed(), &why);
    ended.is_ok()
}

fn say(about: &DeviceUnderTest, case: &Case, how: &str, took: Duration, why: &str) {
    let why = why.replace(['\t', '\n'], " ");
    println!("case\t{}\t{}\t{}\t{how}\t{}\t{why}", about.name, case.group, case.name, took.as_millis());
}

/// What a case panicked with.
fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_else(|| "a panic without a text".to_owned())
}
