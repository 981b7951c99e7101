//! Long messages on their way in.

use super::answer::{Answer, ReceiveFailure};
use super::base::{Base, Control, Due};
use super::call::CallFailure;
use super::calls;
use super::event::{Event, Offer};
use super::incoming::{Fetch, Incoming, Stage};
use super::lent::{Buffer, Capacity, Lent, Taken};
use super::message::Message;
use super::options::Limits;
use super::own::Own;
use super::pieces::Pieces;
use super::request::Request;
use super::send::{Progress, ReceiveError};
use super::wire::{CallNumber, Frame, Purpose, Source};
use crate::connection::{Connection, Status};
use crate::error::{RegisterError, RmaError};
use crate::limits::{
    LONG_AHEAD_BYTES, LONG_MESSAGES_ALL_MAX, LONG_MESSAGES_MAX, LONG_PIECES_MAX, LONG_PROGRESS_BYTES,
};
use crate::rma::{Access, Memory, Registration, Rma, RmaFlags, Segment};
use cci_memory::slab::{Key, Slab};
use cci_proto::RmaKind;
use std::collections::VecDeque;
use std::sync::Arc;

/// A peer has sent what no honest peer sends.
#[derive(Debug)]
pub struct Fault;

/// What a message waits for that is passed over.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Awaited {
    /// Memory that comes back.
    Memory,
    /// Messages before it on its connection, which set it free when they end.
    MessagesBefore,
}

/// All long messages that peers send.
pub struct Receiving {
    long: Slab<Incoming>,
    limits: Limits,
    pub capacity: Arc<Capacity>,
    /// Messages that wait for memory of the library, the oldest first. Some may have ended meanwhile.
    waiting: VecDeque<Key>,
    /// Those that wait are being given memory. What this sets free is given memory by the same loop.
    is_giving: bool,
    /// How often memory was given to those that wait.
    round: u32,
    /// Memory of the library that messages of these connections were to be received into. They have ended, and reads that the endpoint
    /// has under way still use it.
    leaving: Vec<(Connection, Memory)>,
}

impl Receiving {
    pub fn new(limits: Limits, capacity: Arc<Capacity>) -> Receiving {
        Receiving {
            long: Slab::new(LONG_MESSAGES_ALL_MAX),
            limits,
            capacity,
            waiting: VecDeque::new(),
            is_giving: false,
            round: 0,
            leaving: Vec::new(),
        }
    }

    /// A peer offers a message.
    pub fn offered(
        &mut self,
        base: &mut Base,
        connection: Connection,
        number: u32,
        purpose: Purpose,
        source: Source,
    ) -> Result<(), Fault> {
        let peer = base.peers.get_mut(connection).ok_or(Fault)?;
        // The sender can't know of the end of those that were not answered. How many were answered, and wait for the completion of that,
        // is up to the endpoint, which takes no more sends than it has space for.
        let is_under_way = |key: Key| self.long.get(key).is_some_and(|incoming| !incoming.is_answered);
        let under_way = peer.incoming.iter().filter(|(_, key)| is_under_way(*key)).count();
        let is_beyond = under_way >= LONG_MESSAGES_MAX as usize
            || peer.incoming(number).is_some()
            || !peer.attribute.is_reliable()
            || matches!(purpose, Purpose::Request(call) if !peer.requested(call, false));
        if is_beyond {
            return Err(Fault);
        }
        let stage = Stage::Offered;
        let incoming = Incoming {
            connection,
            number,
            purpose,
            source,
            stage,
            was_offered: false,
            context: 0,
            is_answered: false,
        };
        // Without a place for it there is no way to answer, so the connection ends.
        let key = self.long.insert(incoming).map_err(|_| Fault)?;
        peer.incoming.push((number, key));
        if peer.is_ordered() {
            peer.order.begin(key).map_err(|_| Fault)?;
        }
        let is_ordered = peer.is_ordered();
        let len_bytes = source.len_bytes();
        let max_bytes = match purpose {
            Purpose::Message => self.limits.message_bytes_max,
            // A request comes whole, and so does what the program has asked for.
            Purpose::Request(_) => self.limits.whole_bytes_max,
            Purpose::Reply(_) | Purpose::Error { .. } => self.limits.reply_bytes_max(),
        };
        if let Purpose::Reply(call) | Purpose::Error { call, .. } = purpose {
            let call = base.call_answered(connection, call);
            let waits = match call.and_then(|call| base.calls.get_mut(call)) {
                Some(call) if call.stage == calls::Stage::Waiting => {
                    call.stage = calls::Stage::Receiving(key);
                    true
                }
                Some(call) if call.stage == calls::Stage::GivenUp => false,
                // The call has ended, or is being answered already.
                _ => {
                    base.counters.late += 1;
                    self.end(base, key, Answer::Refused(0), None);
                    return Ok(());
                }
            };
            if !waits {
                call.and_then(|call| base.calls.end(call, Err(CallFailure::Cancelled)));
                self.end(base, key, Answer::Refused(0), None);
                return Ok(());
            }
        }
        if len_bytes > max_bytes {
            self.too_long(base, key, max_bytes);
        } else if is_ordered {
            self.advance(base, connection);
        } else {
            self.decide(base, key, true);
        }
        Ok(())
    }

