//! Messengers through Rust: `cci::messages::Messenger`.

use super::super::conformance_timeout;
use super::super::driver::{Driver, Refusal, Setup};
use super::super::rust::Rust;
use super::driver::{
    CallEnd, Limits, MessengerCounts, MessengerDriver, MessengerEvent, MessengerPort, Parts, Progress,
};
use cci::messages::{
    CallFailure, CallId, Event, Message, Messenger, Offer, ReceiveError, Request, SendError, SendId,
};
use cci::{Attribute, ConnectRequest, Connection, Memory, SendFlags};
use std::thread::JoinHandle;
use std::time::Duration;

/// A message or a reply.
#[derive(Debug)]
pub struct ReceivedBytes(Message);

impl AsRef<[u8]> for ReceivedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// A request.
#[derive(Debug)]
pub struct ReceivedRequest(Request);

impl AsRef<[u8]> for ReceivedRequest {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl MessengerDriver for Rust {
    type Messenger = Messenger;

    fn open_messenger(&self, device: &str, setup: &Setup, limits: Limits) -> Messenger {
        Messenger::new(self.open(device, setup), limits).expect("the limits fit each other")
    }
}

fn refusal(error: SendError) -> Refusal {
    match error {
        SendError::WouldBlock => Refusal::WouldBlock,
        SendError::TooLong { .. } => Refusal::TooLong,
        SendError::NotReliable => Refusal::BadArgument,
        SendError::Disconnected | SendError::UnknownConnection => Refusal::Closed,
        other => Refusal::Other(other.to_string()),
    }
}

fn receive_refusal(error: ReceiveError) -> Refusal {
    match error {
        ReceiveError::Ended => Refusal::BadArgument,
        ReceiveError::TooLong { .. } => Refusal::TooLong,
        other => Refusal::Other(other.to_string()),
    }
}

fn find(messenger: &Messenger, offer: u64) -> Result<Offer, Refusal> {
    messenger.find_offer(offer).ok_or(Refusal::BadArgument)
}

impl MessengerPort for Messenger {
    type Bytes = ReceivedBytes;
    type Request = ReceivedRequest;
    type ConnectRequest = ConnectRequest;
    type Memory = Memory;

    fn uri(&self) -> String {
        self.endpoint().uri().to_owned()
    }

    fn connect(&mut self, uri: &str, attribute: Attribute, context: u64) {
        let timeout = Some(conformance_timeout());
        Messenger::connect(self, uri, b"", attribute, context, timeout).expect("connect starts");
    }

    fn accept(&mut self, request: ConnectRequest, context: u64) {
        Messenger::accept(self, request, context).expect("accept starts");
    }

    fn disconnect(&mut self, connection: u64) {
        Messenger::disconnect(self, Connection::from_bits(connection));
    }

    fn send(
        &mut self,
        to: u64,
        message: Parts<'_, Memory>,
        context: u64,
        silent: bool,
    ) -> Result<u64, Refusal> {
        let (to, flags) =
            (Connection::from_bits(to), if silent { SendFlags::SILENT } else { SendFlags::NONE });
        let sent = match message {
            Parts::Copied(&[bytes]) => Messenger::send(self, to, bytes, context, flags),
            Parts::Copied(segments) => Messenger::send(self, to, segments, context, flags),
            Parts::InPlace(memory) => Messenger::send(self, to, memory, context, flags),
        };
        sent.map(SendId::to_bits).map_err(refusal)
    }

    fn cancel(&mut self, send: u64) -> bool {
        Messenger::cancel(self, SendId::from_bits(send))
    }

    fn send_progress(&mut self, send: u64) -> Option<Progress> {
        Messenger::send_progress(self, SendId::from_bits(send))
    }

    fn receive(&mut self, offer: u64) -> Result<(), Refusal> {
        Messenger::receive(self, find(self, offer)?).map_err(receive_refusal)
    }

    fn receive_into(&mut self, offer: u64, memory: &Memory, context: u64) -> Result<(), Refusal> {
        Messenger::receive_into(self, find(self, offer)?, memory, 0, context).map_err(receive_refusal)
    }

    fn refuse(&mut self, offer: u64, code: u32) -> bool {
        self.find_offer(offer).is_some_and(|offer| Messenger::refuse(self, offer, code).is_ok())
    }

    fn receive_progress(&mut self, offer: u64) -> Option<Progress> {
        Messenger::receive_progress(self, self.find_offer(offer)?)
    }

