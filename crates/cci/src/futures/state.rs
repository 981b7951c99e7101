//! What the tasks of one messenger share, behind a lock that is held for the length of a call.

use super::operations::{Entered, Operations, Outcome, POSTED};
use super::received::Received;
use super::wakers::Wakers;
use crate::connection::Connection;
use crate::engine::event::ConnectRequest;
use crate::error::ConnectFailure;
use crate::messages::{self, ByConnection, Event, Payload, SendError, SendFailure};
use crate::options::SendFlags;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The most events that one turn of the driver takes, and that readers take between two of them, so that other tasks run, too.
const EVENTS_PER_TURN: u32 = 64;

/// A messenger, its connections, and who waits for what.
pub(super) struct Shared {
    state: Mutex<State>,
    /// The messenger's URI.
    pub(super) uri: String,
}

pub(super) struct State {
    pub(super) messenger: messages::Messenger,
    pub(super) operations: Operations,
    peers: ByConnection<Peer>,
    /// Who wants to connect.
    requests: VecDeque<ConnectRequest>,
    /// Tasks that wait for one of these.
    acceptors: Wakers,
    /// Tasks that wait for space, and on which connection.
    writers: VecDeque<(Connection, Waker)>,
    driver: Option<Waker>,
    /// Events that readers may take before the driver's next turn.
    events_for_readers: u32,
    /// Messengers and connections that programs have.
    pub(super) handles: usize,
    /// The driver has ended: nothing more comes.
    pub(super) is_over: bool,
}

/// One connection.
#[derive(Default)]
struct Peer {
    received: VecDeque<Received>,
    readers: Wakers,
    /// The peer has gone, or the connection failed.
    has_ended: bool,
    /// Posted messages that have not ended.
    posted: u32,
    /// Why the first of them that failed did.
    post_failure: Option<SendFailure>,
    flushers: Wakers,
}

impl Peer {
    /// Nothing more comes: who waits finds that out.
    fn end(&mut self) {
        self.has_ended = true;
        self.readers.wake();
        self.flushers.wake();
    }
}

/// What became of a message that was to be posted.
pub(super) enum Posted {
    Taken,
    /// The task is woken when there may be space.
    WouldBlock,
    /// Not taken.
    Refused(SendError),
    /// Not taken, since one that was posted before has failed.
    Failed(SendFailure),
    /// The driver has ended.
    Over,
}

impl Shared {
    pub(super) fn new(messenger: messages::Messenger) -> Shared {
        let uri = messenger.endpoint().uri().to_owned();
        let state = State {
            messenger,
            operations: Operations::new(),
            peers: ByConnection::new(),
            requests: VecDeque::new(),
            acceptors: Wakers::default(),
            writers: VecDeque::new(),
            driver: None,
            events_for_readers: EVENTS_PER_TURN,
            handles: 1,
            is_over: false,
        };
        Shared { state: Mutex::new(state), uri }
    }

    /// The state, for a moment.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Has the driver take a turn: something was started, or has ended.
    pub(super) fn wake_driver(&mut self) {
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }

    /// The driver can be woken.
    pub(super) fn set_driver(&mut self, context: &Context<'_>) {
        self.driver = Some(context.waker().clone());
    }

    /// Takes events and gives them to whom they concern. Returns whether there may be more.
    pub(super) fn turn(&mut self) -> bool {
        self.events_for_readers = EVENTS_PER_TURN;
        for _ in 0..EVENTS_PER_TURN {
            match self.messenger.next_event() {
                Some(event) => self.on(event),
                None => return false,
            }
        }
        true
    }

    /// Nothing more comes: everybody who waits is woken, and finds that out.
    pub(super) fn end(&mut self) {
        self.is_over = true;
        self.operations.wake_all();
        self.acceptors.wake();
        self.writers.drain(..).for_each(|(_, waker)| waker.wake());
        for peer in self.peers.values_mut() {
            peer.end();
        }
    }

