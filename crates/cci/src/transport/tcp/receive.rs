//! How a connection handles the records that come, and makes messages of them.

use super::counts::Fault;
use super::established::{Established, Stage};
use super::input::Take;
use super::out::Flow;
use super::shared::Shared;
use super::wire::{HEADER_BYTES, Header, Kind};
use crate::connection::Status;
use crate::engine::core::Core;

/// How long messages without a receive buffer are held, before they are dropped to be sent again.
const HOLD_NS: u64 = 2_000_000;

/// Records that concern more than the connection's messages.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// The client has confirmed, so the connection is open. The record is still to be handled.
    Confirm,
    /// The peer asks for the second stream.
    AskSecond,
    Closing,
    Close,
    Fault(Fault),
}

impl From<Fault> for Came {
    fn from(fault: Fault) -> Came {
        Came::Fault(fault)
    }
}

/// Whether there is more to handle.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Step {
    Next,
    /// This message must wait, and so must everything behind it.
    Hold,
}

/// A connection whose records are being handled.
pub(super) struct Receiver<'a> {
    pub conn: &'a mut Established,
    pub shared: &'a mut Shared,
    pub core: &'a mut Core,
    /// Whether a message without a receive buffer may be held for a moment before it is dropped.
    pub may_hold: bool,
}

impl Receiver<'_> {
    /// Handles complete records from byte `used` on, and moves `used` forward. It stops where a message must wait, and, with an
    /// error, behind a record that the caller must handle.
    #[inline(always)]
    pub fn deal(&mut self, bytes: &[u8], used: &mut usize) -> Result<(), Came> {
        loop {
            let Some(tail) = bytes.get(*used..) else { return Ok(()) };
            let Some(header) = tail.first_chunk::<HEADER_BYTES>() else { return Ok(()) };
            let header = Header::parse(*header, self.conn.base.mss).map_err(|_| Fault::Record)?;
            let len = HEADER_BYTES + usize::from(header.len);
            let Some(payload) = tail.get(HEADER_BYTES..len) else { return Ok(()) };
            self.note_acknowledged(header.ack)?;
            if matches!(self.conn.stage, Stage::Accepting { .. }) {
                return Err(Came::Confirm);
            }
            if header.kind == Kind::Message {
                if self.message(payload) == Step::Hold {
                    return Ok(());
                }
                *used += len;
            } else {
                *used += len;
                self.control(header.kind, payload)?;
            }
        }
    }

    /// Handles a header's acknowledgement.
    #[inline(always)]
    pub fn note_acknowledged(&mut self, ack: u32) -> Result<(), Fault> {
        if ack != self.conn.input.acked {
            self.acknowledged(ack)?;
            if self.conn.out.wants() {
                // The window has opened.
                self.shared.streams.write_later(&mut self.conn.base.listed);
            }
        }
        Ok(())
    }

    /// Completes the sends that the peer has acknowledged.
    #[inline(always)]
    fn acknowledged(&mut self, ack: u32) -> Result<(), Fault> {
        //= wire.md R-TCP-7
        let (conn, shared) = (&mut *self.conn, &mut *self.shared);
        let count = ack.wrapping_sub(conn.input.acked);
        if count > u32::MAX / 2 {
            // The record was queued before one that has overtaken it, so its acknowledgement is older.
            return Ok(());
        }
        conn.out.acked(count).map_err(|_| Fault::Record)?;
        conn.input.acked = ack;
        conn.moved_ns = shared.now_ns;
        let mut left = count;
        while let Some(send) = conn.out.pop_written(&mut shared.sends, &mut shared.chunks, left) {
            left -= send.count;
            conn.complete(self.core, &send, Status::Success);
        }
        Ok(())
    }

    #[inline]
    fn message(&mut self, payload: &[u8]) -> Step {
        let (conn, shared) = (&mut *self.conn, &mut *self.shared);
        if !conn.takes_messages() {
            //= wire.md R-TCP-13
            shared.counts.after_close += 1;
            return Step::Next;
        }
        if matches!(conn.input.take, Take::Dropping | Take::Awaited) {
            return Step::Next;
        }
        if self.core.deliver(conn.base.connection, payload) {
            conn.base.messages_received += 1;
            conn.base.bytes_received += payload.len() as u64;
            if conn.base.is_reliable {
                conn.input.took(1, shared.pace.polls);
                shared.streams.acknowledge_later(&mut conn.base.listed);
            }
            return Step::Next;
        }
        if !conn.base.is_reliable {
            //= wire.md R-TCP-12
            shared.counts.unreliable_no_buffer += 1;
            return Step::Next;
        }
        if self.may_hold {
            conn.input.take = Take::Holding { until_ns: shared.now_ns + HOLD_NS };
            shared.streams.starve(&mut conn.base.listed);
            return Step::Hold;
        }
        conn.drop_messages(shared);
        Step::Next
    }

    /// Handles control records.
    fn control(&mut self, kind: Kind, payload: &[u8]) -> Result<(), Came> {
        let (conn, shared) = (&mut *self.conn, &mut *self.shared);
        match kind {
            Kind::Message | Kind::Ack | Kind::Pong => {}
            // CONFIRM has no further effect, since the state has changed already.
            Kind::Confirm if !conn.has_dialled() => {}
            Kind::NotReady if conn.base.is_reliable => {
                conn.base.not_ready += 1;
                conn.moved_ns = shared.now_ns;
                conn.out.dropped(&shared.sends).map_err(|_| Fault::Record)?;
                if let Some(oldest) = conn.out.oldest(&shared.sends) {
                    // An overdue send can be taken back now, before the peer asks for it again.
                    shared.sends_due_ns = shared.sends_due_ns.min(oldest.deadline_ns);
                }
                shared.counts.not_ready_received += 1;
                shared.streams.write_later(&mut conn.base.listed);
            }
            Kind::Ready if conn.base.is_reliable && conn.out.flow == Flow::Stalled => {
                let window = payload.first_chunk().map_or(1, |window| u32::from_le_bytes(*window));
                conn.moved_ns = shared.now_ns;
                //= wire.md R-TCP-11
                conn.send_control(&mut shared.streams, Kind::Resume);
                conn.out.resume(window);
            }
            Kind::Resume if conn.input.take == Take::Awaited => conn.input.take = Take::All,
            Kind::Ping => conn.send_control(&mut shared.streams, Kind::Pong),
            Kind::AskBulk if conn.has_dialled() && conn.base.is_reliable => return Err(Came::AskSecond),
            Kind::Closing if !conn.stage.closing_came() => return Err(Came::Closing),
            Kind::Close => return Err(Came::Close),
            Kind::Confirm | Kind::NotReady | Kind::Ready | Kind::Resume | Kind::Closing | Kind::AskBulk => {
                return Err(Came::Fault(Fault::Record));
            }
        }
        Ok(())
    }
}
