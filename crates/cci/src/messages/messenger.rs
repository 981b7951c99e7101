//! The messenger: what programs call, and where the endpoint's events go.

use super::base::{Base, Due};
use super::call::{CallFailure, CallId};
use super::calls::Stage;
use super::event::{Event, Offer};
use super::lent::Capacity;
use super::message::Message;
use super::options::{Counters, Limits};
use super::own::Own;
use super::peer::Peer;
use super::receiving::{Fault, Receiving};
use super::request::{ReplyError, Request};
use super::send::{Payload, Progress, ReceiveError, SendError, SendId};
use super::sending::Sending;
use super::serving::Serving;
use super::wire::{CallNumber, Frame, HEAD_BYTES, HELLO, NoReply, Purpose};
use crate::connection::{Connection, DisconnectReason, Status};
use crate::device::Device;
use crate::endpoint::Endpoint;
use crate::engine::event::{ConnectRequest, Event as Core};
use crate::error::{AcceptError, ConnectError, CreateError, RegisterError, WaitError};
use crate::limits::{LONG_RETRY_NS, REQUEST_BYTES_MAX};
use crate::options::{Attribute, Options, SendFlags};
use crate::rma::Memory;
use crate::{ConnectFailure, messages::SendFailure};
use cci_memory::slab::Key;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

/// The most of the endpoint's events that one call of [`Messenger::next_event`] takes without finding one for the program.
const EVENTS_PER_CALL: u32 = 64;
/// Deadlines are looked at whenever the endpoint has no event, and after so many turns.
const TURNS_PER_LOOK: u32 = 64;

/// An endpoint that sends and receives messages of any length: see [the module](super).
pub struct Messenger {
    pub(super) base: Base,
    sending: Sending,
    pub(super) receiving: Receiving,
    serving: Serving,
    /// Calls of [`Messenger::next_event`], to look at deadlines now and then.
    turns: u32,
}

impl Messenger {
    /// Opens an endpoint, and makes a messenger of it with the default limits.
    ///
    /// # Errors
    /// Those of [`Endpoint::create`].
    pub fn open(device: &Device, options: Options) -> Result<Messenger, CreateError> {
        Messenger::new(Endpoint::create(device, options)?, Limits::default())
    }

    /// Makes a messenger of an endpoint that has no connections yet.
    ///
    /// # Errors
    /// [`CreateError::BadOption`] if the limits do not fit each other.
    pub fn new(mut endpoint: Endpoint, limits: Limits) -> Result<Messenger, CreateError> {
        limits.check()?;
        endpoint.counts_prompt_messages();
        endpoint.leaves_unsignaled_above(Own::LAST_SIGNALED);
        let capacity = Capacity::new(limits.lent_bytes_max, endpoint.waker());
        let base = Base::new(endpoint);
        let sending = Sending::new(limits.staged_bytes_max);
        let (receiving, serving) = (Receiving::new(limits, capacity), Serving::default());
        Ok(Messenger { base, sending, receiving, serving, turns: 0 })
    }

    /// The endpoint: its URI, its device, its counters, and what it explains of a connection.
    pub fn endpoint(&self) -> &Endpoint {
        &self.base.endpoint
    }

    /// The endpoint alone; all that belonged to messages is gone.
    #[cfg(feature = "simulated")]
    pub(crate) fn into_endpoint(self) -> Endpoint {
        self.base.endpoint
    }

    /// What [`Endpoint::recv_buffers_free`] returns.
    pub fn recv_buffers_free(&mut self) -> u32 {
        self.base.endpoint.recv_buffers_free()
    }

    /// Starts to connect to another messenger, as [`Endpoint::connect`] does. The request has up to 1,016 bytes.
    ///
    /// # Errors
    /// Those of [`Endpoint::connect`], and [`ConnectError::Unsupported`] for multicast groups.
    pub fn connect(
        &mut self,
        uri: &str,
        request: &[u8],
        attribute: Attribute,
        context: u64,
        timeout: Option<Duration>,
    ) -> Result<(), ConnectError> {
        if attribute.is_multicast() {
            return Err(ConnectError::Unsupported);
        }
        if request.len() > REQUEST_BYTES_MAX - HELLO.len() {
            return Err(ConnectError::RequestTooLong { len_bytes: request.len() });
        }
        let request = [&HELLO, request].concat();
        self.base.endpoint.connect(uri, &request, attribute, context, timeout)
    }

