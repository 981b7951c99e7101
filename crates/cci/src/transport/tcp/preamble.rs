//! The records of a stream's handshake, with which it begins: `docs/wire.md`, chapter "Streams".

use crate::limits::REQUEST_BYTES_MAX;
use crate::options::Attribute;
use cci_secure::{NONCE_BYTES, PROOF_BYTES};
use std::fmt;

/// The version of this library.
pub(super) const VERSION: u8 = 2;
const MAGIC: [u8; 4] = *b"CCIt";
/// Bytes with which every record of the preamble begins.
const PREFIX_BYTES: usize = 8;
const HELLO_BYTES: usize = 16;
const REQUEST_HEAD_BYTES: usize = 16;
const BULK_BYTES: usize = 16 + NONCE_BYTES;
const CHALLENGE_BYTES: usize = 8 + NONCE_BYTES + PROOF_BYTES;
const PROOF_PART_BYTES: usize = 8 + PROOF_BYTES;
const ACCEPT_BYTES: usize = 40;
const ANSWER_BYTES: usize = 16;
/// The longest record of the preamble.
pub(super) const PREAMBLE_BYTES_MAX: usize = HELLO_BYTES + REQUEST_BYTES_MAX;

const _: () = assert!(CHALLENGE_BYTES <= PREAMBLE_BYTES_MAX && HELLO_BYTES == REQUEST_HEAD_BYTES);

/// Identifies an accepted connection to the endpoint that accepted it. The side that dials the second stream must prove that it
/// knows the secret.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) struct Ticket {
    /// The accepting side's key.
    pub key: u64,
    pub secret: [u8; 16],
}

/// Shows the ticket without its secret.
impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket({})", self.key)
    }
}

/// One record of the preamble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Preamble {
    /// A request with its `payload`, or with `None`: the payload follows in [`Preamble::Request`], after [`Preamble::Heard`].
    Hello {
        attribute: Attribute,
        mss: u32,
        payload: Option<Vec<u8>>,
    },
    /// A second stream for the connection with this key.
    Bulk {
        key: u64,
        nonce: [u8; NONCE_BYTES],
    },
    /// The request is accepted. The second stream is to be dialled at this port of the same host.
    Accept {
        mss: u32,
        port: u16,
        ticket: Ticket,
    },
    Reject {
        no_memory: bool,
    },
    /// A HELLO of another version came. This is the version of the side that answers.
    Version {
        theirs: u8,
    },
    /// A HELLO of another version than ours.
    OtherHello,
    /// The HELLO was understood, and the program will decide.
    Heard,
    /// The payload that a HELLO without payload has announced.
    Request {
        payload: Vec<u8>,
    },
    /// The side that was dialled for a second stream proves that it knows the secret, and asks the other side for a proof.
    Challenge {
        nonce: [u8; NONCE_BYTES],
        proof: [u8; PROOF_BYTES],
    },
    /// The side that dialled proves that it knows the secret.
    Proof {
        proof: [u8; PROOF_BYTES],
    },
}

mod number {
    pub(super) const HELLO: u8 = 1;
    pub(super) const BULK: u8 = 2;
    pub(super) const ACCEPT: u8 = 3;
    pub(super) const REJECT: u8 = 4;
    pub(super) const VERSION: u8 = 5;
    pub(super) const HEARD: u8 = 6;
    pub(super) const REQUEST: u8 = 7;
    pub(super) const CHALLENGE: u8 = 8;
    pub(super) const PROOF: u8 = 9;
}

/// Flag of HELLO: the payload follows in REQUEST.
const LATER: u8 = 1;

