//! Running other programs: shown as they run, bounded in time, with their tests counted.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::io::{BufRead, BufReader, PipeReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
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
    /// Programs that failed beside others and passed when they ran again alone.
    pub flaky: u64,
}

impl Tally {
    /// Adds another's.
    pub fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.flaky += other.flaky;
    }

    /// Prints it as test programs do: where this program is run by another, that is counted.
    pub fn print(&self) {
        let verdict = if self.failed == 0 { "ok" } else { "FAILED" };
        println!("test result: {verdict}. {} passed; {} failed", self.passed, self.failed);
    }

    /// How a program ended; a failure that no test accounts for is counted.
    fn verdict(&mut self, ended: &Result<(), String>) -> String {
        match ended {
            Ok(()) => "ok".to_owned(),
            Err(reason) => {
                self.failed = self.failed.max(1);
                format!("FAILED: {reason}")
            }
        }
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

/// Of this program and of all that it runs or ran, with all that they ran in turn. Zero where the kernel does not say.
fn processor_time() -> Duration {
    Processes::now().processor_time(std::process::id())
}

/// A cargo command that is not bound to the toolchain that runs this program.
pub fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(args);
    forget_package(&mut command);
    command
}

/// Takes out of a command's environment what cargo says there of the package that it runs, which is this program. Build scripts watch
/// these variables: where they differ from one cargo command to the next, half of the workspace is compiled again.
pub fn forget_package(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let of_package = ["CARGO_MANIFEST_", "CARGO_PKG_"];
        if name.to_str().is_some_and(|name| of_package.iter().any(|prefix| name.starts_with(prefix))) {
            command.env_remove(name);
        }
    }
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

/// Runs a test program, showing its output and counting its tests. It is killed, with all it started, when it has used
/// `limit` of processor time or hangs; that counts as one failure, as does every failure that no test accounts for.
pub fn run_tests(step: &str, command: &mut Command, limit: Duration) -> Tally {
    let started = announce(step, command);
    let mut tally = Tally::default();
    let ended = supervise(command, limit, |line| {
        println!("{line}");
        tally.count(line);
    });
    let result = tally.verdict(&ended);
    println!("--- {step}: {result}; {tally} after {:.0} s", started.elapsed().as_secs_f64());
    tally
}

/// A program to be run beside others.
pub struct Job {
    /// What it is called where it is shown.
    pub name: String,
    /// How it is run.
    pub command: Command,
}

impl Job {
    /// Its tests, and what to show of it.
    fn run(&mut self, limit: Duration) -> (Tally, String) {
        let started = Instant::now();
        let (mut tally, mut shown) = (Tally::default(), format!("--- {}\n", self.name));
        let mut on_line = |line: &str| {
            tally.count(line);
            shown.push_str(line);
            shown.push('\n');
        };
        let ended = match both_outputs(&mut self.command) {
            Ok((child, output)) => watch(child, output, Limits::of(limit), &mut on_line),
            Err(reason) => Ended { used: Duration::ZERO, how: Err(reason) },
        };
        let result = tally.verdict(&ended.how);
        let (took, used) = (started.elapsed().as_secs_f64(), ended.used.as_secs_f64());
        let _ = write!(
            shown,
            "--- {}: {result}; {tally} after {took:.0} s, {used:.0} s of processor time",
            self.name
        );
        (tally, shown)
    }
}

/// So many failed programs are run again. Where more fail, it is not chance.
const RUN_AGAIN: usize = 2;

/// Runs all of them, so many at a time and in this order, and shows each when it has ended. Each may use `limit` of processor time.
/// In the end the few that failed are run again, alone. One that passes then counts as flaky: what it showed of its failure stays shown.
pub fn side_by_side(jobs: Vec<Job>, at_once: usize, limit: Duration) -> Tally {
    let count = jobs.len();
    let waiting = Mutex::new(VecDeque::from(jobs));
    let done = Mutex::new((0, Tally::default()));
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    // The lock is let go here. In the condition of a `while let` it would be held until the job has ended.
                    let Some(mut job) = locked(&waiting).pop_front() else { break };
                    let (tally, shown) = job.run(limit);
                    let mut done = locked(&done);
                    done.0 += 1;
                    println!("{shown} ({} of {count} programs)", done.0);
                    if tally.failed == 0 {
                        done.1.add(tally);
                    } else {
                        locked(&failed).push((job, tally));
                    }
                }
            });
        }
    });
    let (_, mut tally) = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    let by_chance = failed.len() <= RUN_AGAIN;
    for (mut job, first) in failed {
        tally.add(if by_chance { again(&mut job, first, limit) } else { first });
    }
    tally
}

