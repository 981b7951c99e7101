//! The tests of the Java modules, by Maven.

mod published;

use crate::devices;
use crate::process::{Tally, cargo, run_quietly};
use crate::workspace::Workspace;
use published::Failure;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Processor time, several times what they take.
const LIMIT: Duration = Duration::from_secs(15 * 60);
/// The first Java that has what the module needs.
const JAVA_MIN: u32 = 22;
/// Where systems put theirs.
const SYSTEM_JAVAS: &str = "/usr/lib/jvm";
/// What Maven says if it can't get what it needs from elsewhere.
const NO_REPOSITORY: &[&str] = &["Could not transfer artifact", "could not be resolved"];

/// Every device that the conformance suite runs on through Java.
const DEVICES: &str = "shm,udp4,tcp4";

/// Runs them, over the library that the tests of the C interface have. Without a Java that is new enough, without Maven, and
/// where Maven can't get its plugins they are skipped, which is printed.
pub fn test(workspace: &Workspace) -> Tally {
    or_skipped(run(workspace))
}

/// Runs the conformance suite alone, on all its devices; it adds to a report.
pub fn conformance(workspace: &Workspace, report: &Path) -> Tally {
    or_skipped(Java::find(workspace).and_then(|java| {
        java.build()?;
        let mut maven = java.maven("test");
        maven.args(["-pl", "java", "-Dtest=ConformanceTest"]).arg(format!("-Dconformance={DEVICES}"));
        maven.env("CCI_CONFORMANCE_REPORT", report);
        java.run_tests("the conformance suite through Java", &mut maven)
    }))
}

/// Why nothing was tested, or that something failed.
enum Ended {
    Skipped(String),
    Failed(String),
}

fn or_skipped(ended: Result<Tally, Ended>) -> Tally {
    match ended {
        Ok(tally) => tally,
        Err(Ended::Skipped(reason)) => {
            println!("--- java: skipped, {reason}");
            Tally::default()
        }
        Err(Ended::Failed(reason)) => {
            println!("--- java: FAILED: {reason}");
            Tally { failed: 1, ..Tally::default() }
        }
    }
}

fn run(workspace: &Workspace) -> Result<Tally, Ended> {
    let java = Java::find(workspace)?;
    java.build()?;
    let mut maven = java.maven("test");
    let report = devices::record(workspace, &mut maven).map_err(Ended::Failed)?;
    let mut tally = java.run_tests("mvn test", &mut maven)?;
    tally.add(devices::check(workspace, &report));
    let started = Instant::now();
    match published::check(workspace, &java.home) {
        Ok(passed) => {
            println!(
                "--- java: ok, the reference, and users' programs as the guide says, {} s",
                started.elapsed().as_secs()
            );
            tally.passed += passed;
        }
        Err(Failure::Building(text)) if NO_REPOSITORY.iter().any(|says| text.contains(says)) => {
            println!("--- java: users' programs are skipped, Maven can't get its plugins:\n{text}");
            tally.ignored += 1;
        }
        Err(Failure::Building(text) | Failure::Using(text)) => {
            println!("--- java: FAILED: {text}");
            tally.failed += 1;
        }
    }
    Ok(tally)
}

/// A Java and a Maven of this machine.
struct Java<'a> {
    workspace: &'a Workspace,
    home: PathBuf,
}

