//! The table itself: a line for each device and language, a column for each topic.

use super::report::{Outcome, Report, Row};
use std::collections::BTreeMap;
use std::fmt;

/// Columns, and the groups of cases in them.
const TOPICS: &[(&str, &[&str])] = &[
    ("connections", &["connect", "closing", "disconnected", "scale"]),
    ("messages", &["messages", "sending", "streams", "loans", "buffers"]),
    ("waiting", &["waiting"]),
    ("multicast", &["multicast"]),
    ("remote memory", &["rma_data", "rma_order", "rma_rights", "rma_life", "rma_account", "rma_files"]),
    ("atomics", &["rma_atomics"]),
    ("messengers", &["any_length", "any_length_ends", "calls"]),
    ("processes", &["process", "rma_process"]),
    ("accounts", &["account"]),
];

/// Lines by device and language, and the notes below: each as it is written.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Table {
    lines: BTreeMap<Row, String>,
    notes: BTreeMap<Row, Vec<String>>,
}

impl Table {
    /// From what the suite wrote down. An error is a group of cases that has no column.
    pub(super) fn of(report: &Report) -> Result<Table, String> {
        let mut table = Table::default();
        for (row, cases) in &report.rows {
            let mut cells = vec![(0, 0); TOPICS.len()];
            for ((group, _), outcome) in cases {
                let column = TOPICS.iter().position(|(_, groups)| groups.contains(&group.as_str()));
                let column = column.ok_or_else(|| format!("cases of {group} have no column in the table"))?;
                let (passed, all) = &mut cells[column];
                *passed += u32::from(*outcome == Outcome::Passed);
                *all += 1;
            }
            let cells = cells.into_iter().map(|cell| match cell {
                (_, 0) => "–".to_owned(),
                (passed, all) if passed == all => all.to_string(),
                (passed, all) => format!("{passed} of {all}"),
            });
            table.lines.insert(row.clone(), cells.collect::<Vec<_>>().join(" | "));
        }
        for ((case, reason), rows) in report.skipped() {
            for row in rows {
                table.notes.entry(row).or_default().push(format!("`{case}`: {reason}"));
            }
        }
        Ok(table)
    }

    /// From the document.
    pub(super) fn parse(text: &str) -> Table {
        let mut table = Table::default();
        for line in text.lines() {
            if let Some((device, rest)) = line.strip_prefix("| `").and_then(|line| line.split_once("` | "))
                && let Some((language, cells)) = rest.split_once(" | ")
            {
                let cells = cells.strip_suffix(" |").unwrap_or(cells).to_owned();
                table.lines.insert((device.to_owned(), language.to_owned()), cells);
            }
            if let Some((head, reason)) = line.strip_prefix("- ").and_then(|line| line.split_once(": "))
                && let Some((case, rows)) = head.split_once(" on ")
            {
                for (device, language) in rows.split(", ").filter_map(|row| row.rsplit_once(' ')) {
                    let row = (device.to_owned(), language.to_owned());
                    table.notes.entry(row).or_default().push(format!("{case}: {reason}"));
                }
            }
        }
        table
    }

    /// Takes over the lines of devices that the machine of the run does not have, and of languages that it can't run; which.
    pub(super) fn keep_absent(&mut self, old: &Table, report: &Report) -> Vec<String> {
        let mut kept = Vec::new();
        for (row, line) in &old.lines {
            let has_language = report.rows.keys().any(|(_, language)| *language == row.1);
            let is_absent = !has_language || report.absent().any(|(device, _)| device == row.0);
            if is_absent && !self.lines.contains_key(row) {
                self.lines.insert(row.clone(), line.clone());
                self.notes.extend(old.notes.get(row).map(|notes| (row.clone(), notes.clone())));
                kept.push(format!("{} ({})", row.0, row.1));
            }
        }
        kept
    }

    /// How many lines there are.
    pub(super) fn lines(&self) -> usize {
        self.lines.len()
    }

