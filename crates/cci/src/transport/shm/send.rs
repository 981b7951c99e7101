//! A message enters a ring.

use super::Shm;
use super::connections::State;
use super::link::Link;
use super::pending::Sends;
use super::wire::kind;
use crate::connection::Status;
use crate::engine::core::{Core, SendOp};
use crate::error::SendError;
use cci_memory::ring::{PushError, RecordHeader};
use cci_memory::slab::Key;

impl Shm {
    /// Copies a message into the ring. A reliable one completes when the peer has taken it, an unreliable one here:
    /// it has left. A full ring is `WouldBlock` for both, and the message waits in the engine: on one host, nothing is gained by
    /// losing it.
    #[inline]
    pub(super) fn send_message(
        &mut self,
        core: &mut Core,
        key: Key,
        segments: &[&[u8]],
        op: SendOp,
    ) -> Result<(), SendError> {
        if !self.is_ours() {
            return Err(SendError::Disconnected);
        }
        let is_alone = self.links.len() < 2;
        let Some(conn) = self.common.connections.conns.get_mut(key) else {
            return Err(SendError::UnknownConnection);
        };
        if conn.state != State::Open {
            return Err(SendError::Disconnected);
        }
        let (at, is_reliable) = (conn.at, conn.is_reliable);
        let (index, generation, connection) = (conn.peer_index, conn.peer_generation, conn.connection);
        let Some(link) = self.links.get_mut(at) else { return Err(SendError::Disconnected) };
        let has_room = |sends: &Sends, link: &Link| {
            (!is_reliable || sends.has_room_for(&link.out.fifo, is_alone)) && link.out.control.is_empty()
        };
        if !has_room(&self.common.connections.sends, link) {
            // Perhaps the peer has taken something that we have not looked at yet.
            let looked =
                link.complete_taken(&mut self.common.connections, core).and_then(|_| link.push_control());
            if looked.is_err() || !has_room(&self.common.connections.sends, link) {
                return Err(SendError::WouldBlock);
            }
        }
        let was_flushed = link.out.flushed == link.out.producer.tail();
        let header = RecordHeader { kind: kind::MESSAGE, flags: generation, conn: index, ack: link.ack() };
        let span = match link.out.producer.push(header, segments) {
            Ok(span) => span,
            Err(PushError::Full) => {
                self.is_full(core, at);
                return Err(SendError::WouldBlock);
            }
            Err(PushError::TooLong) => {
                let len_bytes = segments.iter().map(|segment| segment.len()).sum();
                return Err(SendError::TooLong {
                    len_bytes,
                    max_bytes: link.out.producer.payload_bytes_max(),
                });
            }
            Err(PushError::Corrupt(_)) => {
                self.kill(core, at);
                return Err(SendError::Disconnected);
            }
        };
        let Some(conn) = self.common.connections.conns.get_mut(key) else {
            return Err(SendError::UnknownConnection);
        };
        conn.messages_sent += 1;
        conn.bytes_sent += segments.iter().map(|segment| segment.len() as u64).sum::<u64>();
        if is_reliable {
            conn.in_progress += 1;
            conn.not_silent += u32::from(!op.silent);
            self.common.connections.sends.push(&mut link.out.fifo, span, key.index, op);
        }
        if link.out.flush_after_send(was_flushed) {
            // The same look serves those who wait for our reading.
            link.tell_due = false;
        }
        let (is_busy, is_hot) = (link.is_busy, link.is_hot);
        if !is_reliable {
            core.complete(connection, op, Status::Success);
        }
        if !is_busy {
            self.care_for(at);
        }
        if !is_hot {
            self.make_hot(at);
        }
        Ok(())
    }

    /// A message found no room in the ring of a link.
    #[cold]
    fn is_full(&mut self, core: &mut Core, at: Key) {
        let Some(link) = self.links.get_mut(at) else { return };
        // The sends that were taken meanwhile complete now, so that a program that waits for them sees them.
        let _ = link.complete_taken(&mut self.common.connections, core);
        link.out.full_at = link.out.producer.tail();
        link.out.flush();
        // Messages that are not acknowledged leave no other trace: the peer is to wake us once it has taken them.
        self.care_for(at);
    }
}
