//! A message that came, and where its bytes are.

use super::lent::Lent;
use super::wire::Purpose;
use crate::connection::Connection;
use std::fmt;
use std::ops::Deref;

/// A message that came, of whatever length: readable in place, 8-byte aligned (a long one begins a cache line), and kept as long as the
/// program likes. Dropping it, in any order and on any thread, gives its memory back: a short one holds a receive buffer of the endpoint,
/// a long one counts against [`Limits::lent_bytes_max`](super::Limits::lent_bytes_max).
pub struct Message {
    body: Body,
    connection: Connection,
}

enum Body {
    /// One message of the endpoint, with its head, which has so many bytes.
    Short(crate::Message, usize),
    Long(Lent),
}

impl Message {
    #[inline]
    pub(super) fn short(message: crate::Message, purpose: Purpose) -> Message {
        Message { connection: message.connection(), body: Body::Short(message, purpose.head_bytes()) }
    }

    pub(super) fn long(lent: Lent, connection: Connection) -> Message {
        Message { connection, body: Body::Long(lent) }
    }

    /// The connection it came on; answer there.
    #[inline]
    pub fn connection(&self) -> Connection {
        self.connection
    }
}

impl Deref for Message {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.body {
            Body::Short(message, head_bytes) => message.get(*head_bytes..).unwrap_or(&[]),
            Body::Long(lent) => lent,
        }
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Message({} bytes from {:?})", self.len(), self.connection)
    }
}
