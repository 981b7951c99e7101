//! What sealed datagrams and those of their handshakes look like.

use crate::credentials::COOKIE_TAG_BYTES;
use crate::limits::{HANDSHAKE_VERSION, HEADER_BYTES, OVERHEAD_BYTES};

/// The first byte: version 1, type 14.
pub(super) const FIRST_BYTE: u8 = 0x1e;

/// Bits of the epoch in a datagram.
pub(super) const EPOCH_MASK: u64 = 63;

const VERSION: u8 = 0;
const SEALED: u8 = 1;
const HANDSHAKE: u8 = 2;
const COOKIE: u8 = 3;
const KIND_BITS: u32 = 2;

/// Bytes before the contents of a handshake datagram.
pub(super) const HANDSHAKE_HEADER_BYTES: usize = HEADER_BYTES + 32;
/// Bytes of the answer that hands out a cookie.
pub(super) const COOKIE_DATAGRAM_BYTES: usize = HEADER_BYTES + 8 + COOKIE_BYTES + COOKIE_TAG_BYTES;
const COOKIE_BYTES: usize = 16;
/// Bytes of the answer to a handshake of another version.
pub(super) const VERSION_DATAGRAM_BYTES: usize = HEADER_BYTES + 8;
/// What a handshake begins with is longer than this, bytes: shorter fragments are not answered.
pub(super) const FIRST_FRAGMENT_BYTES_MIN: usize = 16;

/// From the side that began.
const FLAG_INITIATOR: u8 = 1;
/// To be answered, if only by what is known already.
const FLAG_ASKS: u8 = 2;
/// With a cookie.
const FLAG_COOKIE: u8 = 4;

/// Proof that somebody reads what is sent to an address.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Cookie {
    pub slot: u32,
    pub mac: [u8; COOKIE_BYTES],
}

impl Cookie {
    /// All of it, to be bound to.
    pub fn bytes(&self) -> [u8; 4 + COOKIE_BYTES] {
        let mut bytes = [0; 4 + COOKIE_BYTES];
        put(&mut bytes, 0, &self.slot.to_le_bytes());
        put(&mut bytes, 4, &self.mac);
        bytes
    }
}

/// What may have arrived.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Datagram<'d> {
    /// `len`: of the whole.
    Sealed {
        epoch: u64,
        receiver: u32,
        counter: u64,
        len: usize,
    },
    Handshake(Fragment<'d>),
    /// `tag`: with keys, proof that the responder has the one that it was asked by.
    Cookie {
        receiver: u32,
        id: u64,
        cookie: Cookie,
        tag: [u8; COOKIE_TAG_BYTES],
    },
    /// Part of a handshake of another version, or an answer that the own version is not the peer's. `begins`: it wants an
    /// answer, and is longer than [`VERSION_DATAGRAM_BYTES`].
    OtherVersion {
        theirs: u8,
        receiver: u32,
        id: u64,
        sender: u32,
        begins: bool,
    },
}

/// A fragment of the stream of bytes that one side sends in a handshake.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Fragment<'d> {
    /// The receiver's index, 0 while it is not known.
    pub receiver: u32,
    /// Of the handshake: its initiator chose it.
    pub id: u64,
    pub sender: u32,
    /// Offset of `bytes` in that stream.
    pub offset: u16,
    /// What came of the other side's, without a gap.
    pub ack: u16,
    pub from_initiator: bool,
    pub asks: bool,
    pub cookie: Option<Cookie>,
    pub bytes: &'d [u8],
}

fn head(kind: u8, epoch: u64, len: usize, receiver: u32, number: u64) -> [u8; HEADER_BYTES] {
    let mut head = [0; HEADER_BYTES];
    let [first, second, length @ .., _, _, _, _, _, _, _, _, _, _, _, _] = &mut head;
    *first = FIRST_BYTE;
    // Six bits, as the mask says.
    *second = kind | ((epoch & EPOCH_MASK) as u8) << KIND_BITS;
    *length = u16::try_from(len).unwrap_or(u16::MAX).to_le_bytes();
    put(&mut head, 4, &receiver.to_le_bytes());
    put(&mut head, 8, &number.to_le_bytes());
    head
}

fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(out) = out.get_mut(at..at + bytes.len()) {
        out.copy_from_slice(bytes);
    }
}

