//! The receiving end of a channel.
//!
//! A slot begins with a header that this process writes when the segment is there: the number of the segment, counted from 1, its length, and that of its
//! message. So it does not matter in which order segments arrive.

use super::owed::{Owed, Unsaid};
use super::placement;
use super::requests::Waiting;
use super::wire::{Record, RemoteSlots, RequestMemory, Segment, Taken, request};
use super::{End, Slots, lane};
use crate::error::{AcpError, Result};
use crate::limits::{ALIGN_BYTES, ASKED_REQUESTS, SLOT_HEADER_BYTES};
use crate::links::Links;
use crate::regions::Regions;
use cci::{Access, Memory, RegionHandle};

/// What a header has in place of a length where the message is in the memory of its request.
const LANDED: u32 = u32::MAX;

/// What the receiver of a channel keeps.
pub(super) struct Receiving {
    memory: Memory,
    handle: RegionHandle,
    slots: Slots,
    /// Segments that were taken from their slots, and how many of them the sender is still to learn of.
    taken: u64,
    unsaid: Unsaid,
    /// How many segments are in slots: more than there are where a sender has sent some twice.
    in_slots: u32,
    /// Of the message that is being received: its length, and how much was taken.
    message_bytes: u64,
    done_bytes: u64,
    is_in_message: bool,
    is_open: bool,
    is_lost: bool,
    /// The sender wants to be shown the memory of so many requests.
    asked: u8,
    /// Messages that were received, or for which requests wait; modulo 2³².
    messages: u32,
    /// How many segments there are in all, once the sender has freed the channel; before, more than there can be.
    segments: u64,
    /// The request that frees this end; 0 before.
    pub freed_by: u64,
    /// Requests that wait at this end.
    pub waiting: Waiting,
}

/// Why a message was not received as it was sent.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// The memory that it is for is gone.
    NotThere,
    /// It is longer than that.
    Truncated,
}

