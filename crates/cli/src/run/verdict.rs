//! How processes end, and what that makes of the job.

use cci_job::RankStatus;
use rustix::process::{Signal, WaitStatus};
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with a code.
    Exit(u8),
    /// By a signal.
    Signal(u8),
}

impl Ending {
    /// That of a process that was waited for.
    pub fn of(status: WaitStatus) -> Ending {
        Ending::from(ExitStatus::from_raw(status.as_raw()))
    }

    /// Whether the process has done what it should.
    pub fn is_success(self) -> bool {
        self == Ending::Exit(0)
    }

    /// What a shell shows of it.
    pub fn code(self) -> ExitCode {
        match self {
            Ending::Exit(code) => ExitCode::from(code),
            Ending::Signal(signal) => ExitCode::from(128_u8.saturating_add(signal)),
        }
    }

    /// What ranks hear of it.
    pub const fn status(self) -> RankStatus {
        match self {
            Ending::Exit(code) => RankStatus::Exited(code),
            Ending::Signal(signal) => RankStatus::Killed(signal),
        }
    }

    /// The name of the signal that ended it.
    pub fn signal(self) -> Option<String> {
        let Ending::Signal(number) = self else { return None };
        let named = Signal::from_named_raw(i32::from(number));
        Some(named.map_or(format!("signal {number}"), |signal| name(signal).to_owned()))
    }
}

impl From<ExitStatus> for Ending {
    fn from(status: ExitStatus) -> Ending {
        // Both are at most 255 by the format of the status.
        let byte = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
        match (status.code(), status.signal()) {
            (Some(code), _) => Ending::Exit(byte(code)),
            (None, signal) => Ending::Signal(byte(signal.unwrap_or_default())),
        }
    }
}

/// What the user reads: "exited with code 3", "was ended by SIGSEGV".
impl fmt::Display for Ending {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.signal()) {
            (Ending::Exit(code), _) => write!(out, "exited with code {code}"),
            (_, signal) => write!(out, "was ended by {}", signal.unwrap_or_default()),
        }
    }
}

fn name(signal: Signal) -> &'static str {
    signal_hook::low_level::signal_name(signal.as_raw()).unwrap_or("an unknown signal")
}

#[cfg(test)]
mod tests {
    use super::Ending;

    #[test]
    fn endings_read_as_people_know_them() {
        assert_eq!(Ending::Exit(3).to_string(), "exited with code 3");
        assert_eq!(Ending::Signal(11).to_string(), "was ended by SIGSEGV");
        assert!(
            Ending::Exit(0).is_success() && !Ending::Exit(1).is_success() && !Ending::Signal(15).is_success()
        );
    }
}
