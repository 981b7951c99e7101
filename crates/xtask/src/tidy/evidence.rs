//! The tables of what a peer can do name tests and constants that exist, so that a row can't outlive its proof.
//!
//! A test is cited as `` `file::name` ``: `fn name` in a source file called `file.rs`, or in a folder called `file`. A constant is
//! cited by its name in capitals. `pending …` in the last column stands for a test to come, and is a breach.

use crate::workspace::{Source, Workspace};

/// The documents, and the heading of the section whose tables are checked. None: all tables of the document.
const TABLES: &[(&str, Option<&str>)] = &[("docs/bounds.md", None), ("docs/security.md", Some("## Roles"))];

/// Lists rows without a test, and tests and constants that are not in the sources.
pub fn check(workspace: &Workspace, files: &[Source], breaches: &mut Vec<String>) -> Result<(), String> {
    for (document, section) in TABLES {
        let path = workspace.root.join(document);
        let text = std::fs::read_to_string(path).map_err(|error| format!("{document}: {error}"))?;
        for row in rows(&text, *section) {
            check_row(document, row, files, breaches);
        }
    }
    Ok(())
}

fn check_row(document: &str, row: &str, files: &[Source], breaches: &mut Vec<String>) {
    let title: String = row.trim_start_matches(['|', ' ']).chars().take(60).collect();
    let proof = row.trim_end_matches(['|', ' ']).rsplit('|').next().unwrap_or_default();
    let mut tests = quoted(proof).filter_map(|words| words.split_once("::")).peekable();
    if proof.contains("pending ") {
        breaches.push(format!("{document}: the row \"{title}\" has a test to come"));
    } else if tests.peek().is_none() {
        breaches.push(format!("{document}: the row \"{title}\" cites no test in its last column"));
    }
    for (file, name) in tests.filter(|(file, name)| !has_test(files, file, name)) {
        breaches.push(format!("{document}: the row \"{title}\" cites {file}::{name}, which is not there"));
    }
    for name in quoted(row).filter(|word| is_constant(word) && !has_constant(files, word)) {
        breaches
            .push(format!("{document}: the row \"{title}\" cites the constant {name}, which is not there"));
    }
}

/// The rows of the tables in a section of a document, without heads and rules.
fn rows<'a>(text: &'a str, section: Option<&str>) -> Vec<&'a str> {
    let mut inside = section.is_none();
    let mut rows = Vec::new();
    let mut head = true;
    for line in text.lines() {
        if let Some(section) = section
            && line.starts_with("## ")
        {
            inside = line.trim_end() == section;
        }
        let is_row = line.starts_with('|');
        if !is_row {
            head = true;
        } else if line.starts_with("|-") || line.starts_with("| -") {
            head = false;
        } else if inside && !head {
            rows.push(line);
        }
    }
    rows
}

/// What stands between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn has_test(files: &[Source], file: &str, name: &str) -> bool {
    let (as_file, as_folder) = (format!("/{file}.rs"), format!("/{file}/"));
    let (plain, generic) = (format!("fn {name}("), format!("fn {name}<"));
    let is_there = |source: &&Source| source.path.ends_with(&as_file) || source.path.contains(&as_folder);
    files.iter().filter(is_there).any(|source| source.code.contains(&plain) || source.code.contains(&generic))
}

fn is_constant(word: &str) -> bool {
    let fits = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    word.contains('_') && word.chars().all(fits)
}

fn has_constant(files: &[Source], name: &str) -> bool {
    let declaration = format!("const {name}:");
    files.iter().any(|source| source.code.contains(&declaration))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# A
| what | shown by |
|---|---|
| one | `a::b` |
## Roles
| role | shown by |
| --- | --- |
| two `SOME_MAX` | `c::d`, `e::f` |
text
## Other
| what | shown by |
|---|---|
| three | nothing |
";

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned(), code: text.to_owned() }
    }

    #[test]
    fn only_rows_of_the_section_are_read() {
        assert_eq!(rows(TEXT, None).len(), 3);
        assert_eq!(rows(TEXT, Some("## Roles")), ["| two `SOME_MAX` | `c::d`, `e::f` |"]);
    }

    #[test]
    fn a_row_needs_a_test_and_a_constant_that_exist() {
        let files =
            [source("crates/x/tests/c.rs", "fn d() {}"), source("crates/x/tests/e/g.rs", "fn f() {}")];
        let mut breaches = Vec::new();
        check_row("doc", "| three | nothing |", &files, &mut breaches);
        check_row("doc", "| two `SOME_MAX` | `c::d`, `e::f`, `c::gone` |", &files, &mut breaches);
        assert_eq!(breaches.len(), 3, "{breaches:?}");
        assert!(breaches[0].contains("no test") && breaches[1].contains("c::gone"));
        assert!(breaches[2].contains("SOME_MAX"));
    }

    #[test]
    fn a_test_to_come_is_a_breach_and_a_generic_one_is_a_test() {
        let files = [source("crates/x/src/c.rs", "fn d<D: Driver>() {}")];
        let mut breaches = Vec::new();
        check_row("doc", "| four | `c::d` |", &files, &mut breaches);
        assert!(breaches.is_empty(), "{breaches:?}");
        check_row("doc", "| five | `c::d` (pending B7) |", &files, &mut breaches);
        assert_eq!(breaches.len(), 1, "{breaches:?}");
    }
}