/// Where a message goes.
pub(super) enum Target<'a> {
    Slice(&'a mut [u8]),
    Memory(&'a Memory),
    /// Memory that was shown to the sender.
    Shown(&'a Memory),
    Nowhere,
}

impl Loss {
    /// What the program learns of a message of so many bytes.
    #[cold]
    pub fn of(self, len_bytes: u64, space_bytes: usize) -> AcpError {
        match self {
            Loss::NotThere => AcpError::Argument("the memory of the message is not there any more"),
            Loss::Truncated => AcpError::Truncated { len_bytes, space_bytes },
        }
    }
}

impl Target<'_> {
    fn len(&self) -> usize {
        match self {
            Target::Slice(bytes) => bytes.len(),
            Target::Memory(memory) | Target::Shown(memory) => memory.len(),
            Target::Nowhere => 0,
        }
    }

    /// Takes bytes from a slot; what has no space is dropped.
    fn put(&mut self, at: usize, slot: &Memory, offset: usize, len: usize) -> bool {
        let len = len.min(self.len().saturating_sub(at));
        match self {
            Target::Slice(bytes) => bytes.get_mut(at..at + len).is_none_or(|piece| slot.read(offset, piece)),
            // Of a message that is longer, the rest begins behind the end.
            Target::Memory(memory) | Target::Shown(memory) => {
                len == 0 || memory.copy_from(at, slot, offset, len)
            }
            Target::Nowhere => true,
        }
    }
}

impl Receiving {
    pub fn new(links: &mut Links, slots: Slots) -> Result<Receiving> {
        let memory = links.endpoint().allocate(slots.len_bytes())?;
        let handle = links.endpoint().register(&memory, Access::WRITE)?;
        Ok(Receiving {
            memory,
            handle,
            slots,
            taken: 0,
            unsaid: Unsaid::default(),
            in_slots: 0,
            message_bytes: 0,
            done_bytes: 0,
            is_in_message: false,
            is_open: false,
            is_lost: false,
            asked: 0,
            messages: 0,
            segments: u64::MAX,
            freed_by: 0,
            waiting: Waiting::default(),
        })
    }

    pub fn held_bytes(&self) -> usize {
        self.memory.len().next_multiple_of(ALIGN_BYTES as usize)
    }

    /// Tells the sender where the slots are, once.
    pub fn open(&mut self, links: &mut Links, end: End) {
        if !self.is_open {
            self.is_open = true;
            let slots = RemoteSlots { count: self.slots.count, bytes: self.slots.bytes, handle: self.handle };
            links.say_bytes(lane(end.rank), &Record::Open { channel: end.channel, slots }.encode());
        }
    }

    /// The sender asks to be shown the memory of more requests.
    pub fn was_asked(&mut self) {
        self.asked = self.asked.saturating_add(ASKED_REQUESTS as u8);
    }

    /// The next message has a request, or was received without.
    #[inline]
    pub fn count_message(&mut self) {
        self.messages = self.messages.wrapping_add(1);
    }

    /// Shows the sender the memory of the request that the next message gets, if it wants that and can map it. Returns whether it was shown.
    #[inline]
    pub fn show(&mut self, links: &mut Links, end: End, memory: &Memory, regions: &Regions) -> bool {
        self.asked > 0 && placement::is_long(memory) && self.show_mappable(links, end, memory, regions)
    }

    fn show_mappable(&mut self, links: &mut Links, end: End, memory: &Memory, regions: &Regions) -> bool {
        let Some((handle, offset)) = regions.find_mappable(memory) else { return false };
        let shown = RequestMemory { message: self.messages, handle, offset, len_bytes: memory.len() as u64 };
        self.asked -= 1;
        links.say_bytes(lane(end.rank), &request(end.channel, &shown));
        true
    }

    /// Where a slot begins.
    #[inline]
    fn slot(&self, number: u64) -> usize {
        (number % u64::from(self.slots.count)) as usize * self.slots.bytes as usize
    }

    /// Whether the segment of this number has a slot now.
    #[inline]
    fn has_slot(&self, number: u64) -> bool {
        let ahead = number.checked_sub(self.taken);
        self.is_open && ahead.is_some_and(|ahead| ahead < u64::from(self.slots.count))
    }

    //= wire.md R-ACP-6
    /// Whether a sender sends such a segment now.
    #[inline]
    fn is_right(&self, segment: &Segment) -> bool {
        self.has_slot(segment.number)
            && u64::from(segment.len_bytes) <= segment.message_bytes
            && segment.len_bytes as usize <= self.slots.bytes as usize - SLOT_HEADER_BYTES
    }

    /// A segment has come that is all of a message, and may be the next one, which goes to `target` then without its slot. None: it is not, and nothing was
    /// done.
    #[inline(always)]
    pub fn take_whole(
        &mut self,
        owed: &mut Owed,
        end: End,
        (number, data): (u64, &[u8]),
        target: &Memory,
    ) -> Option<std::result::Result<usize, Loss>> {
        let is_next = number == self.taken && self.is_open && !self.is_in_message;
        if !is_next || data.len() > self.slots.bytes as usize - SLOT_HEADER_BYTES {
            return None;
        }
        let fitting = data.get(..target.len()).unwrap_or(data);
        let is_noted = !is_to_note(number, self.slots.count) || self.note(number);
        let is_well = is_noted && (fitting.is_empty() || target.write(0, fitting));
        self.count_taken(owed, end);
        Some(if !is_well {
            Err(Loss::NotThere)
        } else if fitting.len() < data.len() {
            Err(Loss::Truncated)
        } else {
            Ok(data.len())
        })
    }

    /// Writes that a slot was used for a segment that has passed it by.
    #[cold]
    fn note(&self, number: u64) -> bool {
        self.memory.write(self.slot(number), &header_number(number))
    }

    /// One more segment was taken. The sender hears of it now and then.
    #[inline(always)]
    fn count_taken(&mut self, owed: &mut Owed, end: End) {
        self.taken += 1;
        if self.unsaid.took(self.slots.count) {
            owed.owe(end, self.taken);
        }
    }

    /// How many segments are taken before the sender is to learn of them in a record of its own; at least 1.
    #[inline]
    pub fn until_news(&self) -> usize {
        self.unsaid.until_due(self.slots.count)
    }

    /// Whether there is enough news for a message to the sender to take along.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.unsaid.is_to_carry(self.slots.count)
    }

    /// What a message takes along then.
    #[inline]
    pub fn news(&self, end: End) -> Taken {
        Taken { channel: end.channel, segments: self.taken }
    }

    /// A message has taken along what there was.
    #[inline]
    pub fn was_carried(&mut self) {
        self.unsaid.was_carried();
    }

    /// Whether the next segment may be in its slot.
    #[inline]
    pub fn has_segments(&self) -> bool {
        self.in_slots > 0
    }

    /// A segment has come, and goes to its slot. False: no sender sends it.
    pub fn arrived(&mut self, segment: &Segment, data: Option<&[u8]>) -> bool {
        if !self.is_right(segment) {
            return false;
        }
        let slot = self.slot(segment.number);
        data.is_none_or(|data| self.memory.write(slot + SLOT_HEADER_BYTES, data))
            && self.enter(segment.number, segment.len_bytes, segment.message_bytes)
    }

    //= wire.md R-ACP-8
    /// A message has come to the memory of its request, as the segment of this number. False: no sender sends it.
    pub fn landed(&mut self, number: u64, message_bytes: u64) -> bool {
        self.has_slot(number) && self.enter(number, LANDED, message_bytes)
    }

    /// Writes the header of a segment's slot.
    fn enter(&mut self, number: u64, len_bytes: u32, message_bytes: u64) -> bool {
        let mut header = [0; SLOT_HEADER_BYTES];
        let (first, rest) = header.split_at_mut(4);
        first.copy_from_slice(&header_number(number));
        let (len, message) = rest.split_at_mut(4);
        len.copy_from_slice(&len_bytes.to_ne_bytes());
        message.copy_from_slice(&message_bytes.to_ne_bytes());
        let is_well = self.memory.write(self.slot(number), &header);
        self.in_slots = self.in_slots.saturating_add(u32::from(is_well));
        is_well
    }

    /// The next segment's length and that of its message, if it is there. The sender may write to slots, so the header is read once and checked.
    fn next(&self) -> Option<(u32, u64)> {
        let mut header = [0; SLOT_HEADER_BYTES];
        if !self.has_segments() || !self.memory.read(self.slot(self.taken), &mut header) {
            return None;
        }
        let [a, b, c, d] = *header.as_chunks::<4>().0 else { return None };
        let is_there = a == header_number(self.taken);
        let len = u32::from_ne_bytes(b);
        let message_bytes = u64::from_ne_bytes([c[0], c[1], c[2], c[3], d[0], d[1], d[2], d[3]]);
        let is_inside = len as usize <= self.slots.bytes as usize - SLOT_HEADER_BYTES;
        (is_there && (is_inside || len == LANDED)).then_some((len, message_bytes))
    }

    /// Takes what has come of the next message. Returns its length when all of it was taken.
    pub fn take(&mut self, owed: &mut Owed, end: End, target: &mut Target<'_>) -> Option<Result<usize>> {
        while let Some((len, message_bytes)) = self.next() {
            if !self.is_in_message {
                (self.is_in_message, self.message_bytes, self.done_bytes) = (true, message_bytes, 0);
            }
            let slot = self.slot(self.taken) + SLOT_HEADER_BYTES;
            let is_well = if len == LANDED {
                self.done_bytes = self.message_bytes;
                matches!(target, Target::Shown(_) | Target::Nowhere)
            } else {
                let at = self.done_bytes as usize;
                self.done_bytes += u64::from(len);
                target.put(at, &self.memory, slot, len as usize)
            };
            self.in_slots -= 1;
            self.count_taken(owed, end);
            self.is_in_message = self.done_bytes < self.message_bytes;
            if !is_well {
                return Some(Err(Loss::NotThere.of(self.message_bytes, target.len())));
            }
            if !self.is_in_message {
                let (len_bytes, space_bytes) = (self.message_bytes, target.len());
                return Some(if len_bytes > space_bytes as u64 {
                    Err(Loss::Truncated.of(len_bytes, space_bytes))
                } else {
                    Ok(len_bytes as usize)
                });
            }
        }
        if self.is_lost {
            return Some(Err(end.gone()));
        }
        (self.segments <= self.taken)
            .then_some(Err(AcpError::Argument("the sender has freed this channel: nothing more comes")))
    }

    /// The sender has freed the channel.
    pub fn ended(&mut self, segments: u64) {
        self.segments = segments;
    }

    /// The sender is gone.
    pub fn lose(&mut self) {
        self.is_lost = true;
    }

    /// Whether this end may go: nothing writes to its memory any more.
    pub fn may_go(&self) -> bool {
        self.is_lost || self.segments <= self.taken
    }

    pub fn go(self, links: &mut Links) -> Result<()> {
        Ok(links.endpoint().deregister(&self.handle)?)
    }
}

