//! The records, byte for byte: a head, little-endian, and behind it the data or the message. ADR 31 says why these are not the
//! records of datagrams; addresses and atomics are written as the same words.

use super::{Arrived, Fault, SLOTS};
use cci_proto::{Atomic, RemoteAddress, RmaRefusal};

const WRITE: u8 = 1;
const READ: u8 = 2;
const DATA: u8 = 3;
const GONE: u8 = 4;
const ATOMIC: u8 = 5;
const NOTIFY: u8 = 6;
const DONE: u8 = 7;
const PULL: u8 = 8;
const WHERE: u8 = 9;
const HERE: u8 = 10;
const HOLD: u8 = 11;
const AGAIN: u8 = 12;

/// The longest head.
pub(super) const HEAD_BYTES_MAX: usize = 8 + 48;
/// Of a record without fields.
const HEAD_BYTES: usize = 8;

/// What the head of a record says.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// `remaining_bytes`: of the segment, from `at` on; so the first record of a segment that reaches too far is refused.
    Write {
        at: RemoteAddress,
        remaining_bytes: u64,
        last: bool,
    },
    Read {
        at: RemoteAddress,
        len_bytes: u64,
    },
    Data {
        offset: u64,
    },
    Gone,
    Atomic {
        at: RemoteAddress,
        atomic: Atomic,
        wants_value: bool,
    },
    Notify,
    Done {
        result: Result<Option<u64>, RmaRefusal>,
    },
    Pull {
        at: RemoteAddress,
        len_bytes: u64,
        address: u64,
    },
    Where {
        at: RemoteAddress,
        len_bytes: u64,
    },
    Here {
        address: u64,
    },
    Hold,
    Again,
}

/// A head as bytes.
pub(super) struct HeadBytes {
    bytes: [u8; HEAD_BYTES_MAX],
    len: usize,
}

impl HeadBytes {
    fn new(kind: u8, flags: u8, slot: u16) -> HeadBytes {
        let mut head = HeadBytes { bytes: [0; HEAD_BYTES_MAX], len: HEAD_BYTES };
        let [s0, s1] = slot.to_le_bytes();
        if let Some(first) = head.bytes.first_chunk_mut::<4>() {
            *first = [kind, flags, s0, s1];
        }
        head
    }

    fn words<const N: usize>(mut self, words: [u64; N]) -> HeadBytes {
        for word in words {
            // The longest has 6 words, see `HEAD_BYTES_MAX`.
            if let Some(space) = self.bytes.get_mut(self.len..self.len + 8) {
                space.copy_from_slice(&word.to_le_bytes());
                self.len += 8;
            }
        }
        self
    }

    fn address(self, at: RemoteAddress) -> HeadBytes {
        self.words(at.words())
    }

    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl Head {
    pub fn bytes(&self, slot: u16) -> HeadBytes {
        match *self {
            Head::Write { at, remaining_bytes, last } => {
                HeadBytes::new(WRITE, u8::from(last), slot).address(at).words([remaining_bytes])
            }
            Head::Read { at, len_bytes } => HeadBytes::new(READ, 0, slot).address(at).words([len_bytes]),
            Head::Data { offset } => HeadBytes::new(DATA, 0, slot).words([offset]),
            Head::Gone => HeadBytes::new(GONE, 0, slot),
            Head::Atomic { at, atomic, wants_value } => {
                HeadBytes::new(ATOMIC, u8::from(wants_value), slot).address(at).words(atomic.words())
            }
            Head::Notify => HeadBytes::new(NOTIFY, 0, slot),
            Head::Done { result } => match result {
                Ok(None) => HeadBytes::new(DONE, 0, slot),
                Ok(Some(value)) => HeadBytes::new(DONE, 1, slot).words([value]),
                Err(RmaRefusal::Handle) => HeadBytes::new(DONE, 2, slot),
                Err(RmaRefusal::Operation) => HeadBytes::new(DONE, 3, slot),
            },
            Head::Pull { at, len_bytes, address } => {
                HeadBytes::new(PULL, 0, slot).address(at).words([len_bytes, address])
            }
            Head::Where { at, len_bytes } => HeadBytes::new(WHERE, 0, slot).address(at).words([len_bytes]),
            Head::Here { address } => HeadBytes::new(HERE, 0, slot).words([address]),
            Head::Hold => HeadBytes::new(HOLD, 0, slot),
            Head::Again => HeadBytes::new(AGAIN, 0, slot),
        }
    }
}

/// A record, parsed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Parsed {
    pub slot: u16,
    pub head: Head,
    /// Where data or message begin.
    pub head_bytes: usize,
    /// The length of data or message.
    pub remaining_bytes: usize,
}