    /// Decides on an offer that all before it allow to: begins to fetch it, if it comes whole, or shows it to the program, if it
    /// `is_next`. Returns whether the next one may have memory, too.
    fn decide(&mut self, base: &mut Base, key: Key, is_next: bool) -> bool {
        let Some(incoming) = self.long.get_mut(key) else { return true };
        if !matches!(incoming.stage, Stage::Offered) {
            return true;
        }
        let (connection, len_bytes) = (incoming.connection, incoming.source.len_bytes());
        if len_bytes <= self.limits.whole_bytes_max || incoming.purpose != Purpose::Message {
            self.fetch_into_lent(base, key);
            return true;
        }
        if is_next && !incoming.was_offered {
            incoming.was_offered = true;
            base.raise(Event::Offer(Offer { key, connection, len_bytes }));
        }
        false
    }

    /// Accepts an offer into memory of the library.
    pub fn receive(&mut self, base: &mut Base, offer: Offer) -> Result<(), ReceiveError> {
        self.undecided(offer)?;
        if offer.len_bytes > self.capacity.max_bytes() {
            let max_bytes = self.capacity.max_bytes();
            return Err(ReceiveError::TooLong { len_bytes: offer.len_bytes, max_bytes });
        }
        self.fetch_into_lent(base, offer.key);
        self.advance(base, offer.connection);
        Ok(())
    }

    /// Accepts an offer into memory of the program.
    pub fn receive_into(
        &mut self,
        base: &mut Base,
        offer: Offer,
        memory: &Memory,
        offset: usize,
        context: u64,
    ) -> Result<(), ReceiveError> {
        self.undecided(offer)?;
        let max_bytes = memory.len().saturating_sub(offset) as u64;
        if offer.len_bytes > max_bytes {
            return Err(ReceiveError::TooLong { len_bytes: offer.len_bytes, max_bytes });
        }
        let started = self.begin(base, offer.key, memory.clone(), offset, None);
        started.map_err(ReceiveError::Memory)?;
        if let Some(incoming) = self.long.get_mut(offer.key) {
            incoming.context = context;
        }
        self.fetch(base, offer.key);
        self.advance(base, offer.connection);
        Ok(())
    }

    /// Refuses an offer, or stops receiving the message.
    pub fn refuse(&mut self, base: &mut Base, offer: Offer, code: u32) -> Result<(), ReceiveError> {
        let incoming = self.long.get(offer.key).filter(|incoming| !incoming.has_ended());
        incoming.ok_or(ReceiveError::Ended)?;
        self.end(base, offer.key, Answer::Refused(code), None);
        Ok(())
    }

    /// The offer of a message that the program was offered and that has not ended.
    pub fn find(&self, key: Key) -> Option<Offer> {
        let incoming = self.long.get(key).filter(|incoming| incoming.was_offered && !incoming.has_ended())?;
        Some(Offer { key, connection: incoming.connection, len_bytes: incoming.source.len_bytes() })
    }

    /// How far a message is.
    pub fn progress(&self, offer: Offer) -> Option<Progress> {
        let incoming = self.long.get(offer.key).filter(|incoming| !incoming.has_ended())?;
        Some(Progress { moved_bytes: incoming.moved_bytes(), total_bytes: incoming.source.len_bytes() })
    }

    /// Checks that an offer can be accepted.
    fn undecided(&self, offer: Offer) -> Result<(), ReceiveError> {
        let incoming = self.long.get(offer.key).ok_or(ReceiveError::Ended)?;
        matches!(incoming.stage, Stage::Offered).then_some(()).ok_or(ReceiveError::Ended)
    }

