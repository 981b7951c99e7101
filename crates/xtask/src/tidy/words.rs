//! Comments stand by themselves, and names are the field's. A comment that opens with a reference to its neighbour is a
//! breach, and so is an identifier with a word that only this project ever used. What is left of either is in lists that
//! only shrink.

use crate::workspace::Source;
use std::collections::{BTreeMap, BTreeSet};

/// Openings of comments that say nothing without another comment.
const LEANING: &[&str] = &[
    "As there",
    "As above",
    "As below",
    "Likewise",
    "Ditto",
    "See above",
    "See below",
    "See there",
    "See the module",
];

/// After "The same", these show that a comment leans on its neighbour: "The same request twice" does not.
const AFTER_THE_SAME: &[&str] = &[
    "and", "as", "at", "between", "but", "by", "for", "from", "in", "of", "on", "over", "through", "to",
    "where", "with", "without",
];

/// Words that a reader of verbs, QUIC or UCX would not guess. ADR 30 and the glossary in ARCHITECTURE.md have the terms.
const PRIVATE: &[&str] =
    &["answerer", "asker", "byhand", "deaths", "desk", "fate", "glue", "knock", "shaking", "told", "toll"];

/// Folders that still have leaning comments, and how many at most.
const KNOWN_LEANING: &[(&str, usize)] = &[];

/// Folders that still have private words, and which.
const KNOWN_PRIVATE: &[(&str, &[&str])] = &[];

/// What is left of both, and where.
struct Known<'a> {
    leaning: &'a [(&'a str, usize)],
    private: &'a [(&'a str, &'a [&'a str])],
}

/// Lists comments that lean on their neighbours, identifiers with private words, and what the lists name although it is
/// gone.
pub fn check(files: &[Source], breaches: &mut Vec<String>) {
    Known { leaning: KNOWN_LEANING, private: KNOWN_PRIVATE }.check(files, breaches);
}

impl Known<'_> {
    fn check(&self, files: &[Source], breaches: &mut Vec<String>) {
        let mut leaning: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut private: BTreeMap<(String, &str), BTreeSet<String>> = BTreeMap::new();
        for file in files {
            let folder = folder_of(&file.path);
            for (line, comment) in leaning_comments(&file.text) {
                leaning.entry(folder.clone()).or_default().push(format!("{}:{line}: {comment}", file.path));
            }
            for (word, name) in private_words(&file.code) {
                private.entry((folder.clone(), word)).or_default().insert(format!("{name} in {}", file.path));
            }
        }
        for (folder, found) in &leaning {
            let most = self.leaning.iter().find(|(known, _)| known == folder).map_or(0, |(_, most)| *most);
            if found.len() > most {
                breaches.extend(
                    found.iter().map(|what| format!("{what}: leans on its neighbour ({most} known)")),
                );
            }
        }
        for ((folder, word), found) in &private {
            let known = self.private.iter().find(|(known, _)| known == folder);
            if !known.is_some_and(|(_, words)| words.contains(word)) {
                breaches.extend(found.iter().map(|name| format!("{name}: {word:?} is no term of the field")));
            }
        }
        for (folder, most) in self.leaning {
            let count = leaning.get(*folder).map_or(0, Vec::len);
            if count < *most {
                breaches.push(format!(
                    "{folder}: {count} comments lean, not {most}: correct KNOWN_LEANING in xtask"
                ));
            }
        }
        for (folder, words) in self.private {
            for word in words.iter().filter(|word| !private.contains_key(&((*folder).to_owned(), **word))) {
                breaches.push(format!("{folder}: {word:?} is gone: correct KNOWN_PRIVATE in xtask"));
            }
        }
    }
}

/// The folder that the lists name: a crate's `src`, `tests` and so on, or the first part of the path.
fn folder_of(path: &str) -> String {
    let parts = if path.starts_with("crates/") { 3 } else { 1 };
    path.split('/').take(parts).collect::<Vec<_>>().join("/")
}

