//! The counts kept under git, and what makes of a difference a failure.

use super::callgrind::{Cost, Profile};
use std::collections::BTreeMap;
use std::fmt::Write;

/// A rise that fails, and a fall that makes the file out of date: more than so many hundredths.
pub const LIMIT_PERCENT: f64 = 3.0;
/// The limit where the tools are not those of the file: another compiler inlines otherwise.
pub const LIMIT_PERCENT_OTHER_TOOLS: f64 = 10.0;
/// Less than so many calls of the kernel for one operation are chance: timers that fell into the run.
const SYSCALLS_MIN: f64 = 0.05;
/// Calls that depend on the time, such as those made every so many microseconds, differ by up to 0.2 of an operation between
/// runs; a call that somebody has added is one.
const SYSCALLS_CHANGE_MIN: f64 = 0.5;
/// Functions with fewer instructions are put together in one line.
const INSTRUCTIONS_MIN: f64 = 0.5;
const REST: &str = "(all others)";

/// What one operation of a scenario costs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// Compiler, C library and valgrind.
    pub tools: String,
    /// All instructions and calls of the kernel.
    pub total: Cost,
    functions: BTreeMap<String, Cost>,
    sources: BTreeMap<String, Cost>,
}

/// What came of comparing.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Within the limit.
    Same,
    /// Better than the file says: it should be renewed.
    Fell(String),
    /// Worse.
    Rose(String),
}

impl Record {
    /// Of the costs of one operation.
    pub fn new(tools: &str, profile: &Profile) -> Record {
        let mut total = Cost::default();
        for cost in profile.functions.values() {
            total.instructions += cost.instructions;
            if cost.syscalls >= SYSCALLS_MIN {
                total.syscalls += hundredth(cost.syscalls);
            }
        }
        total.instructions = tenth(total.instructions);
        Record {
            tools: tools.to_owned(),
            total,
            functions: rounded(&profile.functions),
            sources: rounded(&profile.sources),
        }
    }

    /// As a file.
    pub fn to_tsv(&self) -> String {
        let mut text = format!("# {}\n# of one operation: instructions, system calls\n", self.tools);
        let mut line = |what: &str, name: &str, cost: Cost| {
            // Writing to a string can't fail.
            let _ = writeln!(text, "{what}\t{name}\t{:.1}\t{:.2}", cost.instructions, cost.syscalls);
        };
        line("total", "", self.total);
        for (what, costs) in [("function", &self.functions), ("source", &self.sources)] {
            for (name, cost) in sorted(costs) {
                line(what, name, cost);
            }
        }
        text
    }

