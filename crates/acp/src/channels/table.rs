//! All channel ends of a process, and what is under way on them.

use super::ends::Ends;
use super::owed::Owed;
use super::placement::Placement;
use super::queues::Queues;
use super::receiving::{Receiving, Target};
use super::requests::{First, Requests};
use super::sending::{Progress, Sending, Sent};
use super::source::Source;
use super::wire::{Message, Record, Segment, Taken};
use super::{End, Slots, lane, of_context};
use crate::error::{AcpError, Result};
use crate::limits::{BUFFER_BIT, CHANNEL_BITS, CHANNELS_BITS, TURN_MESSAGES};
use crate::links::Links;
use crate::regions::Regions;
use cci::{Memory, Status};
use cci_job::numbered::Numbered;

/// The last channels with a rank, by their numbers.
struct Pair {
    sender: u64,
    receiver: u64,
    /// Up to this one, the other rank has made its sender.
    wanted: u64,
}

/// A message that is to be sent.
struct Outgoing {
    request: u64,
    message: Memory,
    progress: Progress,
}

#[derive(Default)]
pub(crate) struct Channels {
    pairs: Numbered<u32, Pair>,
    /// Channels have greater numbers since the last reset.
    first: u64,
    senders: Ends<Sending>,
    receivers: Ends<Receiving>,
    outgoing: Queues<Outgoing>,
    /// Senders that have something to send or are to be freed.
    busy: Vec<End>,
    requests: Requests,
    owed: Owed,
    placement: Placement,
    /// Data on its way between memory.
    buffer: Vec<u8>,
    /// Something was not sent for want of space.
    pub waits_for_space: bool,
}

const FREED: AcpError = AcpError::Argument("this channel was freed, or has ended by a reset");

impl Channels {
    pub fn create_sender(&mut self, links: &mut Links, rank: u32, slots: Slots) -> Result<End> {
        let sending = Sending::new(links, slots)?;
        let end = End { rank, channel: next(&mut self.pair(rank).sender)? };
        self.senders.insert(end, sending);
        links.say_bytes(lane(rank), &Record::Wanted { channel: end.channel }.encode());
        Ok(end)
    }

    pub fn create_receiver(&mut self, links: &mut Links, rank: u32, slots: Slots) -> Result<End> {
        let mut receiving = Receiving::new(links, slots)?;
        let pair = self.pair(rank);
        let end = End { rank, channel: next(&mut pair.receiver)? };
        if end.channel <= pair.wanted {
            receiving.open(links, end);
        }
        self.receivers.insert(end, receiving);
        // A rank that is gone is noticed by who connects to it.
        links.connection(lane(rank))?;
        Ok(end)
    }

    fn pair(&mut self, rank: u32) -> &mut Pair {
        let first = self.first;
        self.pairs.entry(rank).or_insert(Pair { sender: first, receiver: first, wanted: first })
    }

    /// The length that a request has come to, which is forgotten. None: it is under way, or [`Channels::take`] has more to say.
    #[inline]
    pub fn take_well(&mut self, request: u64) -> Option<usize> {
        self.requests.take_well(request)
    }

    /// The result of a request, which is forgotten. None: it is under way.
    pub fn take(&mut self, request: u64) -> Option<Result<usize>> {
        self.requests.take(request)
    }

    #[inline]
    pub fn has_ended(&self, request: u64) -> bool {
        self.requests.has_ended(request)
    }

    /// Sends as much of a message as can be, behind those that were started. None: not all yet.
    pub fn send(
        &mut self,
        links: &mut Links,
        end: End,
        message: &[u8],
        progress: &mut Progress,
    ) -> Result<Option<()>> {
        let source = Source::Slice(message);
        if progress.is_new() && self.send_short(links, end, source) {
            return Ok(Some(()));
        }
        let Some(sending) = self.senders.get_mut(end) else { return Err(FREED) };
        if sending.waiting.is_taken() {
            return Ok(None);
        }
        match sending.send(links, end, (source, progress), (&mut self.placement, &mut self.buffer))? {
            Sent::All => Ok(Some(())),
            Sent::NotYet => Ok(None),
            Sent::WaitsForSpace => {
                self.waits_for_space = true;
                Ok(None)
            }
        }
    }

