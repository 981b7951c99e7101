//! The sending end of a channel.

use super::placement::Placement;
use super::queues::Place;
use super::source::Source;
use super::wire::{
    MESSAGE_HEAD_BYTES, Record, RemoteSlots, Segment, Taken, landed, message_head, segment_words,
};
use super::{End, Slots, context, lane};
use crate::error::{AcpError, Result};
use crate::limits::{PLACED_BYTES_MAX, SEGMENT_HERE_BYTES_MAX, SLOT_HEADER_BYTES};
use crate::links::Links;
use cci::{
    Access, Connection, Endpoint, Foreign, Memory, RegionHandle, Rma, RmaError, RmaFlags, RmaKind, SendError,
    SendFlags,
};
use cci_job::JobError;

/// Longest record of a short message that is put together without the buffer for that.
const RECORD_HERE_BYTES: usize = 64;

/// What the sender of a channel keeps.
pub(super) struct Sending {
    memory: Memory,
    handle: RegionHandle,
    /// How many slots there are here.
    slots: u32,
    /// The longest segment that has space in a slot of both sides; 0 before the receiver has made the channel.
    segment_bytes_max: u32,
    /// The receiver's slots, once it has made the channel, too; none of no bytes.
    theirs: RemoteSlots,
    /// Segments that were sent, and how many of them the receiver has taken from its slots.
    sent: u64,
    taken: u64,
    /// Messages that were sent, modulo 2³².
    messages: u32,
    /// Segments that are in slots here and have not left.
    leaving: u32,
    /// The slot here that is used next.
    next: u16,
    /// The request that frees this end; 0 before.
    pub freed_by: u64,
    /// Requests that wait at this end.
    pub waiting: Place,
    /// Why nothing can be sent any more.
    is_lost: bool,
}

/// A message, as far as it was sent.
#[derive(Copy, Clone, Default)]
pub(crate) struct Progress {
    done_bytes: usize,
    has_begun: bool,
    placed: Placed,
}

/// What has been copied to the receiver that it does not know of yet.
#[derive(Copy, Clone, Default, PartialEq, Eq)]
enum Placed {
    #[default]
    Nothing,
    /// The next segment, to its slot.
    Segment,
    /// The message, to the memory of its request.
    Message,
}

impl Progress {
    /// Whether nothing of it was done.
    #[inline]
    pub fn is_new(&self) -> bool {
        !self.has_begun && self.placed == Placed::Nothing
    }
}

/// What an attempt to send has come to.
pub(super) enum Sent {
    All,
    /// It can go on once an event has come.
    NotYet,
    /// It can go on when there is space. No event reports that, so it has to try again.
    WaitsForSpace,
}

impl Sending {
    pub fn new(links: &mut Links, slots: Slots) -> Result<Sending> {
        let memory = Memory::foreign(Foreign::owned(vec![0; slots.len_bytes()].into_boxed_slice()));
        let handle = links.endpoint().register(&memory, Access::READ)?;
        let theirs = RemoteSlots { count: 0, bytes: 0, handle };
        Ok(Sending {
            memory,
            handle,
            slots: slots.count,
            segment_bytes_max: 0,
            theirs,
            sent: 0,
            taken: 0,
            messages: 0,
            leaving: 0,
            next: 0,
            freed_by: 0,
            waiting: Place::default(),
            is_lost: false,
        })
    }

    pub fn held_bytes(&self) -> usize {
        self.memory.len()
    }

    /// The receiver has made the channel. False: it says what no receiver says.
    pub fn opened(&mut self, theirs: RemoteSlots) -> bool {
        let bytes = u64::from(theirs.count) * u64::from(theirs.bytes);
        let is_right = !self.is_open()
            && theirs.count > 0
            && theirs.bytes as usize > SLOT_HEADER_BYTES
            && bytes <= theirs.handle.len_bytes();
        if is_right {
            self.theirs = theirs;
            self.segment_bytes_max = (self.slot_bytes() as u32).min(theirs.bytes - SLOT_HEADER_BYTES as u32);
        }
        is_right
    }

    /// Bytes of a slot here.
    fn slot_bytes(&self) -> usize {
        self.memory.len() / self.slots as usize
    }

    fn is_open(&self) -> bool {
        self.theirs.count > 0
    }

    /// The receiver has taken so many segments. False: it says what no receiver says.
    pub fn took(&mut self, segments: u64) -> bool {
        let is_right = segments <= self.sent;
        if is_right {
            // News that waited for space comes behind later news that a message has taken along.
            self.taken = self.taken.max(segments);
        }
        is_right
    }