    /// What a run showed otherwise than the document says, in words. What did not run is no difference.
    pub(super) fn differences(&self, committed: &Table) -> Vec<String> {
        let mut differences = Vec::new();
        for (row, line) in &self.lines {
            let (device, language) = row;
            match committed.lines.get(row) {
                Some(committed_line) if committed_line == line => {}
                Some(committed_line) => {
                    differences.push(format!("{device} ({language}): ran {line}; it says {committed_line}"))
                }
                None => differences.push(format!("{device} ({language}): ran {line}; it has no such line")),
            }
            let notes = |table: &Table| table.notes.get(row).cloned().unwrap_or_default();
            let (ran, committed_line) = (notes(self), notes(committed));
            let missing = ran.iter().filter(|note| !committed_line.contains(note));
            differences.extend(missing.map(|note| format!("{device} ({language}): it does not say {note}")));
            let stale = committed_line.iter().filter(|note| !ran.contains(note));
            differences.extend(stale.map(|note| format!("{device} ({language}): no longer so: {note}")));
        }
        differences
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let topics: Vec<&str> = TOPICS.iter().map(|(topic, _)| *topic).collect();
        writeln!(f, "\n| device | language | {} |", topics.join(" | "))?;
        writeln!(f, "|---|---|{}", "---|".repeat(TOPICS.len()))?;
        for ((device, language), line) in &self.lines {
            writeln!(f, "| `{device}` | {language} | {line} |")?;
        }
        if !self.notes.is_empty() {
            writeln!(f, "\nNot tested, and why:\n")?;
        }
        let mut rows_of: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for ((device, language), notes) in &self.notes {
            for note in notes {
                rows_of.entry(note).or_default().push(format!("{device} {language}"));
            }
        }
        for (note, rows) in rows_of {
            let (case, reason) = note.split_once(": ").unwrap_or((note, ""));
            writeln!(f, "- {case} on {}: {reason}", rows.join(", "))?;
        }
        writeln!(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const REPORT: &str = "\
shm\tRust\tconnect\tmeets\tpassed\t10\t
shm\tRust\tbuffers\tfills\tskipped\t10\tit has none: really
shm\tC\tconnect\tmeets\tpassed\t10\t
eth\tC\tconnect\tmeets\tabsent\t0\tit needs root
";

    fn table(report: &str) -> Table {
        Table::of(&Report::parse(report).unwrap()).unwrap()
    }

    /// Modules beside the groups of cases: processes that cases start.
    const NO_GROUPS: [&str; 3] = ["mod", "child", "peer"];

    #[test]
    fn every_group_of_cases_has_a_column() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../testkit/src/conformance/cases");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let names = files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned());
        let groups: BTreeSet<String> = names.filter(|name| !NO_GROUPS.contains(&&**name)).collect();
        let columns = TOPICS.iter().flat_map(|(_, groups)| groups.iter().map(|group| (*group).to_owned()));
        assert_eq!(groups, columns.collect());
    }

    #[test]
    fn what_is_written_is_read_again() {
        let table = table(REPORT);
        assert_eq!(Table::parse(&table.to_string()), table);
        assert!(table.to_string().contains("\n| `shm` | Rust | 1 | 0 of 1 | – |"), "{table}");
        assert!(table.to_string().contains("\n- `fills` on shm Rust: it has none: really\n"), "{table}");
    }

    #[test]
    fn differences_are_told_and_what_did_not_run_is_none() {
        let committed = table(&REPORT.replace("absent", "passed"));
        assert_eq!(table(REPORT).differences(&committed), Vec::<String>::new());
        let failed = table(&REPORT.replacen("passed", "failed", 1));
        assert_eq!(failed.differences(&committed).len(), 1);
        let other_reason = table(&REPORT.replace("really", "maybe"));
        assert_eq!(other_reason.differences(&committed).len(), 2);
        assert_eq!(committed.differences(&table(REPORT)).len(), 1);
        let mut kept = table(REPORT);
        assert_eq!(kept.keep_absent(&committed, &Report::parse(REPORT).unwrap()), ["eth (C)"]);
        assert_eq!(kept, committed);
        let mut rust_alone = table("shm\tRust\tconnect\tmeets\tpassed\t10\t\n");
        let report = Report::parse("shm\tRust\tconnect\tmeets\tpassed\t10\t\n").unwrap();
        assert_eq!(rust_alone.keep_absent(&committed, &report), ["eth (C)", "shm (C)"], "C did not run");
    }

    #[test]
    fn what_is_unclear_is_an_error() {
        assert!(Report::parse("shm\tRust\tconnect\n").is_err());
        assert!(Report::parse("shm\tRust\tconnect\tmeets\tperhaps\t1\t\n").is_err());
        let unknown = Report::parse("shm\tRust\tswimming\tmeets\tpassed\t1\t\n").unwrap();
        assert!(Table::of(&unknown).is_err());
    }
}