    /// Whether it may still be shown where the next message goes.
    pub fn lacks_request(&self, end: End) -> bool {
        self.senders.get(end).is_some_and(|sending| !sending.knows_request(end, &self.placement))
    }

    /// Sends a message, of which the rest waits for its turn if not all of it can be sent now.
    pub fn start_send(&mut self, links: &mut Links, end: End, message: &Memory) -> Result<u64> {
        if self.send_short(links, end, Source::Memory(message)) {
            return Ok(self.requests.start_ended_well(0));
        }
        self.start_long_send(links, end, message)
    }

    /// Sends a message that fits in one record, if that may leave now and nothing waits before it. False: nothing was done.
    #[inline(always)]
    fn send_short(&mut self, links: &mut Links, end: End, source: Source<'_>) -> bool {
        let mut carried = None;
        if let Some((last, receiving)) = self.receivers.last_mut()
            && last.rank == end.rank
            && receiving.has_news()
        {
            carried = Some((last, receiving));
        }
        let taken = carried.as_ref().map_or(Taken::default(), |(last, receiving)| receiving.news(*last));
        let is_sent = self.senders.get_mut(end).is_some_and(|sending| {
            !sending.waiting.is_taken() && sending.send_short(links, end, source, (taken, &mut self.buffer))
        });
        if is_sent && let Some((_, receiving)) = carried {
            receiving.was_carried();
        }
        is_sent
    }

    #[inline(never)]
    fn start_long_send(&mut self, links: &mut Links, end: End, message: &Memory) -> Result<u64> {
        let Some(sending) = self.senders.get_mut(end) else { return Err(FREED) };
        let mut progress = Progress::default();
        if !sending.waiting.is_taken() {
            let source = (Source::Memory(message), &mut progress);
            match sending.send(links, end, source, (&mut self.placement, &mut self.buffer)) {
                Ok(Sent::All) => return Ok(self.requests.start_ended_well(0)),
                Ok(Sent::NotYet) => {}
                Ok(Sent::WaitsForSpace) => self.waits_for_space = true,
                Err(error) => return Ok(self.requests.start_ended(Err(error))),
            }
        }
        let request = self.requests.start();
        let outgoing = Outgoing { request, message: message.clone(), progress };
        self.outgoing.push(&mut sending.waiting, outgoing);
        self.make_busy(end);
        Ok(request)
    }

    pub fn free_sender(&mut self, links: &mut Links, end: End) -> Result<u64> {
        let request = self.requests.start();
        match self.senders.get_mut(end) {
            Some(sending) => sending.freed_by = request,
            None => self.requests.end(request, Ok(0)),
        }
        self.make_busy(end);
        self.advance(links);
        Ok(request)
    }

    fn make_busy(&mut self, end: End) {
        if !self.busy.contains(&end) {
            self.busy.push(end);
        }
    }

