//! What two processes send each other: the messages of the handshake, over the UNIX socket, and the kinds of records in the
//! rings. Numbers are in the machine's byte order, as both are on one host.
//!
//! | message | from | contents | descriptors |
//! |---|---|---|---|
//! | Request | client | its endpoint, connection, MSS and the program's payload | |
//! | Accept  | server | its endpoint, connection, MSS; a new link (size of the ring it reads) or one to join | new: ring, doorbell |
//! | Confirm | client | new link only: size of the ring it reads | ring, doorbell |
//! | Refuse  | either | why not | |
//! | NoLink  | client | the link to join is gone on its side: offer a new one | |
//! | Who     | client | which endpoint is this? Before a Request that is only for one | |
//! | Shown   | server | this one, see [`proof`](super::proof) | a page with its secret |
//!
//! Once there is a link, its socket carries grants of memory, an [`Offer`](super::offer::Offer) of memory for loans, and [`RING`](super::doorbell::RING) between processes of two users.

use crate::error::ConnectFailure;
use crate::limits::REQUEST_BYTES_MAX;
use crate::options::Attribute;

/// Changes whenever a message, a record or the ring's layout changes, unless older libraries can handle it.
pub(super) const VERSION: u8 = 8;
const MAGIC: u32 = u32::from_le_bytes(*b"CCIm");
const HEAD_BYTES: usize = 8;
/// The longest message of the handshake.
pub(super) const BYTES_MAX: usize = HEAD_BYTES + 24 + REQUEST_BYTES_MAX;

/// Kinds of records in a ring. `conn` is the receiver's connection, `flags` the low bits of its generation, `ack` the
/// sender's own read position in the opposite ring, in lines.
pub(super) mod kind {
    /// A message of the program's.
    pub const MESSAGE: u8 = 1;
    /// The sender disconnected: it sends nothing more for this connection, and takes nothing more.
    pub const CLOSE: u8 = 2;
    /// The answer to CLOSE, and the last record for this connection.
    pub const CLOSE_ACK: u8 = 3;
    /// Asks the peer for a sign of life, for the link as a whole.
    pub const PING: u8 = 4;
    /// The answer to PING.
    pub const PONG: u8 = 5;
    /// The client has joined the link, so the accepted connection is open. Payload: the client's connection. It comes through the
    /// ring, since only the process for which the link was made can write there.
    pub const CONFIRM: u8 = 6;
    /// Remote memory access, see [`crate::transport::ordered_rma`].
    pub const RMA: u8 = 7;
    /// Asks for the right to map a region. Payload: region, key, 1 if the control page is wanted. The grant comes over the socket.
    pub const MAP: u8 = 8;
    /// Refuses a MAP. Payload: region, reason, 0.
    pub const NO_MAP: u8 = 9;
    /// A granted region has ended. Payload: region, 0, 0.
    pub const UNMAP: u8 = 10;
    /// Asks the peer to try to read the sender's memory, for the whole link. Payload: 0, address of a word, its value.
    pub const TRY: u8 = 11;
    /// The answer to TRY. Payload: the cost of reading, or 0 if it does not work; address and value of a word of the sender.
    pub const TRIED: u8 = 12;
    /// Reports whether the memory for loans that the peer has offered over the socket is mapped. Payload: 1 or 0; 0, 0.
    pub const LOANS: u8 = 13;
    /// A message that is in the sender's memory. Payload: slot and length, 4 bytes each.
    pub const LOAN: u8 = 14;
    /// Returns slots. Payload: a set of them, 8 bytes.
    pub const RETURN: u8 = 15;
    /// Grants a region of a memory that the receiver maps, to the connection that the record names. Payload: region, key, access,
    /// memory, start and length in the memory, index of the live word, token.
    pub const GRANT: u8 = 16;
    /// A memory that the receiver may have mapped has ended, or has other pages now. Payload: memory, 0, 0.
    pub const FREED: u8 = 17;
}

/// A connection, identified by the side that it belongs to.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct PeerConn {
    pub index: u32,
    pub generation: u32,
}

/// Stands for no connection, in records that are about the link as a whole.
pub(super) const NOBODY: PeerConn = PeerConn { index: u32::MAX, generation: 0 };

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub endpoint: u64,
    pub conn: PeerConn,
    pub mss: u32,
    pub attribute: Attribute,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Accept {
    pub endpoint: u64,
    pub link_id: u64,
    pub conn: PeerConn,
    pub mss: u32,
    pub offer: Offer,
}

/// The link of an accepted connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    /// A new link; the server reads a ring with so many bytes of data.
    New { ring_bytes: u32 },
    /// A link that exists. `server_made_it` says which end of it is the server's, which matters if one endpoint has both.
    Join { server_made_it: bool },
}

