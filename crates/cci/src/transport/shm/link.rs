//! A link between two endpoints: two rings, two doorbells, and a socket whose hang-up shows that the peer is gone. Any number of
//! connections use it.

use super::borrowing::{Borrowing, NotBorrowed};
use super::connections::{Connections, Established, complete};
use super::doorbell::Doorbell;
use super::lending::Lending;
use super::out::{Control, Out};
use super::peer::{Peer, Side};
use super::pending::Fifo;
use super::rma::state::LinkTransfers;
use super::wire::{NOBODY, kind};
use crate::connection::{Connection, Status};
use crate::engine::charge::Charge;
use crate::engine::core::Core;
use crate::transport::token;
use cci_memory::ring::{Armed, Consumer, Corrupt, LINE_BYTES, Producer, PushError, RecordHeader};
use cci_memory::slab::Key;
use cci_sys::event::EventFd;
use cci_sys::heavy_fence;
use cci_sys::process;
use cci_sys::shared_memory::SharedMemory;
use cci_sys::unix::Stream;
use std::collections::VecDeque;
use std::sync::Arc;

/// Grants that nobody has asked for are written only while at least this part of the ring is free.
const GRANTS_LEAVE: u32 = 16;

/// The state of the peer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Up,
    /// The peer closed the link or died. What it had written before is still read, up to this position.
    Draining {
        until: u64,
    },
    /// The link can't be used any more, and the reason was counted.
    Dead,
}

/// Our ends of two rings and their doorbells, before they become a link.
pub(super) struct Ends {
    pub consumer: Consumer<SharedMemory>,
    pub producer: Producer<Arc<SharedMemory>>,
    /// The peer signals it to wake us.
    pub bell: EventFd,
    /// We signal it to wake the peer.
    pub peer_bell: EventFd,
    /// Size of the ring that we read.
    pub ring_bytes: u32,
    /// What that ring takes under our memory cap.
    pub charge: Charge,
    /// Whether this process makes heavy fences, and those of others reach it.
    pub has_heavy_fences: bool,
    /// Size of the ring that we write.
    pub peer_ring_bytes: u32,
}

/// One end of a link. It has its own cache lines, since one thread may make both ends.
#[repr(align(128))]
pub(super) struct Link {
    /// The key of this link.
    pub key: Key,
    pub consumer: Consumer<SharedMemory>,
    pub out: Out,
    pub life: Life,
    /// Whether our attention word is raised. The peer may have taken it since, to ring the bell.
    pub armed: bool,
    /// Whether the attention word asks the peer to ring also when it reads.
    pub armed_for_progress: bool,
    /// Whether the kernel has refused the heavy fence that was due when the attention word was raised. Then a ring of the bell
    /// may be missing.
    pub lacks_heavy_fence: bool,
    /// Whether the bell may have been rung, so that it must be drained before the endpoint sleeps.
    pub rung: bool,
    pub is_active: bool,
    pub is_busy: bool,
    /// Whether our read position was published, and it was not checked yet whether the peer sleeps until it changes.
    pub publish_due: bool,
    /// Polls since the last record came.
    pub idle_polls: u32,
    pub conns: u32,
    pub heard_ns: u64,
    pub pinged_ns: u64,
    /// When the last record came. This decides which link is polled less.
    pub worked_ns: u64,
    pub lifeline: Arc<Stream>,
    pub bell: EventFd,
    pub id: u64,
    pub side: Side,
    pub peer: Peer,
    pub ring_bytes: u32,
    _charge: Charge,
    pub stalls: u64,
    /// Whether the record on which the consumer is stalled must not be dropped. An unreliable message waits only while the
    /// program is behind with its events.
    pub stalled_by_reliable: bool,
    /// The connection of that record.
    pub stalled_for: Option<Connection>,
    pub rnr: u64,
    pub transfers: LinkTransfers,
    /// Loans of the peer, once it has offered memory for them.
    pub borrowing: Option<Box<Borrowing>>,
    /// Why the memory that the peer has offered is not mapped.
    pub not_borrowed: Option<NotBorrowed>,
}

