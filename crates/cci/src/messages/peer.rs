//! What a messenger knows of each connection.

use super::event::Event;
use super::order::Order;
use super::wire::CallNumber;
use crate::connection::Connection;
use crate::limits::{CALLS_MAX, HELD_MESSAGES_MAX, LONG_MESSAGES_MAX};
use crate::options::Attribute;
use cci_memory::slab::Key;
use std::collections::VecDeque;

/// One connection.
pub struct Peer {
    pub connection: Connection,
    /// As given to `connect` or `accept`.
    pub context: u64,
    pub attribute: Attribute,
    /// The longest message that fits one of the endpoint.
    pub short_bytes_max: usize,
    /// Short messages sent so far.
    short_sent: u64,
    next_number: u32,
    /// Long messages that this side has offered, in order.
    outgoing: VecDeque<Offered>,
    /// Long messages that the peer has offered, until its answer has arrived there.
    pub incoming: Vec<(u32, Key)>,
    pub order: Order<Key, Event>,
    /// The round of giving memory in which a message of this connection was passed over, as it has its share.
    pub passed_over_in: u32,
    /// Calls of this side that the peer has not answered.
    calls: Vec<Key>,
    /// Requests of the peer that this side has not answered.
    requests: Vec<Served>,
    /// Requests that end without an answer, which the endpoint has had no space to report to the peer. The peer waits for that, so
    /// they count among those that it may have unanswered.
    owed: Vec<CallNumber>,
}

/// A request that was not answered.
struct Served {
    call: CallNumber,
    /// The program has it.
    is_shown: bool,
}

struct Offered {
    number: u32,
    key: Key,
    /// Short messages that were sent before it.
    short_before: u64,
}

impl Peer {
    pub fn new(connection: Connection, context: u64, attribute: Attribute, short_bytes_max: usize) -> Peer {
        Peer {
            connection,
            context,
            attribute,
            short_bytes_max,
            short_sent: 0,
            next_number: 0,
            outgoing: VecDeque::new(),
            incoming: Vec::new(),
            order: Order::new(),
            passed_over_in: 0,
            calls: Vec::new(),
            requests: Vec::new(),
            owed: Vec::new(),
        }
    }

    /// Whether one more call may be unanswered.
    pub fn may_call(&self) -> bool {
        self.calls.len() < CALLS_MAX as usize
    }

    /// A call was sent.
    pub fn has_called(&mut self, call: Key) {
        self.calls.push(call);
    }

    /// The peer has answered a call, or never got it.
    pub fn call_answered(&mut self, call: Key) {
        if let Some(at) = self.calls.iter().position(|known| *known == call) {
            self.calls.swap_remove(at);
        }
    }

    /// All calls that the peer has not answered.
    pub fn unanswered_calls(&self) -> &[Key] {
        &self.calls
    }

    /// The peer asks, and the program is given the request at once if it `is_shown`. False: the peer asks twice, or more than it may.
    pub fn requested(&mut self, call: CallNumber, is_shown: bool) -> bool {
        let waiting = self.requests.len() + self.owed.len();
        let is_honest = self.attribute.is_reliable()
            && waiting < CALLS_MAX as usize
            && !self.has_request(call)
            && !self.owed.contains(&call);
        if is_honest {
            self.requests.push(Served { call, is_shown });
        }
        is_honest
    }

    /// Whether a request waits for its answer.
    pub fn has_request(&self, call: CallNumber) -> bool {
        self.requests.iter().any(|served| served.call == call)
    }

    /// The program is given a request. False: nobody waits for the answer any more.
    pub fn show_request(&mut self, call: CallNumber) -> bool {
        let served = self.requests.iter_mut().find(|served| served.call == call);
        served.map(|served| served.is_shown = true).is_some()
    }

    /// A request was answered, or is not to be. Returns whether the program has it; `None` if it does not wait.
    pub fn end_request(&mut self, call: CallNumber) -> Option<bool> {
        let at = self.requests.iter().position(|served| served.call == call)?;
        Some(self.requests.swap_remove(at).is_shown)
    }

    /// The endpoint has no space for the news that a request gets no answer.
    pub fn owes(&mut self, call: CallNumber) {
        if !self.owed.contains(&call) {
            self.owed.push(call);
        }
    }

    /// The endpoint has taken that news.
    pub fn owes_no_more(&mut self, call: CallNumber) {
        self.owed.retain(|owed| *owed != call);
    }

    /// Whether what comes is given to the program in the order in which it was sent.
    #[inline]
    pub fn is_ordered(&self) -> bool {
        self.attribute == Attribute::ReliableOrdered
    }

    /// Whether a short message may be sent: on an ordered connection, only so many behind a long one that has not ended.
    #[inline]
    pub fn may_send_short(&self) -> bool {
        match self.outgoing.front() {
            Some(oldest) if self.is_ordered() => {
                self.short_sent - oldest.short_before < u64::from(HELD_MESSAGES_MAX)
            }
            _ => true,
        }
    }

    /// Whether a request, or a reply, of so many bytes may be sent in one message of the endpoint.
    #[inline]
    pub fn may_send_short_call(&self, len_bytes: usize) -> bool {
        self.attribute.is_reliable() && len_bytes <= self.short_bytes_max && self.may_send_short()
    }

    /// A short message was sent.
    #[inline]
    pub fn sent_short(&mut self) {
        self.short_sent += 1;
    }

    /// The number for the next long message. `None`: as many are under way as may be. On an ordered connection, those that have ended behind
    /// one that has not count, too: the receiver has to hold them.
    pub fn next_number(&self) -> Option<u32> {
        let ahead = match self.outgoing.front() {
            Some(oldest) if self.is_ordered() => self.next_number.wrapping_sub(oldest.number),
            _ => self.outgoing.len() as u32,
        };
        (ahead < LONG_MESSAGES_MAX).then_some(self.next_number)
    }

    /// A long message was offered, with the number that was next.
    pub fn has_offered(&mut self, key: Key) {
        let offered = Offered { number: self.next_number, key, short_before: self.short_sent };
        self.next_number = self.next_number.wrapping_add(1);
        self.outgoing.push_back(offered);
    }

    /// The long message of a number that this side has offered.
    pub fn outgoing(&self, number: u32) -> Option<Key> {
        self.outgoing.iter().find(|offered| offered.number == number).map(|offered| offered.key)
    }

    /// All long messages that this side has offered.
    pub fn all_outgoing(&self) -> impl Iterator<Item = Key> {
        self.outgoing.iter().map(|offered| offered.key)
    }

    /// A long message that this side has offered has ended.
    pub fn outgoing_ended(&mut self, key: Key) {
        self.outgoing.retain(|offered| offered.key != key);
    }

    /// The long message of a number that the peer has offered.
    pub fn incoming(&self, number: u32) -> Option<Key> {
        self.incoming.iter().find(|(known, _)| *known == number).map(|(_, key)| *key)
    }
}
