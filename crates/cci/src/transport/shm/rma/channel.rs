//! A link's rings, as the channel that [`ordered_rma`](crate::transport::ordered_rma) needs.

use super::initiator::Initiator;
use super::pull::Pull;
use super::state::Notify;
use crate::connection::{Connection, Status};
use crate::engine::core::Core;
use crate::transport::ordered_rma::{Arrived, Channel, Pulled, Pushed, Route, Trial};
use crate::transport::shm::RING_BYTES_MIN;
use crate::transport::shm::out::Out;
use cci_memory::bytes::Bytes;
use cci_memory::ring::{PushError, Record, RecordHeader, Span, payload_bytes_limit, record_bytes};
use cci_memory::slab::Key;
use cci_proto::{Atomic, RemoteAddress, RmaKind, RmaSegment};
use cci_sys::shared_memory::SharedMemory;
use std::collections::VecDeque;

/// The longest payload of any record, which is the longest that the smallest ring takes.
pub(in crate::transport::shm) const RECORD_BYTES_MAX: u32 =
    payload_bytes_limit(RING_BYTES_MIN as usize) as u32;
/// The most data in a record, in whole lines.
const DATA_BYTES_MAX: u32 = 15 << 10;
/// The least number of data records that a ring holds. With fewer, one side would wait while the other copies.
const RECORDS_PER_RING: u32 = 16;
/// The part of a ring that is reserved for messages.
const MESSAGES_SHARE: u32 = 4;

const _: () = assert!(DATA_BYTES_MAX + 64 <= RECORD_BYTES_MAX);

/// The channel to the peer of one connection, through the ring.
pub(in crate::transport::shm) struct RingChannel<'a> {
    pub out: &'a mut Out,
    pub notifies: &'a mut VecDeque<Notify>,
    pub flow: Key,
    pub conn: Key,
    pub header: RecordHeader,
    pub initiator: Option<&'a mut Initiator>,
    pub pull: Option<&'a mut Pull>,
}

impl RingChannel<'_> {
    fn pushed(result: Result<Span, PushError>) -> Result<Span, Pushed> {
        result.map_err(|error| match error {
            PushError::Full => Pushed::Full,
            // Our records are never too long. A word of the peer that is impossible ends the link.
            PushError::TooLong | PushError::Corrupt(_) => Pushed::Broken,
        })
    }
}

impl Channel for RingChannel<'_> {
    fn push(&mut self, head: &[u8], data: &[u8]) -> Pushed {
        Self::pushed(self.out.producer.push(self.header, &[head, data]))
            .map_or_else(|why| why, |_| Pushed::Yes)
    }

    fn push_notify(&mut self, head: &[u8], message: &[u8], slot: u16) -> Pushed {
        match Self::pushed(self.out.producer.push(self.header, &[head, message])) {
            Ok(span) => {
                while self.notifies.front().is_some_and(|oldest| oldest.span.end() <= self.out.consumed) {
                    self.notifies.pop_front();
                }
                self.notifies.push_back(Notify { span, flow: self.flow, slot });
                Pushed::Yes
            }
            Err(why) => why,
        }
    }

    fn push_memory(&mut self, head: &[u8], data: &Bytes) -> Pushed {
        Self::pushed(self.out.producer.push_memory(self.header, head, data))
            .map_or_else(|why| why, |_| Pushed::Yes)
    }

    fn data_bytes_max(&self) -> usize {
        (self.out.ring_bytes / RECORDS_PER_RING).min(DATA_BYTES_MAX) as usize
    }

    fn has_space_for_bulk(&mut self) -> bool {
        let record = record_bytes(self.data_bytes_max() + 64) as u64;
        let enough = u64::from(self.out.ring_bytes / MESSAGES_SHARE) + record;
        // If the peer's position is impossible, the next push finds that.
        self.out.producer.free_bytes(enough).is_ok_and(|free| free >= enough)
    }

    fn is_taken(&mut self, position: u64) -> bool {
        self.out.consumed >= position || self.out.producer.consumed().is_ok_and(|at| at >= position)
    }

    fn direct(
        &mut self,
        core: &mut Core,
        _: Connection,
        kind: RmaKind,
        first: &RmaSegment,
        more: &[RmaSegment],
    ) -> Option<Status> {
        self.initiator.as_mut()?.copy(core, self.out, self.conn, kind, first, more)
    }

    fn direct_atomic(
        &mut self,
        core: &mut Core,
        _: Connection,
        atomic: Atomic,
        target: RemoteAddress,
        result: Option<RemoteAddress>,
    ) -> Option<Status> {
        self.initiator.as_mut()?.atomic(core, self.out, self.conn, atomic, target, result)
    }

    fn route(&mut self, kind: RmaKind, len_bytes: u64) -> (Route, Option<Trial>) {
        self.pull.as_mut().map_or((Route::Push, None), |pull| pull.route(kind, len_bytes))
    }

    fn pull_from_bytes(&self, kind: RmaKind) -> u64 {
        self.pull.as_ref().map_or(u64::MAX, |pull| pull.pays_from_bytes(kind))
    }

    fn pull(&mut self, from: u64, to: &Bytes) -> Pulled {
        self.pull.as_mut().map_or(Pulled::Unreadable, |pull| pull.pull(from, to))
    }
}

impl Arrived for Record<'_, SharedMemory> {
    fn len_bytes(&self) -> usize {
        Record::len_bytes(self) as usize
    }

    fn read(&self, skip_bytes: usize, out: &mut [u8]) -> usize {
        self.copy_from(skip_bytes, out)
    }

    fn read_to(&self, skip_bytes: usize, to: &Bytes) -> bool {
        let len_bytes = (Record::len_bytes(self) as usize).saturating_sub(skip_bytes);
        self.copy_to_memory(skip_bytes, to, 0, len_bytes)
    }
}
