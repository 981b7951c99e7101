//! How a connection request finds its way back. A request is a free-standing value: the program may accept it on
//! another endpoint, on another thread, or drop it. Whatever it does, the endpoint the request came to must learn of
//! it, so that it answers the peer and forgets the request. That word travels through an [`Origin`].

use crate::Attribute;
use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The part of a request only its transport understands.
pub(crate) type RequestInner = Box<dyn Any + Send>;

/// A request, whole.
pub(crate) struct RequestBody {
    pub payload: Vec<u8>,
    pub attribute: Attribute,
    pub peer: String,
    /// What the origin calls it.
    pub ticket: u64,
    pub inner: RequestInner,
    pub origin: Arc<Origin>,
}

impl RequestBody {
    pub fn refuse(self) {
        let RequestBody { ticket, inner, origin, .. } = self;
        origin.tell(Fate::Refused { ticket, inner });
    }
}

/// What became of a request.
pub(crate) enum Fate {
    /// The program said no, or dropped it.
    Refused { ticket: u64, inner: RequestInner },
    /// Another endpoint accepted it.
    Taken { ticket: u64 },
}

/// One per endpoint; shared with the requests that came to it. Off the data path: one relaxed load per poll.
#[derive(Default)]
pub(crate) struct Origin {
    news: AtomicBool,
    fates: Mutex<Vec<Fate>>,
}

impl Origin {
    pub fn tell(&self, fate: Fate) {
        self.fates.lock().unwrap_or_else(PoisonError::into_inner).push(fate);
        // Pairs with the Acquire in `take`: who sees the flag sees the fate.
        self.news.store(true, Ordering::Release);
    }

    /// What was told since the last call.
    pub fn take(&self) -> Option<Vec<Fate>> {
        if !self.news.load(Ordering::Relaxed) {
            return None;
        }
        self.news.swap(false, Ordering::Acquire);
        Some(std::mem::take(&mut *self.fates.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}