    /// A segment has left its slot here.
    pub fn left(&mut self, is_well: bool) {
        self.leaving = self.leaving.saturating_sub(1);
        self.is_lost |= !is_well;
    }

    /// The receiver is gone.
    pub fn lose(&mut self) {
        self.is_lost = true;
    }

    /// Sends a message that fits in one record, if that may leave now. False: nothing was done, and [`Sending::send`] knows more.
    #[inline]
    pub fn send_short(
        &mut self,
        links: &mut Links,
        end: End,
        source: Source<'_>,
        (taken, buffer): (Taken, &mut Vec<u8>),
    ) -> bool {
        let len = source.len();
        let has_slot = self.sent - self.taken < u64::from(self.theirs.count);
        let is_short = len <= self.segment_bytes_max as usize && len <= SEGMENT_HERE_BYTES_MAX;
        if self.is_lost || !has_slot || !is_short {
            return false;
        }
        let Ok(Some(connection)) = links.connection(lane(end.rank)) else { return false };
        let mut here = [0; RECORD_HERE_BYTES];
        let record_bytes = MESSAGE_HEAD_BYTES + len;
        let record = if record_bytes <= RECORD_HERE_BYTES {
            &mut here[..record_bytes]
        } else {
            buffer.clear();
            buffer.resize(record_bytes, 0);
            &mut buffer[..]
        };
        let Some((head, data)) = record.split_first_chunk_mut() else { return false };
        *head = message_head(end.channel, self.sent, taken);
        let is_sent =
            source.read(data) && links.endpoint().send(connection, record, 0, SendFlags::SILENT).is_ok();
        self.sent += u64::from(is_sent);
        self.messages = self.messages.wrapping_add(u32::from(is_sent));
        is_sent
    }

