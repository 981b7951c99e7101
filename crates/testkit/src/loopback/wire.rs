//! What the two ends of a connection share, and how an endpoint hears of requests to connect.

use super::task::{Reply, Request};
use cci::{Attribute, DisconnectReason, SysError};
use cci_sys::event::EventFd;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The end that asked for the connection, and the other one.
pub(super) const CLIENT: usize = 0;
pub(super) const SERVER: usize = 1;

/// A connection, as both ends see it.
pub(super) struct Wire {
    pub ends: Mutex<[End; 2]>,
    /// What the client's program says with its request.
    pub payload: Vec<u8>,
    pub attribute: Attribute,
    /// The client's URI.
    pub client: String,
}

/// What one end shows the other.
#[derive(Default)]
pub(super) struct End {
    /// Wakes its endpoint. `None`: the server has not accepted.
    pub bell: Option<Arc<EventFd>>,
    /// What it wants of the other end, each with a number, in the order in which it is to be done.
    pub requests: VecDeque<(u64, Request)>,
    /// What the other end has answered, with the numbers of the requests.
    pub replies: Vec<(u64, Reply)>,
    /// It has no receive buffer for a message that has come.
    pub lacks_buffer: bool,
    /// When its endpoint last made progress.
    pub polled_ns: u64,
    /// It is gone, and this is what the other end reports to its program.
    pub left: Option<DisconnectReason>,
}

impl End {
    /// Has this end's endpoint look at the wire.
    pub fn ring(&self) {
        if let Some(bell) = &self.bell {
            let _ = bell.signal();
        }
    }
}

/// Takes a lock, behind which nothing is called that could wait for it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request to connect. It is refused when it is dropped before the server's end has a bell, wherever that happens.
pub(super) struct Asked(pub Arc<Wire>);

impl Drop for Asked {
    fn drop(&mut self) {
        let ends = &mut *lock(&self.0.ends);
        if ends[SERVER].bell.is_none() {
            ends[SERVER].left = Some(DisconnectReason::Closed);
            ends[CLIENT].ring();
        }
    }
}

/// Where an endpoint hears of requests and changes.
pub(super) struct Inbox {
    pub requests: Mutex<Vec<Asked>>,
    /// Readable when there is something to look at.
    pub bell: Arc<EventFd>,
}

/// The inboxes of all endpoints that there ever were.
static ALL: Mutex<Vec<Weak<Inbox>>> = Mutex::new(Vec::new());

/// Opens an inbox. Returns its number as well.
pub(super) fn open() -> Result<(Arc<Inbox>, usize), SysError> {
    let inbox = Arc::new(Inbox { requests: Mutex::default(), bell: Arc::new(EventFd::new()?) });
    let mut all = lock(&ALL);
    all.push(Arc::downgrade(&inbox));
    Ok((inbox, all.len() - 1))
}

/// The inbox with this number, unless its endpoint is gone.
pub(super) fn find(number: usize) -> Option<Arc<Inbox>> {
    lock(&ALL).get(number)?.upgrade()
}
