//! Links between our documents lead somewhere. Decisions are short, and their index has each once.

use crate::workspace::Workspace;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Lines of a page of a decision (ADR 1).
const DECISION_LINES_MAX: usize = 80;

/// Lists links to files, and to sections of documents, that are not there.
pub fn check(workspace: &Workspace, breaches: &mut Vec<String>) -> Result<(), String> {
    let mut documents = Vec::new();
    collect(&workspace.root, false, &mut documents)?;
    collect(&workspace.root.join("docs"), true, &mut documents)?;
    for document in documents {
        let folder = document.parent().unwrap_or(Path::new("."));
        for link in links(&read(&document)?) {
            let (file, section) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { document.clone() } else { folder.join(file) };
            let is_there = target.exists()
                && (section.is_empty()
                    || !is_document(&target)
                    || sections(&read(&target)?).contains(section));
            if !is_there {
                let name = document.strip_prefix(&workspace.root).unwrap_or(&document);
                breaches.push(format!("{}: the link to {link} leads nowhere", name.display()));
            }
        }
    }
    check_decisions(&workspace.root.join("docs/adr"), breaches)
}

/// Lists what is wrong with the pages of decisions and their index.
fn check_decisions(folder: &Path, breaches: &mut Vec<String>) -> Result<(), String> {
    let index = read(&folder.join("README.md"))?;
    let mut pages = Vec::new();
    collect(folder, false, &mut pages)?;
    for page in pages {
        let name = page.file_name().unwrap_or_default().to_string_lossy();
        check_decision(&name, &read(&page)?, &index, breaches);
    }
    Ok(())
}

/// Refuses a decision that is too long, and one that the index lacks, has more than once, or has under another title.
fn check_decision(name: &str, text: &str, index: &str, breaches: &mut Vec<String>) {
    let Some((number, title)) =
        text.lines().next().and_then(|line| line.strip_prefix("# ")?.split_once(". "))
    else {
        return;
    };
    let lines = text.lines().count();
    if lines > DECISION_LINES_MAX {
        breaches.push(format!(
            "docs/adr/{name}: {lines} lines, limit {DECISION_LINES_MAX}; divide it by decision, or shorten it"
        ));
    }
    let entry = format!("- [{number}]({name}) {title}");
    if number != "NNNN" && index.lines().filter(|line| *line == entry).count() != 1 {
        breaches.push(format!("docs/adr/README.md: lacks the line `{entry}`, or has it twice"));
    }
}

fn read(document: &Path) -> Result<String, String> {
    std::fs::read_to_string(document).map_err(|error| format!("{}: {error}", document.display()))
}

fn is_document(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}

fn collect(folder: &Path, deep: bool, into: &mut Vec<PathBuf>) -> Result<(), String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let path = entry.map_err(|error| format!("{}: {error}", folder.display()))?.path();
        if is_document(&path) {
            into.push(path);
        } else if deep && path.is_dir() {
            collect(&path, deep, into)?;
        }
    }
    Ok(())
}

/// The links to files and sections, such as `[text](file#section)`; other schemes are left out.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link);
    links.filter(|link| !link.is_empty() && !link.contains(':') && !link.contains(char::is_whitespace))
}

/// The names of a document's sections, as links have them: the heading in lower case, with hyphens for spaces and without other
/// punctuation.
fn sections(text: &str) -> BTreeSet<String> {
    let mut is_code = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        if let Some(heading) = line.strip_prefix('#').filter(|_| !is_code) {
            let heading = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
            found.insert(heading.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{DECISION_LINES_MAX, check_decision, links, sections};

    #[test]
    fn links_of_other_schemes_are_left_out() {
        let found: Vec<_> = links("[a](docs/a.md#b) [c](https://x.y) [d](#here) `x[1](2 3)`").collect();
        assert_eq!(found, ["docs/a.md#b", "#here"]);
    }

    #[test]
    fn a_decision_is_short_and_in_the_index_once() {
        let breaches = |lines, index: &str| {
            let mut breaches = Vec::new();
            check_decision(
                "0007-a.md",
                &format!("# 0007. A\n{}", "\n".repeat(lines - 1)),
                index,
                &mut breaches,
            );
            breaches.len()
        };
        let entry = "- [0007](0007-a.md) A\n";
        assert_eq!(breaches(DECISION_LINES_MAX, entry), 0);
        assert_eq!(breaches(DECISION_LINES_MAX + 1, entry), 1, "too long");
        assert_eq!(breaches(2, ""), 1, "not in the index");
        assert_eq!(breaches(2, &entry.repeat(2)), 1, "in the index twice");
        assert_eq!(breaches(2, "- [0007](0007-a.md) Another title\n"), 1);
    }

    #[test]
    fn sections_are_named_as_links_name_them() {
        let found = sections("# A, b: `c_d`?\n```\n# none\n```\n## E-f (g)\ntext\n");
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["a-b-c_d", "e-f-g"]);
    }
}
