//! Records of the first stream: `docs/wire.md`, chapter "Streams". What comes before them is in [`preamble`](super::preamble).

use crate::limits::MESSAGE_BYTES_MAX;

/// A record's header.
pub(super) const HEADER_BYTES: usize = 8;
/// The longest record.
pub(super) const RECORD_BYTES_MAX: usize = HEADER_BYTES + MESSAGE_BYTES_MAX as usize;

const _: () = assert!(MESSAGE_BYTES_MAX <= u16::MAX as u32);

/// The peer sent something that no honest peer sends.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault;

/// The kind of a record. Kinds below `Message` have no payload, except `Ready`, which has a number.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Message = 1,
    /// Only acknowledges, as every header does.
    Ack = 2,
    /// There was no receive buffer. This message and all behind it were dropped, up to RESUME.
    NotReady = 3,
    /// There are receive buffers again.
    Ready = 4,
    /// From here on messages are sent again, the first unacknowledged one first.
    Resume = 5,
    Ping = 6,
    Pong = 7,
    /// The sender's program has disconnected. It takes no more messages, and sends what it has sent before.
    Closing = 8,
    /// The last record of a stream.
    Close = 9,
    /// The connection is open on the side that dialled.
    Confirm = 10,
    /// Asks the peer to dial the second stream.
    AskBulk = 11,
}

/// A record's header.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub kind: Kind,
    /// Length of the payload.
    pub len: u16,
    /// Messages taken from the peer since the connection was made, modulo 2^32.
    pub ack: u32,
}

impl Header {
    #[inline]
    pub fn bytes(self) -> [u8; HEADER_BYTES] {
        //= wire.md R-TCP-6
        let [l0, l1] = self.len.to_le_bytes();
        let [a0, a1, a2, a3] = self.ack.to_le_bytes();
        [l0, l1, self.kind as u8, 0, a0, a1, a2, a3]
    }

    /// Reads a header. `message_bytes_max` is the agreed length.
    #[inline]
    pub fn parse(bytes: [u8; HEADER_BYTES], message_bytes_max: u32) -> Result<Header, Fault> {
        let [l0, l1, kind, zero, a0, a1, a2, a3] = bytes;
        let len = u16::from_le_bytes([l0, l1]);
        let kind = match kind {
            1 => Kind::Message,
            2 => Kind::Ack,
            3 => Kind::NotReady,
            4 => Kind::Ready,
            5 => Kind::Resume,
            6 => Kind::Ping,
            7 => Kind::Pong,
            8 => Kind::Closing,
            9 => Kind::Close,
            10 => Kind::Confirm,
            11 => Kind::AskBulk,
            _ => return Err(Fault),
        };
        let fits = match kind {
            Kind::Message => u32::from(len) <= message_bytes_max,
            Kind::Ready => len == 4,
            _ => len == 0,
        };
        if !fits || zero != 0 {
            return Err(Fault);
        }
        Ok(Header { kind, len, ack: u32::from_le_bytes([a0, a1, a2, a3]) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn headers_come_back_or_are_faults(bytes: [u8; HEADER_BYTES], mss in 0u32..=MESSAGE_BYTES_MAX) {
            if let Ok(header) = Header::parse(bytes, mss) {
                prop_assert_eq!(header.bytes(), bytes);
                prop_assert!(u32::from(header.len) <= mss.max(4));
            }
        }
    }
}