    #[inline]
    fn on(&mut self, event: Event) {
        match event {
            Event::Sent { connection, context: POSTED, result } => {
                self.post_ended(connection, result);
                self.space(connection);
            }
            event => self.on_other(event),
        }
    }

    /// Takes an event that is not the end of a posted message.
    fn on_other(&mut self, event: Event) {
        match event {
            Event::Sent { connection, context, result } => {
                self.ended(context, Outcome::Sent(result));
                self.space(connection);
            }
            Event::Reply { connection, context, result } => {
                self.ended(context, Outcome::Replied(result));
                self.space(connection);
            }
            Event::Received { context, result, .. } => self.ended(context, Outcome::Received(result)),
            Event::Connect { context, result } | Event::Accept { context, result } => {
                let result = result.and_then(|connection| {
                    if self.peers.insert(connection, Peer::default()) {
                        return Ok(connection);
                    }
                    self.messenger.disconnect(connection);
                    Err(ConnectFailure::NoMemory)
                });
                self.ended(context, Outcome::Opened(result));
            }
            Event::ConnectRequest(request) => {
                self.requests.push_back(request);
                self.acceptors.wake();
            }
            Event::Message(message) => self.received(message.connection(), Received::Message(message)),
            Event::Request(request) => self.received(request.connection(), Received::Request(request)),
            Event::Offer(offer) => self.received(offer.connection(), Received::Offer(offer)),
            Event::RequestCancelled(id) => self.received(id.connection(), Received::RequestCancelled(id)),
            Event::Disconnected { connection, .. } => {
                if let Some(peer) = self.peers.get_mut(connection) {
                    peer.end();
                }
                self.space(connection);
            }
            Event::DeviceFailed => self.end(),
            // No task is shown it: what waits for that peer ends.
            Event::KeepaliveTimedOut { connection } => {
                self.messenger.disconnect(connection);
                if let Some(peer) = self.peers.get_mut(connection) {
                    peer.end();
                }
                self.space(connection);
            }
        }
    }

    /// An operation has ended.
    fn ended(&mut self, context: u64, outcome: Outcome) {
        match self.operations.end(context, outcome) {
            Entered::Kept => {}
            Entered::Unwanted(outcome) => self.discard(outcome),
        }
    }

    /// A posted message has ended.
    #[inline]
    fn post_ended(&mut self, connection: Connection, result: Result<(), SendFailure>) {
        let Some(peer) = self.peers.get_mut(connection) else { return };
        peer.posted = peer.posted.saturating_sub(1);
        if let Err(failure) = result {
            peer.post_failure.get_or_insert(failure);
        }
        if peer.posted == 0 {
            peer.flushers.wake();
        }
    }

    /// Nobody waits for what an operation has brought.
    pub(super) fn discard(&mut self, outcome: Outcome) {
        if let Outcome::Opened(Ok(connection)) = outcome {
            self.close(connection);
        }
    }

    fn received(&mut self, connection: Connection, received: Received) {
        // Of a connection that the program has dropped, nothing is wanted.
        let Some(peer) = self.peers.get_mut(connection) else { return };
        peer.received.push_back(received);
        peer.readers.wake();
    }

    /// There may be space for those who wait.
    #[inline]
    fn space(&mut self, connection: Connection) {
        if !self.writers.is_empty() {
            self.wake_writers(connection);
        }
    }

    /// Wakes all who wait to send on this connection, and one who waits on another one.
    fn wake_writers(&mut self, connection: Connection) {
        let mut other = None;
        let mut waiting = VecDeque::with_capacity(self.writers.len());
        for (of, waker) in self.writers.drain(..) {
            if of == connection {
                waker.wake();
            } else if other.is_none() {
                other = Some(waker);
            } else {
                waiting.push_back((of, waker));
            }
        }
        self.writers = waiting;
        other.into_iter().for_each(Waker::wake);
    }

    /// Has a task woken when there may be space.
    pub(super) fn wait_for_space(&mut self, connection: Connection, context: &Context<'_>) {
        self.writers.push_back((connection, context.waker().clone()));
    }

