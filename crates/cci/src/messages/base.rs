//! What the two directions of a messenger share: the endpoint, its connections, and events that are ready for the program.

use super::by_connection::ByConnection;
use super::calls::Calls;
use super::event::Event;
use super::options::Counters;
use super::own::Own;
use super::peer::Peer;
use super::request::Inbox;
use super::wire::{CONTROL_BYTES_MAX, CallNumber, Frame, NoReply};
use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::options::SendFlags;
use cci_memory::slab::Key;
use std::collections::VecDeque;
use std::sync::Arc;

/// What the endpoint had no space for, to be tried again.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Due {
    /// The answer to a long message.
    Answer(Key),
    /// The cancellation of a long message.
    Cancel(Key),
    /// More pieces of a long message.
    Fetch(Key),
    /// That a request gets no answer.
    NoReply(Connection, CallNumber, NoReply),
    /// Answers that the program has given on other threads.
    Posted,
}

/// What both directions use.
pub struct Base {
    pub endpoint: Endpoint,
    pub peers: ByConnection<Peer>,
    /// Events for the program. What puts events here takes none from the endpoint before they are gone, so they are no more than what
    /// one of the endpoint's events sets free.
    pub ready: VecDeque<Event>,
    pub due: VecDeque<Due>,
    pub calls: Calls,
    pub inbox: Arc<Inbox>,
    /// Handles of the inbox for the next requests: to make one and to drop one costs a locked instruction each.
    inbox_handles: Vec<Arc<Inbox>>,
    pub counters: Counters,
}

/// What became of a frame.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// It was taken, and its completion will come.
    Taken,
    /// There was no space.
    NoSpace,
    /// The connection is over. Its end will be reported, or was.
    Over,
}

/// Handles of the inbox that are kept.
const INBOX_HANDLES_MAX: usize = 64;

impl Base {
    /// For one endpoint.
    pub fn new(endpoint: Endpoint) -> Base {
        let inbox = Inbox::new(endpoint.waker());
        Base {
            endpoint,
            peers: ByConnection::new(),
            ready: VecDeque::new(),
            due: VecDeque::new(),
            calls: Calls::new(),
            inbox,
            inbox_handles: Vec::with_capacity(INBOX_HANDLES_MAX),
            counters: Counters::default(),
        }
    }

    /// A handle of the inbox, for a request.
    #[inline]
    pub fn inbox_handle(&mut self) -> Arc<Inbox> {
        self.inbox_handles.pop().unwrap_or_else(|| self.inbox.clone())
    }

    /// Takes back the handle of a request that was answered. It is of this messenger's inbox.
    #[inline]
    pub fn put_back(&mut self, handle: Option<Arc<Inbox>>) {
        if let Some(handle) = handle.filter(|_| self.inbox_handles.len() < INBOX_HANDLES_MAX) {
            self.inbox_handles.push(handle);
        }
    }

    /// Sends a frame of the layer's own. Its completion comes with the context of `own`.
    pub fn control(&mut self, connection: Connection, frame: &Frame, own: Own) -> Control {
        let mut bytes = [0; CONTROL_BYTES_MAX];
        let frame = frame.emit(&mut bytes);
        match self.endpoint.send(connection, frame, own.to_context(), SendFlags::NONE) {
            Ok(()) => Control::Taken,
            Err(crate::SendError::WouldBlock) => Control::NoSpace,
            Err(_) => Control::Over,
        }
    }

    /// Sends a frame that may as well get lost.
    pub fn control_silently(&mut self, connection: Connection, frame: &Frame) {
        let mut bytes = [0; CONTROL_BYTES_MAX];
        let frame = frame.emit(&mut bytes);
        let _ = self.endpoint.send(connection, frame, 0, SendFlags::SILENT);
    }

    /// Says that a request gets no answer, or notes that this is due.
    pub fn no_reply(&mut self, connection: Connection, call: CallNumber, why: NoReply) {
        let own = Own::NoReply(call.to_key());
        let sent = self.control(connection, &Frame::NoReply { call, why }, own);
        let Some(peer) = self.peers.get_mut(connection) else { return };
        if sent == Control::NoSpace {
            peer.owes(call);
            self.due.push_back(Due::NoReply(connection, call, why));
        } else {
            peer.owes_no_more(call);
        }
    }

    /// The peer has answered a call, or never got it. Returns the call, if there is one.
    pub fn call_answered(&mut self, connection: Connection, call: CallNumber) -> Option<Key> {
        let key = self.calls.find(connection, call)?;
        self.peers.get_mut(connection)?.call_answered(key);
        Some(key)
    }

    /// Gives an event to the program, which may be asleep on the descriptor; but no request for whose answer nobody waits any more.
    pub fn raise(&mut self, event: Event) {
        if let Event::Request(request) = &event {
            let id = request.id();
            if !self.peers.get_mut(id.connection).is_some_and(|peer| peer.show_request(id.call)) {
                return;
            }
        }
        self.ready.push_back(event);
        self.endpoint.announce_news();
    }
}
