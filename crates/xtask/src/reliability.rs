//! The figures in docs/reliability.md: what the campaigns of tests did in their last long run.

use crate::process::{cargo, run_tests};
use crate::workspace::Workspace;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const DOCUMENT: &str = "docs/reliability.md";
const BEGIN: &str = "<!-- figures: begin; `cargo xtask reliability` writes what follows -->\n";
const END: &str = "<!-- figures: end -->\n";
/// Where tests note what they did: see `cci_testkit::figures`.
const VARIABLE: &str = "CCI_FIGURES";

/// A campaign of the long run: its tests, and how much of each it does.
struct Campaign {
    name: &'static str,
    arguments: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
    limit: Duration,
}

const fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

/// What the long run runs, one after the other.
const CAMPAIGNS: &[Campaign] = &[
    Campaign {
        name: "whole endpoints in simulation",
        arguments: &["test", "-p", "cci-testkit", "--test", "sim"],
        environment: &[("CCI_WORLD_SEEDS", "10000")],
        limit: minutes(60),
    },
    Campaign {
        name: "processes that die",
        arguments: &["test", "-p", "cci-cli", "--test", "crash"],
        environment: &[("CCI_CRASH_SECONDS", "600")],
        limit: minutes(180),
    },
    Campaign {
        name: "launchers of all kinds, and ranks that die",
        arguments: &["test", "-p", "cci-cli", "--test", "job", "--test", "hosts"],
        environment: &[("CCI_LAUNCHER_ROUNDS", "20")],
        limit: minutes(30),
    },
    Campaign {
        name: "garbage in shared memory",
        arguments: &["test", "-p", "cci-testkit", "--test", "shm_scribble"],
        environment: &[("CCI_SCRIBBLE_ROUNDS", "1000")],
        limit: minutes(30),
    },
    Campaign {
        name: "fuzzing",
        arguments: &["xtask", "fuzz", "--seconds", "300"],
        environment: &[],
        limit: minutes(150),
    },
];

/// What has tests of the workspace do as much as the long run's.
pub fn at_length() -> impl Iterator<Item = (&'static str, &'static str)> {
    CAMPAIGNS.iter().flat_map(|campaign| campaign.environment.iter().copied())
}

/// Figures by name, added up.
#[derive(Debug, Default, PartialEq, Eq)]
struct Figures(BTreeMap<String, u64>);

impl Figures {
    fn parse(text: &str) -> Result<Figures, String> {
        let mut figures = Figures::default();
        for line in text.lines() {
            let parsed =
                line.split_once('\t').and_then(|(name, value)| Some((name, value.parse::<u64>().ok()?)));
            let (name, value) = parsed.ok_or_else(|| format!("a figure is unclear: {line:?}"))?;
            *figures.0.entry(name.to_owned()).or_default() += value;
        }
        Ok(figures)
    }

    /// A table of Markdown, areas apart.
    fn table(&self) -> String {
        let mut text = "| area | figure | |\n|---|---|---:|\n".to_owned();
        let mut last = "";
        for (name, value) in &self.0 {
            let (area, what) = name.split_once('.').unwrap_or(("", name));
            let shown = if area == last { "" } else { area };
            let _ = writeln!(text, "| {shown} | {} | {} |", what.replace(['_', '.'], " "), thousands(*value));
            last = area;
        }
        text
    }
}

/// 1234567 as 1,234,567.
fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Has the tests that a command runs note what they did; the file they write to, empty.
pub fn record(workspace: &Workspace, tests: &mut Command) -> Result<PathBuf, String> {
    let path = empty(workspace)?;
    tests.env(VARIABLE, &path);
    Ok(path)
}

fn empty(workspace: &Workspace) -> Result<PathBuf, String> {
    let path = workspace.target.join("figures.tsv");
    std::fs::write(&path, "").map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

/// Prints what tests noted.
pub fn print(path: &Path) {
    match read(path) {
        Ok(figures) => {
            for (name, value) in &figures.0 {
                println!("--- figures: {name} {}", thousands(*value));
            }
        }
        Err(message) => println!("--- figures: {message}"),
    }
}

/// The long run; its figures become the document's.
pub fn run() -> Result<(), String> {
    let workspace = Workspace::load()?;
    let path = empty(&workspace)?;
    let mut failed = Vec::new();
    for campaign in CAMPAIGNS {
        let mut tests = cargo(campaign.arguments);
        tests.envs(campaign.environment.iter().copied()).env(VARIABLE, &path);
        if run_tests(campaign.name, &mut tests, campaign.limit).failed > 0 {
            failed.push(campaign.name);
        }
    }
    if failed.is_empty() {
        return write(&workspace, &path);
    }
    print(&path);
    Err(format!("{DOCUMENT} is as it was; failed: {}", failed.join(", ")))
}

/// Writes the document's figures from what an earlier run has noted.
pub fn from(path: &Path) -> Result<(), String> {
    write(&Workspace::load()?, path)
}

fn read(path: &Path) -> Result<Figures, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Figures::parse(&text)
}

fn write(workspace: &Workspace, path: &Path) -> Result<(), String> {
    let figures = read(path)?;
    let failed = |error: std::io::Error| format!("{DOCUMENT}: {error}");
    let document = workspace.root.join(DOCUMENT);
    let text = std::fs::read_to_string(&document).map_err(failed)?;
    let parts = text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = parts.ok_or_else(|| format!("{DOCUMENT} has lost the lines around its figures"))?;
    std::fs::write(&document, format!("{before}{BEGIN}{}{END}{after}", figures.table())).map_err(failed)?;
    println!("{DOCUMENT}: {} figures", figures.0.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Figures, thousands};

    #[test]
    fn figures_of_one_name_add_up() {
        let figures = Figures::parse("sim.seeds\t1000\nkill.kills_shm\t5\nsim.seeds\t234\n").unwrap();
        assert_eq!(
            figures.table(),
            "| area | figure | |\n|---|---|---:|\n| kill | kills shm | 5 |\n| sim | seeds | 1,234 |\n"
        );
        assert!(Figures::parse("sim.seeds 5\n").is_err());
        assert!(Figures::parse("sim.seeds\t-5\n").is_err());
    }

    #[test]
    fn digits_are_grouped() {
        assert_eq!([7, 1_000, 12_345_678].map(thousands), ["7", "1,000", "12,345,678"]);
    }
}
