//! What the conformance suite wrote down.

use std::collections::{BTreeMap, BTreeSet};

/// A case, as it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    Failed,
    /// Device or language can't do what it is about.
    Skipped(String),
}

/// A device and a language.
pub(super) type Row = (String, String);

/// Everything that was written down.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// By device and language: the outcome of each case of each group.
    pub(super) rows: BTreeMap<Row, BTreeMap<(String, String), Outcome>>,
    /// Devices the machine does not have, and why.
    absent: BTreeMap<String, String>,
    millis: BTreeMap<Row, u64>,
}

impl Report {
    /// Reads lines of device, language, group, case, outcome, milliseconds and reason, with tabs between them.
    pub(super) fn parse(text: &str) -> Result<Report, String> {
        let mut report = Report::default();
        for line in text.lines() {
            let unclear = || format!("a line of the conformance report is unclear: {line:?}");
            let fields: Vec<&str> = line.split('\t').collect();
            let [device, language, group, case, outcome, millis, reason] = fields[..] else {
                return Err(unclear());
            };
            let outcome = match outcome {
                "passed" => Outcome::Passed,
                "failed" => Outcome::Failed,
                "skipped" => Outcome::Skipped(reason.to_owned()),
                "absent" => {
                    report.absent.insert(device.to_owned(), reason.to_owned());
                    continue;
                }
                _ => return Err(unclear()),
            };
            let row = (device.to_owned(), language.to_owned());
            let millis: u64 = millis.parse().map_err(|_| unclear())?;
            *report.millis.entry(row.clone()).or_default() += millis;
            let case = (group.to_owned(), case.to_owned());
            report.rows.entry(row).or_default().insert(case, outcome);
        }
        Ok(report)
    }

    /// How many cases ran.
    pub(super) fn cases(&self) -> usize {
        self.rows.values().map(BTreeMap::len).sum()
    }

    /// Devices the machine does not have, and why.
    pub(super) fn absent(&self) -> impl Iterator<Item = (&str, &str)> {
        self.absent.iter().map(|(device, reason)| (device.as_str(), reason.as_str()))
    }

    /// How long the cases of each device took; several run at the same time.
    pub(super) fn print_times(&self) {
        let times = self.millis.iter().map(|((device, language), millis)| {
            format!("{device} {language} {:.0} s", *millis as f64 / 1000.0)
        });
        println!("--- conformance, sums of all cases: {}", times.collect::<Vec<_>>().join(", "));
    }

    /// Cases that tested nothing: case and reason, and where.
    pub(super) fn skipped(&self) -> BTreeMap<(String, String), BTreeSet<Row>> {
        let mut skipped: BTreeMap<_, BTreeSet<Row>> = BTreeMap::new();
        for (row, cases) in &self.rows {
            for ((_, case), outcome) in cases {
                if let Outcome::Skipped(reason) = outcome {
                    skipped.entry((case.clone(), reason.clone())).or_default().insert(row.clone());
                }
            }
        }
        skipped
    }
}
