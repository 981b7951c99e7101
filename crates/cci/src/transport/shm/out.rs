//! The sending half of a link: what waits for space in the ring, and waking the peer.

use super::connections::{Connections, complete};
use super::doorbell::Doorbell;
use super::pending::Fifo;
use super::wire::PeerConn;
use crate::connection::Status;
use crate::engine::core::Core;
use cci_memory::ring::{Corrupt, LINE_BYTES, Producer};
use cci_sys::shared_memory::SharedMemory;
use std::collections::VecDeque;

/// A record that found no space in the ring yet.
#[derive(Copy, Clone, Debug)]
pub(super) struct Control {
    pub kind: u8,
    /// Whom it is for.
    pub to: PeerConn,
    /// Of ours; goes into the payload of CONFIRM.
    pub own: PeerConn,
    /// The payload of records about mappings.
    pub words: [u64; 3],
}

impl Control {
    /// About a connection.
    pub fn about(kind: u8, to: PeerConn, own: PeerConn) -> Control {
        Control { kind, to, own, words: [0; 3] }
    }

    /// About mappings.
    pub fn words(kind: u8, to: PeerConn, words: [u64; 3]) -> Control {
        Control { kind, to, own: PeerConn { index: u32::MAX, generation: 0 }, words }
    }
}

/// The sending half.
pub(super) struct Out {
    pub producer: Producer<SharedMemory>,
    pub fifo: Fifo,
    /// The peer has taken everything before this position.
    pub consumed: u64,
    /// Up to here we have made sure that the peer is awake, or woken it.
    pub flushed: u64,
    pub control: VecDeque<Control>,
    /// Earliest deadline among the sends that have one.
    pub deadline_ns: u64,
    /// A message found no space when the ring was written up to here.
    pub full_at: u64,
    pub bell: Doorbell,
    pub ring_bytes: u32,
    pub wakes: u64,
    /// A bell that could not be rung: the link is broken.
    pub bell_failed: bool,
}

impl Out {
    /// A message waits for space, and the peer has not taken since all that was in its way.
    pub fn wants_space(&self) -> bool {
        self.consumed < self.full_at
    }

    /// Wakes the peer if it sleeps and there is something that it was not woken for.
    #[inline(always)]
    pub fn flush(&mut self) {
        let tail = self.producer.tail();
        if self.flushed != tail {
            self.flushed = tail;
            if self.producer.needs_wake() {
                self.ring_bell();
            }
        }
    }

    /// After a push in `send`. The first record after a flush is worth the fence: the program may not poll again
    /// soon. The following ones look without one, and have theirs at the next poll. Answers whether it looked.
    #[inline(always)]
    pub fn flush_after_send(&mut self, was_flushed: bool) -> bool {
        let look = was_flushed || self.producer.peer_may_sleep();
        if look {
            self.flush();
        }
        look
    }

    #[cold]
    pub fn ring_bell(&mut self) {
        self.wakes += 1;
        // It can only fail if the peer has made it blocking, or is gone: whoever does that is not served.
        self.bell_failed |= self.bell.ring().is_err();
    }

    /// The read position that came with a record: the low bits of it, in lines. None: older than what its own word has
    /// told us already.
    #[inline]
    pub fn acknowledged_position(&self, ack: u32) -> Result<Option<u64>, Corrupt> {
        let known = (self.consumed / LINE_BYTES as u64) as u32;
        let lines = ack.wrapping_sub(known) as i32;
        if lines <= 0 {
            return Ok(None);
        }
        let consumed = self.consumed + lines as u64 * LINE_BYTES as u64;
        if consumed > self.producer.tail() { Err(Corrupt::Head) } else { Ok(Some(consumed)) }
    }

    /// Completes what an acknowledgement that came with a record says.
    #[inline]
    pub fn acknowledged(
        &mut self,
        ack: u32,
        connections: &mut Connections,
        core: &mut Core,
    ) -> Result<(), Corrupt> {
        if let Some(consumed) = self.acknowledged_position(ack)? {
            self.complete_to(consumed, connections, core);
        }
        Ok(())
    }

    #[inline]
    pub fn complete_to(&mut self, consumed: u64, connections: &mut Connections, core: &mut Core) -> bool {
        if consumed <= self.consumed {
            return false;
        }
        self.consumed = consumed;
        while let Some(send) = connections.sends.pop_consumed(&mut self.fifo, consumed) {
            complete(&mut connections.conns, core, send.conn, send.op(), Status::Success);
        }
        true
    }
}
