//! Messages on their way out.

use super::answer::{Answer, SendFailure};
use super::base::{Base, Control, Due};
use super::call::CallFailure;
use super::event::Event;
use super::kept::{Kept, Lent};
use super::outgoing::{Outgoing, Report};
use super::own::Own;
use super::peer::Peer;
use super::send::{Payload, Progress, SendError, SendId};
use super::staging::{Staged, Staging};
use super::wire::{CallNumber, Frame, HEAD_BYTES, MESSAGE_HEAD, NoReply, Purpose, Source};
use crate::connection::{Connection, Status};
use crate::endpoint::Endpoint;
use crate::limits::{LONG_MESSAGES_ALL_MAX, LONG_SEGMENTS_MAX, MESSAGE_BYTES_MAX, SENDS_MAX};
use crate::options::SendFlags;
use crate::rma::{Access, Memory, RegionHandle, Registration, Segment};
use cci_memory::slab::{Key, Slab};
use std::ops::Range;

/// The most slices of a short message that are sent without being copied together first.
const SLICES_MAX: usize = 8;
/// Up to this many bytes, to copy a message behind its head and send one slice takes less than to send two.
const JOINED_BYTES_MAX: usize = 1_024;

/// All messages that this side sends.
pub struct Sending {
    long: Slab<Outgoing>,
    /// Contexts of the program's that look like the layer's own.
    contexts: Slab<u64>,
    pub staging: Staging,
    kept: Kept,
    /// Where a short message is put together that is not in a few slices.
    scratch: Vec<u8>,
}

impl Sending {
    pub fn new(staged_bytes_max: u64) -> Sending {
        Sending {
            long: Slab::new(LONG_MESSAGES_ALL_MAX),
            contexts: Slab::new(SENDS_MAX),
            staging: Staging::new(staged_bytes_max),
            kept: Kept::default(),
            scratch: Vec::with_capacity(MESSAGE_BYTES_MAX as usize),
        }
    }

    /// Sends a message of any length.
    #[inline]
    pub fn send(
        &mut self,
        base: &mut Base,
        connection: Connection,
        payload: Payload<'_>,
        context: u64,
        flags: SendFlags,
    ) -> Result<SendId, SendError> {
        let Some(peer) = base.peers.get_mut(connection) else { return Err(unknown(base)) };
        if let Payload::Bytes(bytes) = payload
            && bytes.len() <= peer.short_bytes_max
            && peer.may_send_short()
            && !Own::is_like(context)
        {
            send_behind(
                &mut base.endpoint,
                &mut self.scratch,
                connection,
                &MESSAGE_HEAD,
                bytes,
                (context, flags),
            )?;
            peer.sent_short();
            base.endpoint.count_prompt_message();
            return Ok(SendId(None));
        }
        self.send_other(base, connection, payload, context, flags)
    }

    /// Sends what is not short, or not in one slice.
    #[cold]
    #[inline(never)]
    fn send_other(
        &mut self,
        base: &mut Base,
        connection: Connection,
        payload: Payload<'_>,
        context: u64,
        flags: SendFlags,
    ) -> Result<SendId, SendError> {
        let too_long = |len: usize, max_bytes: usize| SendError::TooLong {
            len_bytes: len as u64,
            max_bytes: max_bytes as u64,
        };
        let len = payload.len_bytes().ok_or(too_long(usize::MAX, isize::MAX as usize))?;
        let Some(peer) = base.peers.get(connection) else { return Err(unknown(base)) };
        if len > peer.short_bytes_max {
            if !peer.attribute.is_reliable() {
                return Err(too_long(len, peer.short_bytes_max));
            }
            let silent = flags.contains(SendFlags::SILENT);
            let report = Report { context, silent };
            return self.send_long(base, connection, Purpose::Message, payload, len, report);
        }
        if !peer.may_send_short() {
            return Err(SendError::WouldBlock);
        }
        let kept = Own::is_like(context) && !flags.contains(SendFlags::SILENT);
        let kept =
            if kept { Some(self.contexts.insert(context).map_err(|_| SendError::WouldBlock)?) } else { None };
        let own_context = kept.map_or(context, |key| Own::Kept(key).to_context());
        let sent = self.send_short(base, connection, Purpose::Message, payload, own_context, flags);
        if let (Err(_), Some(key)) = (&sent, kept) {
            self.contexts.remove(key);
        }
        sent.map(|()| SendId(None))
    }