    fn call(
        &mut self,
        to: u64,
        request: &[&[u8]],
        timeout: Option<Duration>,
        context: u64,
    ) -> Result<u64, Refusal> {
        let to = Connection::from_bits(to);
        let called = match request {
            &[bytes] => Messenger::call(self, to, bytes, timeout, context),
            segments => Messenger::call(self, to, segments, timeout, context),
        };
        called.map(CallId::to_bits).map_err(refusal)
    }

    fn call_until_the_past(&mut self, _to: u64) -> Option<Result<u64, Refusal>> {
        None
    }

    fn cancel_call(&mut self, call: u64) -> bool {
        Messenger::cancel_call(self, CallId::from_bits(call))
    }

    fn answer(
        &mut self,
        request: &mut ReceivedRequest,
        code: Option<u32>,
        bytes: &[u8],
    ) -> Result<(), Refusal> {
        let answered = Messenger::answer(self, &mut request.0, code, bytes);
        answered.map_err(|error| error.map_or(Refusal::Closed, refusal))
    }

    fn answer_in_a_thread(
        &self,
        ReceivedRequest(request): ReceivedRequest,
        code: Option<u32>,
        bytes: Vec<u8>,
    ) -> JoinHandle<()> {
        std::thread::spawn(move || match code {
            None => request.reply(bytes),
            Some(code) => request.reply_error(code, bytes),
        })
    }

    fn memory(&mut self, bytes: &[u8]) -> Memory {
        let memory = self.allocate(bytes.len()).expect("there is memory");
        assert!(memory.write(0, bytes));
        memory
    }

    fn bytes_of(memory: &Memory) -> Vec<u8> {
        let mut bytes = vec![0; memory.len()];
        assert!(memory.read(0, &mut bytes));
        bytes
    }

    fn poll(&mut self) -> Option<MessengerEvent<Messenger>> {
        Some(match self.next_event()? {
            Event::Sent { connection, context, result } => {
                MessengerEvent::Sent { connection: connection.to_bits(), context, result }
            }
            Event::Message(message) => MessengerEvent::Message {
                connection: message.connection().to_bits(),
                bytes: ReceivedBytes(message),
            },
            Event::Offer(offer) => MessengerEvent::Offer {
                connection: offer.connection().to_bits(),
                offer: offer.to_bits(),
                len_bytes: offer.len_bytes(),
            },
            Event::Received { offer, context, result } => {
                MessengerEvent::Received { offer: offer.to_bits(), context, result }
            }
            Event::Request(request) => MessengerEvent::Request {
                connection: request.connection().to_bits(),
                id: request.id().to_bits(),
                request: ReceivedRequest(request),
            },
            Event::RequestCancelled(id) => {
                MessengerEvent::RequestCancelled { connection: id.connection().to_bits(), id: id.to_bits() }
            }
            Event::Reply { connection, context, result } => MessengerEvent::Reply {
                connection: connection.to_bits(),
                context,
                result: result.map(ReceivedBytes).map_err(call_end),
            },
            Event::Connect { context, result } => {
                MessengerEvent::Connect { context, result: result.map(Connection::to_bits) }
            }
            Event::ConnectRequest(request) => MessengerEvent::ConnectRequest(request),
            Event::Accept { context, result } => {
                MessengerEvent::Accept { context, result: result.map(Connection::to_bits) }
            }
            Event::Disconnected { connection, context, reason } => {
                MessengerEvent::Disconnected { connection: connection.to_bits(), context, reason }
            }
            other => panic!("{other:?}"),
        })
    }

    fn counts(&self) -> MessengerCounts {
        let counters = self.counters();
        MessengerCounts {
            long_received: counters.long_received,
            long_failed: counters.long_failed,
            faults: counters.faults,
            lent_bytes: counters.lent_bytes,
            staged_bytes: counters.staged_bytes,
        }
    }
}

fn call_end(failure: CallFailure) -> CallEnd {
    match failure {
        CallFailure::Error { code, message } => CallEnd::Error { code, bytes: message.to_vec() },
        CallFailure::Dropped => CallEnd::Dropped,
        CallFailure::TimedOut => CallEnd::TimedOut,
        CallFailure::Cancelled => CallEnd::Cancelled,
        CallFailure::NotSent(failure) => CallEnd::NotSent(failure),
        CallFailure::ReplyTooLong { len_bytes, .. } => CallEnd::ReplyTooLong { len_bytes },
        CallFailure::ReplyLost => CallEnd::ReplyLost,
        CallFailure::Failed(status) => CallEnd::Failed(status),
        other => panic!("{other}"),
    }
}