/// First lines of comments and of their paragraphs that lean on something else, with their numbers.
fn leaning_comments(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut begins = true;
    for (index, line) in text.lines().enumerate() {
        let comment =
            line.trim_start().strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!']).trim());
        let Some(comment) = comment else {
            begins = true;
            continue;
        };
        if begins && leans(comment) {
            found.push((index + 1, comment));
        }
        begins = comment.is_empty();
    }
    found
}

fn leans(comment: &str) -> bool {
    let opens = |opening: &str| {
        let after = comment.strip_prefix(opening);
        after.is_some_and(|after| !after.starts_with(|next: char| next.is_alphanumeric()))
    };
    if LEANING.iter().any(|opening| opens(opening)) {
        return true;
    }
    let Some(after) = comment.strip_prefix("The same") else { return false };
    match after.strip_prefix(' ') {
        Some(after) => after
            .split(|next: char| !next.is_alphabetic())
            .next()
            .is_some_and(|word| AFTER_THE_SAME.contains(&word)),
        None => true,
    }
}

/// Private words in the identifiers of code without comments and literals, each with its identifier.
fn private_words(code: &str) -> BTreeSet<(&'static str, &str)> {
    let mut found = BTreeSet::new();
    for name in code.split(|next: char| !next.is_alphanumeric() && next != '_') {
        let parts = parts_of(name);
        if parts.len() > 3 {
            continue; // The name of a test or of a function that is a sentence: plain English.
        }
        let pairs = parts.windows(2).map(|pair| pair.concat());
        let mut all: BTreeSet<String> = pairs.collect();
        all.extend(parts);
        found.extend(PRIVATE.iter().filter(|word| all.contains(**word)).map(|word| (*word, name)));
    }
    found
}

/// The words of an identifier, in lower case: `by_hand`, `ByHand` and `BY_HAND` have the same ones.
fn parts_of(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut was_lower = false;
    for next in name.chars() {
        if next == '_' || next.is_uppercase() && was_lower {
            parts.push(String::new());
        }
        was_lower = next.is_lowercase();
        if let Some(last) = parts.last_mut().filter(|_| next != '_') {
            last.extend(next.to_lowercase());
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_that_need_their_neighbour_are_found() {
        for comment in
            ["The same.", "The same, twice", "The same for a write.", "Likewise", "As above: closed"]
        {
            assert!(leans(comment), "{comment}");
        }
        for comment in ["The same request twice.", "As abovementioned", "Its address.", "It is the same."] {
            assert!(!leans(comment), "{comment}");
        }
    }

    #[test]
    fn only_the_beginning_of_a_comment_counts() {
        let text =
            "/// Sends. What comes back is\n/// The same as\n///\n/// Ditto.\nfn f() {}\n    // As there.\n";
        let lines: Vec<_> = leaning_comments(text).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [4, 6]);
    }

    #[test]
    fn private_words_are_found_in_every_case() {
        let code = "let is_told = ByHand::new(FATE_MAX, retold, hand, by, tollgate);";
        let found: Vec<_> = private_words(code).into_iter().collect();
        assert_eq!(found, [("byhand", "ByHand"), ("fate", "FATE_MAX"), ("told", "is_told")]);
    }

    #[test]
    fn what_is_listed_and_gone_is_a_breach() {
        let source = |text: &str, code: &str| Source {
            path: "bench/src/main.rs".to_owned(),
            text: text.to_owned(),
            code: code.to_owned(),
        };
        let known = Known { leaning: &[("bench", 1)], private: &[("bench", &["told"])] };
        let mut breaches = Vec::new();
        known.check(&[source("/// Ditto.\nfn f() {}\n", "let is_told = 1;")], &mut breaches);
        assert_eq!(breaches, [""; 0]);
        known.check(&[source("fn f() {}\n", "")], &mut breaches);
        assert_eq!(breaches.len(), 2, "{breaches:?}");
        assert!(
            breaches[0].contains("KNOWN_LEANING") && breaches[1].contains("KNOWN_PRIVATE"),
            "{breaches:?}"
        );
    }

    #[test]
    fn folders_are_those_of_crates() {
        assert_eq!(folder_of("crates/cci/src/engine/mod.rs"), "crates/cci/src");
        assert_eq!(folder_of("bench/src/main.rs"), "bench");
    }
}