    /// Sends a request. Returns the call.
    pub fn call(
        &mut self,
        base: &mut Base,
        connection: Connection,
        payload: Payload<'_>,
        context: u64,
        deadline_ns: u64,
    ) -> Result<Key, SendError> {
        let Some(peer) = base.peers.get_mut(connection) else { return Err(unknown(base)) };
        if !peer.may_call() {
            return Err(SendError::WouldBlock);
        }
        let key = base.calls.begin(connection, context, deadline_ns).ok_or(SendError::WouldBlock)?;
        let (purpose, own) = (Purpose::Request(CallNumber::of(key)), Own::Request(key));
        let sent = match payload {
            Payload::Bytes(bytes) if peer.may_send_short_call(bytes.len()) => {
                self.send_short_call(&mut base.endpoint, peer, purpose, bytes, own)
            }
            _ => self.send_for_call(base, connection, purpose, payload, own).map(|send| {
                if let Some(call) = base.calls.get_mut(key) {
                    call.send = send;
                }
            }),
        };
        if let Err(error) = sent {
            base.calls.forget(key);
            return Err(error);
        }
        if let Some(peer) = base.peers.get_mut(connection) {
            peer.has_called(key);
        }
        Ok(key)
    }

    /// Sends the answer to a request. `None`: nobody waits for it.
    pub fn answer(
        &mut self,
        base: &mut Base,
        connection: Connection,
        purpose: Purpose,
        payload: Payload<'_>,
    ) -> Result<(), Option<SendError>> {
        let call = purpose.call().ok_or(None)?;
        let peer = base.peers.get_mut(connection).filter(|peer| peer.has_request(call)).ok_or(None)?;
        let own = Own::Reply(call.to_key());
        let sent = match (payload, purpose) {
            (Payload::Bytes(bytes), Purpose::Reply(_)) if peer.may_send_short_call(bytes.len()) => {
                self.send_short_call(&mut base.endpoint, peer, purpose, bytes, own)
            }
            (payload, _) => self.send_for_call(base, connection, purpose, payload, own).map(drop),
        };
        match sent {
            Ok(()) => {
                base.peers.get_mut(connection).and_then(|peer| peer.end_request(call));
                Ok(())
            }
            Err(SendError::Disconnected | SendError::UnknownConnection) => Err(None),
            Err(error) => Err(Some(error)),
        }
    }

    /// Sends a request, or the answer to one, which [`Peer::may_send_short_call`] has allowed.
    #[inline]
    fn send_short_call(
        &mut self,
        endpoint: &mut Endpoint,
        peer: &mut Peer,
        purpose: Purpose,
        bytes: &[u8],
        own: Own,
    ) -> Result<(), SendError> {
        let head = purpose.call_head();
        let how = (own.to_context(), SendFlags::NONE);
        send_behind(endpoint, &mut self.scratch, peer.connection, &head, bytes, how)?;
        peer.sent_short();
        endpoint.count_prompt_message();
        Ok(())
    }

    /// Sends a request, or the answer to one. What fits one message of the endpoint ends with `own`.
    #[inline(never)]
    fn send_for_call(
        &mut self,
        base: &mut Base,
        connection: Connection,
        purpose: Purpose,
        payload: Payload<'_>,
        own: Own,
    ) -> Result<SendId, SendError> {
        let Some(peer) = base.peers.get(connection) else { return Err(unknown(base)) };
        if !peer.attribute.is_reliable() {
            return Err(SendError::NotReliable);
        }
        let too_long = SendError::TooLong { len_bytes: u64::MAX, max_bytes: isize::MAX as u64 };
        let len = payload.len_bytes().ok_or(too_long)?;
        if len > (peer.short_bytes_max + HEAD_BYTES).saturating_sub(purpose.head_bytes()) {
            return self.send_long(base, connection, purpose, payload, len, Report::NONE);
        }
        if !peer.may_send_short() {
            return Err(SendError::WouldBlock);
        }
        self.send_short(base, connection, purpose, payload, own.to_context(), SendFlags::NONE)?;
        Ok(SendId(None))
    }