    /// Accepts a request, as [`Endpoint::accept`] does. It may have come to another messenger.
    ///
    /// # Errors
    /// Those of [`Endpoint::accept`].
    pub fn accept(&mut self, request: ConnectRequest, context: u64) -> Result<(), AcceptError> {
        self.base.endpoint.accept(request, context)
    }

    /// Whether a connection is open: neither side has closed it, as far as the program was notified.
    pub fn is_open(&self, connection: Connection) -> bool {
        self.base.peers.get(connection).is_some()
    }

    /// Closes a connection. Short messages that were sent before are still delivered, or fail. Long ones that are under way, in either
    /// direction, end with [`SendFailure::Failed`] or [`ReceiveFailure::Disconnected`](super::ReceiveFailure::Disconnected), and
    /// messages that waited behind them are dropped: wait for their ends first.
    pub fn disconnect(&mut self, connection: Connection) {
        self.base.endpoint.disconnect(connection);
        let is_kept =
            |event: &Event| !matches!(event, Event::Message(_) | Event::Request(_) | Event::Offer(_));
        self.forget(connection, is_kept);
    }

    /// Sends a message of any length. One that is sent from slices is copied before the call returns; memory must not change until the send
    /// has ended. Each send ends in exactly one [`Event::Sent`] with `context`, unless `flags` has [`SendFlags::SILENT`].
    ///
    /// # Errors
    /// After any [`SendError`], nothing was sent and no event will come.
    #[inline]
    pub fn send<'a>(
        &mut self,
        connection: Connection,
        payload: impl Into<Payload<'a>>,
        context: u64,
        flags: SendFlags,
    ) -> Result<SendId, SendError> {
        self.sending.send(&mut self.base, connection, payload.into(), context, flags)
    }

    /// Takes a long message back. Its memory is the program's again at once. The send still ends in one [`Event::Sent`]: with
    /// [`SendFailure::Cancelled`], or with success if the receiver had all of it before. Returns false if there is nothing to cancel:
    /// the send has ended, was cancelled before, or is of a short message.
    pub fn cancel(&mut self, send: SendId) -> bool {
        self.sending.cancel(&mut self.base, send)
    }

    /// How much of a long message its receiver has. `None` if the send has ended, or is of a short message.
    pub fn send_progress(&self, send: SendId) -> Option<Progress> {
        self.sending.progress(send)
    }

    /// Sends a request to the peer, and returns at once. The call ends in exactly one [`Event::Reply`] with `context`: when the reply
    /// is here, when `timeout` has passed, or when it is known that there will be none. The request is copied as by
    /// [`Messenger::send`], and may be as long as the peer's [`Limits::whole_bytes_max`]. Replies come in any order; on a reliable
    /// ordered connection, each comes after what the server has sent before it. A request reaches the server once at most: nothing is
    /// repeated.
    ///
    /// # Errors
    /// After any [`SendError`], nothing was sent and no event will come. [`SendError::WouldBlock`] also if
    /// [`CALLS_MAX`](crate::limits::CALLS_MAX) calls on this connection have not been answered.
    pub fn call<'a>(
        &mut self,
        connection: Connection,
        request: impl Into<Payload<'a>>,
        timeout: Option<Duration>,
        context: u64,
    ) -> Result<CallId, SendError> {
        let deadline_ns = timeout.map_or(u64::MAX, |timeout| {
            let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
            self.base.endpoint.now_ns().saturating_add(timeout_ns)
        });
        let key = self.sending.call(&mut self.base, connection, request.into(), context, deadline_ns)?;
        if deadline_ns != u64::MAX {
            self.set_alarm();
        }
        Ok(CallId(key))
    }

    /// Gives a call up, which ends with [`CallFailure::Cancelled`]. The server's program is notified if it has the request. Returns false
    /// if the call has ended.
    pub fn cancel_call(&mut self, call: CallId) -> bool {
        self.give_up(call, CallFailure::Cancelled)
    }

    /// Answers a request. The reply may be as long as the client's [`Limits::reply_bytes_max`]; it is copied as by [`Messenger::send`], and no event
    /// will come.
    ///
    /// # Errors
    /// [`ReplyError`]; if the reply can be sent later, with the request in it.
    pub fn reply<'a>(&mut self, request: Request, reply: impl Into<Payload<'a>>) -> Result<(), ReplyError> {
        Serving::reply(&mut self.base, &mut self.sending, request, None, reply.into())
    }

    /// Answers a request with an error of the program's own: a number, and bytes that say more.
    ///
    /// # Errors
    /// Those of [`Messenger::reply`].
    pub fn reply_error<'a>(
        &mut self,
        request: Request,
        code: u32,
        bytes: impl Into<Payload<'a>>,
    ) -> Result<(), ReplyError> {
        Serving::reply(&mut self.base, &mut self.sending, request, Some(code), bytes.into())
    }

    /// Answers a request, with an error if there is a `code`, and leaves its bytes with the caller, who may still read them. For
    /// language bindings, whose programs hold on to what they were given.
    ///
    /// # Errors
    /// `Some`: it could not be sent, and can be answered again. `None`: nobody waits for the answer, it was answered before, or it came
    /// to another messenger.
    pub fn answer<'a>(
        &mut self,
        request: &mut Request,
        code: Option<u32>,
        reply: impl Into<Payload<'a>>,
    ) -> Result<(), Option<SendError>> {
        Serving::answer(&mut self.base, &mut self.sending, request, code, reply.into())
    }

    /// The offer with this number, which [`Offer::to_bits`] gave. `None` if it has ended.
    pub fn find_offer(&self, bits: u64) -> Option<Offer> {
        self.receiving.find(Key::from_bits(bits))
    }

    /// Accepts an offer into memory of the program, from `offset` on. It ends in one [`Event::Received`] with `context`; until then
    /// the memory must not be used.
    ///
    /// # Errors
    /// [`ReceiveError`] if the offer has ended or the memory won't do. An offer that has not ended can be accepted again.
    pub fn receive_into(
        &mut self,
        offer: Offer,
        memory: &Memory,
        offset: usize,
        context: u64,
    ) -> Result<(), ReceiveError> {
        self.receiving.receive_into(&mut self.base, offer, memory, offset, context)
    }

    /// Accepts an offer into memory that the library lends, as soon as [`Limits::lent_bytes_max`] allows. It ends in one
    /// [`Event::Message`], or in an [`Event::Received`] that says why not.
    ///
    /// # Errors
    /// [`ReceiveError`] if the offer has ended, or is of a message longer than may be lent.
    pub fn receive(&mut self, offer: Offer) -> Result<(), ReceiveError> {
        self.receiving.receive(&mut self.base, offer)
    }

    /// Refuses an offer, or stops receiving the message. The sender learns `code`, and no event will come here. The memory that it was to be
    /// received into is the program's again at once.
    ///
    /// # Errors
    /// [`ReceiveError::Ended`] if there is nothing to refuse.
    pub fn refuse(&mut self, offer: Offer, code: u32) -> Result<(), ReceiveError> {
        self.receiving.refuse(&mut self.base, offer, code)
    }

    /// How much of an offered message is here. `None` if it has ended.
    pub fn receive_progress(&self, offer: Offer) -> Option<Progress> {
        self.receiving.progress(offer)
    }

    /// Allocates memory of the library's own, as [`Endpoint::allocate`] does. Peers on the same host read messages that are sent from it
    /// with a plain copy. What such a peer has read once it can look at until the connection ends: the region stays registered for it, as
    /// long as the program has a handle of the memory.
    ///
    /// # Errors
    /// Those of [`Endpoint::allocate`].
    pub fn allocate(&mut self, len_bytes: usize) -> Result<Memory, RegisterError> {
        self.base.endpoint.allocate(len_bytes)
    }

    /// What was counted, and the memory that is held beside the endpoint's.
    pub fn counters(&self) -> Counters {
        let (lent_bytes, idle_lent_bytes) = self.receiving.capacity.in_use_bytes();
        let (staged_bytes, idle_staged_bytes) = self.sending.staging.in_use_bytes();
        let kept_regions = self.sending.kept_regions();
        Counters {
            lent_bytes,
            idle_lent_bytes,
            staged_bytes,
            idle_staged_bytes,
            kept_regions,
            ..self.base.counters
        }
    }

    /// Takes the next event, if there is one; never blocks.
    pub fn next_event(&mut self) -> Option<Event> {
        for _ in 0..EVENTS_PER_CALL {
            if let Some(event) = self.base.ready.pop_front() {
                return Some(event);
            }
            if self.receiving.capacity.take_news() {
                self.receiving.memory_is_back(&mut self.base);
            }
            if self.base.inbox.has_news() {
                self.serving.send_posted(&mut self.base, &mut self.sending);
            }
            self.turns = self.turns.wrapping_add(1);
            if self.turns.is_multiple_of(TURNS_PER_LOOK) {
                self.look_at_deadlines();
                self.sending.sweep(&mut self.base);
                self.receiving.reclaim();
            }
            if !self.base.due.is_empty() {
                self.try_again();
            }
            // What this has set free comes before anything that the endpoint has.
            if !self.base.ready.is_empty() {
                continue;
            }
            match self.base.endpoint.next_event() {
                Some(event) => {
                    let event = self.on(event);
                    if event.is_some() {
                        return event;
                    }
                }
                None => {
                    self.look_at_deadlines();
                    // The endpoint was prepared for sleep, so this is the last look.
                    if !self.has_news() && self.base.ready.is_empty() {
                        return None;
                    }
                }
            }
        }
        None
    }

    /// Waits for the next event, as [`Endpoint::wait`] does. Returns `None` after `timeout`.
    ///
    /// # Errors
    /// [`WaitError`] if the system refuses to wait.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Option<Event>, WaitError> {
        let until_ns = timeout.map(|timeout| {
            let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
            self.base.endpoint.now_ns().saturating_add(timeout_ns)
        });
        loop {
            if let Some(event) = self.next_event() {
                return Ok(Some(event));
            }
            if until_ns.is_some_and(|until_ns| self.base.endpoint.now_ns() >= until_ns) {
                return Ok(None);
            }
            self.sending.sweep(&mut self.base);
            let (capacity, inbox) = (&self.receiving.capacity, &self.base.inbox);
            self.base.endpoint.wait_for(until_ns, || capacity.has_news() || inbox.has_news())?;
        }
    }

    /// The descriptor for poll, select or epoll, which is readable whenever [`Messenger::next_event`] may have something: see
    /// [`Endpoint::os_handle`].
    pub fn os_handle(&self) -> BorrowedFd<'_> {
        self.base.endpoint.os_handle()
    }

    /// Makes progress, and sees to it that the descriptor is readable if there is something, as [`Endpoint::arm`] does. Only programs
    /// that sleep without having seen [`Messenger::next_event`] return `None` need this.
    pub fn arm(&mut self) {
        self.sending.sweep(&mut self.base);
        if self.has_news() || !self.base.ready.is_empty() {
            self.base.endpoint.announce_news();
        } else {
            self.base.endpoint.arm();
        }
    }

    /// Does again what the endpoint had no space for, and sees to it that the next attempt is not slept through.
    #[cold]
    fn try_again(&mut self) {
        for _ in 0..self.base.due.len() {
            match self.base.due.pop_front() {
                Some(Due::Answer(key)) => self.receiving.send_answer(&mut self.base, key),
                Some(Due::Cancel(key)) => self.sending.send_cancel(&mut self.base, key),
                Some(Due::Fetch(key)) => self.receiving.fetch(&mut self.base, key),
                Some(Due::NoReply(connection, call, why)) => self.base.no_reply(connection, call, why),
                Some(Due::Posted) => self.serving.send_posted(&mut self.base, &mut self.sending),
                None => break,
            }
        }
        self.set_alarm();
    }

    /// Ends a sleep when something is to be tried again, or when a call may have to end.
    fn set_alarm(&mut self) {
        let retry_ns = (!self.base.due.is_empty()).then(|| self.base.endpoint.now_ns() + LONG_RETRY_NS);
        let alarm_ns = [retry_ns, self.base.calls.first_deadline_ns()].into_iter().flatten().min();
        self.base.endpoint.set_alarm(alarm_ns);
    }

    /// Whether other threads have something for this one.
    fn has_news(&self) -> bool {
        self.receiving.capacity.has_news() || self.base.inbox.has_news()
    }

    /// Ends calls whose deadlines have passed.
    #[inline]
    fn look_at_deadlines(&mut self) {
        if let Some(first_ns) = self.base.calls.first_deadline_ns() {
            let now_ns = self.base.endpoint.now_ns();
            if now_ns >= first_ns {
                self.end_expired(now_ns);
            }
        }
    }

    #[cold]
    fn end_expired(&mut self, now_ns: u64) {
        for key in self.base.calls.expired(now_ns) {
            self.give_up(CallId(key), CallFailure::TimedOut);
        }
        self.set_alarm();
    }

    /// Ends a call before it is answered. False: it has ended.
    fn give_up(&mut self, id: CallId, failure: CallFailure) -> bool {
        let Some(call) = self.base.calls.get(id) else { return false };
        let (connection, send) = (call.connection, call.send);
        let event = match call.stage {
            Stage::GivenUp => return false,
            Stage::Receiving(incoming) => {
                self.receiving.stop_reply(&mut self.base, incoming);
                self.base.calls.end(id.0, Err(failure))
            }
            Stage::Waiting => {
                let event = self.base.calls.give_up(id.0, failure);
                self.sending.cancel(&mut self.base, send);
                // The server may have all of the request. If this gets lost, it answers, and nobody looks at the answer.
                let frame = Frame::GiveUp { call: CallNumber::of(id.0) };
                self.base.control_silently(connection, &frame);
                event
            }
        };
        event.into_iter().for_each(|event| self.base.raise(event));
        true
    }

    /// Takes an event of the endpoint. Returns what the program gets at once; there may be more in `ready`.
    #[inline]
    fn on(&mut self, event: Core) -> Option<Event> {
        match event {
            Core::Recv(message) => {
                let peer = self.base.peers.get(message.connection())?;
                if Frame::is_message(&message) && peer.order.is_empty() {
                    self.base.endpoint.count_prompt_message();
                    return Some(Event::Message(Message::short(message, Purpose::Message)));
                }
                match self.on_frame(message) {
                    None => self.base.ready.pop_front(),
                    event => event,
                }
            }
            Core::Send { connection, context, status } => match Own::from_context(context) {
                None => Some(sent(connection, context, status)),
                Some(own) => self.on_own(connection, own, status),
            },
            other => self.on_rare(other),
        }
    }

    /// Takes the end of something that this layer has started.
    #[inline(never)]
    fn on_own(&mut self, connection: Connection, own: Own, status: Status) -> Option<Event> {
        match own {
            Own::Offer(key) => self.sending.offer_ended(&mut self.base, key, status),
            Own::Cancel(key) => self.sending.cancel_ended(&mut self.base, key, status),
            Own::Answer(key) => self.receiving.answer_ended(&mut self.base, key, status),
            Own::Piece(key) => self.receiving.piece_ended(&mut self.base, key, status),
            // The end of the connection ends the calls. Of what succeeds there is no event.
            Own::Request(_) | Own::Reply(_) | Own::NoReply(_) if status == Status::Disconnected => {
                return None;
            }
            Own::Request(key) => {
                self.base.call_answered(connection, CallNumber::of(key))?;
                let failure = CallFailure::NotSent(SendFailure::Failed(status));
                let event = self.base.calls.end(key, Err(failure))?;
                self.base.raise(event);
            }
            Own::Reply(key) | Own::NoReply(key) => {
                self.base.no_reply(connection, CallNumber::from_key(key), NoReply::Lost);
            }
            Own::Kept(key) => {
                let context = self.sending.take_context(key)?;
                return Some(sent(connection, context, status));
            }
        }
        self.base.ready.pop_front()
    }

    /// Takes a message that is not ordinary, or has to wait. Returns what the program gets at once; there may be more in `ready`.
    #[inline(never)]
    fn on_frame(&mut self, message: crate::Message) -> Option<Event> {
        let connection = message.connection();
        if let Some(purpose) = Frame::call_purpose(&message) {
            return self.on_message(message, purpose);
        }
        let done = match Frame::parse(&message) {
            None => Err(Fault),
            Some(Frame::Message(purpose)) => return self.on_message(message, purpose),
            Some(Frame::Offer { number, purpose, source }) => {
                self.receiving.offered(&mut self.base, connection, number, purpose, source)
            }
            Some(Frame::GiveUp { call }) => {
                Serving::given_up(&mut self.base, connection, call);
                Ok(())
            }
            Some(Frame::NoReply { call, why }) => {
                let failure = match why {
                    NoReply::Dropped => CallFailure::Dropped,
                    NoReply::Lost | NoReply::GivenUp => CallFailure::ReplyLost,
                };
                match self.base.call_answered(connection, call) {
                    Some(call) => {
                        let event = self.base.calls.end(call, Err(failure));
                        event.into_iter().for_each(|event| self.base.raise(event));
                    }
                    None => self.base.counters.late += 1,
                }
                Ok(())
            }
            Some(Frame::Answer { number, answer }) => {
                self.sending.answered(&mut self.base, connection, number, answer);
                Ok(())
            }
            Some(Frame::Cancel { number }) => {
                self.receiving.cancelled(&mut self.base, connection, number);
                Ok(())
            }
            Some(Frame::Progress { number, moved_bytes }) => {
                self.sending.moves_to(&self.base, connection, number, moved_bytes);
                Ok(())
            }
        };
        if done.is_err() {
            self.fault(connection);
        }
        None
    }

    /// Takes a message of the program's, a request or a reply. Returns what the program gets; what comes behind a long message that
    /// has not ended waits.
    #[inline]
    fn on_message(&mut self, message: crate::Message, purpose: Purpose) -> Option<Event> {
        let peer = self.base.peers.get(message.connection())?;
        if peer.order.is_empty() {
            self.event_of(message, purpose, true)
        } else {
            self.hold(message, purpose)
        }
    }

    /// Has a message wait for the end of the long one before it.
    #[cold]
    #[inline(never)]
    fn hold(&mut self, message: crate::Message, purpose: Purpose) -> Option<Event> {
        let connection = message.connection();
        let event = self.event_of(message, purpose, false)?;
        if self.base.peers.get_mut(connection)?.order.hold(event).is_err() {
            self.fault(connection);
        }
        None
    }

    /// What the program gets of a message, at once if it `is_shown`.
    #[inline]
    fn event_of(&mut self, message: crate::Message, purpose: Purpose, is_shown: bool) -> Option<Event> {
        let connection = message.connection();
        self.base.endpoint.count_prompt_message();
        // Each kind is made where it is returned: an event that is moved is copied by words that were just written by halves.
        match purpose {
            Purpose::Message => Some(Event::Message(Message::short(message, purpose))),
            Purpose::Request(call) => {
                if !self.base.peers.get_mut(connection)?.requested(call, is_shown) {
                    self.fault(connection);
                    return None;
                }
                let inbox = self.base.inbox_handle();
                Some(Event::Request(Request::new(Message::short(message, purpose), call, inbox)))
            }
            Purpose::Reply(number) => {
                let (connection, context) = self.ended_by(connection, number)?;
                let result = Ok(Message::short(message, purpose));
                Some(Event::Reply { connection, context, result })
            }
            Purpose::Error { call, code } => {
                let (connection, context) = self.ended_by(connection, call)?;
                let message = Message::short(message, purpose);
                let result = Err(CallFailure::Error { code, message });
                Some(Event::Reply { connection, context, result })
            }
        }
    }

    /// The peer answers a call. Its connection and context, unless nobody waits for the answer.
    #[inline]
    fn ended_by(&mut self, connection: Connection, number: CallNumber) -> Option<(Connection, u64)> {
        match self.base.call_answered(connection, number) {
            Some(call) => self.base.calls.remove(call),
            None => {
                self.base.counters.late += 1;
                None
            }
        }
    }

    /// Ends a connection whose peer does not keep to the protocol.
    #[cold]
    fn fault(&mut self, connection: Connection) {
        let context = self.base.peers.get(connection).map_or(0, |peer| peer.context);
        self.base.counters.faults += 1;
        self.base.endpoint.disconnect(connection);
        self.forget(connection, |_| true);
        self.base.raise(Event::Disconnected { connection, context, reason: DisconnectReason::Refused });
    }

    /// Takes an event that is not about messages.
    #[inline(never)]
    fn on_rare(&mut self, event: Core) -> Option<Event> {
        Some(match event {
            Core::ConnectRequest(mut request) => {
                if !request.strip_prefix(&HELLO) || request.attribute().is_multicast() {
                    self.base.counters.strangers += 1;
                    return None;
                }
                Event::ConnectRequest(request)
            }
            Core::Connect { context, result } => {
                Event::Connect { context, result: self.opened(context, result) }
            }
            Core::Accept { context, result } => {
                Event::Accept { context, result: self.opened(context, result) }
            }
            Core::Disconnected { connection, context, reason } => {
                self.forget(connection, |_| true);
                self.base.raise(Event::Disconnected { connection, context, reason });
                return self.base.ready.pop_front();
            }
            Core::KeepaliveTimedOut { connection } => Event::KeepaliveTimedOut { connection },
            Core::DeviceFailed => Event::DeviceFailed,
            Core::Recv(_) | Core::Mapped(_) | Core::Send { .. } => return None,
        })
    }

    /// Enters a connection that is open.
    fn opened(
        &mut self,
        context: u64,
        result: Result<Connection, ConnectFailure>,
    ) -> Result<Connection, ConnectFailure> {
        let connection = result?;
        let endpoint = &mut self.base.endpoint;
        let attribute = endpoint.attribute(connection).unwrap_or(Attribute::Unreliable);
        let message_bytes_max = endpoint.max_send_size(connection).unwrap_or(0) as usize;
        let short_bytes_max = message_bytes_max.saturating_sub(HEAD_BYTES);
        let peer = Peer::new(connection, context, attribute, short_bytes_max);
        if !self.base.peers.insert(connection, peer) {
            endpoint.disconnect(connection);
            return Err(ConnectFailure::NoMemory);
        }
        Ok(connection)
    }

    /// Ends everything that is under way on a connection, and forgets it. Of what it raises, the program gets what `keeps` says.
    fn forget(&mut self, connection: Connection, keeps: impl Fn(&Event) -> bool) {
        let Some(peer) = self.base.peers.get(connection) else { return };
        let incoming: Vec<_> = peer.incoming.iter().map(|(_, key)| *key).collect();
        let outgoing: Vec<_> = peer.all_outgoing().collect();
        let calls: Vec<_> = peer.unanswered_calls().to_vec();
        let raised_before = self.base.ready.len();
        self.receiving.disconnected(&mut self.base, connection, &incoming);
        self.sending.disconnected(&mut self.base, outgoing.into_iter(), connection);
        for call in calls {
            let event = self.base.calls.end(call, Err(CallFailure::Failed(Status::Disconnected)));
            event.into_iter().for_each(|event| self.base.raise(event));
        }
        let mut raised = self.base.ready.split_off(raised_before);
        raised.retain(|event| keeps(event) || event.connection() != Some(connection));
        self.base.ready.append(&mut raised);
        self.base.peers.remove(connection);
    }
}

/// The end of a short message.
#[inline]
fn sent(connection: Connection, context: u64, status: Status) -> Event {
    let result = if status == Status::Success { Ok(()) } else { Err(SendFailure::Failed(status)) };
    Event::Sent { connection, context, result }
}

/// The descriptor of [`Messenger::os_handle`], for event loops.
impl AsFd for Messenger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.os_handle()
    }
}

/// The descriptor of [`Messenger::os_handle`], for event loops.
impl AsRawFd for Messenger {
    fn as_raw_fd(&self) -> RawFd {
        self.os_handle().as_raw_fd()
    }
}
