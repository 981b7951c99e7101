//! Checks a section against the [registry](super::registry) before it is used. Every key must be known, have a meaning for the
//! section's transport, and have a value in its range.

use super::schema::{Inert, Key, Renamed, Values};
use super::syntax::{Pair, Section, Wrong};
use crate::device::TransportKind;

/// How similar an unknown key and a known one must be for the known one to be suggested: 1 is equal, 0 has nothing in common.
const ALIKE_MIN: f64 = 0.5;

/// The keys that a version knows.
pub(super) struct Registry {
    pub keys: &'static [Key],
    pub inert: &'static [Inert],
    pub renamed: &'static [Renamed],
}

/// A remark for the author of a section, which is not an error.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub line: usize,
    pub text: String,
}

/// The meaning of a name in a section.
enum Meant {
    Key(&'static Key),
    /// The key is accepted and has no effect.
    Inert(&'static Inert),
}

impl Registry {
    /// Checks all pairs of a section, and replaces old names of keys by new ones.
    pub fn check(&self, section: &mut Section<'_>, kind: TransportKind) -> Result<Vec<Note>, Wrong> {
        let mut notes = Vec::new();
        self.rename(section, &mut notes)?;
        let mut keys = Vec::with_capacity(section.pairs.len());
        for pair in &section.pairs {
            match self.meant(pair, kind)? {
                Meant::Key(key) => {
                    check_value(pair, key)?;
                    keys.push((pair, key));
                }
                Meant::Inert(inert) => notes.push(Note {
                    line: pair.line,
                    text: format!("{} has no effect: {}", pair.key, inert.instead),
                }),
            }
        }
        // This comes after all values are checked, so that a wrong value of the other key is reported on its own line.
        for (pair, key) in keys {
            check_needs(section, pair, key)?;
        }
        notes.sort_by_key(|note| note.line);
        Ok(notes)
    }

    /// Checks the keys of a section that gives no device, because this version lacks its transport.
    pub fn check_names(&self, section: &Section<'_>) -> Result<(), Wrong> {
        match section.pairs.iter().find(|pair| !self.is_known(pair.key)) {
            Some(pair) => Err(self.unknown(pair, None)),
            None => Ok(()),
        }
    }

    fn rename(&self, section: &mut Section<'_>, notes: &mut Vec<Note>) -> Result<(), Wrong> {
        for at in 0..section.pairs.len() {
            let Some(pair) = section.pairs.get(at).copied() else { break };
            let Some(renamed) = self.renamed.iter().find(|renamed| renamed.old == pair.key) else { continue };
            let Renamed { old, new, until } = renamed;
            if let Some(other) = section.get(new) {
                let line = other.line;
                return Err(
                    pair.wrong(format!("{old} is the old name of {new}, which line {line} sets; keep {new}"))
                );
            }
            notes.push(Note {
                line: pair.line,
                text: format!("{old} is now {new}: write that; version {until} is the last that reads {old}"),
            });
            if let Some(pair) = section.pairs.get_mut(at) {
                pair.key = new;
            }
        }
        Ok(())
    }

    fn meant(&self, pair: &Pair<'_>, kind: TransportKind) -> Result<Meant, Wrong> {
        let named = || self.keys.iter().filter(|key| key.name == pair.key);
        if let Some(key) = named().find(|key| key.transports.contains(&kind)) {
            return Ok(Meant::Key(key));
        }
        let inert =
            self.inert.iter().find(|inert| inert.name == pair.key && inert.transports.contains(&kind));
        if let Some(inert) = inert {
            return Ok(Meant::Inert(inert));
        }
        let transports: Vec<&str> =
            named().flat_map(|key| key.transports).map(|transport| transport.name()).collect();
        if transports.is_empty() {
            return Err(self.unknown(pair, Some(kind)));
        }
        let why =
            named().find_map(|key| key.why_not_others).map_or_else(String::new, |why| format!(" ({why})"));
        Err(pair.wrong(format!(
            "{} means nothing for transport {kind}: it is for {}; take it out{why}",
            pair.key,
            list(&transports, "and")
        )))
    }

    fn is_known(&self, name: &str) -> bool {
        self.keys.iter().any(|key| key.name == name)
            || self.inert.iter().any(|inert| inert.name == name)
            || self.renamed.iter().any(|renamed| renamed.old == name)
    }

    /// The error for an unknown key.
    fn unknown(&self, pair: &Pair<'_>, kind: Option<TransportKind>) -> Wrong {
        let mut names: Vec<&str> = self
            .keys
            .iter()
            .filter(|key| kind.is_none_or(|kind| key.transports.contains(&kind)))
            .map(|key| key.name)
            .collect();
        names.dedup();
        let likeness = |name: &&&str| strsim::normalized_damerau_levenshtein(name, &pair.key.to_lowercase());
        let nearest = names.iter().max_by(|one, other| likeness(one).total_cmp(&likeness(other)));
        match nearest.filter(|name| likeness(name) >= ALIKE_MIN) {
            Some(nearest) => pair.wrong(format!("there is no key {:?}; did you mean {nearest}?", pair.key)),
            None => pair.wrong(format!("there is no key {:?}; there are {}", pair.key, list(&names, "and"))),
        }
    }
}

fn check_value(pair: &Pair<'_>, key: &Key) -> Result<(), Wrong> {
    let what = match key.values {
        Values::Text => return Ok(()),
        Values::Number { min, max } => {
            let number = pair.value.parse::<u64>();
            if number.is_ok_and(|number| (min..=max).contains(&number)) {
                return Ok(());
            }
            format!("a whole number from {min} to {max}")
        }
        Values::OneOf(words) => {
            if words.contains(&pair.value) {
                return Ok(());
            }
            list(words, "or")
        }
    };
    Err(pair.wrong(format!("{} = {:?}: write {what}; it is {}", pair.key, pair.value, key.meaning)))
}

/// Checks that the key which this one depends on is set. A line that should protect and does not would be worse than none.
fn check_needs(section: &Section<'_>, pair: &Pair<'_>, key: &Key) -> Result<(), Wrong> {
    let Some(needs) = &key.needs else { return Ok(()) };
    let given = section.get(needs.key).map(|pair| pair.value).filter(|value| *value != "off");
    match given {
        Some(value) if needs.values.contains(&value) => Ok(()),
        Some(value) => {
            Err(pair.wrong(format!("{} has no meaning with {} = {value}; take it out", pair.key, needs.key)))
        }
        None => {
            let lines: Vec<String> =
                needs.values.iter().map(|value| format!("{} = {value}", needs.key)).collect();
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            Err(pair.wrong(format!(
                "{} without {}: add {}, or take this line out",
                pair.key,
                needs.key,
                list(&lines, "or")
            )))
        }
    }
}

/// Formats words as `a, b and c`.
fn list(words: &[&str], last: &str) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., end] => format!("{} {last} {end}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::registry::REGISTRY;
    use crate::config::schema::Needs;
    use crate::config::syntax;
    use std::collections::BTreeSet;

    const ALL: [TransportKind; 5] =
        [TransportKind::Shm, TransportKind::Udp, TransportKind::Tcp, TransportKind::Eth, TransportKind::Any];

    fn check(registry: &Registry, kind: TransportKind, text: &str) -> Result<Vec<Note>, Wrong> {
        registry.check(&mut syntax::sections(text).unwrap()[0], kind)
    }

    #[test]
    fn a_value_out_of_its_range_is_refused_for_every_key_of_every_transport() {
        let mut looked = 0;
        for key in REGISTRY.keys {
            for kind in key.transports {
                let values: Vec<String> = match key.values {
                    Values::Text => continue,
                    Values::Number { min, max } => vec![
                        max.saturating_add(1).to_string(),
                        min.checked_sub(1).map_or_else(|| "-1".to_owned(), |less| less.to_string()),
                        "many".to_owned(),
                    ],
                    Values::OneOf(words) => {
                        vec!["perhaps".to_owned(), words[0].to_uppercase() + "!"]
                    }
                };
                for value in values {
                    let wrong =
                        check(&REGISTRY, *kind, &format!("[x]\n{} = {value}\n", key.name)).unwrap_err();
                    assert!(wrong.line == 2 && wrong.reason.contains(": write "), "{wrong:?}");
                    looked += 1;
                }
            }
        }
        assert!(looked > 50, "{looked}");
    }

    #[test]
    fn a_key_that_means_nothing_for_a_transport_is_refused_and_says_where_it_does() {
        for key in REGISTRY.keys {
            for kind in ALL {
                let known = REGISTRY
                    .keys
                    .iter()
                    .any(|other| other.name == key.name && other.transports.contains(&kind))
                    || REGISTRY
                        .inert
                        .iter()
                        .any(|inert| inert.name == key.name && inert.transports.contains(&kind));
                let text = format!("[x]\n{} = 1\n", key.name);
                if !known {
                    let wrong = check(&REGISTRY, kind, &text).unwrap_err();
                    let first = key.transports[0].name();
                    assert!(
                        wrong.reason.contains("means nothing") && wrong.reason.contains(first),
                        "{wrong:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn every_row_has_its_place() {
        let mut seen = BTreeSet::new();
        for (name, transports) in (REGISTRY.keys.iter().map(|key| (key.name, key.transports)))
            .chain(REGISTRY.inert.iter().map(|inert| (inert.name, inert.transports)))
        {
            for kind in transports {
                assert!(seen.insert((name, kind.name())), "{name} stands twice for {kind}");
            }
        }
        for renamed in REGISTRY.renamed {
            assert!(REGISTRY.keys.iter().any(|key| key.name == renamed.new), "{}", renamed.new);
            assert!(REGISTRY.keys.iter().all(|key| key.name != renamed.old), "{}", renamed.old);
        }
        for needs in REGISTRY.keys.iter().filter_map(|key| key.needs.as_ref()) {
            let other = REGISTRY.keys.iter().find(|key| key.name == needs.key).unwrap();
            let Values::OneOf(words) = other.values else { panic!("{} has no words", other.name) };
            assert!(needs.values.iter().all(|value| words.contains(value)));
        }
    }

    const RENAMING: Registry = Registry {
        keys: &[
            Key {
                name: "speed_max",
                transports: &[TransportKind::Udp],
                values: Values::Number { min: 1, max: 9 },
                meaning: "the speed",
                needs: None,
                why_not_others: None,
            },
            Key {
                name: "narrow",
                transports: &[TransportKind::Udp],
                values: Values::OneOf(&["on", "off"]),
                meaning: "narrow",
                needs: Some(Needs { key: "speed_max", values: &["3"] }),
                why_not_others: None,
            },
        ],
        inert: &[],
        renamed: &[Renamed { old: "speed", new: "speed_max", until: "0.2" }],
    };

    #[test]
    fn a_renamed_key_is_read_under_its_old_name_and_noted() {
        let mut sections = syntax::sections("[x]\nnarrow = on\nspeed = 3\n").unwrap();
        let notes = RENAMING.check(&mut sections[0], TransportKind::Udp).unwrap();
        assert_eq!(
            sections[0].number("speed_max"),
            Ok(Some(3_u32)),
            "whoever reads it knows the new name alone"
        );
        let [note] = &notes[..] else { panic!("{notes:?}") };
        assert_eq!(note.line, 3);
        assert!(note.text.contains("speed is now speed_max") && note.text.contains("0.2"), "{note:?}");

        for (text, line, word) in [
            ("[x]\nspeed = 10", 2, "1 to 9"),
            ("[x]\nspeed = 2\nspeed_max = 3", 2, "which line 3 sets"),
            ("[x]\nspeed_max = 2\nspeed = 3", 3, "which line 2 sets"),
        ] {
            let wrong = check(&RENAMING, TransportKind::Udp, text).unwrap_err();
            assert!(wrong.line == line && wrong.reason.contains(word), "{text:?}: {wrong:?}");
        }
        assert!(check(&RENAMING, TransportKind::Tcp, "[x]\nspeed = 3").is_err(), "not for this transport");
        assert!(RENAMING.check_names(&syntax::sections("[x]\nspeed = 3").unwrap()[0]).is_ok());
    }

    /// The first two columns of the tables of keys, with a row for each key.
    fn documented(text: &str, start: &str, end: &str) -> BTreeSet<(String, String)> {
        let (_, part) = text.split_once(start).expect(start);
        let (part, _) = part.split_once(end).expect(end);
        let ticked =
            |cell: &str| -> Vec<String> { cell.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
        let mut rows = BTreeSet::new();
        for line in part.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = line.split('|').collect();
            let kinds = match cells[2].trim() {
                "all" => ALL.map(|kind| kind.name().to_owned()).to_vec(),
                cell => ticked(cell),
            };
            for name in ticked(cells[1]) {
                rows.extend(kinds.iter().map(|kind| (name.clone(), kind.clone())));
            }
        }
        rows
    }

    #[test]
    fn the_documents_list_every_key() {
        let text = include_str!("../../../../docs/devices.md");
        let rows = |name: &str, transports: &[TransportKind]| -> Vec<(String, String)> {
            transports.iter().map(|kind| (name.to_owned(), kind.name().to_owned())).collect()
        };
        let keys: BTreeSet<_> = REGISTRY.keys.iter().flat_map(|key| rows(key.name, key.transports)).collect();
        assert_eq!(documented(text, "\n## Keys\n", "\n### Keys of CCI 2.x"), keys);
        let inert: BTreeSet<_> =
            REGISTRY.inert.iter().flat_map(|inert| rows(inert.name, inert.transports)).collect();
        assert_eq!(documented(text, "\n### Keys of CCI 2.x", "\n## What was tested"), inert);
    }
}