    fn send_short(
        &mut self,
        base: &mut Base,
        connection: Connection,
        purpose: Purpose,
        payload: Payload<'_>,
        context: u64,
        flags: SendFlags,
    ) -> Result<(), SendError> {
        let (head, head_bytes) = purpose.head();
        let head = head.get(..head_bytes).unwrap_or(&[]);
        if let Payload::Bytes(bytes) = payload {
            let how = (context, flags);
            send_behind(&mut base.endpoint, &mut self.scratch, connection, head, bytes, how)?;
            sent_short(base, connection);
            return Ok(());
        }
        self.scratch.clear();
        let mut slices: [&[u8]; SLICES_MAX + 1] = [&[]; SLICES_MAX + 1];
        slices[0] = head;
        match payload {
            Payload::Gathered(segments) if segments.len() <= SLICES_MAX => {
                for (slice, segment) in slices.iter_mut().skip(1).zip(segments) {
                    *slice = segment;
                }
            }
            Payload::Gathered(segments) => {
                segments.iter().for_each(|segment| self.scratch.extend_from_slice(segment));
                slices[1] = &self.scratch;
            }
            Payload::Bytes(bytes) => slices[1] = bytes,
            Payload::Memory(memory) => {
                read(memory, &(0..memory.len()), &mut self.scratch)?;
                slices[1] = &self.scratch;
            }
            Payload::Parts(parts) => {
                for (memory, range) in parts {
                    read(memory, range, &mut self.scratch)?;
                }
                slices[1] = &self.scratch;
            }
        }
        base.endpoint.send_vectored(connection, &slices, context, flags)?;
        sent_short(base, connection);
        Ok(())
    }

    /// Offers a long message to the peer, which reads it from where it is, or from a copy.
    fn send_long(
        &mut self,
        base: &mut Base,
        connection: Connection,
        purpose: Purpose,
        payload: Payload<'_>,
        len: usize,
        report: Report,
    ) -> Result<SendId, SendError> {
        let number = base.peers.get(connection).and_then(|peer| peer.next_number());
        let number = number.ok_or(SendError::WouldBlock)?;
        let mut outgoing = Outgoing::new(connection, number, purpose, report, len as u64);
        let source = match payload {
            Payload::Bytes(bytes) => self.stage(base, &mut outgoing, &[bytes], len),
            Payload::Gathered(segments) => self.stage(base, &mut outgoing, segments, len),
            Payload::Memory(memory) => self.lend(base, &mut outgoing, &[(memory, 0..len)]),
            Payload::Parts(parts) => self.lend(base, &mut outgoing, parts),
        };
        let source = match source {
            Ok(source) => source,
            Err(error) => {
                self.release(base, outgoing);
                return Err(error);
            }
        };
        let key = match self.long.insert(outgoing) {
            Ok(key) => key,
            Err(outgoing) => {
                self.release(base, outgoing);
                return Err(SendError::WouldBlock);
            }
        };
        let offer = Frame::Offer { number, purpose, source };
        let error = match base.control(connection, &offer, Own::Offer(key)) {
            Control::Taken => {
                if let Some(peer) = base.peers.get_mut(connection) {
                    peer.has_offered(key);
                }
                return Ok(SendId(Some(key)));
            }
            Control::NoSpace => SendError::WouldBlock,
            Control::Over => SendError::Disconnected,
        };
        if let Some(outgoing) = self.long.remove(key) {
            self.release(base, outgoing);
        }
        Err(error)
    }

    /// Copies a message to memory that the peer can read.
    fn stage(
        &mut self,
        base: &mut Base,
        outgoing: &mut Outgoing,
        segments: &[&[u8]],
        len: usize,
    ) -> Result<Source, SendError> {
        let staged = self.staging.take(&mut base.endpoint, outgoing.connection, len)?;
        let Staged { memory, region, .. } = outgoing.staged.insert(staged);
        let mut at = 0;
        for segment in segments {
            if !memory.write(at, segment) {
                return Err(SendError::OtherProcess);
            }
            at += segment.len();
        }
        Source::new(&[Segment::new(*region, 0, len as u64)]).ok_or(SendError::TooManyParts)
    }

