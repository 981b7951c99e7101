//! Processes of contestants: started, bounded in time, ended with all that they started.

use crate::reading::Reading;
use cci_measure::failure::{Failure, Outcome};
use cci_sys::clock;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// No turn takes longer: what does is ended.
pub const TURN_LIMIT: Duration = Duration::from_secs(120);

/// The variable by which it learns when it was started: nanoseconds of the monotonic clock.
pub const STARTED_NS: &str = "CCI_BENCH_STARTED_NS";

/// Runs it to its end and takes the last line of its standard output that is a [`Reading`].
pub fn reading(command: Command) -> Outcome<Reading> {
    let name = command.get_program().to_string_lossy().into_owned();
    let out = output(command, TURN_LIMIT)?;
    let found = out.lines().rev().find_map(|line| serde_json::from_str::<Reading>(line).ok());
    found
        .filter(|reading| reading.value.is_finite() && reading.value > 0.0)
        .ok_or_else(|| Failure::new(format!("{name}: no figure in what it said: {}", tail(&out))))
}

/// Runs it to its end, in a process group of its own, and returns its standard output. It is killed, with all it
/// started, after `limit`.
pub fn output(mut command: Command, limit: Duration) -> Outcome<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    command.env(STARTED_NS, clock::now_ns().to_string());
    let mut child = command.spawn().map_err(|error| Failure::new(format!("{name}: {error}")))?;
    let (printed, ended) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let Ok(out) = printed.recv_timeout(limit) else {
        kill_group(&mut child);
        return Err(Failure::new(format!("{name}: not done after {} s", limit.as_secs())));
    };
    let status = child.wait().map_err(|error| Failure::new(format!("{name}: {error}")))?;
    if status.success() {
        return Ok(out);
    }
    let words = ended.recv_timeout(Duration::from_secs(1)).unwrap_or_default();
    Err(Failure::new(format!("{name}: {status}: {} {}", tail(&out), tail(&words)).trim().to_owned()))
}

fn reader(from: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            let _ = from.read_to_end(&mut bytes);
        }
        // Nobody may be waiting any more.
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

/// The child leads its group, so that its number is the group's.
fn kill_group(child: &mut Child) {
    let _ = Command::new("kill").args(["-9", "--", &format!("-{}", child.id())]).status();
    let _ = child.kill();
    let _ = child.wait();
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(3)..].join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Unit;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn the_last_reading_counts() {
        let found =
            reading(shell(r#"echo starting; echo '{"value": 12.5, "unit": "ns"}'; echo bye"#)).unwrap();
        assert_eq!(found, Reading { unit: Some(Unit::Nanoseconds), ..Reading::of(12.5) });
    }

    #[test]
    fn failures_tell_what_was_said() {
        let printed = reading(shell("echo something >&2; exit 3")).unwrap_err().to_string();
        assert!(printed.contains("something") && printed.contains('3'), "{printed}");
        let printed = reading(shell("echo no number")).unwrap_err().to_string();
        assert!(printed.contains("no number"), "{printed}");
        let printed = reading(shell(r#"echo '{"value": 0}'"#)).unwrap_err().to_string();
        assert!(printed.contains("no figure"), "{printed}");
    }

    #[test]
    fn what_does_not_end_is_ended_with_what_it_started() {
        let printed =
            output(shell("sleep 60 & sleep 60"), Duration::from_millis(50)).unwrap_err().to_string();
        assert!(printed.contains("not done"), "{printed}");
    }
}