    /// Fetches a message into memory of the library, now or when there is some.
    fn fetch_into_lent(&mut self, base: &mut Base, key: Key) {
        if let Some(incoming) = self.long.get_mut(key) {
            incoming.stage = Stage::Waiting;
            self.waiting.push_back(key);
        }
        // Those that wait longer come first.
        self.memory_is_back(base);
    }

    /// Begins to fetch messages that wait for memory of the library, as far as there is some.
    pub fn memory_is_back(&mut self, base: &mut Base) {
        if std::mem::replace(&mut self.is_giving, true) {
            return;
        }
        self.give_memory(base);
        self.is_giving = false;
    }

    /// Gives memory to messages that wait, the oldest first. One is passed over, with all others of its connection, while that holds
    /// more of the memory than it would leave to others.
    fn give_memory(&mut self, base: &mut Base) {
        self.reclaim();
        self.round = self.round.wrapping_add(1);
        // Before the look, so that a buffer that comes back meanwhile is seen or reported.
        self.capacity.set_wanted(!self.waiting.is_empty());
        let (mut at, mut lacks_memory) = (0, false);
        while let Some(key) = self.waiting.get(at).copied() {
            let waits = |incoming: &&Incoming| matches!(incoming.stage, Stage::Waiting);
            let Some(incoming) = self.long.get(key).filter(waits) else {
                self.waiting.remove(at);
                continue;
            };
            let (connection, is_accepted) = (incoming.connection, incoming.was_offered);
            let len = usize::try_from(incoming.source.len_bytes()).unwrap_or(usize::MAX);
            // What the program has accepted is its own decision.
            if !is_accepted && let Some(awaited) = self.passed_over(base, connection, len) {
                lacks_memory |= awaited == Awaited::Memory;
                at += 1;
                continue;
            }
            match self.capacity.take(len) {
                Taken::Later => return,
                Taken::Never => {
                    self.waiting.remove(at);
                    self.fail(base, key, ReceiveFailure::Failed(Status::RmaOperation));
                }
                Taken::Buffer(buffer) => {
                    self.waiting.remove(at);
                    self.fetch_into(base, key, buffer);
                }
            }
        }
        self.capacity.set_wanted(lacks_memory);
    }

    /// Fetches a message into memory of the library.
    fn fetch_into(&mut self, base: &mut Base, key: Key, buffer: Buffer) {
        let (start, memory) = (buffer.start(), buffer.into_memory());
        match self.begin(base, key, memory.clone(), start, Some(self.capacity.clone())) {
            Ok(()) => {
                // The message's is the only handle when it is complete, which may be at once.
                drop(memory);
                self.fetch(base, key);
            }
            Err(_) => {
                give_back(memory, &self.capacity);
                self.fail(base, key, ReceiveFailure::Failed(Status::RmaHandle));
            }
        }
    }

    /// What a connection's next message, of `len` bytes, has to wait for: enough of those before it are still to come, or it would hold
    /// more of the lent memory than it leaves to others. One that holds nothing waits for nothing. That a message of a connection is
    /// passed over holds for the others that wait on it, too, so that none overtakes it.
    fn passed_over(&self, base: &mut Base, connection: Connection, len: usize) -> Option<Awaited> {
        let peer = base.peers.get_mut(connection)?;
        if peer.passed_over_in == self.round {
            return Some(Awaited::MessagesBefore);
        }
        let fetching = || peer.incoming.iter().filter_map(|(_, key)| self.long.get(*key));
        if fetching().map(Incoming::unfetched_bytes).sum::<u64>() >= LONG_AHEAD_BYTES {
            peer.passed_over_in = self.round;
            return Some(Awaited::MessagesBefore);
        }
        let left_bytes = self.capacity.left_bytes(len);
        // No connection holds more than all of them.
        if self.capacity.max_bytes() - left_bytes <= left_bytes {
            return None;
        }
        let fetching: u64 = fetching().map(Incoming::lent_bytes).sum();
        let held: u64 = peer.order.ended().map(Event::lent_bytes).sum();
        let leaving = self.leaving.iter().filter(|(owner, _)| *owner == connection);
        let leaving: u64 = leaving.map(|(_, memory)| Buffer::len_in(memory.len()) as u64).sum();
        let holds_bytes = fetching + held + leaving;
        if holds_bytes == 0 || holds_bytes.saturating_add(len as u64) <= left_bytes {
            return None;
        }
        peer.passed_over_in = self.round;
        Some(Awaited::Memory)
    }