/// A message, parsed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Message<'a> {
    Request(Request, &'a [u8]),
    Accept(Accept),
    Confirm { ring_bytes: u32 },
    Refuse(ConnectFailure),
    NoLink,
    Who,
    Shown,
}

/// Why a message could not be parsed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum NotUnderstood {
    /// A message of another version of the protocol.
    Version(u8),
    /// No message of this protocol.
    Nonsense,
}

/// A message ready to be sent.
pub(super) struct Bytes {
    bytes: [u8; BYTES_MAX],
    len: usize,
}

impl Bytes {
    fn new(kind: u8) -> Bytes {
        let mut message = Bytes { bytes: [0; BYTES_MAX], len: 0 };
        message.put(&MAGIC.to_ne_bytes());
        message.put(&[VERSION, kind, 0, 0]);
        message
    }

    fn put(&mut self, field: &[u8]) {
        // Every message fits (see the test), so that nothing is ever truncated.
        if let Some(to) = self.bytes.get_mut(self.len..self.len + field.len()) {
            to.copy_from_slice(field);
            self.len += field.len();
        }
    }

    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl Message<'_> {
    pub fn bytes(&self) -> Bytes {
        match self {
            Message::Request(request, payload) => {
                let mut to = Bytes::new(1);
                to.put(&request.endpoint.to_ne_bytes());
                put_conn(&mut to, request.conn);
                to.put(&request.mss.to_ne_bytes());
                to.put(&[attribute_code(request.attribute), 0, 0, 0]);
                to.put(payload.get(..REQUEST_BYTES_MAX).unwrap_or(payload));
                to
            }
            Message::Accept(accept) => {
                let mut to = Bytes::new(2);
                to.put(&accept.endpoint.to_ne_bytes());
                to.put(&accept.link_id.to_ne_bytes());
                put_conn(&mut to, accept.conn);
                to.put(&accept.mss.to_ne_bytes());
                let (how, ring_bytes) = match accept.offer {
                    Offer::New { ring_bytes } => (0, ring_bytes),
                    Offer::Join { server_made_it } => (1 + u8::from(server_made_it), 0),
                };
                to.put(&ring_bytes.to_ne_bytes());
                to.put(&[how]);
                to
            }
            Message::Confirm { ring_bytes } => {
                let mut to = Bytes::new(3);
                to.put(&ring_bytes.to_ne_bytes());
                to
            }
            Message::Refuse(why) => {
                let mut to = Bytes::new(4);
                to.put(&[failure_code(*why)]);
                to
            }
            Message::NoLink => Bytes::new(5),
            Message::Who => Bytes::new(6),
            Message::Shown => Bytes::new(7),
        }
    }
}

fn put_conn(to: &mut Bytes, conn: PeerConn) {
    to.put(&conn.index.to_ne_bytes());
    to.put(&conn.generation.to_ne_bytes());
}

/// Parses a message, reading it once, into values that can't be wrong.
pub(super) fn parse(message: &[u8]) -> Result<Message<'_>, NotUnderstood> {
    let mut from = Fields(message);
    if u32::from_ne_bytes(from.take()?) != MAGIC {
        return Err(NotUnderstood::Nonsense);
    }
    let [version, kind, _, _] = from.take()?;
    if version != VERSION {
        return Err(NotUnderstood::Version(version));
    }
    match kind {
        1 => {
            let endpoint = u64::from_ne_bytes(from.take()?);
            let (conn, mss) = (from.conn()?, u32::from_ne_bytes(from.take()?));
            let [attribute, _, _, _] = from.take()?;
            let attribute = attribute_of(attribute).ok_or(NotUnderstood::Nonsense)?;
            if from.0.len() > REQUEST_BYTES_MAX {
                return Err(NotUnderstood::Nonsense);
            }
            Ok(Message::Request(Request { endpoint, conn, mss, attribute }, from.0))
        }
        2 => {
            let endpoint = u64::from_ne_bytes(from.take()?);
            let link_id = u64::from_ne_bytes(from.take()?);
            let (conn, mss) = (from.conn()?, u32::from_ne_bytes(from.take()?));
            let ring_bytes = u32::from_ne_bytes(from.take()?);
            let offer = match from.take()? {
                [0] => Offer::New { ring_bytes },
                [made] if made <= 2 => Offer::Join { server_made_it: made == 2 },
                _ => return Err(NotUnderstood::Nonsense),
            };
            from.end(Message::Accept(Accept { endpoint, link_id, conn, mss, offer }))
        }
        3 => {
            let ring_bytes = u32::from_ne_bytes(from.take()?);
            from.end(Message::Confirm { ring_bytes })
        }
        4 => {
            let [code] = from.take()?;
            from.end(Message::Refuse(failure_of(code)))
        }
        5 => from.end(Message::NoLink),
        6 => from.end(Message::Who),
        7 => from.end(Message::Shown),
        _ => Err(NotUnderstood::Nonsense),
    }
}

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], NotUnderstood> {
        let (field, remainder) = self.0.split_first_chunk::<N>().ok_or(NotUnderstood::Nonsense)?;
        self.0 = remainder;
        Ok(*field)
    }

    fn conn(&mut self) -> Result<PeerConn, NotUnderstood> {
        let index = u32::from_ne_bytes(self.take()?);
        Ok(PeerConn { index, generation: u32::from_ne_bytes(self.take()?) })
    }

    fn end(self, message: Message<'a>) -> Result<Message<'a>, NotUnderstood> {
        if self.0.is_empty() { Ok(message) } else { Err(NotUnderstood::Nonsense) }
    }
}

