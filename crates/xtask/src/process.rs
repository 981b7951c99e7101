//! Running other programs: shown as they run, bounded in time, with their tests counted.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Tests counted from what the test programs print.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed, and steps that failed without saying which test did.
    pub failed: u64,
    /// Tests marked `#[ignore]`.
    pub ignored: u64,
}

impl Tally {
    /// Adds another's.
    pub fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }

    /// Counts a line such as `test result: ok. 3 passed; 0 failed; 1 ignored; ...`.
    fn count(&mut self, line: &str) {
        let Some((_, numbers)) = line.split_once("test result:").and_then(|(_, rest)| rest.split_once(". "))
        else {
            return;
        };
        for part in numbers.split(';') {
            let mut words = part.split_whitespace();
            let Some(number) = words.next().and_then(|word| word.parse::<u64>().ok()) else { continue };
            match words.next() {
                Some("passed") => self.passed += number,
                Some("failed") => self.failed += number,
                Some("ignored") => self.ignored += number,
                _ => {}
            }
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

/// What has been spent since then. It is shown as clock and processor time.
pub struct Spent {
    since: Instant,
    /// What all that was waited for had used by then.
    processor: Duration,
}

impl Spent {
    /// Begins to measure.
    pub fn now() -> Spent {
        Spent { since: Instant::now(), processor: processor_time() }
    }
}

impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let processor = processor_time().saturating_sub(self.processor);
        write!(f, "{} s, {} s of processor time", self.since.elapsed().as_secs(), processor.as_secs())
    }
}

/// Of the programs that this one ran and that have ended, with all that they ran in turn. Zero where the kernel does not tell.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // See proc_pid_stat(5): cutime and cstime, in ticks of 10 ms, are fields 16 and 17; the state is the third.
    let ticks =
        after_name(&stat).split_whitespace().skip(13).take(2).map_while(|word| word.parse::<u64>().ok());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

/// What comes after the name in `/proc/PID/stat`. The name, in parentheses, may hold anything: its end is found from behind.
fn after_name(stat: &str) -> &str {
    stat.rsplit_once(')').map_or("", |(_, rest)| rest)
}

/// A cargo command that is not bound to the toolchain that runs this program.
pub fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(args);
    command
}

/// Runs to the end, showing its output; an error names the step.
pub fn run(step: &str, command: &mut Command) -> Result<(), String> {
    let started = announce(step, command);
    let status = command.status().map_err(|error| format!("{step}: {error}"))?;
    println!(
        "--- {step}: {} after {:.0} s",
        if status.success() { "ok" } else { "FAILED" },
        started.elapsed().as_secs_f64()
    );
    if status.success() { Ok(()) } else { Err(format!("{step} failed: {status}")) }
}

/// Runs a test program, showing its output and counting its tests. It is killed, with all it started, after
/// `limit`; that counts as one failure, as does every failure that no test accounts for.
pub fn run_tests(step: &str, command: &mut Command, limit: Duration) -> Tally {
    let started = announce(step, command);
    let mut tally = Tally::default();
    let ended = supervise(command, limit, |line| {
        println!("{line}");
        tally.count(line);
    });
    let result = match &ended {
        Ok(()) => "ok".to_owned(),
        Err(reason) => format!("FAILED: {reason}"),
    };
    if ended.is_err() && tally.failed == 0 {
        tally.failed = 1;
    }
    println!("--- {step}: {result}; {tally} after {:.0} s", started.elapsed().as_secs_f64());
    tally
}

/// True when the command runs and succeeds; its output is not shown.
pub fn succeeds(command: &mut Command, limit: Duration) -> bool {
    command.stderr(Stdio::null());
    supervise(command, limit, |_| {}).is_ok()
}

/// Runs to the end and gives what it printed; an error has it too.
pub fn run_quietly(step: &str, command: &mut Command, limit: Duration) -> Result<Vec<String>, String> {
    let mut lines = Vec::new();
    match supervise(command, limit, |line| lines.push(line.to_owned())) {
        Ok(()) => Ok(lines),
        Err(reason) => Err(format!("{step}: {reason}\n{}", lines.join("\n"))),
    }
}

fn announce(step: &str, command: &Command) -> Instant {
    let words: Vec<_> = std::iter::once(command.get_program()).chain(command.get_args()).collect();
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    println!("--- {step}: {}", words.join(" "));
    Instant::now()
}

fn supervise(command: &mut Command, limit: Duration, mut on_line: impl FnMut(&str)) -> Result<(), String> {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(|error| error.to_string())?;
    let Some(stdout) = child.stdout.take() else { return Err("no output".to_owned()) };
    let (lines, received) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
            if lines.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                break;
            }
        }
    });
    let until = Instant::now() + limit;
    loop {
        match received.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => on_line(&line),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                kill_tree(&mut child);
                return Err(format!("killed after {} s", limit.as_secs()));
            }
        }
    }
    // The reader has seen the end of the output: it can't keep us.
    let _ = reader.join();
    let status = child.wait().map_err(|error| error.to_string())?;
    if status.success() { Ok(()) } else { Err(status.to_string()) }
}

/// Kills a process and all that descend from it. Killing cargo alone would leave the test program running.
fn kill_tree(child: &mut Child) {
    let mut doomed = vec![child.id()];
    let mut at = 0;
    while let Some(&parent) = doomed.get(at) {
        doomed.extend(children_of(parent));
        at += 1;
    }
    for pid in doomed.iter().rev() {
        let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).stderr(Stdio::null()).status();
    }
    let _ = child.wait();
}

fn children_of(parent: u32) -> Vec<u32> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let is_child = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The state, then the parent.
        after_name(&stat).split_whitespace().nth(1).and_then(|word| word.parse().ok()) == Some(parent)
    };
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(is_child).collect()
}

#[cfg(test)]
mod tests {
    use super::{Tally, run_tests};
    use std::process::Command;
    use std::time::{Duration, Instant};

    #[test]
    fn results_are_counted() {
        let mut tally = Tally::default();
        tally.count(
            "test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; 0 filtered out; finished in 0.1s",
        );
        tally.count("test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out");
        tally.count("test foo ... ok");
        assert_eq!(tally, Tally { passed: 13, failed: 2, ignored: 3 });
    }

    #[test]
    fn processor_time_is_that_of_programs_that_ended() {
        let before = super::processor_time();
        let mut shell = Command::new("sh");
        // Counts until it has used a second of its own.
        shell.args(["-c", "ulimit -t 1; while :; do :; done"]);
        assert!(!super::succeeds(&mut shell, Duration::from_secs(300)));
        assert!(super::processor_time() - before >= Duration::from_millis(900));
    }

    #[test]
    fn a_hanging_step_is_killed_and_counts_as_a_failure() {
        let started = Instant::now();
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 60 & sleep 60"]);
        let tally = run_tests("hang", &mut shell, Duration::from_millis(200));
        assert_eq!(tally.failed, 1);
        assert!(started.elapsed() < Duration::from_secs(30));
    }
}