    /// Gives back memory of messages that have ended, once the endpoint reads nothing into it any more.
    pub fn reclaim(&mut self) {
        let capacity = &self.capacity;
        self.leaving.extract_if(.., |(_, memory)| memory.handles() == 1).for_each(|(_, memory)| {
            give_back(memory, capacity);
        });
    }

    /// Has a message be fetched into another region.
    #[cfg(test)]
    pub fn set_region(&mut self, key: Key, region: crate::rma::RegionHandle) {
        if let Some(Incoming { stage: Stage::Fetching(fetch), .. }) = self.long.get_mut(key) {
            fetch.region = region;
        }
    }

    /// Prepares to fetch a message into a part of a memory.
    pub fn begin(
        &mut self,
        base: &mut Base,
        key: Key,
        into: Memory,
        offset: usize,
        lent: Option<Arc<Capacity>>,
    ) -> Result<(), RegisterError> {
        let Some(incoming) = self.long.get_mut(key) else { return Ok(()) };
        let len_bytes = incoming.source.len_bytes();
        // No longer than the memory, which the callers have seen to.
        let range = Some(offset..offset.saturating_add(len_bytes as usize));
        let what = Registration { range, access: Access::LOCAL, only: None };
        let region = base.endpoint.register(&into, what)?;
        incoming.stage = Stage::Fetching(Fetch { into, region, pieces: Pieces::new(len_bytes), lent });
        Ok(())
    }

    /// Reads pieces, or starts to, as many as may be under way.
    pub fn fetch(&mut self, base: &mut Base, key: Key) {
        // From memory that is mapped, a piece is there at once. One of a batch is reported by an event, which brings the next batch:
        // a call of the program's does not take as long as the whole message.
        let mut at_once = LONG_PIECES_MAX - 1;
        loop {
            let Some(incoming) = self.long.get_mut(key) else { return };
            let (connection, source) = (incoming.connection, &incoming.source);
            let Stage::Fetching(fetch) = &mut incoming.stage else { return };
            let Some((offset, len_bytes)) = fetch.pieces.next() else { return };
            let (remote, count) = source.part(offset, len_bytes);
            let read = Rma {
                kind: RmaKind::Read,
                local: &[Segment::new(fetch.region, offset, len_bytes)],
                remote: remote.get(..count).unwrap_or(&[]),
                message: None,
                context: Own::Piece(key).to_context(),
                flags: RmaFlags::NONE,
            };
            let started = if at_once > 0 {
                base.endpoint.rma_at_once(connection, &read)
            } else {
                base.endpoint.rma(connection, &read).map(|()| None)
            };
            match started {
                Ok(ended) => {
                    fetch.pieces.started();
                    if let Some(status) = ended {
                        at_once -= 1;
                        if self.piece_is_here(base, key, status) {
                            return;
                        }
                    }
                }
                Err(RmaError::WouldBlock) => {
                    if !fetch.pieces.has_any_under_way() {
                        base.due.push_back(Due::Fetch(key));
                    }
                    return;
                }
                // The end of the connection ends the message, too.
                Err(RmaError::Disconnected | RmaError::UnknownConnection) => return,
                Err(_) => return self.fail(base, key, ReceiveFailure::Failed(Status::RmaHandle)),
            }
        }
    }

    /// The endpoint has read a piece, or failed to.
    pub fn piece_ended(&mut self, base: &mut Base, key: Key, status: Status) {
        if !self.piece_is_here(base, key, status) {
            self.fetch(base, key);
        }
    }

    /// A piece was read, or could not be. Returns whether that was the end of the message.
    fn piece_is_here(&mut self, base: &mut Base, key: Key, status: Status) -> bool {
        let Some(incoming) = self.long.get_mut(key).filter(|incoming| !incoming.has_ended()) else {
            self.reclaim();
            return true;
        };
        let (connection, number) = (incoming.connection, incoming.number);
        let Stage::Fetching(fetch) = &mut incoming.stage else { return true };
        let failure = match status {
            Status::Success if fetch.pieces.ended() => {
                self.complete(base, key);
                return true;
            }
            Status::Success => {
                let moved_bytes = fetch.pieces.moved_bytes();
                if moved_bytes.is_multiple_of(LONG_PROGRESS_BYTES) {
                    base.control_silently(connection, &Frame::Progress { number, moved_bytes });
                }
                return false;
            }
            Status::Disconnected => ReceiveFailure::Disconnected,
            // The region was the sender's to give and to take.
            Status::RmaHandle => ReceiveFailure::Cancelled,
            status => ReceiveFailure::Failed(status),
        };
        self.fail(base, key, failure);
        true
    }