impl Link {
    pub fn new(ends: Ends, lifeline: Stream, id: u64, side: Side, peer: Peer, now_ns: u64) -> Link {
        let lifeline = Arc::new(lifeline);
        let bell = Doorbell::new(ends.peer_bell, &lifeline, peer.uid == process::uid());
        Link {
            key: token::NOWHERE,
            consumer: ends.consumer,
            out: Out {
                producer: ends.producer,
                fifo: Fifo::new(),
                lending: Lending::default(),
                consumed: 0,
                flushed: 0,
                control: VecDeque::new(),
                deadline_ns: u64::MAX,
                has_heavy_fences: ends.has_heavy_fences,
                looks_awake: 0,
                sent: (0, now_ns),
                full_at: 0,
                bell,
                ring_bytes: ends.peer_ring_bytes,
                wakes: 0,
                bell_failed: false,
            },
            life: Life::Up,
            armed: false,
            armed_for_progress: false,
            lacks_heavy_fence: false,
            rung: false,
            is_active: false,
            is_busy: false,
            publish_due: false,
            idle_polls: 0,
            conns: 0,
            heard_ns: now_ns,
            pinged_ns: now_ns,
            worked_ns: now_ns,
            lifeline,
            bell: ends.bell,
            id,
            side,
            peer,
            ring_bytes: ends.ring_bytes,
            _charge: ends.charge,
            stalls: 0,
            stalled_by_reliable: false,
            stalled_for: None,
            rnr: 0,
            transfers: LinkTransfers::new(),
            borrowing: None,
            not_borrowed: None,
        }
    }

    /// How far this side has read, in lines. Every record carries this acknowledgement.
    #[inline]
    pub fn ack(&self) -> u32 {
        (self.consumer.head() / LINE_BYTES as u64) as u32
    }

    /// Whether something is under way that needs maintenance.
    // Always inlined: empty polls ask.
    #[inline(always)]
    pub fn needs_maintenance(&self) -> bool {
        !self.out.fifo.is_empty()
            || !self.out.control.is_empty()
            || self.out.wants_space()
            || !self.out.is_flushed()
            || self.out.producer.has_light_fences()
            || self.publish_due
            || self.consumer.is_stalled()
            || self.lacks_heavy_fence
            || self.life != Life::Up
            || self.out.bell_failed
            || self.transfers.is_in_use()
            || self.transfers.keeps_mappings()
            || self.borrowing.as_ref().is_some_and(|borrowing| borrowing.holds_any())
    }

    /// Whether no connection uses the link any more and nothing waits to be sent.
    pub fn is_unused(&self) -> bool {
        self.conns == 0 && self.out.control.is_empty()
    }

    /// Whether something waits for the peer to take records.
    pub fn waits_for_progress(&self) -> bool {
        !self.out.fifo.is_empty()
            || !self.out.control.is_empty()
            || self.out.wants_space()
            || self.transfers_wait_for_progress()
            || self.borrowing.as_ref().is_some_and(|borrowing| borrowing.is_pending())
    }

    /// Whether remote memory access waits for the peer to take records.
    fn transfers_wait_for_progress(&self) -> bool {
        self.transfers.has_work() && self.life == Life::Up
    }

    /// Raises the attention word, so that the peer rings when it writes. Returns true if a record has come already.
    pub fn arm(&mut self) -> bool {
        self.armed = true;
        self.armed_for_progress = self.waits_for_progress();
        let armed =
            if self.armed_for_progress { self.consumer.arm_for_progress() } else { self.consumer.arm() };
        self.lacks_heavy_fence = armed == Armed::NeedsHeavyFence && !heavy_fence::make();
        match armed {
            Armed::MaySleep => false,
            Armed::HasRecord => true,
            Armed::NeedsHeavyFence => self.consumer.has_record(),
        }
    }

    /// Lowers the attention word, so that the peer does not ring.
    pub fn disarm(&mut self) {
        self.consumer.disarm();
        self.armed = false;
    }

    /// Queues a record that is not a message, and writes the records that fit.
    pub fn send_control(&mut self, control: Control) -> Result<(), Corrupt> {
        self.out.control.push_back(control);
        self.push_control()
    }

    /// Informs the peer that nothing more comes for a connection.
    pub fn send_close(&mut self, conn: &Established) -> Result<(), Corrupt> {
        self.send_control(Control::about(kind::CLOSE, conn.peer(), NOBODY))
    }

    /// Asks the peer for a sign of life. If the ring is full, the peer's reading will be one.
    pub fn send_ping(&mut self) -> Result<(), Corrupt> {
        if self.out.control.is_empty() {
            self.send_control(Control::about(kind::PING, NOBODY, NOBODY))
        } else {
            Ok(())
        }
    }