/// What the header of a slot has in its first bytes when a segment is there: its number, counted from 1.
#[inline]
fn header_number(number: u64) -> [u8; 4] {
    (number as u32).wrapping_add(1).to_ne_bytes()
}

/// Whether the slot of a segment gets its number although the segment passes it by. Numbers in headers come again after 2^32 segments, and an old one must
/// not look like a new one: so of each 2^31 segments, one in each slot leaves its number there.
#[inline]
fn is_to_note(number: u64, count: u32) -> bool {
    number as u32 & (u32::MAX >> 1) < count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SLOTS_MAX;

    /// As far as the header of a slot can be from the number of the next segment there, if all of them pass it by.
    #[test]
    fn an_old_number_never_looks_like_a_new_one() {
        const PERIOD: u64 = 1 << 31;
        for count in [1, 2, 3, 7, 8, 1000, SLOTS_MAX - 1, SLOTS_MAX] {
            for slot in [0, 1, count / 2, count - 1] {
                let slots = u64::from(count);
                let of_slot = |from: u64| from + (slots + u64::from(slot) - from % slots) % slots;
                let noted = |number: &u64| is_to_note(*number, count);
                let mut last = None;
                for period in 0..9 {
                    let found: Vec<u64> =
                        (0..2).map(|turn| of_slot(period * PERIOD + turn * slots)).filter(noted).collect();
                    assert_eq!(found.len(), 1, "segment of slot {slot} of {count} in period {period}");
                    let ahead = last.map_or(0, |last: u64| found[0] - last);
                    assert!(ahead < 1 << 32, "{ahead} segments");
                    last = found.first().copied();
                }
            }
        }
    }
}
