//! Parses INI text into sections and pairs, each with its line.
//!
//! We do not use a crate, because those that were examined (rust-ini, configparser) keep no line numbers, and an error without a
//! line is half an error.

/// `[name]`, and the pairs below it.
#[derive(Debug, PartialEq, Eq)]
pub struct Section<'a> {
    /// The text between the brackets, without blanks around it.
    pub name: &'a str,
    /// The section's line, from 1.
    pub line: usize,
    /// The pairs in the order of the text.
    pub pairs: Vec<Pair<'a>>,
}

/// `key = value`. Neither is empty.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Pair<'a> {
    /// The text before the `=`.
    pub key: &'a str,
    /// The text after the `=`.
    pub value: &'a str,
    /// The pair's line, from 1.
    pub line: usize,
}

/// An error in the text, and its place.
#[derive(Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, and what to write.
    pub reason: String,
}

/// The most lines of a file, since a configuration is read whole.
const LINES_MAX: usize = 100_000;

/// Sections in the order of the text. Keys are unique in a section, section names in the text.
///
/// # Errors
/// [`Wrong`]: the first line that is wrong, and why.
pub fn sections(text: &str) -> Result<Vec<Section<'_>>, Wrong> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    for (at, raw) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = at + 1;
        let wrong = |reason: String| Err(Wrong { line, reason });
        if line > LINES_MAX {
            return wrong(format!("more than {LINES_MAX} lines; is this a configuration file?"));
        }
        let code = without_comment(raw).trim();
        if code.is_empty() {
            continue;
        }
        if let Some(tail) = code.strip_prefix('[') {
            let section = header(tail, line)?;
            if let Some(first) = sections.iter().find(|known| known.name == section.name) {
                return wrong(format!(
                    "section [{}] is already at line {}; give each section a name of its own",
                    section.name, first.line
                ));
            }
            sections.push(section);
            continue;
        }
        let pair = pair(code, line)?;
        let Some(section) = sections.last_mut() else {
            return wrong(format!("{:?} before any section; write [name] above it", pair.key));
        };
        if let Some(first) = section.pairs.iter().find(|known| known.key == pair.key) {
            return wrong(format!(
                "{:?} is already set at line {} of the same section; keep one",
                pair.key, first.line
            ));
        }
        section.pairs.push(pair);
    }
    Ok(sections)
}

/// Removes a comment. `#` starts one at the start of a line or after a blank, so a path may contain it.
fn without_comment(raw: &str) -> &str {
    let starts = |(at, _): &(usize, &str)| {
        raw.get(..*at).is_none_or(|before| before.is_empty() || before.ends_with(char::is_whitespace))
    };
    let end = raw.match_indices('#').find(starts).map_or(raw.len(), |(at, _)| at);
    raw.get(..end).unwrap_or(raw)
}

/// Parses the text after the opening bracket.
fn header(tail: &str, line: usize) -> Result<Section<'_>, Wrong> {
    let reason = match tail.split_once(']') {
        Some((name, "")) if !name.trim().is_empty() => {
            return Ok(Section { name: name.trim(), line, pairs: Vec::new() });
        }
        Some((_, "")) => "a section without a name; write [name]".to_owned(),
        Some((_, after)) => {
            format!("{:?} after the section's name; put it on a line of its own", after.trim())
        }
        None => "a section's name without its closing bracket; write [name]".to_owned(),
    };
    Err(Wrong { line, reason })
}

fn pair(code: &str, line: usize) -> Result<Pair<'_>, Wrong> {
    let reason = match code.split_once('=').map(|(key, value)| (key.trim(), value.trim())) {
        Some((key, value)) if !key.is_empty() && !value.is_empty() => return Ok(Pair { key, value, line }),
        Some(("", _)) => "a value without a key; write key = value".to_owned(),
        Some((key, _)) => format!("{key:?} has no value; write {key} = value, or take the line out"),
        None => format!("{code:?} is neither [section] nor key = value"),
    };
    Err(Wrong { line, reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_pairs_comments_and_lines() {
        let text = "\u{feff}# a comment\n\n[ one ]\r\na=1 # why\n  b = x y#z\n#[no]\n[two]\nk==v\n";
        let found = sections(text).unwrap();
        let pair = |key, value, line| Pair { key, value, line };
        assert_eq!(
            found,
            [
                Section { name: "one", line: 3, pairs: vec![pair("a", "1", 4), pair("b", "x y#z", 5)] },
                Section { name: "two", line: 7, pairs: vec![pair("k", "=v", 8)] },
            ]
        );
    }

    #[test]
    fn every_mistake_has_its_line_and_a_word_on_what_to_write() {
        for (text, line, word) in [
            ("a=1", 1, "before any section"),
            ("\n[x\n", 2, "closing bracket"),
            ("[]", 1, "without a name"),
            ("[x] y", 1, "line of its own"),
            ("[x]\n\n[x]", 3, "line 1"),
            ("[x]\na=1\n a = 2", 3, "line 2"),
            ("[x]\nnonsense", 2, "neither"),
            ("[x]\na=", 2, "no value"),
            ("[x]\n=1", 2, "without a key"),
        ] {
            let wrong = sections(text).unwrap_err();
            assert_eq!(wrong.line, line, "{text:?}");
            assert!(wrong.reason.contains(word), "{text:?}: {}", wrong.reason);
        }
    }
}
