//! What two TCP endpoints say to each other: `docs/wire.md`, chapter "Streams".

use crate::limits::{MESSAGE_BYTES_MAX, REQUEST_BYTES_MAX};
use crate::options::Attribute;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// The version spoken.
pub(super) const VERSION: u8 = 1;
const MAGIC: [u8; 4] = *b"CCIt";
/// What every part of a handshake begins with.
const PREFIX_BYTES: usize = 8;
const HELLO_BYTES: usize = 16;
const BULK_BYTES: usize = 32;
const ACCEPT_BYTES: usize = 56;
const ANSWER_BYTES: usize = 16;
/// The longest part of a handshake.
pub(super) const SAID_BYTES_MAX: usize = HELLO_BYTES + REQUEST_BYTES_MAX;

/// A record's header.
pub(super) const HEADER_BYTES: usize = 8;
/// The longest record.
pub(super) const RECORD_BYTES_MAX: usize = HEADER_BYTES + MESSAGE_BYTES_MAX as usize;

const _: () = assert!(MESSAGE_BYTES_MAX <= u16::MAX as u32 && ACCEPT_BYTES <= SAID_BYTES_MAX);

/// The peer sent what no honest peer sends.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault;

/// Names an accepted connection to the endpoint that accepted it; its second stream shows it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    /// The accepting side's key.
    pub key: u64,
    pub secret: [u8; 16],
}

/// A part of a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Hello {
        attribute: Attribute,
        mss: u32,
        payload: Vec<u8>,
    },
    /// A second stream for the connection that the ticket names.
    Bulk(Ticket),
    Accept {
        mss: u32,
        at: SocketAddr,
        ticket: Ticket,
    },
    Reject {
        no_memory: bool,
    },
    /// A HELLO of another version came; this one is spoken here.
    Version {
        theirs: u8,
    },
    /// A HELLO of this version, which is not ours.
    OtherHello,
    /// The HELLO was understood; the program decides.
    Heard,
}

mod said {
    pub(super) const HELLO: u8 = 1;
    pub(super) const BULK: u8 = 2;
    pub(super) const ACCEPT: u8 = 3;
    pub(super) const REJECT: u8 = 4;
    pub(super) const VERSION: u8 = 5;
    pub(super) const HEARD: u8 = 6;
}

impl Said {
    /// As it goes over the stream.
    pub fn bytes(&self) -> Vec<u8> {
        let prefix = |kind: u8| {
            //= wire.md R-TCP-2
            let mut bytes = Vec::with_capacity(ACCEPT_BYTES);
            bytes.extend_from_slice(&MAGIC);
            bytes.extend_from_slice(&[kind, VERSION, 0, 0]);
            bytes
        };
        match self {
            Said::Hello { attribute, mss, payload } => {
                let mut bytes = prefix(said::HELLO);
                bytes.extend_from_slice(&mss.to_le_bytes());
                // The engine has checked it against `REQUEST_BYTES_MAX`.
                bytes.extend_from_slice(&u16::try_from(payload.len()).unwrap_or(0).to_le_bytes());
                bytes.extend_from_slice(&[service(*attribute), 0]);
                bytes.extend_from_slice(payload);
                bytes
            }
            Said::Bulk(ticket) => {
                let mut bytes = prefix(said::BULK);
                bytes.extend_from_slice(&ticket.key.to_le_bytes());
                bytes.extend_from_slice(&ticket.secret);
                bytes
            }
            Said::Accept { mss, at, ticket } => {
                let mut bytes = prefix(said::ACCEPT);
                bytes.extend_from_slice(&mss.to_le_bytes());
                bytes.extend_from_slice(&at.port().to_le_bytes());
                let (family, ip) = match at.ip() {
                    IpAddr::V4(v4) => (4, v4.to_ipv6_mapped()),
                    IpAddr::V6(v6) => (6, v6),
                };
                bytes.extend_from_slice(&[family, 0]);
                bytes.extend_from_slice(&ip.octets());
                bytes.extend_from_slice(&ticket.key.to_le_bytes());
                bytes.extend_from_slice(&ticket.secret);
                bytes
            }
            Said::Reject { no_memory } => {
                let mut bytes = prefix(said::REJECT);
                bytes.extend_from_slice(&[if *no_memory { 2 } else { 1 }, 0, 0, 0, 0, 0, 0, 0]);
                bytes
            }
            Said::Heard => prefix(said::HEARD),
            Said::Version { .. } | Said::OtherHello => {
                let mut bytes = prefix(said::VERSION);
                bytes.extend_from_slice(&[VERSION, VERSION, 0, 0, 0, 0, 0, 0]);
                bytes
            }
        }
    }