    /// All of a message is here.
    fn complete(&mut self, base: &mut Base, key: Key) {
        let Some(incoming) = self.long.get_mut(key) else { return };
        let Incoming { connection, context, purpose, .. } = *incoming;
        let len_bytes = incoming.source.len_bytes();
        let Stage::Fetching(fetch) = std::mem::replace(&mut incoming.stage, Stage::Ended(Answer::Received))
        else {
            return;
        };
        let _ = base.endpoint.deregister(&fetch.region);
        let event = match fetch.lent {
            None => {
                let offer = Offer { key, connection, len_bytes };
                Some(Event::Received { offer, context, result: Ok(()) })
            }
            Some(capacity) => {
                let (len, buffer_bytes) = (len_bytes as usize, Buffer::len_in(fetch.into.len()) as u64);
                let Some(buffer) = Buffer::from_memory(fetch.into) else {
                    // Nobody else has a handle of it, as its region is gone. If that were wrong, the message would be lost.
                    capacity.forget(buffer_bytes);
                    return self.fail(base, key, ReceiveFailure::Failed(Status::RmaHandle));
                };
                let message = Message::long(Lent::new(buffer, len, capacity), connection);
                match purpose {
                    Purpose::Message => Some(Event::Message(message)),
                    Purpose::Request(call) => {
                        Some(Event::Request(Request::new(message, call, base.inbox_handle())))
                    }
                    Purpose::Reply(call) => end_call(base, connection, call, Ok(message)),
                    Purpose::Error { call, code } => {
                        end_call(base, connection, call, Err(CallFailure::Error { code, message }))
                    }
                }
            }
        };
        base.counters.long_received += 1;
        self.end(base, key, Answer::Received, event);
    }

    /// A message can't be received any more. The program learns of it if it was offered the message.
    fn fail(&mut self, base: &mut Base, key: Key, failure: ReceiveFailure) {
        let Some(incoming) = self.long.get(key) else { return };
        let Incoming { connection, context, purpose, was_offered, .. } = *incoming;
        let offer = Offer { key, connection, len_bytes: incoming.source.len_bytes() };
        let event = match purpose {
            Purpose::Message => {
                was_offered.then_some(Event::Received { offer, context, result: Err(failure) })
            }
            // The client learns of it by the answer to its offer.
            Purpose::Request(call) => {
                base.peers.get_mut(connection).and_then(|peer| peer.end_request(call));
                None
            }
            Purpose::Reply(call) | Purpose::Error { call, .. } => {
                let failure = match failure {
                    ReceiveFailure::Cancelled => CallFailure::ReplyLost,
                    ReceiveFailure::Disconnected => CallFailure::Failed(Status::Disconnected),
                    ReceiveFailure::Failed(status) => CallFailure::Failed(status),
                };
                end_call(base, connection, call, Err(failure))
            }
        };
        self.end(base, key, Answer::Failed, event);
    }

    /// A message is longer than is taken here.
    fn too_long(&mut self, base: &mut Base, key: Key, max_bytes: u64) {
        let Some(incoming) = self.long.get(key) else { return };
        let (connection, len_bytes) = (incoming.connection, incoming.source.len_bytes());
        let event = match incoming.purpose {
            Purpose::Message => None,
            Purpose::Request(call) => {
                base.peers.get_mut(connection).and_then(|peer| peer.end_request(call));
                None
            }
            Purpose::Reply(call) | Purpose::Error { call, .. } => {
                end_call(base, connection, call, Err(CallFailure::ReplyTooLong { len_bytes, max_bytes }))
            }
        };
        self.end(base, key, Answer::TooLong { max_bytes }, event);
    }

    /// The program does not wait for a reply any more that is being fetched.
    pub fn stop_reply(&mut self, base: &mut Base, key: Key) {
        self.end(base, key, Answer::Refused(0), None);
    }

    /// The sender has taken a message back.
    pub fn cancelled(&mut self, base: &mut Base, connection: Connection, number: u32) {
        let key = base.peers.get(connection).and_then(|peer| peer.incoming(number));
        let is_under_way = |key: &Key| self.long.get(*key).is_some_and(|incoming| !incoming.has_ended());
        match key.filter(is_under_way) {
            Some(key) => self.fail(base, key, ReceiveFailure::Cancelled),
            None => base.counters.late += 1,
        }
    }

