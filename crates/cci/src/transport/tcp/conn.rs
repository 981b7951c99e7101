//! A connection's life: from when it is dialled or accepted until the program has disconnected and the stream has ended.

use super::base::Base;
use super::established::Established;
use super::out::Out;
use super::watched::Watched;
use crate::engine::core::Core;

/// A connection of the endpoint's table.
pub(super) enum Conn {
    /// This side has dialled, and the peer has not answered.
    Dialling(Dialling),
    /// The peer has accepted, or this side has.
    Established(Established),
    /// The stream is gone; the program has not disconnected yet.
    Gone(Base),
}

/// A connection that was dialled and not answered.
pub(super) struct Dialling {
    pub base: Base,
    pub attempt: Attempt,
    /// HELLO, kept for another attempt.
    pub hello: Vec<u8>,
    /// The REQUEST that is sent when HEARD has come. It is empty if it was sent, or if HELLO carried the whole request.
    pub request: Vec<u8>,
    /// The part of the answer that was read.
    pub answer: Vec<u8>,
    /// Whether the peer's library has answered HELLO.
    pub is_heard: bool,
    /// The name that the peer must prove.
    pub expected: Option<Box<str>>,
    /// When the attempt to connect fails.
    pub until_ns: u64,
}

/// How far an attempt to reach a peer is.
pub(super) enum Attempt {
    /// The peer could not be reached, and is tried again at this time.
    Later { at_ns: u64 },
    /// The stream exists, or is being connected. `out` holds what is sent over it.
    Made { stream: Watched, out: Out },
}

impl Conn {
    #[inline]
    pub fn base(&self) -> &Base {
        match self {
            Conn::Dialling(dialling) => &dialling.base,
            Conn::Established(established) => &established.base,
            Conn::Gone(base) => base,
        }
    }

    #[inline]
    pub fn base_mut(&mut self) -> &mut Base {
        match self {
            Conn::Dialling(dialling) => &mut dialling.base,
            Conn::Established(established) => &mut established.base,
            Conn::Gone(base) => base,
        }
    }

    #[inline]
    pub fn established(&self) -> Option<&Established> {
        if let Conn::Established(established) = self { Some(established) } else { None }
    }

    #[inline]
    pub fn established_mut(&mut self) -> Option<&mut Established> {
        if let Conn::Established(established) = self { Some(established) } else { None }
    }

    pub fn dialling_mut(&mut self) -> Option<&mut Dialling> {
        if let Conn::Dialling(dialling) = self { Some(dialling) } else { None }
    }

    /// The first stream and what goes over it, where there is one.
    pub fn stream(&self) -> Option<(&Watched, &Out)> {
        match self {
            Conn::Dialling(Dialling { attempt: Attempt::Made { stream, out }, .. }) => Some((stream, out)),
            Conn::Established(Established { stream, out, .. }) => Some((stream, out)),
            Conn::Dialling(_) | Conn::Gone(_) => None,
        }
    }

    /// The deadline of this connection's stage; `None` if the stage has none.
    pub fn due_ns(&self) -> Option<u64> {
        match self {
            Conn::Dialling(dialling) => Some(dialling.due_ns()),
            Conn::Established(established) => established.stage.until_ns(),
            Conn::Gone(_) => None,
        }
    }
}

impl Dialling {
    /// Gives up the stream and tries the peer again at `at_ns`.
    pub fn give_up_until(&mut self, core: &Core, at_ns: u64) {
        if let Attempt::Made { stream, .. } = &mut self.attempt {
            stream.watch(&core.poller, None);
        }
        self.attempt = Attempt::Later { at_ns };
    }

    /// Takes the stream out, to become that of an established connection.
    pub fn take_attempt(&mut self) -> Attempt {
        std::mem::replace(&mut self.attempt, Attempt::Later { at_ns: u64::MAX })
    }

    /// When the peer is dialled again, or the attempt fails.
    pub fn due_ns(&self) -> u64 {
        match self.attempt {
            Attempt::Later { at_ns } => at_ns.min(self.until_ns),
            Attempt::Made { .. } => self.until_ns,
        }
    }
}
