//! What the two ends of a connection share, and where each endpoint hears that there is something to look at.

use super::remote::{Answer, Question};
use cci::{Attribute, SysError};
use cci_sys::event::EventFd;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

/// The end that asked for the connection, and the other one.
pub(super) const CLIENT: usize = 0;
pub(super) const SERVER: usize = 1;

/// How far the two have come.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Handshake {
    Asked,
    Accepted,
    /// By the program, or because there is no such endpoint.
    Refused,
    /// The client did not wait any longer.
    GivenUp,
}

/// What belongs to one end.
#[derive(Default)]
pub(super) struct End {
    /// Where its endpoint is told of changes, and what it calls the connection.
    pub inbox: Option<(Arc<Inbox>, u64)>,
    /// Messages that it has sent and the other end has yet to take. Each has a number, which grows by one.
    pub messages: VecDeque<(u64, Vec<u8>)>,
    /// So many of its messages were taken.
    pub taken: u64,
    /// What it wants of the other end's memory, and what has come of that.
    pub questions: VecDeque<(u64, Question)>,
    pub answers: VecDeque<(u64, Answer)>,
    /// It has no receive buffer for what has come.
    pub has_no_buffer: bool,
    /// It sends nothing more, and takes nothing.
    pub is_closed: bool,
    /// It went without closing the connection.
    pub is_abandoned: bool,
}

/// A connection, as both ends see it.
pub(super) struct Wire {
    pub handshake: Handshake,
    pub request: Vec<u8>,
    pub attribute: Attribute,
    /// The client's URI.
    pub asker: String,
    pub ends: [End; 2],
}

/// Takes the lock, behind which nothing else is ever called that could wait for it.
pub(super) fn lock(wire: &Mutex<Wire>) -> MutexGuard<'_, Wire> {
    wire.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Wire {
    pub fn new(request: Vec<u8>, attribute: Attribute, asker: String) -> Wire {
        Wire {
            handshake: Handshake::Asked,
            request,
            attribute,
            asker,
            ends: [End::default(), End::default()],
        }
    }

    /// Both ends: the one given, and the other.
    pub fn both(&mut self, own: usize) -> (&mut End, &mut End) {
        let [client, server] = &mut self.ends;
        if own == CLIENT { (client, server) } else { (server, client) }
    }

    /// Has one end look at the wire.
    pub fn tell(&self, end: usize) {
        if let Some((inbox, link)) = &self.ends[end].inbox {
            inbox.put(Notice::Look(*link));
        }
    }

    /// The program says no, or is not there.
    pub fn refuse(&mut self) {
        if self.handshake == Handshake::Asked {
            self.handshake = Handshake::Refused;
            self.tell(CLIENT);
        }
    }
}

/// What an endpoint is told.
pub(super) enum Notice {
    /// Somebody wants to connect.
    Request(Arc<Mutex<Wire>>),
    /// The wire of this link has changed.
    Look(u64),
}

/// One for each endpoint.
pub(super) struct Inbox {
    number: u64,
    /// `None`: the endpoint is gone.
    notices: Mutex<Option<Vec<Notice>>>,
    /// Readable while there are notices.
    bell: EventFd,
    polled_ns: AtomicU64,
}

/// All endpoints, by number.
static ALL: LazyLock<Mutex<HashMap<u64, Weak<Inbox>>>> = LazyLock::new(Mutex::default);
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The inbox of the endpoint with this number.
pub(super) fn find(number: u64) -> Option<Arc<Inbox>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner).get(&number)?.upgrade()
}

impl Inbox {
    pub fn open() -> Result<Arc<Inbox>, SysError> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let notices = Mutex::new(Some(Vec::new()));
        let inbox = Arc::new(Inbox { number, notices, bell: EventFd::new()?, polled_ns: AtomicU64::new(0) });
        ALL.lock().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::downgrade(&inbox));
        Ok(inbox)
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn bell(&self) -> &EventFd {
        &self.bell
    }

    fn notices(&self) -> MutexGuard<'_, Option<Vec<Notice>>> {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a notice in. A request to an endpoint that is gone is refused.
    pub fn put(&self, notice: Notice) {
        let mut notices = self.notices();
        match &mut *notices {
            Some(notices) => {
                notices.push(notice);
                let _ = self.bell.signal();
            }
            None => {
                drop(notices);
                if let Notice::Request(wire) = notice {
                    lock(&wire).refuse();
                }
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.notices().as_ref().is_none_or(Vec::is_empty)
    }

    /// All notices that have come.
    pub fn take(&self) -> Vec<Notice> {
        let mut notices = self.notices();
        let taken = notices.as_mut().map(std::mem::take).unwrap_or_default();
        if !taken.is_empty() {
            let _ = self.bell.drain();
        }
        taken
    }

    /// The endpoint goes. Returns what it had not looked at.
    pub fn close(&self) -> Vec<Notice> {
        ALL.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
        self.notices().take().unwrap_or_default()
    }

    /// The endpoint makes progress.
    pub fn polled(&self, now_ns: u64) {
        self.polled_ns.store(now_ns, Ordering::Relaxed);
    }

    /// When it last did.
    pub fn polled_ns(&self) -> u64 {
        self.polled_ns.load(Ordering::Relaxed)
    }
}
