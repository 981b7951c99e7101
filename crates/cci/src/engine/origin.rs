//! How a connection request finds its way back. A request is a free-standing value: the program may accept it on
//! another endpoint, on another thread, or drop it. Whatever it does, the endpoint the request came to must learn of
//! it, so that it answers the peer and forgets the request. That word travels through an [`Origin`].

use super::peer::Peer;
use super::poller::Poller;
use crate::Attribute;
use crate::device::TransportKind;
use cci_sys::process::fork;
use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The part of a request only its transport understands.
pub type RequestInner = Box<dyn Any + Send>;

/// A request, whole.
pub struct RequestBody {
    pub payload: Vec<u8>,
    pub attribute: Attribute,
    pub peer: String,
    /// Who that is, where peers are told apart.
    pub identity: Option<Peer>,
    /// The transport it came by; one endpoint may have several.
    pub via: TransportKind,
    /// What that transport of the origin's calls it.
    pub ticket: u64,
    pub inner: RequestInner,
    pub origin: Arc<Origin>,
}

impl RequestBody {
    pub fn refuse(self) {
        let RequestBody { via, ticket, inner, origin, .. } = self;
        origin.tell(Fate::Refused { via, ticket, inner });
    }
}

/// What became of a request.
pub enum Fate {
    /// The program said no, or dropped it.
    Refused { via: TransportKind, ticket: u64, inner: RequestInner },
    /// Another endpoint accepted it.
    Taken { via: TransportKind, ticket: u64 },
}

impl Fate {
    /// The transport by which the request came.
    pub fn via(&self) -> TransportKind {
        match *self {
            Fate::Refused { via, .. } | Fate::Taken { via, .. } => via,
        }
    }
}

/// One per endpoint; shared with the requests that came to it. Off the data path: one relaxed load per poll.
pub struct Origin {
    news: AtomicBool,
    /// None: the endpoint is gone, and so is whatever could be done about a fate.
    fates: Mutex<Option<Vec<Fate>>>,
    /// Where the endpoint's owner may be asleep. Not kept alive by requests: it is descriptors.
    poller: Weak<Poller>,
    made_by: fork::Token,
}

impl Origin {
    pub fn new(poller: &Arc<Poller>) -> Origin {
        Origin {
            news: AtomicBool::new(false),
            fates: Mutex::new(Some(Vec::new())),
            poller: Arc::downgrade(poller),
            made_by: fork::token(),
        }
    }

    pub fn tell(&self, fate: Fate) {
        // A fork child's word is nobody's: its parent still has the request, and would only be woken for nothing.
        if !fork::same_process(self.made_by) {
            return;
        }
        {
            let mut fates = self.fates.lock().unwrap_or_else(PoisonError::into_inner);
            match fates.as_mut() {
                Some(fates) => fates.push(fate),
                None => return,
            }
        }
        // SeqCst here and in `has_news`, which is asked after the descriptor was made unreadable: either the owner
        // sees the news, or it is woken.
        if !self.news.swap(true, Ordering::SeqCst) {
            fence(Ordering::SeqCst);
            if let Some(poller) = self.poller.upgrade() {
                poller.nudge();
            }
        }
    }

    /// Whether something was told: asked by the owner before it sleeps.
    pub fn has_news(&self) -> bool {
        fence(Ordering::SeqCst);
        self.news.load(Ordering::SeqCst)
    }

    /// What was told since the last call.
    #[inline]
    pub fn take(&self) -> Option<Vec<Fate>> {
        if self.news.load(Ordering::Relaxed) { self.take_news() } else { None }
    }

    #[cold]
    fn take_news(&self) -> Option<Vec<Fate>> {
        // Acquire pairs with the swap in `tell`: who sees the flag sees the fate.
        self.news.swap(false, Ordering::AcqRel);
        self.fates.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(std::mem::take)
    }

    /// The endpoint is gone: requests that are still out end when they are dropped.
    pub fn close(&self) {
        let fates = self.fates.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(fates);
    }
}