    /// From a file.
    pub fn from_tsv(text: &str) -> Result<Record, String> {
        let tools = text.lines().next().and_then(|line| line.strip_prefix("# ")).unwrap_or("").to_owned();
        let mut record = Record { tools, ..Record::default() };
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split('\t').collect();
            let [what, name, instructions, syscalls] = words[..] else {
                return Err(format!("four columns: {line}"));
            };
            let number = |word: &str| word.parse::<f64>().map_err(|_| format!("not a number: {line}"));
            let cost = Cost { instructions: number(instructions)?, syscalls: number(syscalls)? };
            match what {
                "total" => record.total = cost,
                "function" => drop(record.functions.insert(name.to_owned(), cost)),
                "source" => drop(record.sources.insert(name.to_owned(), cost)),
                _ => return Err(format!("neither total, function nor source: {line}")),
            }
        }
        if record.total.instructions > 0.0 { Ok(record) } else { Err("no line `total`".to_owned()) }
    }

    /// Compares with what was counted now.
    pub fn compare(&self, now: &Record) -> Verdict {
        let limit_percent = if self.tools == now.tools { LIMIT_PERCENT } else { LIMIT_PERCENT_OTHER_TOOLS };
        let limit = limit_percent / 100.0;
        let change = |before: f64, now: f64, min: f64| {
            if now > before * (1.0 + limit) && now - before > min {
                1
            } else if now < before * (1.0 - limit) && before - now > min {
                -1
            } else {
                0
            }
        };
        let instructions = change(self.total.instructions, now.total.instructions, 0.0);
        let syscalls = change(self.total.syscalls, now.total.syscalls, SYSCALLS_CHANGE_MIN);
        let changes = [instructions, syscalls];
        if changes.contains(&1) {
            Verdict::Rose(self.differences(now, true))
        } else if changes.contains(&-1) {
            Verdict::Fell(self.differences(now, false))
        } else {
            Verdict::Same
        }
    }

    /// How much more or less it is in all, in words.
    pub fn in_all(&self, now: &Record) -> String {
        let percent = (now.total.instructions / self.total.instructions - 1.0) * 100.0;
        let mut text = format!(
            "{:.1} instructions, were {:.1} ({percent:+.1} %); {:.2} system calls",
            now.total.instructions, self.total.instructions, now.total.syscalls
        );
        if (now.total.syscalls - self.total.syscalls).abs() > SYSCALLS_MIN {
            let _ = write!(text, ", were {:.2}", self.total.syscalls);
        }
        if self.tools != now.tools {
            let _ = write!(text, "\n    counted with {}\n    the file's are {}", now.tools, self.tools);
        }
        text
    }

    /// What grew most, or shrank most, functions first.
    fn differences(&self, now: &Record, grew: bool) -> String {
        const SHOWN: usize = 6;
        let mut text = self.in_all(now);
        for (what, before, now) in
            [("function", &self.functions, &now.functions), ("source", &self.sources, &now.sources)]
        {
            let names: std::collections::BTreeSet<&String> = before.keys().chain(now.keys()).collect();
            let of =
                |costs: &BTreeMap<String, Cost>, name: &str| costs.get(name).copied().unwrap_or_default();
            let sign = if grew { 1.0 } else { -1.0 };
            let mut changes: Vec<_> = names
                .into_iter()
                .map(|name| (name, of(before, name), of(now, name)))
                // A call of the kernel weighs what a few hundred instructions do.
                .map(|(name, before, now)| {
                    let more =
                        now.instructions - before.instructions + 300.0 * (now.syscalls - before.syscalls);
                    (sign * more, name, before, now)
                })
                .filter(|(more, ..)| *more >= 1.0)
                .collect();
            changes.sort_by(|one, other| other.0.total_cmp(&one.0));
            for (_, name, before, now) in changes.into_iter().take(SHOWN) {
                let _ = write!(
                    text,
                    "\n    {what} {name}: {:.1}, was {:.1}",
                    now.instructions, before.instructions
                );
                if (now.syscalls - before.syscalls).abs() > SYSCALLS_MIN {
                    let _ = write!(text, "; {:.2} system calls, were {:.2}", now.syscalls, before.syscalls);
                }
            }
        }
        text
    }
}

/// As they stand in the file, so that what is read again is the same.
fn rounded(costs: &BTreeMap<String, Cost>) -> BTreeMap<String, Cost> {
    let mut kept = BTreeMap::new();
    let mut rest = Cost::default();
    for (name, cost) in costs {
        if cost.instructions >= INSTRUCTIONS_MIN || cost.syscalls >= SYSCALLS_MIN {
            let syscalls = if cost.syscalls >= SYSCALLS_MIN { hundredth(cost.syscalls) } else { 0.0 };
            kept.insert(name.clone(), Cost { instructions: tenth(cost.instructions), syscalls });
        } else {
            rest.instructions += cost.instructions;
        }
    }
    rest.instructions = tenth(rest.instructions);
    if rest.instructions > 0.0 {
        kept.insert(REST.to_owned(), rest);
    }
    kept
}

/// The most expensive first.
fn sorted(costs: &BTreeMap<String, Cost>) -> Vec<(&str, Cost)> {
    let mut sorted: Vec<_> = costs.iter().map(|(name, cost)| (name.as_str(), *cost)).collect();
    sorted.sort_by(|one, other| other.1.instructions.total_cmp(&one.1.instructions));
    sorted
}