/// Reads a record's head once, into values that cannot be wrong. Only WRITE, DATA and NOTIFY have anything behind it.
pub(super) fn parse(record: &impl Arrived) -> Result<Parsed, Fault> {
    let mut bytes = [0; HEAD_BYTES_MAX];
    let got = record.read(0, &mut bytes);
    let mut from = Fields { bytes: bytes.get(..got).unwrap_or_default(), taken: 0 };
    let [kind, flags, s0, s1, 0, 0, 0, 0] = from.take()? else { return Err(Fault) };
    let slot = u16::from_le_bytes([s0, s1]);
    if usize::from(slot) >= SLOTS {
        return Err(Fault);
    }
    let head = match (kind, flags) {
        (WRITE, 0 | 1) => {
            Head::Write { at: from.address()?, remaining_bytes: from.word()?, last: flags == 1 }
        }
        (READ, 0) => Head::Read { at: from.address()?, len_bytes: from.word()? },
        (DATA, 0) => Head::Data { offset: from.word()? },
        (GONE, 0) => Head::Gone,
        (ATOMIC, 0 | 1) => {
            let at = from.address()?;
            let atomic = Atomic::from_words(from.words()?).ok_or(Fault)?;
            Head::Atomic { at, atomic, wants_value: flags == 1 }
        }
        (NOTIFY, 0) => Head::Notify,
        (DONE, 0) => Head::Done { result: Ok(None) },
        (DONE, 1) => Head::Done { result: Ok(Some(from.word()?)) },
        (DONE, 2) => Head::Done { result: Err(RmaRefusal::Handle) },
        (DONE, 3) => Head::Done { result: Err(RmaRefusal::Operation) },
        (PULL, 0) => Head::Pull { at: from.address()?, len_bytes: from.word()?, address: from.word()? },
        (WHERE, 0) => Head::Where { at: from.address()?, len_bytes: from.word()? },
        (HERE, 0) => Head::Here { address: from.word()? },
        (HOLD, 0) => Head::Hold,
        (AGAIN, 0) => Head::Again,
        _ => return Err(Fault),
    };
    let head_bytes = from.taken;
    let remaining_bytes = record.len_bytes().saturating_sub(head_bytes);
    let may_have_tail = matches!(head, Head::Write { .. } | Head::Data { .. } | Head::Notify);
    if remaining_bytes > 0 && !may_have_tail {
        return Err(Fault);
    }
    Ok(Parsed { slot, head, head_bytes, remaining_bytes })
}

struct Fields<'a> {
    bytes: &'a [u8],
    taken: usize,
}

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (field, tail) = self.bytes.split_first_chunk::<N>().ok_or(Fault)?;
        let field = *field;
        self.bytes = tail;
        self.taken += N;
        Ok(field)
    }

    fn word(&mut self) -> Result<u64, Fault> {
        self.take().map(u64::from_le_bytes)
    }

    fn words(&mut self) -> Result<[u64; 3], Fault> {
        Ok([self.word()?, self.word()?, self.word()?])
    }

    fn address(&mut self) -> Result<RemoteAddress, Fault> {
        self.words().map(RemoteAddress::from_words)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use cci_memory::bytes::Bytes;
    use cci_proto::{AtomicKind, AtomicWidth};
    use proptest::prelude::*;

    impl Arrived for Vec<u8> {
        fn len_bytes(&self) -> usize {
            self.len()
        }
        fn read(&self, skip_bytes: usize, out: &mut [u8]) -> usize {
            let from = self.get(skip_bytes..).unwrap_or_default();
            let len = from.len().min(out.len());
            out[..len].copy_from_slice(&from[..len]);
            len
        }
        fn read_to(&self, skip_bytes: usize, to: &Bytes) -> bool {
            self.get(skip_bytes..).is_some_and(|from| to.write(0, from))
        }
    }

    fn heads() -> impl Strategy<Value = Head> {
        let words = any::<[u64; 6]>();
        (0..12_u8, any::<bool>(), words).prop_map(|(kind, flag, [region, key, offset, a, b, c])| {
            let at = RemoteAddress { region, key, offset };
            let kind_of = AtomicKind::ALL[(a % 7) as usize];
            let width = if flag { AtomicWidth::Four } else { AtomicWidth::Eight };
            match kind {
                0 => Head::Write { at, remaining_bytes: a, last: flag },
                1 => Head::Read { at, len_bytes: a },
                2 => Head::Data { offset: a },
                3 => Head::Gone,
                4 => Head::Atomic {
                    at,
                    atomic: Atomic { kind: kind_of, width, operand: b, compare: c },
                    wants_value: b % 2 == 0,
                },
                5 => Head::Notify,
                6 => Head::Done {
                    result: match a % 4 {
                        0 => Ok(None),
                        1 => Ok(Some(b)),
                        2 => Err(RmaRefusal::Handle),
                        _ => Err(RmaRefusal::Operation),
                    },
                },
                7 => Head::Pull { at, len_bytes: a, address: b },
                8 => Head::Where { at, len_bytes: a },
                9 => Head::Here { address: a },
                10 => Head::Hold,
                _ => Head::Again,
            }
        })
    }

    proptest! {
        #[test]
        fn what_is_said_is_understood(head in heads(), slot in 0..SLOTS as u16, tail in 0..100_usize) {
            let mut bytes = head.bytes(slot).as_slice().to_vec();
            let head_bytes = bytes.len();
            for cut in 0..head_bytes {
                prop_assert!(parse(&bytes[..cut].to_vec()).is_err());
            }
            bytes.resize(head_bytes + tail, 7);
            let parsed = parse(&bytes);
            if tail == 0 || matches!(head, Head::Write { .. } | Head::Data { .. } | Head::Notify) {
                prop_assert_eq!(parsed, Ok(Parsed { slot, head, head_bytes, remaining_bytes: tail }));
            } else {
                prop_assert!(parsed.is_err());
            }
            let wrong = head.bytes(SLOTS as u16).as_slice().to_vec();
            prop_assert!(parse(&wrong).is_err(), "no such slot");
        }

        #[test]
        fn no_bytes_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..80), kind in 0..14_u8) {
            let _ = parse(&bytes);
            if bytes.len() > 8 {
                let head = [kind, bytes[1] % 3, bytes[2], 0, 0, 0, 0, 0];
                bytes[..8].copy_from_slice(&head);
                let _ = parse(&bytes);
            }
        }
    }
}
