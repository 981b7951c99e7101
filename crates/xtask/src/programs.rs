//! The workspace's test programs, several at a time: many of them wait more than they compute.

use crate::process::{Job, Tally, cargo, run_quietly, side_by_side};
use crate::workspace::Workspace;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What takes longest begins first, so that nothing long is left to run alone in the end.
const FIRST: &[&str] = &[
    "conformance",
    "turns",
    "installed",
    "sim",
    "simulated",
    "c",
    "hostile",
    "real",
    "soak",
    "crash",
    "exhaustion",
];

/// Programs whose tests mostly wait for each other's events: they have this many threads for each processor.
const WAITING: &[&str] = &["conformance"];
const THREADS_OF_WAITING: usize = 4;

/// A program that cargo has built.
struct Program {
    /// The folder of its crate, where it runs.
    folder: PathBuf,
    /// Of the crate's folder and the target: as people call it.
    crate_name: String,
    target: String,
    executable: PathBuf,
}

impl Program {
    /// Reads one of cargo's messages, if it is about a test program.
    fn parse(line: &str) -> Option<Program> {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_test = message["profile"]["test"].as_bool() == Some(true);
        let executable = message["executable"].as_str().filter(|_| is_test)?;
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
        Some(Program {
            folder: folder.to_owned(),
            crate_name: folder.file_name()?.to_str()?.to_owned(),
            target: message["target"]["name"].as_str()?.to_owned(),
            executable: executable.into(),
        })
    }

    /// Where it comes in the order of all.
    fn place(&self) -> usize {
        FIRST.iter().position(|first| *first == self.target).unwrap_or(FIRST.len())
    }

    /// As cargo would run it, in the environment that is set for `like`.
    fn job(&self, like: &Command) -> Job {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        if WAITING.contains(&self.target.as_str()) {
            command.env("RUST_TEST_THREADS", (THREADS_OF_WAITING * processors()).to_string());
        }
        copy_environment(like, &mut command);
        Job { name: format!("{} {}", self.crate_name, self.target), command }
    }
}

/// Builds all test programs of the workspace and runs them and the examples in its documentation, in the environment that is
/// set for `like`, and other programs beside them.
pub fn run(
    workspace: &Workspace,
    like: &Command,
    beside: Vec<Job>,
    limit: Duration,
) -> Result<Tally, String> {
    // What `cargo test` builds, and the libraries for C where they are found.
    let mut build = cargo(&["build", "--workspace", "--lib", "--bins", "--tests", "--examples", "--locked"]);
    build.arg("--message-format=json-render-diagnostics").current_dir(&workspace.root);
    let messages = run_quietly("building the tests", &mut build, limit)?;
    workspace.is_built.set(true);
    let mut programs: Vec<Program> = messages.iter().filter_map(|line| Program::parse(line)).collect();
    programs.sort_by_key(Program::place);
    let mut documentation = cargo(&["test", "--workspace", "--doc", "--no-fail-fast", "--locked"]);
    documentation.current_dir(&workspace.root);
    copy_environment(like, &mut documentation);
    let mut jobs = beside;
    jobs.extend(programs.iter().map(|program| program.job(like)));
    jobs.push(Job { name: "documentation".to_owned(), command: documentation });
    Ok(side_by_side(jobs, processors() + 2, limit))
}

fn copy_environment(from: &Command, to: &mut Command) {
    for (name, value) in from.get_envs() {
        match value {
            Some(value) => to.env(name, value),
            None => to.env_remove(name),
        };
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::Program;

    #[test]
    fn test_programs_are_found_among_what_was_built() {
        let line = |test, executable| {
            format!(
                "{{\"reason\":\"compiler-artifact\",\"manifest_path\":\"/w/crates/cci/Cargo.toml\",\
                 \"target\":{{\"name\":\"turns\"}},\"profile\":{{\"test\":{test}}},\"executable\":{executable}}}"
            )
        };
        let program = Program::parse(&line(true, "\"/w/target/debug/deps/turns-1\"")).unwrap();
        assert_eq!((program.crate_name.as_str(), program.target.as_str()), ("cci", "turns"));
        assert_eq!(program.folder.to_str(), Some("/w/crates/cci"));
        assert!(Program::parse(&line(false, "\"/w/target/debug/cci\"")).is_none(), "no test");
        assert!(Program::parse(&line(true, "null")).is_none(), "built, not run");
        assert!(Program::parse("{\"reason\":\"build-finished\",\"success\":true}").is_none());
    }
}
