//! Sends that wait for their completion.

use super::{Endpoint, as_ns, total_bytes};
use crate::connection::{Connection, Status};
use crate::error::SendError;
use crate::limits;
use crate::options::SendFlags;
use cci_sys::clock;
use std::time::Duration;

impl Endpoint {
    /// Sends one message and waits for its completion. Returns how the send ended, and raises no event. Events that come meanwhile are
    /// kept. Where [`Endpoint::send`] would return `WouldBlock`, this waits for space, for up to the connection's send timeout; the
    /// wait for the completion is bounded by the same time.
    ///
    /// # Errors
    /// After any [`SendError`], nothing was sent. `WouldBlock` means that there was no space within the send timeout.
    pub fn send_blocking(&mut self, connection: Connection, segments: &[&[u8]]) -> Result<Status, SendError> {
        let until_ns = self.space_until_ns(connection);
        let context = loop {
            match self.try_start_blocking(connection, segments) {
                Err(SendError::WouldBlock) if clock::now_ns() < until_ns => self.pause_for_space(),
                other => break other?,
            }
        };
        Ok(self.wait_for_blocking(context))
    }

    /// Waits for the completion of a blocking send or operation.
    pub(super) fn wait_for_blocking(&mut self, context: u64) -> Status {
        loop {
            if let Some(status) = self.take_blocking_status(context) {
                return status;
            }
            if self.pause(None, |endpoint| endpoint.core.has_unblocked()).is_err() {
                // The system refuses to wait, so poll instead.
                self.progress();
            }
        }
    }

    /// Draws the context of the next blocking send or operation. Its completion will raise no event.
    pub(super) fn next_blocking(&mut self) -> u64 {
        let context = self.next_blocking_context;
        self.next_blocking_context = context & !0xffff | (context + 1) & 0xffff;
        self.core.caught.block_on(context);
        context
    }

    /// Makes progress until there may be space for another send: for a millisecond at most, since nothing announces space.
    pub(super) fn pause_for_space(&mut self) {
        let until_ns = clock::now_ns() + limits::SPACE_POLL_NS;
        let _ = self.pause(Some(until_ns), |_| false);
    }

    /// Until when a blocking send that starts now waits for space.
    pub(crate) fn space_until_ns(&self, connection: Connection) -> u64 {
        let timeout = self.timeouts(connection).map_or(Duration::ZERO, |(send, _)| send);
        clock::now_ns().saturating_add(as_ns(timeout))
    }

    /// Starts a blocking send. Returns the context by which its completion is asked for.
    pub(crate) fn try_start_blocking(
        &mut self,
        connection: Connection,
        segments: &[&[u8]],
    ) -> Result<u64, SendError> {
        let context = self.next_blocking();
        let sent = self.send_segments(connection, segments, total_bytes(segments), context, SendFlags::NONE);
        if sent.is_err() {
            self.core.caught.stop_blocking(context);
        }
        sent.map(|()| context)
    }

    /// Takes out how a blocking send or operation ended, if it has.
    pub(crate) fn take_blocking_status(&mut self, context: u64) -> Option<Status> {
        let status = self.core.caught.unblocked(context);
        if status.is_some() {
            // Whoever waited for it slept while the descriptor was not readable, and events may have come meanwhile.
            self.touched();
        }
        status
    }
}