    /// Reads a part of a handshake from the beginning of a stream. `Err(Some(n))`: the part is at least `n` bytes long,
    /// more than there are; so no byte behind it needs ever be taken from the stream. `Err(None)`: a fault.
    pub fn parse(bytes: &[u8]) -> Result<Said, Option<usize>> {
        //= wire.md R-TCP-2
        let known = bytes.len().min(MAGIC.len());
        if bytes.get(..known) != MAGIC.get(..known) {
            return Err(None);
        }
        let prefix: &[u8; PREFIX_BYTES] = bytes.first_chunk().ok_or(Some(PREFIX_BYTES))?;
        let [_, _, _, _, kind, version, zero @ ..] = *prefix;
        if version != VERSION && (kind == said::HELLO || kind == said::BULK) {
            //= wire.md R-TCP-4
            return Ok(Said::OtherHello);
        }
        if zero != [0; 2] {
            return Err(None);
        }
        match kind {
            said::HELLO => Self::parse_hello(bytes),
            said::HEARD => Ok(Said::Heard),
            said::BULK => {
                let whole: &[u8; BULK_BYTES] = bytes.first_chunk().ok_or(Some(BULK_BYTES))?;
                Ok(Said::Bulk(parse_ticket(whole.last_chunk().ok_or(None)?)))
            }
            said::ACCEPT if version == VERSION => {
                parse_accept(bytes.first_chunk().ok_or(Some(ACCEPT_BYTES))?).ok_or(None)
            }
            said::REJECT | said::VERSION => {
                let whole: &[u8; ANSWER_BYTES] = bytes.first_chunk().ok_or(Some(ANSWER_BYTES))?;
                let [.., first, highest, _, _, _, _, _, _] = *whole;
                match (kind, first) {
                    (said::REJECT, 1 | 2) => Ok(Said::Reject { no_memory: first == 2 }),
                    (said::VERSION, lowest) if !(lowest..=highest).contains(&VERSION) => {
                        Ok(Said::Version { theirs: highest })
                    }
                    _ => Err(None),
                }
            }
            _ => Err(None),
        }
    }

    fn parse_hello(bytes: &[u8]) -> Result<Said, Option<usize>> {
        let head: &[u8; HELLO_BYTES] = bytes.first_chunk().ok_or(Some(HELLO_BYTES))?;
        let [_, _, _, _, _, _, _, _, m0, m1, m2, m3, l0, l1, attribute, zero] = *head;
        let len = usize::from(u16::from_le_bytes([l0, l1]));
        let mss = u32::from_le_bytes([m0, m1, m2, m3]);
        let attribute = attribute_of(attribute).ok_or(None)?;
        if len > REQUEST_BYTES_MAX || zero != 0 || mss == 0 {
            return Err(None);
        }
        let payload = bytes.get(HELLO_BYTES..HELLO_BYTES + len).ok_or(Some(HELLO_BYTES + len))?;
        Ok(Said::Hello { attribute, mss, payload: payload.to_vec() })
    }
}

fn parse_accept(bytes: &[u8; ACCEPT_BYTES]) -> Option<Said> {
    let (_, rest) = bytes.split_first_chunk::<PREFIX_BYTES>()?;
    let (&[m0, m1, m2, m3, p0, p1, family, zero], rest) = rest.split_first_chunk::<8>()?;
    let (ip, rest) = rest.split_first_chunk::<16>()?;
    let ticket = parse_ticket(rest.first_chunk()?);
    let v6 = Ipv6Addr::from(*ip);
    let port = u16::from_le_bytes([p0, p1]);
    let at = match family {
        4 => SocketAddr::new(v6.to_ipv4_mapped()?.into(), port),
        6 => SocketAddrV6::new(v6, port, 0, 0).into(),
        _ => return None,
    };
    let mss = u32::from_le_bytes([m0, m1, m2, m3]);
    (mss > 0 && port > 0 && zero == 0).then_some(Said::Accept { mss, at, ticket })
}

fn parse_ticket(bytes: &[u8; 24]) -> Ticket {
    let [k0, k1, k2, k3, k4, k5, k6, k7, secret @ ..] = *bytes;
    Ticket { key: u64::from_le_bytes([k0, k1, k2, k3, k4, k5, k6, k7]), secret }
}