fn tenth(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn hundredth(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::{Record, Verdict};
    use crate::counts::callgrind::{Cost, Profile};

    const TOOLS: &str = "rustc 1.95.0, glibc 2.36, valgrind-3.19.0";

    fn counted(tools: &str, progress: f64, syscalls: f64) -> Record {
        let mut profile = Profile::default();
        let mut add = |name: &str, instructions: f64, syscalls: f64| {
            profile.functions.insert(name.to_owned(), Cost { instructions, syscalls });
            profile.sources.insert(format!("crates/{name}.rs"), Cost { instructions, syscalls: 0.0 });
        };
        add("cci::send", 400.0, 1.0);
        add("cci::progress", progress, syscalls);
        add("clock_gettime", 100.0, 0.0);
        add("rare", 0.25, 0.01);
        Record::new(tools, &profile)
    }

    #[test]
    fn a_file_is_what_was_counted() {
        let record = counted(TOOLS, 500.0, 0.5);
        assert_eq!(Record::from_tsv(&record.to_tsv()), Ok(record.clone()));
        assert_eq!((record.total.instructions, record.total.syscalls), (1000.3, 1.5));
        assert!(Record::from_tsv("").is_err());
        assert!(Record::from_tsv("total\t\tmany\t1").is_err());
        assert!(Record::from_tsv("total\t1.0\t1").is_err());
        assert!(Record::from_tsv("what\tx\t1.0\t1").is_err());
    }

    #[test]
    fn a_rise_of_four_percent_fails_and_names_the_function() {
        let (before, now) = (counted(TOOLS, 500.0, 0.5), counted(TOOLS, 540.0, 0.5));
        let Verdict::Rose(words) = before.compare(&now) else { panic!("{:?}", before.compare(&now)) };
        assert!(words.contains("1040.3 instructions, were 1000.3 (+4.0 %)"), "{words}");
        assert!(words.contains("function cci::progress: 540.0, was 500.0"), "{words}");
        assert!(words.contains("source crates/cci::progress.rs: 540.0, was 500.0"), "{words}");
        assert!(!words.contains("cci::send"), "{words}");
    }

    #[test]
    fn a_rise_of_two_percent_passes() {
        let before = counted(TOOLS, 500.0, 0.5);
        assert_eq!(before.compare(&counted(TOOLS, 520.0, 0.5)), Verdict::Same);
        assert_eq!(before.compare(&counted(TOOLS, 480.0, 0.5)), Verdict::Same);
    }

    #[test]
    fn a_fall_of_four_percent_asks_for_a_new_file() {
        let before = counted(TOOLS, 500.0, 0.5);
        let Verdict::Fell(words) = before.compare(&counted(TOOLS, 460.0, 0.5)) else { panic!("it fell") };
        assert!(words.contains("function cci::progress: 460.0, was 500.0"), "{words}");
    }

    #[test]
    fn one_more_system_call_fails_also_where_instructions_fell() {
        let before = counted(TOOLS, 500.0, 0.5);
        let Verdict::Rose(words) = before.compare(&counted(TOOLS, 400.0, 1.5)) else { panic!("it rose") };
        assert!(words.contains("2.50 system calls, were 1.50"), "{words}");
        assert!(words.contains("function cci::progress"), "{words}");
        // A timer that fell into the run is none.
        assert_eq!(before.compare(&counted(TOOLS, 500.0, 0.7)), Verdict::Same);
    }

    #[test]
    fn other_tools_have_a_wider_limit_and_are_told() {
        let (before, now) = (counted(TOOLS, 500.0, 0.5), counted("rustc 1.96.0", 560.0, 0.5));
        assert_eq!(before.compare(&now), Verdict::Same);
        assert!(before.in_all(&now).contains("counted with rustc 1.96.0"));
        assert!(matches!(before.compare(&counted("rustc 1.96.0", 640.0, 0.5)), Verdict::Rose(_)));
    }
}