    /// Lends the parts of a message to its receiver for reading, and to nobody else.
    fn lend(
        &mut self,
        base: &mut Base,
        outgoing: &mut Outgoing,
        parts: &[(&Memory, Range<usize>)],
    ) -> Result<Source, SendError> {
        let mut segments =
            [Segment::new(RegionHandle::from_bytes([0; RegionHandle::BYTES]), 0, 0); LONG_SEGMENTS_MAX];
        let mut count = 0;
        for (memory, range) in parts.iter().filter(|(_, range)| !range.is_empty()) {
            let (Some(segment), Some(place)) = (segments.get_mut(count), outgoing.lent.get_mut(count)) else {
                return Err(SendError::TooManyParts);
            };
            let only = Some(outgoing.connection);
            let lent = match self.kept.take(outgoing.connection, memory, range) {
                Some(lent) => lent,
                None => {
                    self.kept.sweep(&mut base.endpoint);
                    let what = Registration { range: Some(range.clone()), access: Access::READ, only };
                    let region = base.endpoint.register(memory, what).map_err(SendError::Memory)?;
                    Lent { memory: (*memory).clone(), range: range.clone(), region }
                }
            };
            *segment = Segment::new(lent.region, 0, range.len() as u64);
            *place = Some(lent);
            count += 1;
        }
        segments.get(..count).and_then(Source::new).ok_or(SendError::TooManyParts)
    }

    /// The endpoint has sent an offer, or failed to.
    pub fn offer_ended(&mut self, base: &mut Base, key: Key, status: Status) {
        let Some(outgoing) = self.long.get_mut(key) else { return };
        if status != Status::Success {
            let failure = outgoing.fails_by(status);
            self.end(base, key, Err(failure));
        } else if outgoing.has_arrived() {
            self.send_cancel(base, key);
        }
    }

    /// The endpoint has sent a cancellation, or failed to.
    pub fn cancel_ended(&mut self, base: &mut Base, key: Key, status: Status) {
        if status != Status::Success && status != Status::Disconnected {
            self.send_cancel(base, key);
        }
    }

    /// Sends the cancellation of a message, or notes that it is due.
    pub fn send_cancel(&mut self, base: &mut Base, key: Key) {
        let Some(outgoing) = self.long.get(key) else { return };
        let frame = Frame::Cancel { number: outgoing.number };
        if base.control(outgoing.connection, &frame, Own::Cancel(key)) == Control::NoSpace {
            base.due.push_back(Due::Cancel(key));
        }
    }

    /// The program takes a message back. False: it has ended, or is short, or was cancelled before.
    pub fn cancel(&mut self, base: &mut Base, id: SendId) -> bool {
        let Some((key, outgoing)) = id.0.and_then(|key| Some((key, self.long.get_mut(key)?))) else {
            return false;
        };
        let Some(sends) = outgoing.cancel() else { return false };
        // From now on the receiver reads nothing, so the memory is the program's again.
        withdraw(base, outgoing);
        if sends {
            self.send_cancel(base, key);
        }
        true
    }

    /// How far a message is.
    pub fn progress(&self, id: SendId) -> Option<Progress> {
        let outgoing = self.long.get(id.0?)?;
        Some(Progress { moved_bytes: outgoing.moved_bytes(), total_bytes: outgoing.len_bytes })
    }

    /// The peer says how far it is.
    pub fn moves_to(&mut self, base: &Base, connection: Connection, number: u32, moved_bytes: u64) {
        let key = base.peers.get(connection).and_then(|peer| peer.outgoing(number));
        if let Some(outgoing) = key.and_then(|key| self.long.get_mut(key)) {
            outgoing.moves_to(moved_bytes);
        }
    }

    /// The peer says what became of a message.
    pub fn answered(&mut self, base: &mut Base, connection: Connection, number: u32, answer: Answer) {
        let key = base.peers.get(connection).and_then(|peer| peer.outgoing(number));
        match key.and_then(|key| Some((key, self.long.get(key)?))) {
            Some((key, outgoing)) => {
                let result = outgoing.ends_by(answer);
                self.end(base, key, result);
            }
            None => base.counters.late += 1,
        }
    }

    /// The context of the program's that was kept for a short message.
    pub fn take_context(&mut self, key: Key) -> Option<u64> {
        self.contexts.remove(key)
    }