impl Preamble {
    /// The bytes that go over the stream.
    pub fn bytes(&self) -> Vec<u8> {
        let prefix = |kind: u8| {
            //= wire.md R-TCP-2
            let mut bytes = Vec::with_capacity(CHALLENGE_BYTES);
            bytes.extend_from_slice(&MAGIC);
            bytes.extend_from_slice(&[kind, VERSION, 0, 0]);
            bytes
        };
        // The engine has checked it against `REQUEST_BYTES_MAX`.
        let len = |payload: &[u8]| u16::try_from(payload.len()).unwrap_or(0).to_le_bytes();
        match self {
            Preamble::Hello { attribute, mss, payload } => {
                let mut bytes = prefix(number::HELLO);
                let flags = if payload.is_some() { 0 } else { LATER };
                let payload = payload.as_deref().unwrap_or_default();
                bytes.extend_from_slice(&mss.to_le_bytes());
                bytes.extend_from_slice(&len(payload));
                bytes.extend_from_slice(&[service(*attribute), flags]);
                bytes.extend_from_slice(payload);
                bytes
            }
            Preamble::Request { payload } => {
                let mut bytes = prefix(number::REQUEST);
                bytes.extend_from_slice(&len(payload));
                bytes.extend_from_slice(&[0; 6]);
                bytes.extend_from_slice(payload);
                bytes
            }
            Preamble::Bulk { key, nonce } => {
                let mut bytes = prefix(number::BULK);
                bytes.extend_from_slice(&key.to_le_bytes());
                bytes.extend_from_slice(nonce);
                bytes
            }
            Preamble::Challenge { nonce, proof } => {
                let mut bytes = prefix(number::CHALLENGE);
                bytes.extend_from_slice(nonce);
                bytes.extend_from_slice(proof);
                bytes
            }
            Preamble::Proof { proof } => {
                let mut bytes = prefix(number::PROOF);
                bytes.extend_from_slice(proof);
                bytes
            }
            Preamble::Accept { mss, port, ticket } => {
                let mut bytes = prefix(number::ACCEPT);
                bytes.extend_from_slice(&mss.to_le_bytes());
                bytes.extend_from_slice(&port.to_le_bytes());
                bytes.extend_from_slice(&[0; 2]);
                bytes.extend_from_slice(&ticket.key.to_le_bytes());
                bytes.extend_from_slice(&ticket.secret);
                bytes
            }
            Preamble::Reject { no_memory } => {
                let mut bytes = prefix(number::REJECT);
                bytes.extend_from_slice(&[if *no_memory { 2 } else { 1 }, 0, 0, 0, 0, 0, 0, 0]);
                bytes
            }
            Preamble::Heard => prefix(number::HEARD),
            Preamble::Version { .. } | Preamble::OtherHello => {
                let mut bytes = prefix(number::VERSION);
                bytes.extend_from_slice(&[VERSION, VERSION, 0, 0, 0, 0, 0, 0]);
                bytes
            }
        }
    }

    /// Reads a record from the beginning of a stream. `Err(Some(n))`: the record has at least `n` bytes, which is more than there
    /// are. So the caller never takes a byte behind the record from the stream. `Err(None)`: the record is faulty.
    pub fn parse(bytes: &[u8]) -> Result<Preamble, Option<usize>> {
        //= wire.md R-TCP-2
        let known = bytes.len().min(MAGIC.len());
        if bytes.get(..known) != MAGIC.get(..known) {
            return Err(None);
        }
        let prefix: &[u8; PREFIX_BYTES] = bytes.first_chunk().ok_or(Some(PREFIX_BYTES))?;
        let [_, _, _, _, kind, version, zero @ ..] = *prefix;
        if version != VERSION && (kind == number::HELLO || kind == number::BULK) {
            //= wire.md R-TCP-4
            return Ok(Preamble::OtherHello);
        }
        if zero != [0; 2] || version != VERSION && kind != number::VERSION {
            return Err(None);
        }
        match kind {
            number::HELLO => Self::parse_hello(bytes),
            number::HEARD => Ok(Preamble::Heard),
            number::REQUEST => Self::parse_request(bytes),
            number::BULK => {
                let mut tail = Fields(bytes.first_chunk::<BULK_BYTES>().ok_or(Some(BULK_BYTES))?);
                tail.skip_prefix();
                Ok(Preamble::Bulk { key: u64::from_le_bytes(tail.take()?), nonce: tail.take()? })
            }
            number::CHALLENGE => {
                let mut tail = Fields(bytes.first_chunk::<CHALLENGE_BYTES>().ok_or(Some(CHALLENGE_BYTES))?);
                tail.skip_prefix();
                Ok(Preamble::Challenge { nonce: tail.take()?, proof: tail.take()? })
            }
            number::PROOF => {
                let whole = bytes.first_chunk::<PROOF_PART_BYTES>().ok_or(Some(PROOF_PART_BYTES))?;
                let mut tail = Fields(whole);
                tail.skip_prefix();
                Ok(Preamble::Proof { proof: tail.take()? })
            }
            number::ACCEPT => {
                let mut tail = Fields(bytes.first_chunk::<ACCEPT_BYTES>().ok_or(Some(ACCEPT_BYTES))?);
                tail.skip_prefix();
                let (mss, port) = (u32::from_le_bytes(tail.take()?), u16::from_le_bytes(tail.take()?));
                let zero = u16::from_le_bytes(tail.take()?);
                let ticket = Ticket { key: u64::from_le_bytes(tail.take()?), secret: tail.take()? };
                let is_good = mss > 0 && port > 0 && zero == 0;
                is_good.then_some(Preamble::Accept { mss, port, ticket }).ok_or(None)
            }
            number::REJECT | number::VERSION => {
                let whole: &[u8; ANSWER_BYTES] = bytes.first_chunk().ok_or(Some(ANSWER_BYTES))?;
                let [.., first, highest, _, _, _, _, _, _] = *whole;
                match (kind, first) {
                    (number::REJECT, 1 | 2) => Ok(Preamble::Reject { no_memory: first == 2 }),
                    (number::VERSION, lowest) if !(lowest..=highest).contains(&VERSION) => {
                        Ok(Preamble::Version { theirs: highest })
                    }
                    _ => Err(None),
                }
            }
            _ => Err(None),
        }
    }