fn service(attribute: Attribute) -> u8 {
    match attribute {
        Attribute::ReliableOrdered => 0,
        Attribute::ReliableUnordered => 1,
        Attribute::Unreliable => 2,
        // Refused before anything is said.
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

/// What a record is. Those below `Message` have no payload but `Ready`, which has a number.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Message = 1,
    /// Says nothing but what every header says.
    Ack = 2,
    /// There was no receive buffer: this message and all behind it were dropped, up to RESUME.
    NotReady = 3,
    /// There are receive buffers again.
    Ready = 4,
    /// From here on messages are sent again, the first unacknowledged one first.
    Resume = 5,
    Ping = 6,
    Pong = 7,
    /// The sender's program has disconnected: it takes no more messages, and sends what it had sent before.
    Closing = 8,
    /// Nothing follows.
    Close = 9,
    /// The connection is open at the side that dialled.
    Confirm = 10,
    /// Dial the second stream.
    AskBulk = 11,
}

/// A record's header.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub kind: Kind,
    /// Bytes that follow.
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

    /// Reads a header. `message_bytes_max`: what was agreed.
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
    use std::net::Ipv4Addr;

    fn ticket() -> impl Strategy<Value = Ticket> {
        (any::<u64>(), any::<[u8; 16]>()).prop_map(|(key, secret)| Ticket { key, secret })
    }

    fn said() -> impl Strategy<Value = Said> {
        let attribute = (0u8..3).prop_map(|service| attribute_of(service).unwrap());
        let ip = (any::<u128>(), any::<bool>()).prop_map(|(bits, v6)| {
            if v6 { IpAddr::from(Ipv6Addr::from(bits)) } else { Ipv4Addr::from(bits as u32).into() }
        });
        prop_oneof![
            (attribute, 1u32.., proptest::collection::vec(any::<u8>(), 0..=REQUEST_BYTES_MAX))
                .prop_map(|(attribute, mss, payload)| Said::Hello { attribute, mss, payload }),
            ticket().prop_map(Said::Bulk),
            (1u32.., ip, 1u16.., ticket()).prop_map(|(mss, ip, port, ticket)| Said::Accept {
                mss,
                at: SocketAddr::new(ip, port),
                ticket
            }),
            any::<bool>().prop_map(|no_memory| Said::Reject { no_memory }),
            Just(Said::Heard),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

        /// However it is cut, the reader asks for what is missing and never for a byte more.
        #[test]
        fn what_is_said_is_read_however_it_is_cut(said in said()) {
            let bytes = said.bytes();
            let mut have = 0;
            loop {
                match Said::parse(&bytes[..have]) {
                    Ok(read) => {
                        prop_assert_eq!(have, bytes.len());
                        prop_assert_eq!(read, said);
                        break;
                    }
                    Err(needed) => {
                        let needed = needed.expect("honest");
                        prop_assert!(needed > have && needed <= bytes.len());
                        prop_assert_eq!(Said::parse(&bytes[..needed - 1]), Err(Some(needed)));
                        have = needed;
                    }
                }
            }
        }

        #[test]
        fn nothing_said_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..100), honest: bool, kind in 0u8..8) {
            if honest {
                for (byte, magic) in bytes.iter_mut().zip([MAGIC[0], MAGIC[1], MAGIC[2], MAGIC[3], kind, VERSION, 0, 0]) {
                    *byte = magic;
                }
            }
            match Said::parse(&bytes) {
                Err(Some(needed)) => prop_assert!(needed > bytes.len() && needed <= SAID_BYTES_MAX),
                Err(None) => {}
                Ok(_) => prop_assert!(bytes.len() >= PREFIX_BYTES),
            }
        }

        #[test]
        fn headers_come_back_or_are_faults(bytes: [u8; HEADER_BYTES], mss in 0u32..=MESSAGE_BYTES_MAX) {
            if let Ok(header) = Header::parse(bytes, mss) {
                prop_assert_eq!(header.bytes(), bytes);
                prop_assert!(u32::from(header.len) <= mss.max(4));
            }
        }
    }

    #[test]
    fn another_version_is_told_apart() {
        let mut hello = Said::Reject { no_memory: false }.bytes();
        hello[4] = said::HELLO;
        hello[5] = 9;
        assert_eq!(Said::parse(&hello), Ok(Said::OtherHello));
        let mut answer = Said::OtherHello.bytes();
        assert_eq!(Said::parse(&answer), Err(None), "it speaks ours and says that it does not");
        (answer[8], answer[9]) = (2, 3);
        assert_eq!(Said::parse(&answer), Ok(Said::Version { theirs: 3 }));
    }
}
