//! How a peer that sleeps is woken, without ever waiting for that peer.
//!
//! An eventfd is the cheapest, but both sides hold one and the same open file: a peer can make it blocking, fill its counter, and have whoever
//! rings wait for ever. No system call writes to an eventfd without that danger. A process of our own user gains nothing by
//! it, since it may stop us anyway; a process of another user is rung over the lifeline, each end of which is a file of its own.

use cci_sys::event::EventFd;
use cci_sys::unix::Stream;
use std::io;
use std::sync::Arc;

/// What rings over the lifeline: shorter than any grant.
pub(super) const RING: &[u8] = b"ring";

/// The means to wake one peer.
pub(super) enum Doorbell {
    /// The peer's counter.
    Counter(EventFd),
    /// The socket that holds the link.
    Lifeline(Arc<Stream>),
}

impl Doorbell {
    /// For a peer of the same user, or of another one.
    pub fn new(counter: EventFd, lifeline: &Arc<Stream>, is_same_user: bool) -> Doorbell {
        if is_same_user { Doorbell::Counter(counter) } else { Doorbell::Lifeline(lifeline.clone()) }
    }

    /// Wakes the peer. An error says that it can't be rung any more: the link is of no use.
    pub fn ring(&self) -> io::Result<()> {
        match self {
            Doorbell::Counter(counter) => counter.signal(),
            Doorbell::Lifeline(lifeline) => match lifeline.send(RING, &[]) {
                // It has not read what rang before.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
                rung => rung,
            },
        }
    }
}