    fn parse_hello(bytes: &[u8]) -> Result<Preamble, Option<usize>> {
        let head: &[u8; HELLO_BYTES] = bytes.first_chunk().ok_or(Some(HELLO_BYTES))?;
        let [_, _, _, _, _, _, _, _, m0, m1, m2, m3, l0, l1, attribute, flags] = *head;
        let len = usize::from(u16::from_le_bytes([l0, l1]));
        let mss = u32::from_le_bytes([m0, m1, m2, m3]);
        let attribute = attribute_of(attribute).ok_or(None)?;
        if len > REQUEST_BYTES_MAX || mss == 0 {
            return Err(None);
        }
        let payload = match flags {
            0 => Some(bytes.get(HELLO_BYTES..HELLO_BYTES + len).ok_or(Some(HELLO_BYTES + len))?.to_vec()),
            LATER if len == 0 => None,
            _ => return Err(None),
        };
        Ok(Preamble::Hello { attribute, mss, payload })
    }

    fn parse_request(bytes: &[u8]) -> Result<Preamble, Option<usize>> {
        let head: &[u8; REQUEST_HEAD_BYTES] = bytes.first_chunk().ok_or(Some(REQUEST_HEAD_BYTES))?;
        let [_, _, _, _, _, _, _, _, l0, l1, zero @ ..] = *head;
        let len = usize::from(u16::from_le_bytes([l0, l1]));
        if len > REQUEST_BYTES_MAX || zero != [0; 6] {
            return Err(None);
        }
        let whole = REQUEST_HEAD_BYTES + len;
        let payload = bytes.get(REQUEST_HEAD_BYTES..whole).ok_or(Some(whole))?;
        Ok(Preamble::Request { payload: payload.to_vec() })
    }
}

/// The rest of a complete record.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn skip_prefix(&mut self) {
        self.0 = self.0.get(PREFIX_BYTES..).unwrap_or_default();
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Option<usize>> {
        let (field, tail) = self.0.split_first_chunk().ok_or(None)?;
        self.0 = tail;
        Ok(*field)
    }
}

fn service(attribute: Attribute) -> u8 {
    match attribute {
        Attribute::ReliableOrdered => 0,
        Attribute::ReliableUnordered => 1,
        Attribute::Unreliable => 2,
        // Such a request is refused before anything is sent.
        Attribute::MulticastSend | Attribute::MulticastReceive => u8::MAX,
    }
}

