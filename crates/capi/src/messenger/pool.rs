//! The structs of a messenger's events: what they own while a program has them, and how they come back.

use super::types::*;
use crate::guard::Failure;
use crate::types::*;
use cci::ConnectRequest;
use cci::messages::{Message, Request};
use std::cell::UnsafeCell;
use std::ptr::{NonNull, null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// What an event owns until it is returned.
pub(super) enum Held {
    Nothing,
    /// What the event shows.
    #[expect(dead_code, reason = "the program reads what this owns, through the event")]
    Message(Message),
    /// A request, which shows its bytes also after it was answered.
    Request(Request),
    /// A connection request, until it is answered, and what the event shows of it.
    Connect(
        Option<ConnectRequest>,
        #[expect(dead_code, reason = "the program reads it, through the event")] Vec<u8>,
    ),
}

/// What `cci_messenger_event_t *` points to.
#[repr(C)]
pub(super) struct CEvent<O> {
    public: cci_messenger_event_t,
    /// One of the constants below.
    stage: AtomicU32,
    held: UnsafeCell<Held>,
    /// What gave it out; `None` at home.
    owner: UnsafeCell<Option<Arc<O>>>,
}

/// An event that came back.
pub(super) struct Returned<O> {
    pub slot: NonNull<CEvent<O>>,
    /// What it owned.
    pub held: Held,
    /// What gave it out, whose pool the slot belongs to.
    pub owner: Option<Arc<O>>,
}

/// With the messenger.
const HOME: u32 = 0;
/// Given out.
const OUT: u32 = 1;
/// Given out; it can be answered.
const UNANSWERED: u32 = 2;
/// A call is answering it.
const BUSY: u32 = 3;

/// The structs of a messenger's events.
pub(crate) struct Pool<O> {
    free: Vec<NonNull<CEvent<O>>>,
    all: Vec<NonNull<CEvent<O>>>,
    count_max: usize,
}

// SAFETY: the pointers are to memory of the heap that the pool owns; what is reached through them is the thread's that has the event.
unsafe impl<O: Send + Sync> Send for Pool<O> {}

impl<O> Pool<O> {
    pub fn new(count_max: u32) -> Pool<O> {
        Pool { free: Vec::new(), all: Vec::new(), count_max: count_max as usize }
    }

    /// A struct that nobody else has. `None`: the program has as many as it may.
    pub fn take(&mut self) -> Option<NonNull<CEvent<O>>> {
        if let Some(event) = self.free.pop() {
            return Some(event);
        }
        if self.all.len() >= self.count_max {
            return None;
        }
        let event = NonNull::from(Box::leak(Box::new(CEvent {
            public: EMPTY,
            stage: AtomicU32::new(HOME),
            held: UnsafeCell::new(Held::Nothing),
            owner: UnsafeCell::new(None),
        })));
        self.all.push(event);
        // So that putting one back never allocates.
        self.free.reserve(self.all.len());
        Some(event)
    }

    /// The memory of the structs, bytes.
    pub fn len_bytes(&self) -> u64 {
        (self.all.len() * size_of::<CEvent<O>>()) as u64
    }

    pub fn put_back(&mut self, event: NonNull<CEvent<O>>) {
        self.free.push(event);
    }
}

impl<O> Drop for Pool<O> {
    fn drop(&mut self) {
        for event in &self.all {
            // SAFETY: made by `Box::leak` in `take`. An event that is out keeps the pool, so all are at home.
            drop(unsafe { Box::from_raw(event.as_ptr()) });
        }
    }
}

pub(super) const EMPTY: cci_messenger_event_t = cci_messenger_event_t {
    r#type: 0,
    status: CCI_SUCCESS,
    connection: 0,
    context: null_mut(),
    ptr: null(),
    len: 0,
    id: 0,
    code: 0,
    not_sent: 0,
};

impl<O> CEvent<O> {
    /// The event that a program's pointer leads to.
    ///
    /// # Safety
    /// `event` is NULL or one that was given out and not returned yet (one just returned is noticed as long as it was not given out
    /// again, and the messenger is open).
    unsafe fn of<'a>(event: *const cci_messenger_event_t) -> Result<&'a CEvent<O>, Failure> {
        // SAFETY: the public part is the first field; the caller promises the rest.
        let event = unsafe { event.cast::<CEvent<O>>().as_ref() }
            .ok_or_else(|| Failure::with_text(CCI_EINVAL, "the event is NULL"))?;
        if event.stage.load(Ordering::Relaxed) == HOME {
            return Err(Failure::with_text(CCI_EINVAL, "the event was returned already"));
        }
        Ok(event)
    }

    /// Gives an event out that shows `public`, owns `held` and keeps `owner`.
    ///
    /// # Safety
    /// `slot` was just taken from the pool and not given out.
    pub unsafe fn give_out(
        slot: NonNull<CEvent<O>>,
        owner: &Arc<O>,
        public: cci_messenger_event_t,
        held: Held,
    ) -> *const cci_messenger_event_t {
        let stage = if matches!(held, Held::Request(_) | Held::Connect(..)) { UNANSWERED } else { OUT };
        let slot = slot.as_ptr();
        // SAFETY: it is this call's alone, says the caller. It holds nothing, and no owner, so that nothing is lost by not dropping them.
        unsafe {
            (*slot).public = public;
            (*slot).held.get().write(held);
            (*slot).owner.get().write(Some(owner.clone()));
            (*slot).stage.store(stage, Ordering::Relaxed);
        }
        slot.cast_const().cast()
    }

    /// Takes an event back.
    ///
    /// # Safety
    /// As [`CEvent::of`], and the program does not use the event after this.
    pub unsafe fn take_back(event: *const cci_messenger_event_t) -> Result<Returned<O>, Failure> {
        // SAFETY: as the caller promises.
        let found = unsafe { CEvent::<O>::of(event) }?;
        if found.stage.load(Ordering::Acquire) == BUSY {
            return Err(Failure::with_text(CCI_EBUSY, "another thread is answering the event"));
        }
        // SAFETY: the event is out and the caller's, which gives it up.
        let (held, owner) = unsafe {
            (std::mem::replace(&mut *found.held.get(), Held::Nothing), (*found.owner.get()).take())
        };
        found.stage.store(HOME, Ordering::Relaxed);
        Ok(Returned { slot: NonNull::from(found), held, owner })
    }

    /// Checks that an event came from this messenger.
    ///
    /// # Safety
    /// As [`CEvent::of`].
    pub unsafe fn check_origin(event: *const cci_messenger_event_t, origin: &Arc<O>) -> Result<(), Failure> {
        // SAFETY: as the caller promises; only `give_out` and `take_back` write the owner.
        let found = unsafe { &*CEvent::<O>::of(event)?.owner.get() };
        if found.as_ref().is_some_and(|found| Arc::ptr_eq(found, origin)) {
            return Ok(());
        }
        Err(Failure::with_text(CCI_EINVAL, "the request came to another messenger"))
    }

    /// Runs `answer` on what an event holds that can be answered once. It stays so unless `answer` says that it is answered.
    ///
    /// # Safety
    /// As [`CEvent::of`].
    pub unsafe fn answer<R>(
        event: *const cci_messenger_event_t,
        answer: impl FnOnce(&mut Held) -> (bool, Result<R, Failure>),
    ) -> Result<R, Failure> {
        // SAFETY: as the caller promises.
        let event = unsafe { CEvent::<O>::of(event) }?;
        let mine = event.stage.compare_exchange(UNANSWERED, BUSY, Ordering::Acquire, Ordering::Relaxed);
        if mine.is_err() {
            return Err(Failure::with_text(CCI_EINVAL, "the event needs no answer, or was answered already"));
        }
        // SAFETY: the exchange succeeds for one caller only, and until the event is returned nobody else uses `held`.
        let (is_answered, result) = answer(unsafe { &mut *event.held.get() });
        // Release: whoever answers it, or returns it, comes after this.
        event.stage.store(if is_answered { OUT } else { UNANSWERED }, Ordering::Release);
        result
    }
}
