//! Messages and bytes a second: a window kept full, the receiver counts.

use super::plan::{Budget, Plan};
use super::results::Rate;
use crate::client::{Client, Data, no_failure};
use crate::dial;
use crate::failure::Outcome;
use crate::protocol::Report;
use crate::signals;
use cci::{Event, SendFlags, Status};
use cci_sys::clock;

/// Messages sent between two looks at the clock.
const SENDS_PER_LOOK: u64 = 32;
/// Longer than the library's send timeout: every completion has come by then.
const COMPLETIONS_NS: u64 = 12_000_000_000;

impl Client {
    /// Keeps a window of messages of `len` bytes under way, each with its completion.
    pub fn rate(&mut self, plan: &Plan, data: &Data, len: u32) -> Outcome<Rate> {
        self.start(data, len, false)?;
        let window = u64::from(plan.window(len));
        let begin_ns = clock::now_ns();
        let (time_ns, count) = match plan.budget {
            Budget::Nanoseconds(ns) => (ns, u64::MAX),
            Budget::Messages(count) => (u64::MAX / 2, count),
        };
        let (mut sent, mut completed) = (0_u64, 0_u64);
        let mut stuck_at_ns = begin_ns + COMPLETIONS_NS;
        while sent < count {
            signals::go_on()?;
            let before = sent;
            while sent < count && sent - before < SENDS_PER_LOOK && sent - completed < window {
                if !self.send(data, sent, len, SendFlags::NONE)? {
                    break;
                }
                sent += 1;
            }
            let taken = self.take_completions()?;
            completed += taken;
            let now_ns = clock::now_ns();
            if sent > before || taken > 0 {
                stuck_at_ns = now_ns + COMPLETIONS_NS;
            } else if now_ns > stuck_at_ns {
                return Err(self.silent("sends do not complete"));
            }
            if now_ns - begin_ns >= time_ns {
                break;
            }
        }
        let until_ns = clock::now_ns() + COMPLETIONS_NS;
        while completed < sent {
            match self.next(until_ns)? {
                Some(Event::Send { status: Status::Success, .. }) => completed += 1,
                Some(event) => no_failure(&event)?,
                None => return Err(self.silent("sends do not complete")),
            }
        }
        let report = self.finish(sent)?;
        Ok(result(data, len, sent, report))
    }

    /// Takes what has happened, without waiting. How many sends completed.
    #[inline]
    fn take_completions(&mut self) -> Outcome<u64> {
        let mut completed = 0;
        while let Some(event) = self.endpoint.next_event() {
            match event {
                Event::Send { status: Status::Success, .. } => completed += 1,
                Event::Send { status, .. } => return Err(dial::not_delivered(status)),
                other => no_failure(&other)?,
            }
        }
        Ok(completed)
    }
}

fn result(data: &Data, len: u32, sent: u64, report: Report) -> Rate {
    // From the first message to the last lie one fewer than came.
    let per_s = match report.elapsed_ns {
        0 => 0.0,
        ns => report.received.saturating_sub(1) as f64 * 1e9 / ns as f64,
    };
    let lost = sent.saturating_sub(report.received);
    let wrong = if let Some(reason) = report.first_wrong {
        Some(reason)
    } else if report.received > sent {
        Some(format!("{} messages came, {sent} were sent", report.received))
    } else if data.attribute.is_reliable() && lost > 0 {
        Some(format!("{} of {sent} messages came", report.received))
    } else if report.verified != report.received {
        Some(format!("{} of {} messages were right", report.verified, report.received))
    } else {
        None
    };
    Rate {
        messages_per_s: per_s,
        bytes_per_s: per_s * f64::from(len),
        sent,
        received: report.received,
        verified: report.verified,
        lost,
        wrong,
    }
}