fn attribute_code(attribute: Attribute) -> u8 {
    match attribute {
        Attribute::ReliableOrdered => 0,
        Attribute::ReliableUnordered => 1,
        // The engine offers no groups here.
        Attribute::Unreliable | Attribute::MulticastSend | Attribute::MulticastReceive => 2,
    }
}

fn attribute_of(code: u8) -> Option<Attribute> {
    match code {
        0 => Some(Attribute::ReliableOrdered),
        1 => Some(Attribute::ReliableUnordered),
        2 => Some(Attribute::Unreliable),
        _ => None,
    }
}

fn failure_code(why: ConnectFailure) -> u8 {
    match why {
        ConnectFailure::Refused => 0,
        ConnectFailure::TimedOut => 1,
        ConnectFailure::Version { .. } => 2,
        // Names are not proved here, so no peer can have a wrong one.
        ConnectFailure::NotPermitted | ConnectFailure::WrongPeer => 3,
        ConnectFailure::NoMemory => 4,
        ConnectFailure::Disconnected => 5,
    }
}

fn failure_of(code: u8) -> ConnectFailure {
    match code {
        1 => ConnectFailure::TimedOut,
        // The peer did not understand our version, and did not say which one it uses, hence 0.
        2 => ConnectFailure::Version { theirs: 0 },
        3 => ConnectFailure::NotPermitted,
        4 => ConnectFailure::NoMemory,
        5 => ConnectFailure::Disconnected,
        _ => ConnectFailure::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every() -> Vec<Message<'static>> {
        let conn = PeerConn { index: 77, generation: u32::MAX };
        let request = Request { endpoint: u64::MAX, conn, mss: 8192, attribute: Attribute::Unreliable };
        let accept = |offer| Message::Accept(Accept { endpoint: 1, link_id: 2, conn, mss: 3, offer });
        vec![
            Message::Request(request, &[]),
            Message::Request(request, &[7; REQUEST_BYTES_MAX]),
            accept(Offer::New { ring_bytes: 1 << 18 }),
            accept(Offer::Join { server_made_it: true }),
            accept(Offer::Join { server_made_it: false }),
            Message::Confirm { ring_bytes: 4096 },
            Message::Refuse(ConnectFailure::NotPermitted),
            Message::Refuse(ConnectFailure::Refused),
            Message::NoLink,
            Message::Who,
            Message::Shown,
        ]
    }

    #[test]
    fn what_is_said_is_understood() {
        for message in every() {
            assert_eq!(parse(message.bytes().as_slice()), Ok(message));
        }
    }

    #[test]
    fn no_bytes_panic_and_truncated_messages_are_refused() {
        for message in every() {
            let bytes = message.bytes();
            for len in 0..bytes.as_slice().len() {
                let parsed = parse(&bytes.as_slice()[..len]);
                // A shorter payload is still a request. Everything else has a fixed length.
                assert!(parsed.is_err() || matches!(parsed, Ok(Message::Request(..))));
            }
            let mut longer = bytes.as_slice().to_vec();
            longer.push(0);
            assert!(
                parse(&longer).is_err()
                    || longer.len() <= BYTES_MAX && matches!(message, Message::Request(..))
            );
            for at in 0..bytes.as_slice().len().min(48) {
                for value in 0..=255 {
                    let mut changed = bytes.as_slice().to_vec();
                    changed[at] = value;
                    let _ = parse(&changed);
                }
            }
        }
    }

    #[test]
    fn another_version_is_told_from_nonsense() {
        let mut bytes = Message::NoLink.bytes().as_slice().to_vec();
        bytes[4] = 9;
        assert_eq!(parse(&bytes), Err(NotUnderstood::Version(9)));
        bytes[0] ^= 1;
        assert_eq!(parse(&bytes), Err(NotUnderstood::Nonsense));
    }
}
