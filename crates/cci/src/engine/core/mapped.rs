//! Loans: messages that come in memory of the peer's, and the ends of those that were sent so.

use super::{Core, SendOp};
use crate::connection::{Connection, Status};
use crate::engine::borrowed::{Borrowed, BorrowedMemory, MappedMessage};
use crate::engine::event::Event;
use crate::engine::receive::Filled;
use std::sync::Arc;

/// What became of a message that has come.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The program gets it.
    Queued,
    /// The program has disconnected, and gets nothing any more.
    Dropped,
    /// There is no receive buffer for it now.
    NoBuffer,
}

impl Core {
    /// The size of a receive buffer, bytes.
    pub fn slot_bytes(&self) -> u32 {
        self.slot_bytes
    }

    /// Queues a message that lies in memory of the peer's. It takes a receive buffer, as any message does.
    pub fn deliver_mapped(
        &mut self,
        connection: Connection,
        message: Borrowed,
        memory: &Arc<BorrowedMemory>,
    ) -> Delivery {
        if !self.events.has_space_for_others(1) {
            return Delivery::NoBuffer;
        }
        let filled = self.fill_buffer(connection, Borrowed::BYTES, |to| message.write(connection, to));
        let about = match filled {
            Some(Filled::Parked(parked)) => self.receive.unpark(parked),
            Some(Filled::Slot(slot)) => Some(slot),
            None if self.is_dropped(connection) => return Delivery::Dropped,
            None => return Delivery::NoBuffer,
        };
        let Some(about) = about else { return Delivery::Dropped };
        let counted = &mut self.counters.bytes_received;
        *counted = counted.wrapping_add(u64::from(message.len_bytes)) - Borrowed::BYTES as u64;
        self.events.push(Event::Mapped(MappedMessage::new(about, memory.clone())));
        Delivery::Queued
    }

    /// Completes a send whose completion has no place in the order of its connection's.
    #[cold]
    pub fn complete_apart(&mut self, connection: Connection, op: SendOp, status: Status) {
        self.raise_completion(connection, op, status);
    }
}
