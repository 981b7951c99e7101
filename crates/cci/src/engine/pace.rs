//! How many events a program takes before progress is made although more of them wait. A program that is slow to take them must
//! not keep the socket, acknowledgements and time-outs waiting; one that is quick should not pay for progress with each.

use crate::limits::{EVENTS_PER_PROGRESS, PROGRESS_NS};

/// How many events a program may take before the next turn of progress.
pub(crate) struct Pace {
    /// Events to take between two turns of progress.
    events: u32,
    /// When the last turn ended, if the program has done nothing since but take events.
    ended_at_ns: Option<u64>,
}

impl Pace {
    pub fn new() -> Pace {
        Pace { events: EVENTS_PER_PROGRESS, ended_at_ns: None }
    }

    /// Whether progress is due, so many events after the last.
    #[inline]
    pub fn is_due(&self, events: u32) -> bool {
        events >= self.events
    }

    /// Progress begins although events wait. `events`: how many were taken since it was last made.
    pub fn begins(&mut self, events: u32, now_ns: u64) {
        if let Some(ended_at_ns) = self.ended_at_ns {
            let each_ns = now_ns.saturating_sub(ended_at_ns) / u64::from(events.max(1));
            let events = (PROGRESS_NS / each_ns.max(1)).clamp(1, EVENTS_PER_PROGRESS.into());
            self.events = u32::try_from(events).unwrap_or(EVENTS_PER_PROGRESS);
        }
    }

    /// Progress has ended.
    pub fn ended(&mut self, now_ns: u64) {
        self.ended_at_ns = Some(now_ns);
    }

    /// Progress is made because no event waits: the time up to the next turn says nothing of how long the program takes for
    /// an event.
    #[inline]
    pub fn broken(&mut self) {
        self.ended_at_ns = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_program_makes_progress_with_each_event_and_a_quick_one_seldom() {
        let mut pace = Pace::new();
        let mut now_ns = 0;
        let mut takes = |pace: &mut Pace, events: u32, each_ns: u64| {
            now_ns += u64::from(events) * each_ns;
            pace.begins(events, now_ns);
            now_ns += 1_000_000; // progress itself is not the program's time
            pace.ended(now_ns);
        };
        takes(&mut pace, EVENTS_PER_PROGRESS, PROGRESS_NS);
        assert!(!pace.is_due(EVENTS_PER_PROGRESS - 1), "nothing is known yet");
        takes(&mut pace, EVENTS_PER_PROGRESS, PROGRESS_NS);
        assert!(pace.is_due(1) && !pace.is_due(0), "one takes as long as progress may wait");
        takes(&mut pace, 1, PROGRESS_NS / 4);
        assert!(pace.is_due(4) && !pace.is_due(3));
        pace.broken();
        takes(&mut pace, 4, 1_000_000_000);
        assert!(!pace.is_due(3), "the program slept meanwhile");
        takes(&mut pace, 4, 10);
        assert!(pace.is_due(EVENTS_PER_PROGRESS) && !pace.is_due(EVENTS_PER_PROGRESS - 1));
    }
}
