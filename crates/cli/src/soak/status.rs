//! What is known of a soak at a moment, for the screen, the lines and the end.

use super::faults::Fault;
use super::talk::Report;
use std::collections::VecDeque;
use std::time::Duration;

/// Lines kept.
const LINES_MAX: usize = 6;
/// Failures kept, those aside that peers found themselves.
const FAILURES_MAX: usize = 8;

/// Where a device's soak is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Peers are being started.
    Starting,
    /// At work.
    Running,
    /// Sessions come to their ends.
    Ending,
    /// All is over, and was right.
    Survived,
    /// Something was not.
    Failed,
}

impl State {
    /// In a word.
    pub const fn word(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Running => "running",
            State::Ending => "ending",
            State::Survived => "survived",
            State::Failed => "FAILED",
        }
    }

    /// Nothing more will come.
    pub const fn is_over(self) -> bool {
        matches!(self, State::Survived | State::Failed)
    }
}

/// One device.
#[derive(Clone, Debug)]
pub struct Status {
    /// The device.
    pub name: String,
    /// And where it is.
    pub place: &'static str,
    /// See [`State`].
    pub state: State,
    /// Peers that run.
    pub peers: usize,
    /// Since the start.
    pub elapsed: Duration,
    /// Totals of all peers, the dead included.
    pub total: Report,
    /// Per second, over the last few seconds: messages, their bytes, transfers, their bytes, atomics.
    pub now: [f64; 5],
    /// Faults done, by [`Fault::index`].
    pub faults: [u64; Fault::ALL.len()],
    /// Datagrams that the weather spoiled.
    pub spoiled: u64,
    /// Sessions that ended early and had a fault to blame.
    pub excused: u64,
    /// Resident memory of the peers that survive, bytes: the sum now, and over time.
    pub memory_bytes: Vec<u64>,
    /// Their descriptors likewise.
    pub descriptors: Vec<u64>,
    /// What was said lately.
    pub lines: VecDeque<String>,
    /// What went wrong, with everything to know about it: causes before consequences.
    pub failures: Vec<String>,
    /// How many of them are causes.
    causes: usize,
}

impl Status {
    /// Nothing happened yet.
    pub fn new(name: String, place: &'static str) -> Status {
        Status {
            name,
            place,
            state: State::Starting,
            peers: 0,
            elapsed: Duration::ZERO,
            total: Report::default(),
            now: [0.0; 5],
            faults: [0; Fault::ALL.len()],
            spoiled: 0,
            excused: 0,
            memory_bytes: Vec::new(),
            descriptors: Vec::new(),
            lines: VecDeque::new(),
            failures: Vec::new(),
            causes: 0,
        }
    }

    /// A line for people.
    pub fn note(&mut self, line: String) {
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// A peer found something wrong by itself, and ended: that outranks what others noticed of its end.
    pub fn found(&mut self, what: String) {
        self.failures.insert(self.causes, what);
        self.causes += 1;
    }

    /// Something went wrong, perhaps as a consequence of what a peer has found.
    pub fn fail(&mut self, what: String) {
        if self.failures.len() - self.causes < FAILURES_MAX {
            self.failures.push(what);
        }
    }

    /// The verdict, once all is over: nothing that was never put to the test has survived it.
    pub fn conclude(&mut self) {
        if self.failures.is_empty() && self.total.messages == 0 {
            self.fail(
                "nothing was checked: it ended before any message had come; let it last longer".to_owned(),
            );
        }
        self.state = if self.failures.is_empty() { State::Survived } else { State::Failed };
    }

    /// What the rates are made of.
    pub fn counted(&self) -> [u64; 5] {
        let total = &self.total;
        [total.messages, total.message_bytes, total.transfers, total.transfer_bytes, total.atomics]
    }

    /// Per second since the start.
    pub fn mean(&self) -> [f64; 5] {
        let seconds = self.elapsed.as_secs_f64().max(0.001);
        self.counted().map(|count| count as f64 / seconds)
    }

    /// Faults in all.
    pub fn faults_total(&self) -> u64 {
        self.faults.iter().sum()
    }

    /// Each kind that occurred.
    pub fn faults_text(&self) -> String {
        let some = Fault::ALL.iter().filter_map(|fault| {
            let count = self.faults.get(fault.index()).copied().unwrap_or(0);
            (count > 0).then(|| format!("{fault} {count}"))
        });
        let text = some.collect::<Vec<_>>().join(", ");
        if text.is_empty() { "none".to_owned() } else { text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_come_first() {
        let mut status = Status::new("shm".to_owned(), "here");
        (0..20).for_each(|number| status.fail(format!("{number}")));
        status.found("cause".to_owned());
        status.found("another".to_owned());
        assert_eq!(status.failures[..3], ["cause", "another", "0"]);
    }

    #[test]
    fn what_was_not_tested_has_not_survived() {
        let mut status = Status::new("shm".to_owned(), "here");
        status.conclude();
        assert_eq!(status.state, State::Failed);
        assert!(status.failures[0].contains("nothing was checked"), "{:?}", status.failures);

        let mut status = Status::new("shm".to_owned(), "here");
        status.total.messages = 1;
        status.conclude();
        assert_eq!((status.state, status.failures.len()), (State::Survived, 0));
    }
}
