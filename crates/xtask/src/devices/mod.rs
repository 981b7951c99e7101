//! The table of devices in docs/devices.md: written from a run of the conformance suite, and compared with each.

mod report;
mod table;

use crate::process::{Tally, cargo, run_tests};
use crate::workspace::Workspace;
use report::Report;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use table::Table;

const DOCUMENT: &str = "docs/devices.md";
const BEGIN: &str = "<!-- conformance: begin; `cargo xtask devices` writes what follows -->\n";
const END: &str = "<!-- conformance: end -->\n";
const LIMIT: Duration = Duration::from_secs(35 * 60);

/// Has the tests that a command runs write down what each case of the suite came to; the file they write to.
pub fn record(workspace: &Workspace, tests: &mut Command) -> Result<PathBuf, String> {
    let path = workspace.target.join("conformance-report.tsv");
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("{}: {error}", path.display()));
        }
        _ => {}
    }
    tests.env("CCI_CONFORMANCE_REPORT", &path);
    Ok(path)
}

/// Runs the suite and writes the table. `other` adds what languages that cargo does not test came to, to the report of this path.
pub fn run(other: fn(&Workspace, &Path) -> Tally) -> Result<(), String> {
    let workspace = Workspace::load()?;
    let mut tests =
        cargo(&["test", "-p", "cci-testkit", "-p", "cci-capi", "--test", "conformance", "--no-fail-fast"]);
    let path = record(&workspace, &mut tests)?;
    let mut tally = run_tests("conformance", &mut tests, LIMIT);
    tally.add(other(&workspace, &path));
    write(&workspace, &path)?;
    if tally.failed == 0 { Ok(()) } else { Err(format!("{} cases failed", tally.failed)) }
}

/// Writes the table from what an earlier run has written down.
pub fn from(path: &Path) -> Result<(), String> {
    write(&Workspace::load()?, path)
}

fn write(workspace: &Workspace, path: &Path) -> Result<(), String> {
    let report = read(path)?;
    let document = workspace.root.join(DOCUMENT);
    let text = std::fs::read_to_string(&document).map_err(|error| format!("{DOCUMENT}: {error}"))?;
    let (before, old, after) = parts(&text)?;
    let mut table = Table::of(&report)?;
    for device in table.keep_absent(&Table::parse(old), &report) {
        println!("{device}: as it was, it did not run here");
    }
    std::fs::write(&document, format!("{before}{BEGIN}{table}{END}{after}"))
        .map_err(|error| format!("{DOCUMENT}: {error}"))?;
    println!("{DOCUMENT}: {} lines of {} cases", table.lines(), report.cases());
    report.print_times();
    Ok(())
}

/// Compares the table with a run, which is a test of its own. What the machine does not have is not compared, which is said.
pub fn check(workspace: &Workspace, path: &Path) -> Tally {
    match compare(workspace, path) {
        Ok(()) => Tally { passed: 1, ..Tally::default() },
        Err(why) => {
            println!("--- devices: FAILED: {why}");
            Tally { failed: 1, ..Tally::default() }
        }
    }
}

fn compare(workspace: &Workspace, path: &Path) -> Result<(), String> {
    let report = read(path)?;
    let text = std::fs::read_to_string(workspace.root.join(DOCUMENT))
        .map_err(|error| format!("{DOCUMENT}: {error}"))?;
    let (_, committed, _) = parts(&text)?;
    let (committed, found) = (Table::parse(committed), Table::of(&report)?);
    report.print_times();
    for (device, reason) in report.absent() {
        println!("--- devices: {device} is not compared: {reason}");
    }
    let differences = found.differences(&committed);
    if differences.is_empty() {
        println!("--- devices: ok, {DOCUMENT} says what {} cases showed", report.cases());
        return Ok(());
    }
    Err(format!(
        "{DOCUMENT} differs from what the tests showed (`cargo xtask devices` writes it):\n{}",
        differences.join("\n")
    ))
}

fn read(path: &Path) -> Result<Report, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Report::parse(&text)
}

/// What is before the table, the table, and what is behind it.
fn parts(text: &str) -> Result<(&str, &str, &str), String> {
    let split = text.split_once(BEGIN).and_then(|(before, rest)| {
        let (table, after) = rest.split_once(END)?;
        Some((before, table, after))
    });
    split.ok_or_else(|| format!("{DOCUMENT} has lost the lines around its table"))
}