    /// Answers a PING. If the ring is full, our reading is the answer.
    pub fn send_pong(&mut self) -> Result<(), Corrupt> {
        if self.out.control.is_empty() {
            self.send_control(Control::about(kind::PONG, NOBODY, NOBODY))
        } else {
            Ok(())
        }
    }

    /// Writes queued records as long as there is space.
    pub fn push_control(&mut self) -> Result<(), Corrupt> {
        while let Some(control) = self.out.control.front() {
            let header = RecordHeader {
                kind: control.kind,
                flags: control.to.generation as u8,
                conn: control.to.index,
                ack: self.ack(),
            };
            let (index, generation) = (control.own.index.to_ne_bytes(), control.own.generation.to_ne_bytes());
            let words = control.words.map(u64::to_ne_bytes);
            let payload: &[&[u8]] = match control.kind {
                kind::CONFIRM => &[&index, &generation],
                kind::MAP..=kind::LOANS | kind::FREED => &[words.as_flattened()],
                _ => &[],
            };
            match self.out.producer.push(header, payload) {
                Ok(_) => {
                    self.out.control.pop_front();
                }
                Err(PushError::Full | PushError::TooLong) => return Ok(()),
                Err(PushError::Corrupt(corrupt)) => return Err(corrupt),
            }
        }
        Ok(())
    }

    /// Whether a grant may be written to the ring now: everything before it is written, and messages keep some space.
    pub fn has_space_for_grant(&mut self) -> Result<bool, Corrupt> {
        let enough = u64::from(self.out.ring_bytes / GRANTS_LEAVE);
        Ok(self.out.control.is_empty() && self.out.producer.free_bytes(enough)? >= enough)
    }

    /// Writes a record to the ring. Returns false if there is no space.
    pub fn push_record(&mut self, header: RecordHeader, payload: &[u8]) -> Result<bool, Corrupt> {
        match self.out.producer.push(header, &[payload]) {
            Ok(_) => Ok(true),
            Err(PushError::Full | PushError::TooLong) => Ok(false),
            Err(PushError::Corrupt(corrupt)) => Err(corrupt),
        }
    }

    /// Returns the slots of messages that the program has dropped, as far as there is space.
    pub fn return_loans(&mut self) -> Result<(), Corrupt> {
        let ack = self.ack();
        let Some(borrowing) = &mut self.borrowing else { return Ok(()) };
        let slots = borrowing.due();
        if slots == 0 {
            return Ok(());
        }
        let header = RecordHeader { kind: kind::RETURN, flags: 0, conn: NOBODY.index, ack };
        match self.out.producer.push(header, &[&slots.to_ne_bytes()]) {
            Ok(_) => borrowing.went_back(),
            // The next maintenance tries again.
            Err(PushError::Full | PushError::TooLong) => {}
            Err(PushError::Corrupt(corrupt)) => return Err(corrupt),
        }
        Ok(())
    }

    /// Publishes our read position, and wakes the peer if it waits for that.
    #[inline(always)]
    pub fn publish(&mut self) {
        if self.consumer.publish_head() {
            // If this check needs a fence, it is made without one, and finds only a peer that has slept for a while. A peer that
            // goes to sleep just now is found at the next poll, behind a fence that adds to no latency.
            self.publish_due = !self.out.producer.has_light_fences();
            if self.out.producer.peer_may_sleep() {
                self.announce();
            }
        }
    }

    /// Checks, behind a fence, whether the peer waits for our read position.
    #[inline(never)]
    pub fn announce(&mut self) {
        self.publish_due = false;
        // If a handler panicked, the position may be unpublished.
        self.consumer.publish_head();
        if self.out.producer.needs_progress_wake() {
            self.out.ring_bell();
        }
    }

    /// Reads the peer's position from the ring and completes the sends before it. Returns whether it has changed.
    pub fn complete_taken(
        &mut self,
        connections: &mut Connections,
        core: &mut Core,
    ) -> Result<bool, Corrupt> {
        let consumed = self.out.producer.consumed()?;
        Ok(self.out.complete_to(consumed, connections, core))
    }

    /// Ends all sends of the connection with the index `conn`.
    pub fn end_sends(&mut self, connections: &mut Connections, core: &mut Core, conn: u32, status: Status) {
        let conns = &mut connections.conns;
        let Out { fifo, lending, .. } = &mut self.out;
        connections.sends.end_some(
            fifo,
            |send| if send.conn == conn { send.end() } else { 0 },
            |ended| {
                complete(conns, core, &ended, status);
                lending.ended(core, &ended, status);
            },
        );
        lending.connection_ended(core, conn);
    }
}
