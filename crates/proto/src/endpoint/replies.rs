//! Answers to datagrams that no connection stands behind: bounded, and dropped rather than kept waiting.

use std::collections::VecDeque;

use crate::limits::REPLIES_MAX;
use crate::wire::{Head, Reject, Reset, Retry, Sack, VersionNotice};
use crate::{Address, Counters, Transmit};

/// An answer that waits for room in the carrier.
pub(crate) enum Reply {
    Retry(Retry),
    Version(VersionNotice),
    Reject(Reject),
    Reset(Reset),
    CloseAck(Head),
}

/// All answers that wait.
pub(crate) struct Replies(VecDeque<(Address, Reply)>);

impl Replies {
    pub fn new() -> Replies {
        Replies(VecDeque::with_capacity(REPLIES_MAX))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Queues an answer; drops it if too many wait, because whoever asked will ask again.
    //= wire.md R-GEN-6
    pub fn push(&mut self, to: Address, reply: Reply, counters: &mut Counters) {
        if self.0.len() < REPLIES_MAX {
            self.0.push_back((to, reply));
        } else {
            counters.replies_dropped += 1;
        }
    }

    /// Writes what fits; true if nothing is left.
    pub fn transmit(&mut self, out: &mut impl Transmit, counters: &mut Counters) -> bool {
        while let Some((to, reply)) = self.0.front() {
            let Some(buffer) = out.begin(*to, 64, false) else { return false };
            let len = match reply {
                Reply::Retry(retry) => retry.emit(buffer),
                Reply::Version(notice) => notice.emit(buffer),
                Reply::Reject(reject) => reject.emit(buffer),
                Reply::Reset(reset) => reset.emit(buffer),
                Reply::CloseAck(head) => head.emit(&Sack::default(), 0, buffer),
            };
            match reply {
                Reply::Retry(_) => counters.cookies_sent += 1,
                Reply::Reset(_) => counters.resets_sent += 1,
                _ => {}
            }
            out.commit(len);
            counters.datagrams_sent += 1;
            counters.datagram_bytes_sent += len as u64;
            self.0.pop_front();
        }
        true
    }
}