    /// A message has ended here: what it had is given back, the sender gets a notice, and the program gets what waited for its end.
    fn end(&mut self, base: &mut Base, key: Key, answer: Answer, event: Option<Event>) {
        let Some(incoming) = self.long.get_mut(key) else { return };
        let connection = incoming.connection;
        if let Stage::Fetching(fetch) = std::mem::replace(&mut incoming.stage, Stage::Ended(answer)) {
            // Nothing is written there any more once this has returned.
            let _ = base.endpoint.deregister(&fetch.region);
            if fetch.lent.is_some() {
                self.leaving.push((connection, fetch.into));
                self.reclaim();
            }
        }
        if answer != Answer::Received {
            base.counters.long_failed += 1;
        }
        self.send_answer(base, key);
        match base.peers.get_mut(connection) {
            Some(peer) if peer.is_ordered() => {
                peer.order.end(key, event);
                self.advance(base, connection);
            }
            _ => event.into_iter().for_each(|event| base.raise(event)),
        }
        // Its connection may have its share again.
        if !self.waiting.is_empty() {
            self.memory_is_back(base);
        }
    }

    /// Gives the program what it may get now of an ordered connection, and decides on offers. A message gets memory of the library only
    /// after all before it have theirs: what the program can't get yet must not hold the memory that it waits for.
    fn advance(&mut self, base: &mut Base, connection: Connection) {
        let mut pending = [None; LONG_MESSAGES_MAX as usize];
        while let Some(event) = base.peers.get_mut(connection).and_then(|peer| peer.order.pop()) {
            base.raise(event);
        }
        let Some(peer) = base.peers.get_mut(connection) else { return };
        for (place, key) in pending.iter_mut().zip(peer.order.pending()) {
            *place = Some(key);
        }
        for (at, key) in pending.into_iter().flatten().enumerate() {
            if !self.decide(base, key, at == 0) {
                break;
            }
        }
    }

    /// Sends the answer to a message, or notes that it is due.
    pub fn send_answer(&mut self, base: &mut Base, key: Key) {
        let Some(incoming) = self.long.get_mut(key) else { return };
        let Stage::Ended(answer) = incoming.stage else { return };
        let frame = Frame::Answer { number: incoming.number, answer };
        let sent = base.control(incoming.connection, &frame, Own::Answer(key));
        incoming.is_answered = sent != Control::NoSpace;
        if sent == Control::NoSpace {
            base.due.push_back(Due::Answer(key));
        }
    }

    /// The endpoint has sent an answer, or failed to.
    pub fn answer_ended(&mut self, base: &mut Base, key: Key, status: Status) {
        match status {
            Status::Success => {
                if let Some(incoming) = self.long.remove(key)
                    && let Some(peer) = base.peers.get_mut(incoming.connection)
                {
                    peer.incoming.retain(|(_, known)| *known != key);
                }
            }
            // What is left goes with the connection.
            Status::Disconnected | Status::DeviceDead => {}
            _ => self.send_answer(base, key),
        }
    }

    /// A connection has ended: everything under way on it ends.
    pub fn disconnected(&mut self, base: &mut Base, connection: Connection, keys: &[Key]) {
        // The last first, so that no end sets another one free.
        for key in keys.iter().rev() {
            if self.long.get(*key).is_some_and(|incoming| !incoming.has_ended()) {
                self.fail(base, *key, ReceiveFailure::Disconnected);
            }
            self.long.remove(*key);
        }
        self.advance(base, connection);
        // Whoever waited for the memory of these need not wait any more.
        self.memory_is_back(base);
    }
}

/// A call has ended by its reply. What the program gets.
fn end_call(
    base: &mut Base,
    connection: Connection,
    call: CallNumber,
    result: Result<Message, CallFailure>,
) -> Option<Event> {
    let call = base.calls.find(connection, call)?;
    base.calls.end(call, result)
}

/// Gives a buffer back that a message was to be received into.
fn give_back(memory: Memory, capacity: &Capacity) {
    let len_bytes = Buffer::len_in(memory.len()) as u64;
    match Buffer::from_memory(memory) {
        Some(buffer) => capacity.give_back(buffer),
        None => capacity.forget(len_bytes),
    }
}
