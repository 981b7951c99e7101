//! Each clause of docs/wire.md is kept by code or proved by a test, and says so: `//= wire.md R-ACK-3`.

use crate::workspace::{Source, Workspace};
use std::collections::{BTreeMap, BTreeSet};

const DOCUMENT: &str = "docs/wire.md";

/// Lists clauses without code and code without a clause.
pub fn check(workspace: &Workspace, files: &[Source], breaches: &mut Vec<String>) {
    let mut cited: BTreeMap<&str, &str> = BTreeMap::new();
    for file in files.iter().filter(|file| file.crate_folder() != "xtask") {
        for line in file.text.lines() {
            if let Some((_, citation)) = line.split_once("//= wire.md ") {
                cited.extend(clause_ids(citation).map(|id| (id, file.path.as_str())));
            }
        }
    }
    let path = workspace.root.join(DOCUMENT);
    // Without the document every citation is one too many.
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let written: BTreeSet<&str> = clause_ids(&text).collect();
    for id in written.iter().filter(|id| !cited.contains_key(**id)) {
        breaches
            .push(format!("{DOCUMENT}: {id} is cited nowhere; write `//= wire.md {id}` where it is kept"));
    }
    for (id, file) in cited.iter().filter(|(id, _)| !written.contains(**id)) {
        breaches.push(format!("{file}: {id} is not in {DOCUMENT}"));
    }
}

/// Every `R-WORD-number` in the text.
fn clause_ids(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').filter(|word| is_clause_id(word))
}

fn is_clause_id(word: &str) -> bool {
    let Some((topic, number)) = word.strip_prefix("R-").and_then(|rest| rest.rsplit_once('-')) else {
        return false;
    };
    let upper = !topic.is_empty() && topic.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit());
    upper && !number.is_empty() && number.chars().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::clause_ids;

    #[test]
    fn ids_are_found_and_nothing_else() {
        let found: Vec<_> =
            clause_ids("**R-ACK-3** as in R-RNR-12, not R-, R-x-1, R-ACK or CCI-063.").collect();
        assert_eq!(found, ["R-ACK-3", "R-RNR-12"]);
    }
}
