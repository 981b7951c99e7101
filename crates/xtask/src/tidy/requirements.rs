//! Each number of a requirement that code cites (`CCI-014`, `RIPC-028`) is explained in docs/requirements.md.

use crate::workspace::{Source, Workspace};
use std::collections::{BTreeMap, BTreeSet};

const DOCUMENT: &str = "docs/requirements.md";
/// What numbers begin with: the papers.
const PAPERS: &[&str] = &["CCI-", "CCS-", "RIPC-", "SS-"];

/// Lists numbers that nobody can look up.
pub fn check(workspace: &Workspace, files: &[Source], breaches: &mut Vec<String>) {
    let mut cited: BTreeMap<&str, &str> = BTreeMap::new();
    for file in files.iter().filter(|file| file.crate_folder() != "xtask") {
        cited.extend(numbers(&file.text).map(|number| (number, file.path.as_str())));
    }
    // Without the document every citation is one too many.
    let text = std::fs::read_to_string(workspace.root.join(DOCUMENT)).unwrap_or_default();
    let explained: BTreeSet<&str> = numbers(&text).collect();
    for (number, file) in cited.iter().filter(|(number, _)| !explained.contains(**number)) {
        breaches.push(format!("{file}: {number} is not in {DOCUMENT}"));
    }
}

/// Every number of a paper in the text.
fn numbers(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').filter(|word| {
        let digits = PAPERS.iter().find_map(|paper| word.strip_prefix(paper));
        digits.is_some_and(|digits| digits.len() == 3 && digits.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

#[cfg(test)]
mod tests {
    use super::numbers;

    #[test]
    fn numbers_are_found_and_nothing_else() {
        let found: Vec<_> = numbers("(CCI-014, RIPC-037) and CCI-2, CCI-x, CCI-0141, R-CCI-014").collect();
        assert_eq!(found, ["CCI-014", "RIPC-037"]);
    }
}
