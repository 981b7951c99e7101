//! What events and their home are: the structs that the pool lends out, and that the rest fills and reads.

use crate::guard::Failure;
use crate::types::*;
use cci::{ConnectRequest, MappedMessage, Message};
use cci_memory::returns::Returns;
use std::cell::UnsafeCell;
use std::ptr::{NonNull, null};
use std::sync::atomic::{AtomicU32, Ordering};

/// Events are made by the block.
pub(super) const BLOCK: usize = 64;

type Block = NonNull<[CEvent; BLOCK]>;

/// What events point back to.
pub(crate) struct Home {
    pub returns: Returns,
    /// The owner's, until it is gone; then the last returner's.
    pub blocks: Vec<Block>,
}

/// What an event owns until it is returned.
#[expect(dead_code, reason = "the program reads what these own, through the event")]
pub(crate) enum Held {
    Nothing,
    /// The receive buffer.
    Message(Message),
    /// A message in memory of the peer's.
    Mapped(MappedMessage),
    Request(Box<Request>),
    /// What an answered request's event still shows.
    Payload(Vec<u8>),
}

/// A connection request, and what its event shows of it: accepting consumes the request while the event stays.
pub(crate) struct Request {
    /// A `Vec`, whose bytes may be pointed to while it moves.
    pub payload: Vec<u8>,
    pub request: ConnectRequest,
}

/// What `cci_event_t *` points to.
#[repr(C)]
pub(crate) struct CEvent {
    pub public: cci_event_t,
    pub home: NonNull<Home>,
    /// The endpoint that gave it out, as C knows it; there as long as `home` is no orphan.
    pub c_endpoint: *const cci_endpoint_t,
    pub index: u32,
    /// The event below on the stack or list that this one is on.
    pub below: AtomicU32,
    /// One of the constants below.
    pub stage: AtomicU32,
    pub held: UnsafeCell<Held>,
}

const _: () = assert!(size_of::<CEvent>() <= 96, "the header says what an event that is kept costs");

/// With the endpoint.
pub(crate) const HOME: u32 = 0;
/// Given out.
pub(crate) const OUT: u32 = 1;
/// Given out; a connection request that waits for its answer.
pub(crate) const UNANSWERED: u32 = 2;
/// Lent to a handler for the length of its call.
pub(crate) const LENT: u32 = 3;

/// Lent to a handler for the length of its call, and not from the pool: a message that is kept gets an event of its own.
pub(crate) const LENT_ON_STACK: u32 = 4;

impl CEvent {
    /// One that lends messages, without being of the pool.
    pub fn lent(home: NonNull<Home>) -> CEvent {
        let recv = cci_event_recv_t { r#type: CCI_EVENT_RECV, len: 0, ptr: null(), connection: null() };
        CEvent {
            public: cci_event_t { recv },
            stage: AtomicU32::new(LENT_ON_STACK),
            ..CEvent::new(home, u32::MAX, u32::MAX)
        }
    }

    pub fn new(home: NonNull<Home>, index: u32, below: u32) -> CEvent {
        CEvent {
            public: cci_event_t { r#type: CCI_EVENT_NONE },
            home,
            c_endpoint: null(),
            index,
            below: AtomicU32::new(below),
            stage: AtomicU32::new(HOME),
            held: UnsafeCell::new(Held::Nothing),
        }
    }

    /// The event that a program's pointer leads to.
    ///
    /// # Safety
    /// `event` is NULL or one that was given out and not returned yet (one just returned is noticed as long as it
    /// was not given out again).
    #[inline]
    pub unsafe fn of<'a>(event: *const cci_event_t) -> Result<&'a CEvent, Failure> {
        // SAFETY: the public part is the first field of ours; the caller promises the rest.
        let event = unsafe { event.cast::<CEvent>().as_ref() }
            .ok_or_else(|| Failure::with_text(CCI_EINVAL, "the event is NULL"))?;
        if event.stage.load(Ordering::Relaxed) == HOME {
            return Err(Failure::with_text(CCI_EINVAL, "the event was returned already"));
        }
        Ok(event)
    }

    /// Looks at the connection request, which has not been answered yet.
    pub fn look_at_request<T>(&self, look: impl FnOnce(&ConnectRequest) -> T) -> Result<T, Failure> {
        let mine = self.stage.compare_exchange(UNANSWERED, OUT, Ordering::Acquire, Ordering::Relaxed);
        if mine.is_err() {
            return Err(Failure::with_text(
                CCI_EINVAL,
                "not a connection request, or one that was answered already",
            ));
        }
        // SAFETY: the exchange succeeds for one caller only, and until the event is returned nobody else uses `held`.
        let held = unsafe { &*self.held.get() };
        let found = match held {
            Held::Request(request) => Ok(look(&request.request)),
            _ => Err(Failure::with_text(CCI_EINVAL, "not a connection request")),
        };
        // Release: whoever answers it comes after us.
        self.stage.store(UNANSWERED, Ordering::Release);
        found
    }

    /// Takes the connection request out, for its one answer.
    pub fn take_request(&self) -> Result<ConnectRequest, Failure> {
        let answer = self.stage.compare_exchange(UNANSWERED, OUT, Ordering::Acquire, Ordering::Relaxed);
        if answer.is_err() {
            return Err(Failure::with_text(
                CCI_EINVAL,
                "not a connection request, or one that was answered already",
            ));
        }
        // SAFETY: the exchange succeeds for one caller only, and until the event is returned nobody else uses `held`.
        let held = unsafe { &mut *self.held.get() };
        let Held::Request(request) = std::mem::replace(held, Held::Nothing) else {
            return Err(Failure::with_text(CCI_EINVAL, "not a connection request"));
        };
        let Request { payload, request } = *request;
        *held = Held::Payload(payload);
        Ok(request)
    }
}