    /// Whether nothing waits to be sent.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.owed.is_empty() & self.busy.is_empty()
    }

    /// Sends what can be sent.
    pub fn advance(&mut self, links: &mut Links) {
        self.waits_for_space = false;
        self.owed.say_due(links);
        let mut busy = std::mem::take(&mut self.busy);
        busy.retain(|&end| self.advance_sender(links, end));
        self.busy.append(&mut busy);
    }

    /// Whether anything is left to do.
    fn advance_sender(&mut self, links: &mut Links, end: End) -> bool {
        let Some(sending) = self.senders.get_mut(end) else { return false };
        while let Some(first) = self.outgoing.front_mut(&sending.waiting) {
            let source = Source::Memory(&first.message);
            let parts = (&mut self.placement, &mut self.buffer);
            let sent = sending.send(links, end, (source, &mut first.progress), parts);
            let result = match sent {
                Ok(Sent::All) => Ok(0),
                Ok(Sent::NotYet) => return true,
                Ok(Sent::WaitsForSpace) => {
                    self.waits_for_space = true;
                    return true;
                }
                Err(error) => Err(error),
            };
            self.requests.end(first.request, result);
            self.outgoing.pop(&mut sending.waiting);
        }
        if sending.freed_by == 0 {
            return false;
        }
        if !sending.may_go() {
            return true;
        }
        self.placement.forget(end);
        if let Some(sending) = self.senders.remove(end) {
            let request = sending.freed_by;
            let gone = sending.go(links, end);
            self.requests.end(request, gone.map(|()| 0));
        }
        false
    }

    /// Receives what is there of the next message, behind those that were started. None: not all yet.
    pub fn receive(&mut self, links: &mut Links, end: End, into: &mut [u8]) -> Option<Result<usize>> {
        let Some(receiving) = self.receivers.get_mut(end) else { return Some(Err(FREED)) };
        if !receiving.waiting.is_empty() {
            return None;
        }
        let received = receiving.take(&mut self.owed, end, &mut Target::Slice(into));
        if received.is_some() {
            receiving.count_message();
        }
        self.owed.say_due(links);
        received
    }

    /// Receives the next message, if it is there and no other request waits, or when it comes.
    pub fn start_receive(
        &mut self,
        links: &mut Links,
        end: End,
        into: &Memory,
        regions: &Regions,
    ) -> Result<u64> {
        let Some(receiving) = self.receivers.get_mut(end) else { return Err(FREED) };
        if receiving.waiting.is_empty() {
            let received = receiving.take(&mut self.owed, end, &mut Target::Memory(into));
            self.owed.say_due(links);
            if let Some(result) = received {
                receiving.count_message();
                return Ok(self.requests.start_ended(result));
            }
        }
        let is_shown = receiving.show(links, end, into, regions);
        receiving.count_message();
        Ok(self.requests.start_waiting(&mut receiving.waiting, (into.clone(), is_shown)))
    }

    pub fn free_receiver(&mut self, links: &mut Links, end: End) -> Result<u64> {
        let request = self.requests.start();
        match self.receivers.get_mut(end) {
            Some(receiving) => receiving.freed_by = request,
            None => self.requests.end(request, Ok(0)),
        }
        self.advance_receiver(links, end);
        self.owed.say_due(links);
        Ok(request)
    }

    /// Gives what has come to those who wait for it.
    fn advance_receiver(&mut self, links: &mut Links, end: End) {
        let Some(receiving) = self.receivers.get_mut(end) else { return };
        while let Some(first) = self.requests.first(&receiving.waiting) {
            let Some(result) = receiving.take(&mut self.owed, end, &mut target(&first)) else { return };
            first.end(&mut receiving.waiting, result);
        }
        if receiving.freed_by == 0 {
            return;
        }
        while !receiving.may_go() {
            match receiving.take(&mut self.owed, end, &mut Target::Nowhere) {
                Some(Ok(_) | Err(AcpError::Truncated { .. })) => {}
                Some(Err(_)) => break,
                None => return,
            }
        }
        if let Some(receiving) = self.receivers.remove(end) {
            let request = receiving.freed_by;
            let gone = receiving.go(links);
            self.requests.end(request, gone.map(|()| 0));
        }
    }

    /// A rank has said something. False: no process of this version says it.
    //= wire.md R-ACP-5
    pub fn said(&mut self, links: &mut Links, rank: u32, bytes: &[u8]) -> bool {
        if self.take_short(rank, bytes) {
            return true;
        }
        if let Some(message) = Message::decode(bytes) {
            if !self.is_since_reset(message.channel) {
                return true;
            }
            let end = End { rank, channel: message.channel };
            let is_right = message.taken.channel == 0 || self.took(rank, message.taken);
            return self.arrived(links, end, &message.segment(), Some(message.data)) && is_right;
        }
        let Some(record) = Record::decode(bytes) else { return false };
        if !self.is_since_reset(record.channel()) {
            // It was sent before a reset.
            return true;
        }
        match record {
            Record::Wanted { channel } => {
                let pair = self.pair(rank);
                let known = pair.wanted.min(pair.receiver);
                pair.wanted = pair.wanted.max(channel);
                for channel in known + 1..=pair.wanted.min(pair.receiver) {
                    let end = End { rank, channel };
                    if let Some(receiving) = self.receivers.get_mut(end) {
                        receiving.open(links, end);
                    }
                }
                true
            }
            Record::Open { channel, slots } => {
                let end = End { rank, channel };
                let was_made = self.was_made(end);
                match self.senders.get_mut(end) {
                    Some(sending) => {
                        let is_right = sending.opened(slots);
                        self.advance(links);
                        is_right
                    }
                    // It was freed before, and had sent nothing.
                    None if was_made => {
                        links.say_bytes(lane(rank), &Record::End { channel, segments: 0 }.encode());
                        true
                    }
                    None => false,
                }
            }
            Record::Segment { segment, data } => {
                self.arrived(links, End { rank, channel: segment.channel }, &segment, data)
            }
            Record::Taken { channel, segments } => self.took(rank, Taken { channel, segments }),
            Record::End { channel, segments } => {
                let end = End { rank, channel };
                let Some(receiving) = self.receivers.get_mut(end) else { return false };
                receiving.ended(segments);
                self.advance_receiver(links, end);
                true
            }
            Record::Asked { channel } => {
                let receiving = self.receivers.get_mut(End { rank, channel });
                receiving.map(Receiving::was_asked).is_some()
            }
            Record::Request { channel, memory } => {
                let end = End { rank, channel };
                if self.senders.get(end).is_some() {
                    self.placement.shown(end, memory)
                } else {
                    self.was_made(end)
                }
            }
            Record::Landed { channel, number, message_bytes } => {
                let end = End { rank, channel };
                let Some(receiving) = self.receivers.get_mut(end) else { return false };
                let is_right = receiving.landed(number, message_bytes);
                self.advance_receiver(links, end);
                is_right
            }
        }
    }

    /// So many segments were taken from their slots. False: no receiver says it.
    #[inline(never)]
    fn took(&mut self, rank: u32, Taken { channel, segments }: Taken) -> bool {
        let end = End { rank, channel };
        match self.senders.last_mut() {
            Some((last, sending)) if last == end => sending.took(segments),
            _ => self.took_elsewhere(end, segments),
        }
    }

    #[inline(never)]
    fn took_elsewhere(&mut self, end: End, segments: u64) -> bool {
        match self.senders.get_mut(end) {
            Some(sending) => sending.took(segments),
            // One that was freed has no use for it.
            None => self.was_made(end),
        }
    }

    /// Whether this rank has made this sender since the last reset.
    fn was_made(&mut self, end: End) -> bool {
        (self.first + 1..=self.pair(end.rank).sender).contains(&end.channel)
    }

    /// A message has come, and nothing can be said now. False: it is neither a short one of an open channel nor news of slots, and [`Channels::said`] knows
    /// more.
    #[inline(always)]
    pub fn take_short(&mut self, rank: u32, bytes: &[u8]) -> bool {
        let Some(message) = Message::decode(bytes) else { return self.take_news(rank, bytes) };
        if message.taken.channel != 0 && !self.took(rank, message.taken) {
            return false;
        }
        // There is none of before a reset.
        let end = End { rank, channel: message.channel };
        let Some(receiving) = self.receivers.get_mut(end) else { return false };
        if receiving.freed_by != 0 {
            return false;
        }
        let Some(first) = self.requests.first(&receiving.waiting) else {
            return receiving.arrived(&message.segment(), Some(message.data));
        };
        // One that came earlier may be behind it.
        let Some(into) = first.target().filter(|_| !receiving.has_segments()) else { return false };
        match receiving.take_whole(&mut self.owed, end, (message.number, message.data), into) {
            Some(Ok(len_bytes)) => first.end_well(&mut receiving.waiting, len_bytes),
            Some(Err(loss)) => {
                let error = loss.of(message.data.len() as u64, into.len());
                first.end(&mut receiving.waiting, Err(error));
            }
            None => return false,
        }
        true
    }

    /// Does what [`Channels::take_short`] does with what is said of messages that are placed directly.
    #[inline(never)]
    fn take_placement(&mut self, rank: u32, bytes: &[u8]) -> bool {
        match Record::decode_placement(bytes) {
            Some(record) if !self.is_since_reset(record.channel()) => false,
            Some(Record::Request { channel, memory }) => {
                let end = End { rank, channel };
                self.senders.get(end).is_some() && self.placement.shown(end, memory)
            }
            Some(Record::Landed { channel, number, message_bytes }) => {
                let end = End { rank, channel };
                let Some(receiving) = self.receivers.get_mut(end) else { return false };
                if receiving.freed_by != 0 || !receiving.landed(number, message_bytes) {
                    return false;
                }
                while let Some(first) = self.requests.first(&receiving.waiting)
                    && let Some(result) = receiving.take(&mut self.owed, end, &mut target(&first))
                {
                    first.end(&mut receiving.waiting, result);
                }
                true
            }
            _ => false,
        }
    }

    /// A record has come that is no short message. False: it is neither news of slots nor of messages that are placed directly, and nothing was done.
    #[inline(never)]
    fn take_news(&mut self, rank: u32, bytes: &[u8]) -> bool {
        match Record::decode(bytes) {
            Some(Record::Taken { channel, segments }) => self.took(rank, Taken { channel, segments }),
            _ => self.take_placement(rank, bytes),
        }
    }

    /// How many messages to take at a time: as many as requests wait for, up to a few dozen, and no more than until a sender is to learn that slots are
    /// free. It may be waiting for that, and nothing can be said while messages are taken.
    #[inline]
    pub fn batch_max(&self) -> usize {
        let awaited = self.requests.awaited().clamp(1, TURN_MESSAGES);
        self.receivers.last().map_or(awaited, |receiving| awaited.min(receiving.until_news()))
    }

    #[inline]
    fn is_since_reset(&self, channel: u64) -> bool {
        channel >> CHANNELS_BITS == self.first >> CHANNELS_BITS
    }

    /// A segment has come. False: no sender sends it.
    #[inline]
    fn arrived(&mut self, links: &mut Links, end: End, segment: &Segment, data: Option<&[u8]>) -> bool {
        let Some(receiving) = self.receivers.get_mut(end) else { return false };
        let is_right = receiving.arrived(segment, data);
        self.advance_receiver(links, end);
        is_right
    }

    /// A write has ended. False: it is not one of channels.
    pub fn write_ended(&mut self, context: u64, status: Status) -> bool {
        let Some(end) = of_context(context) else { return false };
        if let Some(sending) = self.senders.get_mut(end) {
            sending.left(status == Status::Success);
        }
        true
    }

    /// A rank is gone: what was started on its channels ends.
    pub fn lose(&mut self, links: &mut Links, rank: u32) {
        self.senders.iter_mut().filter(|(end, _)| end.rank == rank).for_each(|(_, sending)| sending.lose());
        let receivers: Vec<End> = self.receivers.names().filter(|end| end.rank == rank).collect();
        for end in receivers {
            if let Some(receiving) = self.receivers.get_mut(end) {
                receiving.lose();
            }
            self.advance_receiver(links, end);
        }
        self.advance(links);
    }

    /// Whether messages may be placed directly in memory of requests at other ranks.
    pub fn allow_placement(&mut self, may_go: bool) {
        self.placement.is_stopped = !may_go;
    }

    /// Ends all channels, on all ranks. Records that are on their way are known by their numbers.
    pub fn forget(&mut self, links: &mut Links) -> Result<()> {
        let Channels { senders, receivers, first, mut requests, mut placement, .. } = std::mem::take(self);
        self.first = (first + (1 << CHANNELS_BITS)) % (1 << CHANNEL_BITS);
        requests.clear();
        placement.clear();
        (self.requests, self.placement) = (requests, placement);
        senders.into_iter().try_for_each(|(end, mut sending)| {
            sending.lose();
            sending.go(links, end)
        })?;
        receivers.into_iter().try_for_each(|(_, receiving)| receiving.go(links))
    }

    /// How many messages of a sender were placed directly.
    pub fn placed_messages(&self, end: End) -> u64 {
        self.placement.messages(end)
    }

    pub fn sender_bytes(&self, end: End) -> usize {
        self.senders.get(end).map_or(0, Sending::held_bytes)
    }

    pub fn receiver_bytes(&self, end: End) -> usize {
        self.receivers.get(end).map_or(0, Receiving::held_bytes)
    }
}

/// Where the message of a request goes.
#[inline]
fn target<'a>(first: &'a First<'_>) -> Target<'a> {
    match first.target() {
        Some(memory) if first.is_shown() => Target::Shown(memory),
        Some(memory) => Target::Memory(memory),
        None => Target::Nowhere,
    }
}

/// The number of a new channel.
fn next(last: &mut u64) -> Result<u64> {
    if (*last + 1) & BUFFER_BIT != 0 {
        return Err(AcpError::Full("there were too many channels with this rank"));
    }
    *last += 1;
    Ok(*last)
}