    /// Sends as much of a message as there are slots for, or all of it at once where the receiver has shown where it goes.
    pub fn send(
        &mut self,
        links: &mut Links,
        end: End,
        (source, progress): (Source<'_>, &mut Progress),
        (placement, buffer): (&mut Placement, &mut Vec<u8>),
    ) -> Result<Sent> {
        if self.is_lost {
            return Err(end.gone());
        }
        let Some(connection) = links.connection(lane(end.rank))? else { return Ok(Sent::NotYet) };
        let is_long = source.len() > SEGMENT_HERE_BYTES_MAX;
        if is_long && !progress.has_begun && progress.placed != Placed::Segment {
            let sent = self.place_message(links, end, connection, (source, progress), placement);
            if let Some(sent) = sent {
                return sent;
            }
        }
        let len_max = self.segment_bytes_max as usize;
        while !progress.has_begun || progress.done_bytes < source.len() {
            if self.sent - self.taken >= u64::from(self.theirs.count) {
                return Ok(Sent::NotYet);
            }
            let len = len_max.min(source.len() - progress.done_bytes);
            let segment = Segment {
                channel: end.channel,
                number: self.sent,
                message_bytes: source.len() as u64,
                len_bytes: len as u32,
            };
            const BEYOND: AcpError =
                AcpError::Argument("the memory of the message ends before the message does");
            let done = if len <= SEGMENT_HERE_BYTES_MAX {
                buffer.clear();
                buffer.extend(segment_words(&segment, true));
                if !source.append(progress.done_bytes, len, buffer) {
                    return Err(BEYOND);
                }
                say(links.endpoint(), (end, connection), buffer)
            } else if progress.placed == Placed::Segment
                || self.place(links, connection, &segment, (source, progress))
            {
                progress.placed = Placed::Segment;
                placement.ask(links, end);
                say(links.endpoint(), (end, connection), &segment_words(&segment, false))
            } else {
                if self.leaving >= self.slots {
                    return Ok(Sent::NotYet);
                }
                let slot = usize::from(self.next) * self.slot_bytes();
                if !source.copy(progress.done_bytes, len, &self.memory, slot) {
                    return Err(BEYOND);
                }
                self.write(links, end, connection, segment, slot)
            };
            match done {
                Ok(()) => {}
                Err(None) => return Ok(Sent::WaitsForSpace),
                Err(Some(error)) => {
                    self.is_lost = true;
                    return Err(error);
                }
            }
            self.sent += 1;
            progress.done_bytes += len;
            (progress.has_begun, progress.placed) = (true, Placed::Nothing);
        }
        self.messages = self.messages.wrapping_add(1);
        Ok(Sent::All)
    }

    /// Whether it was shown where the next message goes, or will not be.
    pub fn knows_request(&self, end: End, placement: &Placement) -> bool {
        placement.knows(end, self.messages)
    }

    /// Copies a message straight to the memory of the request that waits for it, if that was shown and is mapped here. None: it goes through slots.
    fn place_message(
        &mut self,
        links: &mut Links,
        end: End,
        connection: Connection,
        (source, progress): (Source<'_>, &mut Progress),
        placement: &mut Placement,
    ) -> Option<Result<Sent>> {
        if self.sent - self.taken >= u64::from(self.theirs.count) {
            return Some(Ok(Sent::NotYet));
        }
        if progress.placed == Placed::Nothing {
            let memory = placement.take(end, self.messages)?;
            let len = source.len().min(usize::try_from(memory.len_bytes).unwrap_or(usize::MAX));
            let target = (memory.handle, memory.offset);
            let is_placed =
                len <= PLACED_BYTES_MAX && source.put((0, len), links.endpoint(), connection, target);
            placement.has_tried(links, connection, (end, &memory), is_placed);
            if !is_placed {
                return None;
            }
            progress.placed = Placed::Message;
            placement.ask(links, end);
        }
        let record = landed(end.channel, self.sent, source.len() as u64);
        Some(match say(links.endpoint(), (end, connection), &record) {
            Ok(()) => {
                self.sent += 1;
                self.messages = self.messages.wrapping_add(1);
                Ok(Sent::All)
            }
            Err(None) => Ok(Sent::WaitsForSpace),
            Err(Some(error)) => {
                self.is_lost = true;
                Err(error)
            }
        })
    }

    /// Where the receiver's slot of a segment has its data.
    fn their_place(&self, segment: &Segment) -> u64 {
        let slot = segment.number % u64::from(self.theirs.count);
        slot * u64::from(self.theirs.bytes) + SLOT_HEADER_BYTES as u64
    }

    /// Copies a segment straight to its slot at the receiver, if that is mapped here.
    fn place(
        &self,
        links: &mut Links,
        connection: Connection,
        segment: &Segment,
        (source, progress): (Source<'_>, &Progress),
    ) -> bool {
        let part = (progress.done_bytes, segment.len_bytes as usize);
        source.put(part, links.endpoint(), connection, (self.theirs.handle, self.their_place(segment)))
    }

    /// Data and news of it in one operation. None: there is no space.
    fn write(
        &mut self,
        links: &mut Links,
        end: End,
        connection: Connection,
        segment: Segment,
        slot: usize,
    ) -> Result<(), Option<AcpError>> {
        let len = u64::from(segment.len_bytes);
        let local = [cci::Segment::new(self.handle, slot as u64, len)];
        let remote = [cci::Segment::new(self.theirs.handle, self.their_place(&segment), len)];
        let rma = Rma {
            kind: RmaKind::Write,
            local: &local,
            remote: &remote,
            message: Some(&segment_words(&segment, false)),
            context: context(end),
            flags: RmaFlags::NONE,
        };
        match links.endpoint().rma(connection, &rma) {
            Ok(()) => {
                self.leaving += 1;
                self.next = ((u32::from(self.next) + 1) % self.slots) as u16;
                Ok(())
            }
            Err(RmaError::WouldBlock) => Err(None),
            Err(RmaError::Disconnected) => Err(Some(end.gone())),
            Err(error) => {
                let what = "a segment of a channel".into();
                Err(Some(JobError::Endpoint { what, error: Box::new(error) }.into()))
            }
        }
    }

    /// Whether this end may go, once nothing is left to send: nothing reads its memory any more.
    pub fn may_go(&self) -> bool {
        self.is_lost || self.leaving == 0
    }

    /// Sends the receiver the number of segments, if it has made the channel, and ends the registration.
    pub fn go(self, links: &mut Links, end: End) -> Result<()> {
        if self.is_open() && !self.is_lost {
            links.say_bytes(
                lane(end.rank),
                &Record::End { channel: end.channel, segments: self.sent }.encode(),
            );
        }
        Ok(links.endpoint().deregister(&self.handle)?)
    }
}

/// Sends a record of a segment. None: there is no space.
fn say(
    endpoint: &mut Endpoint,
    (end, connection): (End, Connection),
    record: &[u8],
) -> std::result::Result<(), Option<AcpError>> {
    endpoint.send(connection, record, 0, SendFlags::SILENT).map_err(|error| match error {
        SendError::WouldBlock => None,
        SendError::Disconnected => Some(end.gone()),
        error => {
            let what = "a message of a channel".into();
            Some(JobError::Endpoint { what, error: Box::new(error) }.into())
        }
    })
}
