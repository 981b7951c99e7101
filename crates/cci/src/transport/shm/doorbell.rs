//! Wakes a peer that sleeps, without ever waiting for that peer.
//!
//! An eventfd is the cheapest means. But both sides hold the same open file, so a peer can make it blocking and fill its counter.
//! Then a process that rings waits for ever, and no system call writes to an eventfd without that danger. A process of our own
//! user gains nothing by it, since it may stop us anyway. A process of another user is rung over the lifeline, whose two ends are
//! separate files.

use cci_sys::event::EventFd;
use cci_sys::unix::Stream;
use std::io;
use std::sync::Arc;

/// The message on the lifeline that wakes the peer. It is shorter than any grant.
pub(super) const RING: &[u8] = b"ring";

/// The means to wake one peer.
pub(super) enum Doorbell {
    /// The eventfd on which the peer sleeps.
    Counter(EventFd),
    /// The link's socket.
    Lifeline(Arc<Stream>),
}

impl Doorbell {
    /// Chooses the means for a peer of the same user or of another one.
    pub fn new(counter: EventFd, lifeline: &Arc<Stream>, is_same_user: bool) -> Doorbell {
        if is_same_user { Doorbell::Counter(counter) } else { Doorbell::Lifeline(lifeline.clone()) }
    }

    /// Wakes the peer.
    ///
    /// # Errors
    /// The peer can't be woken any more, so the link can't be used any more.
    pub fn ring(&self) -> io::Result<()> {
        match self {
            Doorbell::Counter(counter) => counter.signal(),
            Doorbell::Lifeline(lifeline) => match lifeline.send(RING, &[]) {
                // The peer has not read earlier messages of this kind, so it will wake anyway.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
                rung => rung,
            },
        }
    }
}
