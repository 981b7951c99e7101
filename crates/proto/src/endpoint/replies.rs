//! Answers to datagrams that no connection stands behind: bounded, and dropped rather than kept waiting.

use std::collections::VecDeque;

use crate::limits::{REPLIES_MAX, RESET_INTERVAL_NS};
use crate::wire::{Head, PathBody, Reject, Reset, Retry, Sack, VersionNotice};
use crate::{Address, Counters, Time, Transmit};

/// An answer that waits until the carrier takes it.
pub(crate) enum Reply {
    Retry(Retry),
    Version(VersionNotice),
    Reject(Reject),
    Reset(Reset),
    CloseAck(Head),
    Path(Head, PathBody),
}

/// All answers that wait.
pub(crate) struct Replies {
    waiting: VecDeque<(Address, Reply)>,
    /// When the resets sent so far will have been earned, at one per [`RESET_INTERVAL_NS`].
    resets_paid_until: Time,
}

impl Replies {
    /// `None`: there is no memory.
    pub fn new() -> Option<Replies> {
        let mut waiting = VecDeque::new();
        waiting.try_reserve_exact(REPLIES_MAX).ok()?;
        Some(Replies { waiting, resets_paid_until: Time(0) })
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Queues an answer; drops it if too many wait, because whoever asked will ask again.
    //= wire.md R-GEN-6
    pub fn push(&mut self, to: Address, reply: Reply, counters: &mut Counters) {
        if self.waiting.len() < REPLIES_MAX {
            self.waiting.push_back((to, reply));
        } else {
            counters.replies_dropped += 1;
        }
    }

    /// Queues a reset, unless there have been too many lately.
    //= wire.md R-RST-3
    pub fn push_reset(&mut self, now: Time, to: Address, reset: Reset, counters: &mut Counters) {
        let burst_ns = REPLIES_MAX as u64 * RESET_INTERVAL_NS;
        let paid_until = self.resets_paid_until.max(Time(now.0.saturating_sub(burst_ns)));
        if paid_until > now {
            counters.replies_dropped += 1;
            return;
        }
        self.resets_paid_until = paid_until.plus(RESET_INTERVAL_NS);
        self.push(to, Reply::Reset(reset), counters);
    }

    /// Writes what fits; true if nothing is left.
    #[inline(always)]
    pub fn transmit(&mut self, out: &mut impl Transmit, counters: &mut Counters) -> bool {
        while let Some((to, reply)) = self.waiting.front() {
            let Some(buffer) = out.begin(*to, 64, false) else { return false };
            let len = match reply {
                Reply::Retry(retry) => retry.emit(buffer),
                Reply::Version(notice) => notice.emit(buffer),
                Reply::Reject(reject) => reject.emit(buffer),
                Reply::Reset(reset) => reset.emit(buffer),
                Reply::CloseAck(head) => head.emit(&Sack::default(), 0, buffer),
                Reply::Path(head, body) => head.emit_path(*body, buffer),
            };
            match reply {
                Reply::Retry(_) => counters.cookies_sent += 1,
                Reply::Reset(_) => counters.resets_sent += 1,
                _ => {}
            }
            out.commit(len);
            counters.datagrams_sent += 1;
            counters.datagram_bytes_sent += len as u64;
            self.waiting.pop_front();
        }
        true
    }
}