    /// Who wants to connect next; or has the task woken when somebody does.
    pub(super) fn next_request(&mut self, context: &Context<'_>) -> Option<ConnectRequest> {
        let request = self.requests.pop_front();
        if request.is_none() && !self.is_over {
            self.acceptors.add(context);
        }
        request
    }

    /// What a connection has received; or has the task woken when there is something.
    #[inline]
    pub(super) fn next_received(
        &mut self,
        connection: Connection,
        context: &Context<'_>,
    ) -> Poll<Option<Received>> {
        let Some(peer) = self.peers.get_mut(connection) else { return Poll::Ready(None) };
        if let Some(received) = peer.received.pop_front() {
            return Poll::Ready(Some(received));
        }
        if peer.has_ended || self.is_over {
            return Poll::Ready(None);
        }
        if let Some(received) = self.take_for(connection) {
            return Poll::Ready(Some(received));
        }
        let Some(peer) = self.peers.get_mut(connection) else { return Poll::Ready(None) };
        if peer.has_ended || self.is_over {
            return Poll::Ready(None);
        }
        peer.readers.add(context);
        Poll::Pending
    }

    /// Takes events in the driver's place, until one brings something for this connection: that needs no queue then.
    #[inline]
    fn take_for(&mut self, connection: Connection) -> Option<Received> {
        while self.events_for_readers > 0 {
            // Without an event, the endpoint has made ready to wake the driver.
            let event = self.messenger.next_event()?;
            self.events_for_readers -= 1;
            let received = match event {
                Event::Message(message) if message.connection() == connection => Received::Message(message),
                Event::Request(request) if request.connection() == connection => Received::Request(request),
                Event::Offer(offer) if offer.connection() == connection => Received::Offer(offer),
                Event::RequestCancelled(id) if id.connection() == connection => {
                    Received::RequestCancelled(id)
                }
                other => {
                    self.on(other);
                    continue;
                }
            };
            self.wake_driver();
            return Some(received);
        }
        self.wake_driver();
        None
    }

    /// Sends a message whose end no task waits for alone.
    #[inline]
    pub(super) fn post(
        &mut self,
        connection: Connection,
        payload: Payload<'_>,
        context: &Context<'_>,
    ) -> Posted {
        let Some(peer) = self.peers.get_mut(connection) else {
            return Posted::Refused(SendError::Disconnected);
        };
        if let Some(failure) = peer.post_failure.take() {
            return Posted::Failed(failure);
        }
        if self.is_over {
            return Posted::Over;
        }
        match self.messenger.send(connection, payload, POSTED, SendFlags::NONE) {
            Ok(_) => {
                peer.posted += 1;
                self.wake_driver();
                Posted::Taken
            }
            Err(SendError::WouldBlock) => {
                self.wake_driver();
                self.wait_for_space(connection, context);
                Posted::WouldBlock
            }
            Err(error) => Posted::Refused(error),
        }
    }

    /// Whether all posted messages of a connection have ended, and how; if not, has the task woken when they have. Without a reason: the driver
    /// has ended before them.
    pub(super) fn poll_flushed(
        &mut self,
        connection: Connection,
        context: &Context<'_>,
    ) -> Poll<Result<(), Option<SendFailure>>> {
        let Some(peer) = self.peers.get_mut(connection) else { return Poll::Ready(Ok(())) };
        if let Some(failure) = peer.post_failure.take_if(|_| peer.posted == 0 || self.is_over) {
            return Poll::Ready(Err(Some(failure)));
        }
        if peer.posted == 0 {
            return Poll::Ready(Ok(()));
        }
        if self.is_over {
            return Poll::Ready(Err(None));
        }
        peer.flushers.add(context);
        Poll::Pending
    }

    /// The program wants no more of a connection.
    pub(super) fn close(&mut self, connection: Connection) {
        if let Some(peer) = self.peers.remove(connection) {
            if !peer.has_ended {
                self.messenger.disconnect(connection);
            }
            self.wake_driver();
        }
    }
}