//= wire.md R-SEC-2
pub(super) fn sealed_head(epoch: u64, len: usize, receiver: u32, counter: u64) -> [u8; HEADER_BYTES] {
    head(SEALED, epoch, len, receiver, counter)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

/// `None`: malformed. The first byte was checked.
//= wire.md R-SEC-1
pub(super) fn parse(datagram: &[u8]) -> Option<Datagram<'_>> {
    let [_, second, ..] = *datagram else { return None };
    let len = usize::from(u16_at(datagram, 2)?);
    if !len.is_multiple_of(8) {
        return None;
    }
    let whole = datagram.get(..len)?;
    let (receiver, number) = (u32_at(whole, 4)?, u64_at(whole, 8)?);
    let epoch = u64::from(second >> KIND_BITS);
    match second & ((1 << KIND_BITS) - 1) {
        SEALED if len >= OVERHEAD_BYTES => Some(Datagram::Sealed { epoch, receiver, counter: number, len }),
        HANDSHAKE if epoch == 0 => match version(*whole.get(27)?) {
            HANDSHAKE_VERSION => parse_fragment(whole, receiver, number).map(Datagram::Handshake),
            theirs => {
                let begins =
                    *whole.get(26)? & FLAG_INITIATOR != 0 && receiver == 0 && len > VERSION_DATAGRAM_BYTES;
                let sender = u32_at(whole, 16)?;
                Some(Datagram::OtherVersion { theirs, receiver, id: number, sender, begins })
            }
        },
        COOKIE if epoch == 0 => match version(*whole.get(20)?) {
            HANDSHAKE_VERSION if len == COOKIE_DATAGRAM_BYTES && array(whole, 21)? == [0; 3] => {
                let cookie = Cookie { slot: u32_at(whole, 16)?, mac: array(whole, 24)? };
                Some(Datagram::Cookie { receiver, id: number, cookie, tag: array(whole, 40)? })
            }
            HANDSHAKE_VERSION => None,
            theirs => Some(other_version(theirs, receiver, number)),
        },
        VERSION if epoch == 0 && len == VERSION_DATAGRAM_BYTES => match *whole.get(16)? {
            0 | HANDSHAKE_VERSION => None,
            theirs => Some(other_version(theirs, receiver, number)),
        },
        _ => None,
    }
}

/// Version 1 wrote zero where later versions write their number.
//= wire.md R-SEC-16
fn version(announced: u8) -> u8 {
    announced.max(1)
}

fn other_version(theirs: u8, receiver: u32, id: u64) -> Datagram<'static> {
    Datagram::OtherVersion { theirs, receiver, id, sender: 0, begins: false }
}

//= wire.md R-SEC-3
fn parse_fragment(whole: &[u8], receiver: u32, id: u64) -> Option<Fragment<'_>> {
    let flags = *whole.get(26)?;
    if flags & !(FLAG_INITIATOR | FLAG_ASKS | FLAG_COOKIE) != 0 {
        return None;
    }
    let (offset, len) = (u16_at(whole, 20)?, u16_at(whole, 22)?);
    offset.checked_add(len)?;
    let cookie = Cookie { slot: u32_at(whole, 28)?, mac: array(whole, 32)? };
    Some(Fragment {
        receiver,
        id,
        sender: u32_at(whole, 16)?,
        offset,
        ack: u16_at(whole, 24)?,
        from_initiator: flags & FLAG_INITIATOR != 0,
        asks: flags & FLAG_ASKS != 0,
        cookie: (flags & FLAG_COOKIE != 0).then_some(cookie),
        bytes: whole.get(HANDSHAKE_HEADER_BYTES..)?.get(..usize::from(len))?,
    })
}

impl Fragment<'_> {
    /// Writes it; its length, or nothing if there is no room.
    pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
        let end = HANDSHAKE_HEADER_BYTES + self.bytes.len();
        let len = end.next_multiple_of(8);
        let out = out.get_mut(..len)?;
        out.fill(0);
        put(out, 0, &head(HANDSHAKE, 0, len, self.receiver, self.id));
        put(out, 16, &self.sender.to_le_bytes());
        put(out, 20, &self.offset.to_le_bytes());
        put(out, 22, &u16::try_from(self.bytes.len()).ok()?.to_le_bytes());
        put(out, 24, &self.ack.to_le_bytes());
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = flag(self.from_initiator, FLAG_INITIATOR)
            | flag(self.asks, FLAG_ASKS)
            | flag(self.cookie.is_some(), FLAG_COOKIE);
        put(out, 26, &[flags, HANDSHAKE_VERSION]);
        if let Some(cookie) = self.cookie {
            put(out, 28, &cookie.slot.to_le_bytes());
            put(out, 32, &cookie.mac);
        }
        put(out, HANDSHAKE_HEADER_BYTES, self.bytes);
        Some(len)
    }
}