/// Runs what failed first again; its tests as they count.
fn again(job: &mut Job, first: Tally, limit: Duration) -> Tally {
    let (second, shown) = job.run(limit);
    println!("{shown} (again, alone)");
    if second.failed > 0 {
        return first;
    }
    println!("--- {}: FLAKY: it failed beside other programs, see above, and passed alone", job.name);
    Tally { flaky: 1, ..second }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Runs to the end, with its standard output line by line.
fn supervise(command: &mut Command, limit: Duration, mut on_line: impl FnMut(&str)) -> Result<(), String> {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(|error| error.to_string())?;
    let Some(output) = child.stdout.take() else { return Err("no output".to_owned()) };
    watch(child, output, Limits::of(limit), &mut on_line).how
}

/// Starts it with standard output and standard error in one pipe.
fn both_outputs(command: &mut Command) -> Result<(Child, PipeReader), String> {
    let mut start = || {
        let (output, input) = std::io::pipe()?;
        let child = command.stdin(Stdio::null()).stdout(input.try_clone()?).stderr(input).spawn()?;
        // The command has kept the pipe's other end, without whose end there is none of the output.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Ok((child, output))
    };
    start().map_err(|error: std::io::Error| error.to_string())
}

/// What a program may use before it is killed. The clock alone decides nothing: other programs may have the processors.
#[derive(Copy, Clone)]
struct Limits {
    /// Processor time of all that it started, too.
    processor: Duration,
    /// How long it may be silent while it hardly uses the processor.
    idle: Duration,
}

impl Limits {
    fn of(processor: Duration) -> Limits {
        Limits { processor, idle: Duration::from_secs(10 * 60) }
    }
}

/// Processor time with which a program is not idle.
const AT_WORK: Duration = Duration::from_secs(10);

/// A program has ended.
struct Ended {
    /// Processor time, with that of all that it started.
    used: Duration,
    /// An error says how it failed.
    how: Result<(), String>,
}

/// Waits for the end of a program, which is killed if it exceeds its limits.
fn watch(
    mut child: Child,
    output: impl Read + Send + 'static,
    limits: Limits,
    on_line: &mut impl FnMut(&str),
) -> Ended {
    let (lines, received) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            if lines.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                break;
            }
        }
    });
    let between = limits.idle.min(Duration::from_secs(2));
    let (mut looked, mut idle_since) = (Instant::now(), Instant::now());
    let (mut used, mut used_then) = (Duration::ZERO, Duration::ZERO);
    loop {
        match received.recv_timeout(between) {
            Ok(line) => {
                idle_since = Instant::now();
                on_line(&line);
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        if looked.elapsed() < between {
            continue;
        }
        looked = Instant::now();
        used = Processes::now().processor_time(child.id());
        if used > used_then + AT_WORK {
            (idle_since, used_then) = (looked, used);
        }
        let reason = if used > limits.processor {
            format!("killed after {} s of processor time", used.as_secs())
        } else if idle_since.elapsed() > limits.idle {
            format!("killed after {} s in which it printed and did nothing", limits.idle.as_secs())
        } else {
            continue;
        };
        for pid in Processes::now().descendants(child.id()).iter().rev() {
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).stderr(Stdio::null()).status();
        }
        let _ = child.wait();
        return Ended { used, how: Err(reason) };
    }
    // The reader has seen the end of the output: it can't keep us.
    let _ = reader.join();
    used = used.max(Processes::now().processor_time(child.id()));
    let how = match child.wait() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(status.to_string()),
        Err(error) => Err(error.to_string()),
    };
    Ended { used, how }
}

/// All processes, as they were at one moment.
struct Processes(Vec<Process>);

struct Process {
    pid: u32,
    parent: u32,
    /// Its own, and that of its children that have ended and were waited for.
    used: Duration,
}

impl Processes {
    fn now() -> Processes {
        let Ok(entries) = std::fs::read_dir("/proc") else { return Processes(Vec::new()) };
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Processes(pids.filter_map(Process::read).collect())
    }

    /// A process and all that descend from it, parents first. Killing cargo alone would leave the test program running.
    fn descendants(&self, pid: u32) -> Vec<u32> {
        let mut found = vec![pid];
        let mut at = 0;
        while let Some(&parent) = found.get(at) {
            found.extend(self.0.iter().filter(|process| process.parent == parent).map(|process| process.pid));
            at += 1;
        }
        found
    }

