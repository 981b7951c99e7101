//! All channel ends of a process, and what is under way on them.
//!
//! The n-th sender that a rank makes for another one belongs to the n-th receiver that the other one makes for it. A message is cut into segments, each of
//! which fills a slot of the receiver's or less. A segment's data and the news of it are one operation of the core: a short one is a message, a longer
//! one a write with a notification.

mod ends;
mod owed;
mod placement;
mod queues;
mod receiving;
mod requests;
mod sending;
mod source;
mod table;
mod wire;

pub(crate) use sending::Progress;
pub(crate) use table::Channels;

use crate::error::{AcpError, Result};
use crate::limits::{CHANNEL_BITS, COLORS, SLOT_BYTES_MIN, SLOT_HEADER_BYTES, SLOTS_MAX};
use crate::links::Lane;

/// Contexts of what channels start have this bit.
const CONTEXT: u64 = 1 << 63;
/// Bytes of the records of a channel's end beside its slots, in this process.
pub(crate) const RECEIVING_BYTES: usize = size_of::<(End, receiving::Receiving)>() + ends::PLACE_BYTES;
pub(crate) const SENDING_BYTES: usize = size_of::<(End, sending::Sending)>() + ends::PLACE_BYTES;

// What the paper's ends take beside their slots: Tables II and III. A sender's is 168 and grows by 16 bytes a slot, of which there is one at least.
const _: () = assert!(SENDING_BYTES <= 184);
const _: () = assert!(RECEIVING_BYTES <= 160);

/// How many slots an end of a channel has, and how long they are. The two ends need not agree.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Slots {
    /// How many, from 1.
    pub count: u32,
    /// Bytes of each. At the receiver, 16 of these are a header.
    pub bytes: u32,
}

/// One end of a channel or of a segmented buffer: the other rank, and which of those with it.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct End {
    pub rank: u32,
    channel: u64,
}

impl Slots {
    fn len_bytes(self) -> usize {
        self.count as usize * self.bytes as usize
    }

    pub(crate) fn check(self) -> Result<()> {
        let is_right = (1..=SLOTS_MAX).contains(&self.count) && self.bytes >= SLOT_BYTES_MIN;
        let is_short = u64::from(self.count) * u64::from(self.bytes) <= u64::from(u32::MAX);
        if !is_right || !is_short {
            return Err(AcpError::Argument(
                "a channel has 1 to 65,536 slots of 32 bytes at least, and 4 GiB at most",
            ));
        }
        Ok(())
    }
}

impl End {
    /// The end with this number among those of a pair and direction.
    pub(crate) fn new(rank: u32, channel: u64) -> End {
        End { rank, channel }
    }

    /// Which of those with the other rank it is.
    pub(crate) fn number(self) -> u64 {
        self.channel
    }

    fn gone(self) -> AcpError {
        AcpError::Gone { rank: self.rank, why: "its channel has ended".into() }
    }
}

/// The connection of channels.
pub(crate) fn lane(rank: u32) -> Lane {
    Lane { rank, color: COLORS }
}

/// How the endpoint names what an end has started.
pub(crate) fn context(end: End) -> u64 {
    CONTEXT | u64::from(end.rank) << CHANNEL_BITS | end.channel
}

/// What [`context`] was made of. None: it is not one of channels.
pub(crate) fn of_context(context: u64) -> Option<End> {
    let rank = ((context & !CONTEXT) >> CHANNEL_BITS) as u32;
    (context & CONTEXT != 0).then_some(End { rank, channel: context & ((1 << CHANNEL_BITS) - 1) })
}

const _: () = assert!(SLOT_BYTES_MIN as usize > SLOT_HEADER_BYTES);
