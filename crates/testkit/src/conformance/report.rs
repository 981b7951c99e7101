//! What each case came to, for docs/devices.md: a line in the file that `CCI_CONFORMANCE_REPORT` names.

use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;

/// Names the file.
const REPORT: &str = "CCI_CONFORMANCE_REPORT";

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    Failed,
    /// The device or the language can't do what it is about; why.
    Skipped(String),
    /// The machine does not have the device; why.
    Absent(String),
}

/// Which case.
#[derive(Copy, Clone, Debug)]
pub(super) struct Which {
    pub(super) device: &'static str,
    pub(super) language: &'static str,
    pub(super) group: &'static str,
    pub(super) case: &'static str,
}

/// Adds the line: device, language, group, case, outcome, milliseconds, reason, with tabs between them.
pub(super) fn add(which: Which, outcome: &Outcome, took: Duration) {
    let (word, reason) = match outcome {
        Outcome::Passed => ("passed", ""),
        Outcome::Failed => ("failed", ""),
        Outcome::Skipped(reason) => ("skipped", reason.as_str()),
        Outcome::Absent(reason) => ("absent", reason.as_str()),
    };
    let Which { device, language, group, case } = which;
    if let Outcome::Skipped(reason) | Outcome::Absent(reason) = outcome {
        let _ = writeln!(std::io::stderr(), "{case} ({device}, {language}): skipped, {reason}");
    }
    let Some(path) = std::env::var_os(REPORT) else { return };
    let reason = reason.replace(['\t', '\n'], " ");
    let millis = took.as_millis();
    let line = format!("{device}\t{language}\t{group}\t{case}\t{word}\t{millis}\t{reason}\n");
    let file = OpenOptions::new().create(true).append(true).open(&path);
    // In one call: other test programs write to the same file.
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