impl Java<'_> {
    fn find(workspace: &Workspace) -> Result<Java<'_>, Ended> {
        let home = find_java().ok_or_else(|| {
            Ended::Skipped(format!(
                "no JDK {JAVA_MIN} or newer by JAVA_HOME or in {SYSTEM_JAVAS}: the Java modules need one"
            ))
        })?;
        if Command::new("mvn").arg("--version").output().is_err() {
            let reason = "no mvn: the Java modules are built by Maven (apt-get install maven)";
            return Err(Ended::Skipped(reason.to_owned()));
        }
        Ok(Java { workspace, home })
    }

    /// Builds the library, the command and the conformance suite. Maven alone would build the library again, with other features
    /// of what it depends on.
    fn build(&self) -> Result<(), Ended> {
        if self.workspace.is_built.get() {
            return Ok(());
        }
        let mut build = cargo(&["build", "--locked", "-p", "cci-capi", "-p", "cci-cli", "-p", "cci-testkit"]);
        build.args(["--lib", "--bins", "--example", "java_conformance"]);
        build.current_dir(&self.workspace.root).env("CARGO_TARGET_DIR", &self.workspace.target);
        run_quietly("the library for Java", &mut build, LIMIT).map(drop).map_err(Ended::Failed)
    }

    /// A Maven that builds both modules over what cargo has built.
    fn maven(&self, goal: &str) -> Command {
        let mut maven = Command::new("mvn");
        maven.args(["--batch-mode", goal, "-Dexec.skip=true", "-Dcci.folder=debug"]);
        maven.arg(format!("-Dcci.target={}", self.workspace.target.display()));
        maven.current_dir(self.workspace.root.join("bindings")).env("JAVA_HOME", &self.home);
        maven
    }

    /// Runs tests by Maven, and counts them.
    fn run_tests(&self, what: &str, maven: &mut Command) -> Result<Tally, Ended> {
        println!("--- java: {what}, with {}", self.home.display());
        let (lines, failed) = match run_quietly("java", maven, LIMIT) {
            Ok(lines) => (lines.join("\n"), false),
            Err(text) => (text, true),
        };
        let mut tally = count(&lines);
        if failed && tally == Tally::default() && NO_REPOSITORY.iter().any(|says| lines.contains(says)) {
            let reason = "Maven can't get its plugins or JUnit: its repository can't be reached";
            return Err(Ended::Skipped(reason.to_owned()));
        }
        if failed {
            println!("{lines}\n--- java: {what} failed");
            tally.failed = tally.failed.max(1);
        } else if tally.passed == 0 {
            println!("{lines}\n--- java: {what} ran no test");
            tally.failed = 1;
        }
        tally.print();
        Ok(tally)
    }
}

/// The newest Java that is new enough.
fn find_java() -> Option<PathBuf> {
    let installed = std::fs::read_dir(SYSTEM_JAVAS).into_iter().flatten().flatten().map(|entry| entry.path());
    let homes = std::env::var_os("JAVA_HOME").map(PathBuf::from).into_iter().chain(installed);
    homes
        .filter_map(|home| Some((feature_of(&home)?, home)))
        .filter(|(feature, _)| *feature >= JAVA_MIN)
        .max()
        .map(|(_, home)| home)
}

/// The version of the JDK in a folder, if there is one with a compiler.
fn feature_of(home: &Path) -> Option<u32> {
    if !home.join("bin/javac").exists() {
        return None;
    }
    feature_in(&std::fs::read_to_string(home.join("release")).ok()?)
}

/// The first number of the version in a JDK's file `release`.
fn feature_in(release: &str) -> Option<u32> {
    let version = release.lines().find_map(|line| line.strip_prefix("JAVA_VERSION=\""))?;
    version.split(|char: char| !char.is_ascii_digit()).next()?.parse().ok()
}

/// What Surefire says of all tests of each module: lines `Tests run: 9, Failures: 0, Errors: 0, Skipped: 0`.
fn count(output: &str) -> Tally {
    let mut tally = Tally::default();
    let of_modules = output.lines().filter(|line| !line.contains("Time elapsed"));
    for (_, numbers) in of_modules.filter_map(|line| line.split_once("Tests run: ")) {
        let mut numbers =
            numbers.split(|char: char| !char.is_ascii_digit()).filter_map(|word| word.parse::<u64>().ok());
        let mut next = || numbers.next().unwrap_or(0);
        let (run, failures, errors, ignored) = (next(), next(), next(), next());
        let failed = failures + errors;
        let passed = run.saturating_sub(failed + ignored);
        tally.add(Tally { passed, failed, ignored, ..Tally::default() });
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::{count, feature_in};
    use crate::process::Tally;

    #[test]
    fn the_last_line_of_each_module_counts() {
        let output = "[INFO] Tests run: 4, Failures: 0, Errors: 0, Skipped: 0\n[INFO] Tests run: 20, Failures: 0, Errors: 0, Skipped: 0, Time elapsed: 5.019 s -- in org.cci.ATest\n\
                      [ERROR] Tests run: 31, Failures: 1, Errors: 2, Skipped: 3\n[INFO] BUILD FAILURE";
        assert_eq!(count(output), Tally { passed: 29, failed: 3, ignored: 3, flaky: 0 });
        assert_eq!(count("[ERROR] COMPILATION ERROR"), Tally::default());
    }

    #[test]
    fn a_jdk_says_its_version() {
        assert_eq!(feature_in("IMPLEMENTOR=\"Eclipse\"\nJAVA_VERSION=\"25.0.3\"\n"), Some(25));
        assert_eq!(feature_in("JAVA_VERSION=\"22\"\n"), Some(22));
        assert_eq!(feature_in("SOURCE=\"\"\n"), None);
    }
}
