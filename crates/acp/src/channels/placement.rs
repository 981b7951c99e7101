//! Long messages that go past the slots, directly to the memory of requests that wait for them.
//!
//! The n-th request of a receiver takes the n-th message, whatever else happens. So a receiver may show where a request's memory is as soon as that waits,
//! and the sender may write there when it comes to that message, without a question. Only who finds the slots mapped asks to be shown memory, for some
//! requests at a time, so that nobody shows what is of no use.

use super::wire::{Record, RequestMemory};
use super::{End, context, lane};
use crate::limits::{ASKED_REQUESTS, SEGMENT_HERE_BYTES_MAX, SHOWN_REQUESTS_MAX};
use crate::links::Links;
use cci::{Access, Connection, Foreign, Memory, RegionAddress, RegionHandle, RmaFlags};
use cci_job::numbered::Numbered;
use std::collections::VecDeque;

/// Memory that was not mapped so often is mapped only now and then.
const REFUSALS_MAX: u32 = 16;
const TRY_AGAIN: u32 = 256;

/// What a sender knows of the receiver's requests.
#[derive(Default)]
struct Requests {
    /// Those that were shown, by their messages.
    shown: VecDeque<RequestMemory>,
    /// How many it will still be shown, and whether any ever was.
    awaited: u32,
    was_any_shown: bool,
    /// How often memory was not mapped since it last was.
    refusals: u32,
    /// Messages that were placed directly.
    messages: u64,
}

/// The requests of all receivers, as far as senders of this process know them.
#[derive(Default)]
pub(super) struct Placement {
    ends: Numbered<End, Requests>,
    /// Where a byte goes that is read of memory for it to be mapped.
    byte: Option<(Memory, RegionHandle)>,
    /// A reset has begun: other ranks may have ended their requests.
    pub is_stopped: bool,
}

impl Requests {
    /// The memory of the request of this message, if it was shown. Those of messages before it are dropped.
    fn first(&mut self, message: u32) -> Option<RequestMemory> {
        while let Some(memory) = self.shown.front() {
            let ahead = memory.message.wrapping_sub(message).cast_signed();
            if ahead >= 0 {
                return (ahead == 0).then_some(*memory);
            }
            self.shown.pop_front();
        }
        None
    }
}

impl Placement {
    /// Asks to be shown memory of requests, if few are still awaited.
    pub fn ask(&mut self, links: &mut Links, end: End) {
        let requests = self.ends.entry(end).or_default();
        if requests.awaited <= ASKED_REQUESTS / 2 {
            requests.awaited += ASKED_REQUESTS;
            links.say_bytes(lane(end.rank), &Record::Asked { channel: end.channel }.encode());
        }
    }

    /// The receiver has shown a request's memory. False: it was not asked to.
    pub fn shown(&mut self, end: End, memory: RequestMemory) -> bool {
        let Some(requests) = self.ends.get_mut(&end).filter(|requests| requests.awaited > 0) else {
            return false;
        };
        requests.awaited -= 1;
        requests.was_any_shown = true;
        if requests.shown.len() < SHOWN_REQUESTS_MAX {
            requests.shown.push_back(memory);
        }
        true
    }

    /// Whether the memory of this message's request was shown, or never any.
    pub fn knows(&self, end: End, message: u32) -> bool {
        let requests = self.ends.get(&end).filter(|requests| requests.was_any_shown);
        requests.is_none_or(|requests| requests.shown.iter().any(|memory| memory.message == message))
    }

    /// Where the message of this number goes. None: that was not shown.
    pub fn take(&mut self, end: End, message: u32) -> Option<RequestMemory> {
        let requests = self.ends.get_mut(&end).filter(|_| !self.is_stopped)?;
        let memory = requests.first(message)?;
        requests.shown.pop_front();
        Some(memory)
    }

    /// Whether memory was mapped. If not, a byte of it is read, as memory is mapped that is used: the next message to it may be placed directly.
    pub fn has_tried(
        &mut self,
        links: &mut Links,
        connection: Connection,
        (end, memory): (End, &RequestMemory),
        is_mapped: bool,
    ) {
        let Some(requests) = self.ends.get_mut(&end) else { return };
        if is_mapped {
            requests.refusals = 0;
            requests.messages += 1;
            return;
        }
        let refusals = requests.refusals;
        requests.refusals = refusals.wrapping_add(1);
        if refusals >= REFUSALS_MAX && !refusals.is_multiple_of(TRY_AGAIN) {
            return;
        }
        let byte = match &self.byte {
            Some((_, handle)) => *handle,
            None => {
                let memory = Memory::foreign(Foreign::owned(Box::new([0])));
                let Ok(handle) = links.endpoint().register(&memory, Access::LOCAL) else { return };
                self.byte = Some((memory, handle));
                handle
            }
        };
        let (to, from) = (RegionAddress::new(byte, 0), RegionAddress::new(memory.handle, memory.offset));
        let context = context(End::new(end.rank, 0));
        // What becomes of it shows with the next message.
        let _ = links.endpoint().rma_read(connection, to, from, 1, context, RmaFlags::SILENT);
    }

    /// How many messages of this channel were placed directly.
    pub fn messages(&self, end: End) -> u64 {
        self.ends.get(&end).map_or(0, |requests| requests.messages)
    }

    /// All senders have ended.
    pub fn clear(&mut self) {
        self.ends = Numbered::default();
    }

    /// The sender is freed.
    pub fn forget(&mut self, end: End) {
        self.ends.remove(&end);
    }
}

/// Whether memory of this length is worth being shown.
pub(super) fn is_long(memory: &Memory) -> bool {
    memory.len() > SEGMENT_HERE_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: End = End { rank: 1, channel: 1 };

    fn memory(message: u32) -> RequestMemory {
        RequestMemory { message, handle: RegionHandle::from_bytes([0; 32]), offset: 0, len_bytes: 5_000 }
    }

    fn asked() -> Placement {
        let mut placement = Placement::default();
        placement.ends.entry(END).or_default().awaited = ASKED_REQUESTS;
        placement
    }

    #[test]
    fn a_message_goes_to_its_own_request_only() {
        let mut placement = asked();
        for message in [u32::MAX - 1, 0, 1, 4] {
            assert!(placement.shown(END, memory(message)));
        }
        assert!(placement.take(End::new(2, 1), u32::MAX).is_none(), "another channel");
        assert!(placement.take(END, u32::MAX).is_none(), "nobody has shown where it goes");
        assert_eq!(placement.take(END, 0), Some(memory(0)));
        assert!(placement.take(END, 0).is_none(), "once");
        assert!(placement.take(END, 2).is_none() && placement.take(END, 3).is_none());
        placement.is_stopped = true;
        assert!(placement.take(END, 4).is_none());
        placement.is_stopped = false;
        assert_eq!(placement.take(END, 4), Some(memory(4)));
    }

    #[test]
    fn no_more_is_kept_than_was_asked_for() {
        let mut placement = Placement::default();
        assert!(!placement.shown(END, memory(0)), "nobody has asked");
        placement = asked();
        for message in 0..ASKED_REQUESTS {
            assert!(placement.shown(END, memory(message)));
        }
        assert!(!placement.shown(END, memory(ASKED_REQUESTS)));
        let most = SHOWN_REQUESTS_MAX as u32 + 10;
        placement.ends.entry(END).or_default().awaited = most;
        assert!((0..most).all(|message| placement.shown(END, memory(message))));
        assert_eq!(placement.ends.get(&END).unwrap().shown.len(), SHOWN_REQUESTS_MAX);
        placement.forget(END);
        assert!(placement.take(END, most - 1).is_none());
    }
}
