//! The sending half of a link: what waits for space in the ring, what the peer has taken, and how the peer is woken.

use super::connections::{Connections, complete};
use super::doorbell::Doorbell;
use super::lending::Lending;
use super::pending::Fifo;
use super::wire::PeerConn;
use crate::connection::Status;
use crate::engine::core::Core;
use cci_memory::ring::{Corrupt, LINE_BYTES, Producer, Span};
use cci_sys::shared_memory::SharedMemory;
use std::collections::VecDeque;
use std::sync::Arc;

/// After this many checks in a row found the peer awake, the next ones have light fences. One heavy fence, which the peer makes
/// when it goes to sleep, takes as long as a few hundred ordinary ones.
const LOOKS_BEFORE_LIGHT_FENCES: u32 = if cfg!(feature = "simulated") { 1 } else { 256 };
/// After this time without a send, checks have ordinary fences again.
const LIGHT_FENCES_NS: u64 = 100_000;

/// A record other than a message, which waits for space in the ring.
#[derive(Copy, Clone, Debug)]
pub(super) struct Control {
    pub kind: u8,
    /// The peer's connection that the record is about.
    pub to: PeerConn,
    /// Our connection, which is the payload of CONFIRM.
    pub own: PeerConn,
    /// The payload of records about mappings.
    pub words: [u64; 3],
}

impl Control {
    /// Makes a record about a connection.
    pub fn about(kind: u8, to: PeerConn, own: PeerConn) -> Control {
        Control { kind, to, own, words: [0; 3] }
    }

    /// Makes a record about mappings.
    pub fn words(kind: u8, to: PeerConn, words: [u64; 3]) -> Control {
        Control { kind, to, own: PeerConn { index: u32::MAX, generation: 0 }, words }
    }
}

/// The sending half of a link.
pub(super) struct Out {
    pub producer: Producer<Arc<SharedMemory>>,
    pub fifo: Fifo,
    /// What is lent to the peer.
    pub lending: Lending,
    /// The peer has taken everything before this position.
    pub consumed: u64,
    /// The peer was woken for everything before this position, or was seen awake.
    pub flushed: u64,
    pub control: VecDeque<Control>,
    /// Earliest deadline among the sends that have one.
    pub deadline_ns: u64,
    /// Whether heavy fences of the peer reach this process.
    pub has_heavy_fences: bool,
    /// How many checks in a row found the peer awake.
    pub looks_awake: u32,
    /// How far the ring was written at the last maintenance, and when that was first seen.
    pub sent: (u64, u64),
    /// How far the ring was written when a message last found no space in it.
    pub full_at: u64,
    pub bell: Doorbell,
    pub ring_bytes: u32,
    pub wakes: u64,
    /// Whether a bell could not be rung or drained, so that the link is broken.
    pub bell_failed: bool,
}

impl Out {
    /// Whether a message has found no space, and the peer has not yet taken everything that was before it.
    pub fn wants_space(&self) -> bool {
        self.consumed < self.full_at
    }

    /// Wakes the peer if it sleeps and was not woken for something that was written.
    #[inline(always)]
    pub fn flush(&mut self) {
        if !self.is_flushed() {
            self.wake_if_asleep();
        }
    }

    /// Whether nothing was written since it was last checked whether the peer sleeps.
    #[inline(always)]
    pub fn is_flushed(&self) -> bool {
        self.flushed == self.producer.tail()
    }

    #[inline(always)]
    fn wake_if_asleep(&mut self) {
        self.flushed = self.producer.tail();
        self.looks_awake = self.looks_awake.saturating_add(1);
        if self.looks_awake == LOOKS_BEFORE_LIGHT_FENCES && self.has_heavy_fences {
            self.producer.begin_light_fences();
        }
        if self.producer.needs_wake() {
            self.ring_bell();
        }
    }

    /// Makes checks have ordinary fences again, until many of them have found the peer awake.
    #[inline]
    pub fn end_light_fences(&mut self) {
        self.looks_awake = 0;
        if self.producer.has_light_fences() {
            self.producer.end_light_fences();
        }
    }

    /// Makes checks have ordinary fences again if nothing was sent for a while. Then a peer that goes to sleep needs no heavy
    /// fence.
    #[inline]
    pub fn end_light_fences_if_quiet(&mut self, now_ns: u64) {
        let (tail, since_ns) = self.sent;
        if tail != self.producer.tail() {
            self.sent = (self.producer.tail(), now_ns);
        } else if now_ns.saturating_sub(since_ns) > LIGHT_FENCES_NS {
            self.end_light_fences();
        }
    }

    /// Wakes the peer, if necessary, after something was written. Right after a flush the check has a fence if it needs one,
    /// since the program may not poll again soon. Otherwise a hint must do until the next poll. Returns whether the check could
    /// not miss a sleeping peer.
    #[inline(always)]
    pub fn flush_after_send(&mut self, was_flushed: bool) -> bool {
        let look = was_flushed || self.producer.peer_may_sleep();
        if look {
            self.wake_if_asleep();
        }
        look
    }

    #[cold]
    pub fn ring_bell(&mut self) {
        self.wakes += 1;
        self.end_light_fences();
        // This fails only if the peer is gone or has made the bell blocking. Such a peer is not served any more.
        self.bell_failed |= self.bell.ring().is_err();
    }

    /// The peer's read position, of which a record brings the low bits, in lines. Returns `None` if the ring's own word has shown
    /// a newer one already.
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

    /// Makes a record that was just written reach the peer sooner, if the peer has taken all before it and so may wait for it.
    #[inline(always)]
    pub fn hasten(&mut self, record: Span) {
        if record.records() == 1 && self.consumed == record.start() {
            self.producer.hasten(record);
        }
    }

    /// Completes the sends that a record acknowledges.
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
        while self.complete_oldest(connections, core) {}
        true
    }

    /// Completes those of the oldest send that the peer has taken. Returns whether to check again.
    #[inline(never)]
    fn complete_oldest(&mut self, connections: &mut Connections, core: &mut Core) -> bool {
        let Some(ended) = connections.sends.pop_consumed(&mut self.fifo, self.consumed) else { return false };
        complete(&mut connections.conns, core, &ended, Status::Success);
        self.lending.ended(core, &ended, Status::Success);
        !self.fifo.is_empty()
    }
}
