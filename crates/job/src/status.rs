//! What becomes of ranks.

use std::fmt;

/// What has become of a rank, as far as its launcher knows. Later versions may know more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RankStatus {
    /// Its process has not ended, and has not left the job.
    Running,
    /// It has left the job, and nobody has seen its process end: either it works on, or it ended an instant ago.
    Left,
    /// Its process has ended with this exit code.
    Exited(u8),
    /// A signal of this number has ended its process.
    Killed(u8),
    /// Its host can't be reached.
    Lost,
}

impl RankStatus {
    /// Whether nothing else will become of it.
    pub const fn is_final(self) -> bool {
        !matches!(self, RankStatus::Running | RankStatus::Left)
    }

    /// Whether the rank has died: its process has ended, and not with exit code 0.
    pub const fn is_death(self) -> bool {
        self.is_final() && !matches!(self, RankStatus::Exited(0))
    }

    /// As two numbers of a frame.
    pub(crate) const fn to_numbers(self) -> (u32, u32) {
        match self {
            RankStatus::Running => (0, 0),
            RankStatus::Left => (1, 0),
            RankStatus::Exited(code) => (2, code as u32),
            RankStatus::Killed(signal) => (3, signal as u32),
            RankStatus::Lost => (4, 0),
        }
    }

    /// From what [`RankStatus::to_numbers`] gives; none from anything else.
    pub(crate) fn from_numbers(kind: u32, number: u32) -> Option<RankStatus> {
        let byte = u8::try_from(number).ok()?;
        match (kind, byte) {
            (0, 0) => Some(RankStatus::Running),
            (1, 0) => Some(RankStatus::Left),
            (2, code) => Some(RankStatus::Exited(code)),
            (3, signal) => Some(RankStatus::Killed(signal)),
            (4, 0) => Some(RankStatus::Lost),
            _ => None,
        }
    }
}

impl fmt::Display for RankStatus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RankStatus::Running => write!(out, "runs"),
            RankStatus::Left => write!(out, "has left the job"),
            RankStatus::Exited(code) => write!(out, "exited with code {code}"),
            RankStatus::Killed(signal) => write!(out, "was ended by signal {signal}"),
            RankStatus::Lost => write!(out, "was on a host that is lost"),
        }
    }
}