fn attribute_of(service: u8) -> Option<Attribute> {
    match service {
        0 => Some(Attribute::ReliableOrdered),
        1 => Some(Attribute::ReliableUnordered),
        2 => Some(Attribute::Unreliable),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_shown_of_a_ticket_has_no_secret() {
        let ticket = Ticket { key: 7, secret: [0xa5; 16] };
        let shown = format!("{:?}", Preamble::Accept { mss: 1, port: 2, ticket });
        assert!(shown.contains("Ticket(7)") && !shown.contains("165"), "{shown}");
    }

    fn ticket() -> impl Strategy<Value = Ticket> {
        (any::<u64>(), any::<[u8; 16]>()).prop_map(|(key, secret)| Ticket { key, secret })
    }

    fn record() -> impl Strategy<Value = Preamble> {
        let attribute = (0u8..3).prop_map(|service| attribute_of(service).unwrap());
        let payload = || proptest::collection::vec(any::<u8>(), 0..=REQUEST_BYTES_MAX);
        prop_oneof![
            (attribute, 1u32.., proptest::option::of(payload()))
                .prop_map(|(attribute, mss, payload)| Preamble::Hello { attribute, mss, payload }),
            payload().prop_map(|payload| Preamble::Request { payload }),
            any::<(u64, [u8; NONCE_BYTES])>().prop_map(|(key, nonce)| Preamble::Bulk { key, nonce }),
            any::<([u8; NONCE_BYTES], [u8; PROOF_BYTES])>()
                .prop_map(|(nonce, proof)| Preamble::Challenge { nonce, proof }),
            any::<[u8; PROOF_BYTES]>().prop_map(|proof| Preamble::Proof { proof }),
            (1u32.., 1u16.., ticket()).prop_map(|(mss, port, ticket)| Preamble::Accept { mss, port, ticket }),
            any::<bool>().prop_map(|no_memory| Preamble::Reject { no_memory }),
            Just(Preamble::Heard),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

        /// Wherever a record is cut, the reader asks for what is missing and never for a byte more.
        #[test]
        fn what_is_said_is_read_however_it_is_cut(record in record()) {
            let bytes = record.bytes();
            let mut have = 0;
            loop {
                match Preamble::parse(&bytes[..have]) {
                    Ok(read) => {
                        prop_assert_eq!(have, bytes.len());
                        prop_assert_eq!(read, record);
                        break;
                    }
                    Err(needed) => {
                        let needed = needed.expect("honest");
                        prop_assert!(needed > have && needed <= bytes.len());
                        prop_assert_eq!(Preamble::parse(&bytes[..needed - 1]), Err(Some(needed)));
                        have = needed;
                    }
                }
            }
        }

        #[test]
        fn nothing_said_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..100), honest: bool, kind in 0u8..11) {
            if honest {
                for (byte, magic) in bytes.iter_mut().zip([MAGIC[0], MAGIC[1], MAGIC[2], MAGIC[3], kind, VERSION, 0, 0]) {
                    *byte = magic;
                }
            }
            match Preamble::parse(&bytes) {
                Err(Some(needed)) => prop_assert!(needed > bytes.len() && needed <= PREAMBLE_BYTES_MAX),
                Err(None) => {}
                Ok(_) => prop_assert!(bytes.len() >= PREFIX_BYTES),
            }
        }
    }

    #[test]
    fn another_version_is_told_apart() {
        for (old, new) in [(9, 3), (1, 1)] {
            let mut hello = Preamble::Reject { no_memory: false }.bytes();
            hello[4] = number::HELLO;
            hello[5] = old;
            assert_eq!(Preamble::parse(&hello), Ok(Preamble::OtherHello));
            let mut answer = Preamble::OtherHello.bytes();
            assert_eq!(Preamble::parse(&answer), Err(None), "it speaks ours and says that it does not");
            (answer[5], answer[8], answer[9]) = (old, new, new);
            assert_eq!(
                Preamble::parse(&answer),
                Ok(Preamble::Version { theirs: new }),
                "whatever version it says so in"
            );
        }
        let mut heard = Preamble::Heard.bytes();
        heard[5] = 1;
        assert_eq!(Preamble::parse(&heard), Err(None));
    }
}