/// The answer that hands out a cookie.
pub(super) fn cookie_datagram(
    receiver: u32,
    id: u64,
    cookie: Cookie,
    tag: [u8; COOKIE_TAG_BYTES],
) -> [u8; COOKIE_DATAGRAM_BYTES] {
    let mut out = [0; COOKIE_DATAGRAM_BYTES];
    put(&mut out, 0, &head(COOKIE, 0, COOKIE_DATAGRAM_BYTES, receiver, id));
    put(&mut out, 16, &cookie.slot.to_le_bytes());
    put(&mut out, 20, &[HANDSHAKE_VERSION]);
    put(&mut out, 24, &cookie.mac);
    put(&mut out, 40, &tag);
    out
}

/// The answer to a handshake of another version.
pub(super) fn version_datagram(receiver: u32, id: u64) -> [u8; VERSION_DATAGRAM_BYTES] {
    let mut out = [0; VERSION_DATAGRAM_BYTES];
    put(&mut out, 0, &head(VERSION, 0, VERSION_DATAGRAM_BYTES, receiver, id));
    put(&mut out, 16, &[HANDSHAKE_VERSION]);
    out
}

const _: () = assert!(
    COOKIE_DATAGRAM_BYTES <= HANDSHAKE_HEADER_BYTES + FIRST_FRAGMENT_BYTES_MIN,
    "wire.md R-SEC-4: whoever lies about his address gets nothing bigger sent there"
);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fragment() -> Fragment<'static> {
        Fragment {
            receiver: 7,
            id: 0x1122_3344_5566_7788,
            sender: 9,
            offset: 300,
            ack: 40,
            from_initiator: true,
            asks: false,
            cookie: Some(Cookie { slot: 5, mac: [6; 16] }),
            bytes: b"hello",
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut out = [0xff; 200];
        let len = fragment().emit(&mut out).unwrap();
        assert_eq!(len, 56);
        assert_eq!(parse(&out[..len]), Some(Datagram::Handshake(fragment())));
        assert_eq!(parse(&out), Some(Datagram::Handshake(fragment())), "links pad");
        assert_eq!(parse(&out[..len - 1]), None);
        let cookie = Cookie { slot: 1, mac: [2; 16] };
        assert_eq!(
            parse(&cookie_datagram(3, 4, cookie, [7; 16])),
            Some(Datagram::Cookie { receiver: 3, id: 4, cookie, tag: [7; 16] })
        );
        assert_eq!(parse(&version_datagram(3, 4)), None, "it is said to those of other versions");
        let mut sealed = [0; 40];
        sealed[..16].copy_from_slice(&sealed_head(65, 40, 3, 4));
        assert_eq!(parse(&sealed), Some(Datagram::Sealed { epoch: 1, receiver: 3, counter: 4, len: 40 }));
    }

    #[test]
    fn other_versions_are_told_apart() {
        let other = |theirs, receiver, sender, begins| {
            Some(Datagram::OtherVersion { theirs, receiver, id: 4, sender, begins })
        };
        for (announced, theirs) in [(0, 1), (1, 1), (3, 3)] {
            let mut bytes = [0; 120];
            let first = Fragment { receiver: 0, id: 4, offset: 0, cookie: None, ..fragment() };
            let len = first.emit(&mut bytes).unwrap();
            bytes[27] = announced;
            assert_eq!(parse(&bytes[..len]), other(theirs, 0, 9, true));
            let mut cookie = cookie_datagram(3, 4, Cookie { slot: 1, mac: [2; 16] }, [0; 16]);
            cookie[20] = announced;
            assert_eq!(parse(&cookie), other(theirs, 3, 0, false));
            let mut answer = version_datagram(3, 4);
            answer[16] = announced;
            assert_eq!(parse(&answer), if announced == 0 { None } else { other(theirs, 3, 0, false) });
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

        #[test]
        fn nothing_that_comes_panics(mut bytes in prop::collection::vec(any::<u8>(), 0..200), second in 0u8..8) {
            let len = bytes.len() as u16 & !7;
            for (at, byte) in [FIRST_BYTE, second, len as u8, (len >> 8) as u8].into_iter().enumerate() {
                if let Some(slot) = bytes.get_mut(at) {
                    *slot = byte;
                }
            }
            if let Some(Datagram::Handshake(fragment)) = parse(&bytes) {
                let mut again = [0; 256];
                let len = fragment.emit(&mut again).unwrap();
                prop_assert_eq!(parse(&again[..len]), Some(Datagram::Handshake(Fragment { cookie: fragment.cookie, ..fragment })));
            }
        }
    }
}
