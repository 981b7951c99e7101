//! The program starts remote memory operations.

use super::Endpoint;
use super::sends::SendId;
use crate::rma::{Atomic, RmaError, RmaKind, RmaPiece, RmaPlace};
use crate::{ConnKey, Time};

impl Endpoint {
    /// Starts one remote memory operation (CCI-060). `message` is copied and delivered to the peer's program once all
    /// data is where it belongs (CCI-064); `fence`: not before everything earlier on this connection is complete at the
    /// peer (CCI-063). Ends in exactly one [`crate::Event::Rma`] with `operation`. What a write reads is read while it
    /// goes on, so it must not change before that event.
    #[expect(clippy::too_many_arguments, reason = "one call says it all")]
    pub fn rma(
        &mut self,
        now: Time,
        key: ConnKey,
        kind: RmaKind,
        pieces: &[RmaPiece],
        message: Option<&[u8]>,
        fence: bool,
        operation: u64,
    ) -> Result<(), RmaError> {
        let _ = (now, key, kind, pieces, message, fence, operation);
        Err(RmaError::WouldBlock)
    }

    /// Starts one atomic operation at the peer (CCS-062), which is carried out exactly once. `result`: where what was
    /// there before goes, as many bytes as the word is wide. Ends as [`Endpoint::rma`] does.
    #[expect(clippy::too_many_arguments, reason = "one call says it all")]
    pub fn atomic(
        &mut self,
        now: Time,
        key: ConnKey,
        atomic: Atomic,
        target: RmaPlace,
        result: Option<RmaPlace>,
        fence: bool,
        operation: u64,
    ) -> Result<(), RmaError> {
        let _ = (now, key, atomic, target, result, fence, operation);
        Err(RmaError::WouldBlock)
    }

    /// Sends of this connection that have not completed, silent ones not counted. Walks the window.
    #[must_use]
    pub fn sends_in_progress_on(&self, key: ConnKey) -> u32 {
        let Some(active) = self.table.get(key).and_then(|conn| conn.active.as_deref()) else { return 0 };
        let Some(ring) = active.tx_ring.as_ref() else { return 0 };
        let mut count = 0;
        let mut seq = active.tx.unacked;
        while seq != active.tx.next {
            let first = ring.get(seq).first;
            if first != SendId::NONE {
                count += self.shared.sends.count_told(first);
            }
            seq = seq.next();
        }
        count
    }
}
