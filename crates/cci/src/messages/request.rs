//! A request that a server has to answer, on any thread, and how the answer finds its way back.

use super::message::Message;
use super::send::SendError;
use super::wire::CallNumber;
use crate::connection::Connection;
use crate::endpoint::layers::Waker;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A request of a client: readable in place like a message, and to be answered once. The thread of the messenger answers by
/// [`Messenger::reply`](super::Messenger::reply) or [`Messenger::reply_error`](super::Messenger::reply_error), any thread by
/// [`reply`](Request::reply) or [`reply_error`](Request::reply_error), in any order. If it is dropped, its client learns that there
/// will be no answer.
#[must_use = "a request that is dropped is refused"]
pub struct Request {
    /// `None`: it was answered.
    answer: Option<Unanswered>,
    body: Message,
}

struct Unanswered {
    call: CallNumber,
    inbox: Arc<Inbox>,
}

/// Names a request, also after it was answered: see [`Event::RequestCancelled`](super::Event::RequestCancelled).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestId {
    pub(super) connection: Connection,
    pub(super) call: CallNumber,
}

impl RequestId {
    /// The connection that the request came on.
    pub fn connection(&self) -> Connection {
        self.connection
    }

    /// As one number, for language bindings. Requests of one connection that are not answered have different numbers.
    pub fn to_bits(&self) -> u64 {
        self.call.to_key().to_bits()
    }
}

impl Request {
    pub(super) fn new(body: Message, call: CallNumber, inbox: Arc<Inbox>) -> Request {
        Request { answer: Some(Unanswered { call, inbox }), body }
    }

    /// The connection it came on.
    pub fn connection(&self) -> Connection {
        self.body.connection()
    }

    /// Names the request.
    pub fn id(&self) -> RequestId {
        let call = self.answer.as_ref().map_or(CallNumber::NONE, |answer| answer.call);
        RequestId { connection: self.connection(), call }
    }

    /// Answers from any thread. The bytes are kept until they have been sent. If the client has given the call up, or the connection
    /// has ended, they are dropped.
    pub fn reply(self, bytes: impl Into<Vec<u8>>) {
        self.post(Posted::Reply(bytes.into()));
    }

    /// Answers from any thread, with an error of the program's own.
    pub fn reply_error(self, code: u32, bytes: impl Into<Vec<u8>>) {
        self.post(Posted::Error(code, bytes.into()));
    }

    fn post(mut self, posted: Posted) {
        let connection = self.connection();
        if let Some(Unanswered { call, inbox }) = self.answer.take() {
            inbox.post(RequestId { connection, call }, posted);
        }
    }

    /// Whether it can still be answered, by the messenger with this inbox.
    pub(super) fn is_unanswered(&self, inbox: &Arc<Inbox>) -> bool {
        self.answer.as_ref().is_some_and(|answer| Arc::ptr_eq(&answer.inbox, inbox))
    }

    /// The messenger answers itself. Returns what the request had to reach it from other threads.
    pub(super) fn answered(&mut self) -> Option<Arc<Inbox>> {
        Some(self.answer.take()?.inbox)
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some(Unanswered { call, inbox }) = self.answer.take() {
            inbox.post(RequestId { connection: self.body.connection(), call }, Posted::Dropped);
        }
    }
}

impl Deref for Request {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.body
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Request({} bytes from {:?})", self.len(), self.connection())
    }
}

/// What becomes of a request.
pub enum Posted {
    Reply(Vec<u8>),
    Error(u32, Vec<u8>),
    Dropped,
}

/// Answers from all threads, on their way to the messenger. They are no more than requests that were not answered.
pub struct Inbox {
    posted: Mutex<Vec<(RequestId, Posted)>>,
    has_news: AtomicBool,
    waker: Waker,
}

impl Inbox {
    pub fn new(waker: Waker) -> Arc<Inbox> {
        Arc::new(Inbox { posted: Mutex::default(), has_news: AtomicBool::new(false), waker })
    }

    fn post(&self, request: RequestId, posted: Posted) {
        self.posted.lock().unwrap_or_else(PoisonError::into_inner).push((request, posted));
        self.has_news.store(true, Ordering::SeqCst);
        self.waker.wake();
    }

    /// Whether there is something to be taken.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.has_news.load(Ordering::SeqCst)
    }

    /// Takes everything.
    pub fn take(&self) -> Vec<(RequestId, Posted)> {
        self.has_news.store(false, Ordering::SeqCst);
        std::mem::take(&mut *self.posted.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Why a request was not answered.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReplyError {
    /// The client has given the call up, or the connection has ended. Nobody waits for the answer.
    Ended,
    /// The answer could not be sent; the request can be answered again.
    NotSent {
        /// The request.
        request: Request,
        /// Why.
        error: SendError,
    },
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplyError::Ended => f.write_str("nobody waits for the answer any more"),
            ReplyError::NotSent { error, .. } => error.fmt(f),
        }
    }
}

impl std::error::Error for ReplyError {}
