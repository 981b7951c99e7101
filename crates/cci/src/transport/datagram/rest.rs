//! The messages of a datagram that were not given to a handler yet, because one call may give it no more.
//!
//! The protocol is done with the datagram: its messages are acknowledged. The transport takes no further datagram until all of
//! them are lent or delivered. So they stay in order, and the receive buffers that they may need stay free.

use super::size::DATAGRAM_BYTES_MAX;
use crate::connection::Connection;
use crate::engine::core::Core;
use crate::engine::lent::{Lender, deliver_counted};
use cci_proto::{BundleMessages, Time};
use std::ops::Range;

/// The records of one datagram, aligned as messages are that are lent.
#[repr(align(64))]
struct Records([u8; DATAGRAM_BYTES_MAX as usize]);

/// The rest of a datagram.
pub(super) struct Rest {
    /// Allocated when a rest is first kept.
    records: Option<Box<Records>>,
    /// The place of the remaining records. It is empty if there are none.
    left: Range<usize>,
    connection: Connection,
    /// When the datagram came.
    since: Time,
}

impl Rest {
    pub const fn new() -> Rest {
        let connection = Connection { index: u32::MAX, generation: 0 };
        Rest { records: None, left: 0..0, connection, since: Time(0) }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// When the datagram of these messages came.
    pub fn since(&self) -> Time {
        self.since
    }

    /// The memory that it takes, bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.records.as_ref().map_or(0, |records| size_of_val(&**records) as u64)
    }

    /// Lends what the handler takes of a datagram's messages, and keeps the others.
    pub fn lend_first(
        &mut self,
        core: &mut Core,
        lender: &mut Lender<'_>,
        connection: Connection,
        messages: BundleMessages<'_>,
        now: Time,
    ) {
        debug_assert!(self.is_empty(), "no datagram is taken while another one is left");
        let (bytes, is_aligned) = (messages.as_bytes(), messages.are_aligned());
        let left = if is_aligned { lender.lend_bundle(core, connection, messages) } else { bytes.len() };
        if left == 0 {
            return;
        }
        let bytes = bytes.get(bytes.len() - left..).unwrap_or_default();
        let records = self.records.get_or_insert_with(|| Box::new(Records([0; DATAGRAM_BYTES_MAX as usize])));
        let Some(place) = records.0.get_mut(..bytes.len()).filter(|_| lender.may_leave()) else {
            deliver_counted(core, connection, BundleMessages::of_checked(bytes));
            return;
        };
        place.copy_from_slice(bytes);
        (self.left, self.connection, self.since) = (0..bytes.len(), connection, now);
        if !is_aligned {
            self.lend(core, lender);
        }
    }

    /// Lends as many of the remaining messages as the handler takes.
    pub fn lend(&mut self, core: &mut Core, lender: &mut Lender<'_>) {
        // If the handler panics, the messages are delivered, and none is left.
        let Range { start, end } = std::mem::take(&mut self.left);
        let Some(bytes) = self.records.as_ref().and_then(|records| records.0.get(start..end)) else { return };
        let left = lender.lend_bundle(core, self.connection, BundleMessages::of_checked(bytes));
        self.left = end - left..end;
    }

    /// Delivers the remaining messages as events.
    #[cold]
    pub fn deliver(&mut self, core: &mut Core) {
        let left = std::mem::take(&mut self.left);
        if let Some(bytes) = self.records.as_ref().and_then(|records| records.0.get(left)) {
            deliver_counted(core, self.connection, BundleMessages::of_checked(bytes));
        }
    }
}