    /// Of a process and all that descend from it.
    fn processor_time(&self, pid: u32) -> Duration {
        let descendants = self.descendants(pid);
        self.0.iter().filter(|process| descendants.contains(&process.pid)).map(|process| process.used).sum()
    }
}

impl Process {
    fn read(pid: u32) -> Option<Process> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may hold anything: its end is found from behind. Then come the state, the parent, and
        // later utime, stime, cutime and cstime in ticks of 10 ms: see proc_pid_stat(5).
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks: u64 = fields.get(11..15)?.iter().map_while(|word| word.parse::<u64>().ok()).sum();
        Some(Process { pid, parent: fields.get(1)?.parse().ok()?, used: Duration::from_millis(ticks * 10) })
    }
}

#[cfg(test)]
mod tests {
    use super::{Job, Limits, Tally, run_tests, side_by_side, watch};
    use std::path::Path;
    use std::process::Command;
    use std::time::Duration;

    #[test]
    fn results_are_counted() {
        let mut tally = Tally::default();
        tally.count(
            "test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; 0 filtered out; finished in 0.1s",
        );
        tally.count("test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out");
        tally.count("test foo ... ok");
        assert_eq!(tally, Tally { passed: 13, failed: 2, ignored: 3, flaky: 0 });
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
    fn a_hanging_program_is_killed_with_all_it_started() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo begun; sleep 600 & sleep 600"]);
        let (child, output) = super::both_outputs(&mut shell).unwrap();
        let limits = Limits { processor: Duration::from_secs(600), idle: Duration::from_millis(200) };
        let mut lines = Vec::new();
        // It comes to its end only when nobody has the pipe open any more.
        let ended = watch(child, output, limits, &mut |line: &str| lines.push(line.to_owned()));
        assert!(ended.how.is_err_and(|reason| reason.contains("did nothing")));
        assert_eq!(lines, ["begun"]);
    }

    #[test]
    fn a_program_is_killed_for_the_processor_time_that_it_uses() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sh -c 'while :; do :; done'; true"]);
        let tally = run_tests("spin", &mut shell, Duration::from_millis(200));
        assert_eq!(tally, Tally { failed: 1, ..Tally::default() });
    }

    fn job(line: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        Job { name: line.to_owned(), command }
    }

    const PASSES: &str = "echo 'test result: ok. 3 passed; 0 failed; 0 ignored' >&2";
    const FAILS: &str = "echo 'test result: FAILED. 1 passed; 2 failed'; exit 1";

    #[test]
    fn programs_run_side_by_side_and_are_counted() {
        let jobs = vec![job(PASSES), job("exit 7"), job(PASSES), job(FAILS)];
        let tally = side_by_side(jobs, 2, Duration::from_secs(60));
        assert_eq!(tally, Tally { passed: 7, failed: 3, ignored: 0, flaky: 0 });
    }

    #[test]
    fn programs_run_at_the_same_time() {
        let folder = tempfile::tempdir().unwrap();
        // Each passes once it has seen the other.
        let meets = |own: &str, other: &str| {
            let [own, other] = [own, other].map(|name| folder.path().join(name).display().to_string());
            let seen = format!("test -e {other} && {{ {PASSES}; exit 0; }}");
            job(&format!("touch {own}; for i in $(seq 100); do {seen}; sleep 0.1; done; rm {own}; {FAILS}"))
        };
        let tally = side_by_side(vec![meets("a", "b"), meets("b", "a")], 2, Duration::from_secs(60));
        assert_eq!(tally, Tally { passed: 6, failed: 0, ignored: 0, flaky: 0 });
    }

    /// Fails the first time, by a file that it makes there.
    fn fails_once(folder: &Path, name: &str) -> Job {
        let file = folder.join(name);
        job(&format!("if test -e {0}; then {PASSES}; else touch {0}; {FAILS}; fi", file.display()))
    }

    #[test]
    fn a_program_that_passes_when_it_runs_again_is_flaky() {
        let folder = tempfile::tempdir().unwrap();
        let jobs = vec![fails_once(folder.path(), "a"), job(PASSES), job(FAILS)];
        let tally = side_by_side(jobs, 2, Duration::from_secs(60));
        assert_eq!(tally, Tally { passed: 7, failed: 2, ignored: 0, flaky: 1 });
    }

    #[test]
    fn many_that_fail_are_not_run_again() {
        let folder = tempfile::tempdir().unwrap();
        let jobs = ["a", "b", "c"].map(|name| fails_once(folder.path(), name)).into();
        let tally = side_by_side(jobs, 2, Duration::from_secs(60));
        assert_eq!(tally, Tally { passed: 3, failed: 6, ignored: 0, flaky: 0 });
    }
}
