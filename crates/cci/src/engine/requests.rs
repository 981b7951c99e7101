//! How the decision on a request to connect finds its way back. A request is a free-standing value: the program may accept it on another
//! endpoint, on another thread, or drop it. Whatever it does, the endpoint that the request came to must learn of it, so that it
//! answers the peer and forgets the request. It learns so by its [`RequestInbox`].

use super::peer::Peer;
use super::poller::Poller;
use crate::Attribute;
use crate::device::TransportKind;
use crate::error::AcceptError;
use cci_sys::process::fork;
use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The part of a request only its transport understands.
pub type RequestInner = Box<dyn Any + Send>;

/// All that belongs to a request.
pub struct RequestBody {
    pub payload: Vec<u8>,
    pub attribute: Attribute,
    pub peer: String,
    /// Who the peer is, where that was proved.
    pub identity: Option<Peer>,
    /// The kind of transport by which it came; one endpoint may have several.
    pub via: TransportKind,
    /// The number by which that transport knows the request.
    pub ticket: u64,
    pub inner: RequestInner,
    pub inbox: Arc<RequestInbox>,
}

impl RequestBody {
    /// Takes out what the transport put into the request, and leaves the remainder.
    ///
    /// # Errors
    /// [`AcceptError::OtherDevice`]: another kind of transport put something in, which has got the answer that the request is refused.
    pub fn claim<T: Any>(mut self) -> Result<(Box<T>, RequestBody), AcceptError> {
        match std::mem::replace(&mut self.inner, Box::new(())).downcast() {
            Ok(inner) => Ok((inner, self)),
            Err(inner) => {
                self.inner = inner;
                self.refuse();
                Err(AcceptError::OtherDevice)
            }
        }
    }

    /// Says no.
    pub fn refuse(self) {
        let RequestBody { via, ticket, inner, inbox, .. } = self;
        inbox.put(Decision::Refused { via, ticket, inner });
    }
}

/// What became of a request.
pub enum Decision {
    /// The program said no, or dropped it.
    Refused { via: TransportKind, ticket: u64, inner: RequestInner },
    /// Another endpoint accepted it.
    AcceptedElsewhere { via: TransportKind, ticket: u64 },
}

impl Decision {
    /// The kind of transport by which the request came.
    pub fn via(&self) -> TransportKind {
        match *self {
            Decision::Refused { via, .. } | Decision::AcceptedElsewhere { via, .. } => via,
        }
    }
}

/// Where an endpoint learns what became of the requests that came to it. Shared with those requests. Off the data path: it costs a
/// poll one relaxed load.
pub struct RequestInbox {
    /// There are decisions that the endpoint has not looked at.
    has_news: AtomicBool,
    /// `None`: the endpoint is gone, and nothing can be done about a decision any more.
    decisions: Mutex<Option<Vec<Decision>>>,
    /// Where the endpoint's owner may be asleep. Requests do not keep it alive: it is descriptors.
    poller: Weak<Poller>,
    made_by: fork::Token,
}

impl RequestInbox {
    pub fn new(poller: &Arc<Poller>) -> RequestInbox {
        RequestInbox {
            has_news: AtomicBool::new(false),
            decisions: Mutex::new(Some(Vec::new())),
            poller: Arc::downgrade(poller),
            made_by: fork::token(),
        }
    }

    /// Reports a decision to the endpoint, and wakes it.
    pub fn put(&self, decision: Decision) {
        // A fork child decides nothing: its parent still has the request, and would only be woken for nothing.
        if !fork::same_process(self.made_by) {
            return;
        }
        {
            let mut decisions = self.decisions.lock().unwrap_or_else(PoisonError::into_inner);
            match decisions.as_mut() {
                Some(decisions) => decisions.push(decision),
                None => return,
            }
        }
        self.wake();
    }

    /// Wakes the endpoint, from any thread: whoever waits on it gets control, and its descriptor is readable until it has looked.
    pub fn wake(&self) {
        // SeqCst here and in `has_news`, which is asked after the descriptor was made unreadable: either the owner
        // sees the news, or it is woken.
        if !self.has_news.swap(true, Ordering::SeqCst) {
            fence(Ordering::SeqCst);
            if let Some(poller) = self.poller.upgrade() {
                poller.nudge();
            }
        }
    }

    /// Whether there are decisions: asked by the owner before it sleeps.
    pub fn has_news(&self) -> bool {
        fence(Ordering::SeqCst);
        self.has_news.load(Ordering::SeqCst)
    }

    /// Whether there are decisions, as far as a look without a fence shows.
    #[inline]
    pub fn may_have_news(&self) -> bool {
        self.has_news.load(Ordering::Relaxed)
    }

    /// The decisions since the last call.
    #[inline]
    pub fn take(&self) -> Option<Vec<Decision>> {
        if self.may_have_news() { self.take_news() } else { None }
    }

    #[cold]
    fn take_news(&self) -> Option<Vec<Decision>> {
        // Acquire pairs with the swap in `put`: who sees the flag sees the decision.
        self.has_news.swap(false, Ordering::AcqRel);
        self.decisions.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(std::mem::take)
    }

    /// The endpoint is gone: requests that are still out end when they are dropped.
    pub fn close(&self) {
        let decisions = self.decisions.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(decisions);
    }
}