    /// A connection has ended: everything under way on it ends.
    pub fn disconnected(&mut self, base: &mut Base, keys: impl Iterator<Item = Key>, connection: Connection) {
        for key in keys {
            self.end(base, key, Err(SendFailure::Failed(Status::Disconnected)));
        }
        self.staging.forget(&mut base.endpoint, connection);
        self.kept.forget(&mut base.endpoint, connection);
    }

    /// Regions that wait for the next message.
    pub fn kept_regions(&self) -> u64 {
        (self.kept.len() + self.staging.idle_len()) as u64
    }

    /// Gives back what was kept for messages that the program can't send any more.
    pub fn sweep(&mut self, base: &mut Base) {
        self.kept.sweep(&mut base.endpoint);
    }

    /// A message has ended.
    fn end(&mut self, base: &mut Base, key: Key, result: Result<(), SendFailure>) {
        let Some(outgoing) = self.long.remove(key) else { return };
        let Outgoing { connection, purpose, report: Report { context, silent }, .. } = outgoing;
        if let Some(peer) = base.peers.get_mut(connection) {
            peer.outgoing_ended(key);
        }
        match result {
            Ok(()) => base.counters.long_sent += 1,
            Err(_) => base.counters.long_failed += 1,
        }
        self.release(base, outgoing);
        if let Some(call) = purpose.call() {
            let Err(failure) = result else { return };
            if !matches!(purpose, Purpose::Request(_)) {
                // If the client knows the end of the call, it passes over this.
                base.no_reply(connection, call, NoReply::Lost);
            } else if failure != SendFailure::Failed(Status::Disconnected)
                && let Some(key) = base.call_answered(connection, call)
                && let Some(event) = base.calls.end(key, Err(CallFailure::NotSent(failure)))
            {
                base.raise(event);
            }
        } else if !silent {
            base.raise(Event::Sent { connection, context, result });
        } else if result.is_err() {
            base.counters.silent_failed += 1;
        }
    }

    /// Gives back what a message had.
    fn release(&mut self, base: &mut Base, outgoing: Outgoing) {
        let Outgoing { connection, lent, staged, .. } = outgoing;
        for lent in lent.into_iter().flatten() {
            self.kept.put(&mut base.endpoint, connection, lent);
        }
        if let Some(staged) = staged {
            self.staging.give_back(&mut base.endpoint, staged);
        }
    }
}

/// Notes that a short message was sent on a connection.
fn sent_short(base: &mut Base, connection: Connection) {
    if let Some(peer) = base.peers.get_mut(connection) {
        peer.sent_short();
    }
    base.endpoint.count_prompt_message();
}

/// Sends bytes behind their head, with the program's context and flags.
#[inline]
fn send_behind(
    endpoint: &mut Endpoint,
    scratch: &mut Vec<u8>,
    connection: Connection,
    head: &[u8],
    bytes: &[u8],
    (context, flags): (u64, SendFlags),
) -> Result<(), crate::SendError> {
    if bytes.len() > JOINED_BYTES_MAX {
        return endpoint.send_vectored(connection, &[head, bytes], context, flags);
    }
    scratch.clear();
    scratch.extend_from_slice(head);
    scratch.extend_from_slice(bytes);
    endpoint.send(connection, scratch, context, flags)
}

/// Why there is no such connection.
#[cold]
fn unknown(base: &Base) -> SendError {
    if base.endpoint.check_process().is_err() {
        SendError::OtherProcess
    } else {
        SendError::UnknownConnection
    }
}

/// Appends a part of a memory to `out`.
fn read(memory: &Memory, range: &Range<usize>, out: &mut Vec<u8>) -> Result<(), SendError> {
    let range_error =
        || SendError::Memory(crate::RegisterError::Range { end: range.end, len_bytes: memory.len() });
    if range.end > memory.len() {
        return Err(range_error());
    }
    let at = out.len();
    out.resize(at + range.len(), 0);
    let place = out.get_mut(at..).ok_or_else(range_error)?;
    memory.read(range.start, place).then_some(()).ok_or(SendError::OtherProcess)
}

/// Takes the program's memory that a message is in away from its receiver.
fn withdraw(base: &mut Base, outgoing: &mut Outgoing) {
    for lent in outgoing.lent.iter_mut().filter_map(Option::take) {
        // It is registered, unless the process is another one, where nobody can read anything.
        let _ = base.endpoint.deregister(&lent.region);
    }
}
