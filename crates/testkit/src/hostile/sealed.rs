//! Strangers to an endpoint with security, over UDP: they have no key, but read cookies that come to their own addresses, and have
//! recordings of what others sent. The format is R-SEC-3, R-SEC-4 and R-SEC-16 of `docs/wire.md`.

use super::script::{Act, Site, Wire, act};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

/// The version of the handshake that is spoken: 2, or 1, which had no field for it.
pub const VERSION: u8 = 2;
/// Version 1 of the protocol, type 14.
const FIRST_BYTE: u8 = 0x1e;
const HANDSHAKE: u8 = 2;
const COOKIE: u8 = 3;
const FLAGS_AT: usize = 26;
const VERSION_AT: usize = 27;
const COOKIE_AT: usize = 28;
/// The id of an endpoint, which comes before all else (R-SEC-15).
const ID: [u8; 16] = [0x1d; 16];
const HEADER_BYTES: usize = 48;
const FLAG_INITIATOR: u8 = 1;
const FLAG_ASKS: u8 = 2;
const FLAG_COOKIE: u8 = 4;
const DATAGRAM_BYTES_MAX: usize = 1 << 16;

/// How many sockets are looked at for something that came.
const SOCKETS_PER_LOOK: usize = 64;

/// What comes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Somebody who has a key sent the first part of a handshake to this peer, which has recorded it.
    Recorded,
    /// The victim has answered by a cookie.
    Cookie,
    /// The victim goes on with a handshake.
    Handshake,
    /// Anything else.
    Other,
}

/// The state of such strangers.
pub struct Strangers {
    victim: SocketAddr,
    /// Where they send from.
    ip: IpAddr,
    sockets: Vec<UdpSocket>,
    next_socket: usize,
    /// First parts of others.
    pub recordings: Vec<Vec<u8>>,
    /// By the handshake's id: what was sent, and from which socket.
    begun: HashMap<u64, (usize, Vec<u8>)>,
    /// Id, time slot and cookie of the answer that came last.
    cookie: (u64, [u8; 20]),
    next_id: u64,
    buffer: Vec<u8>,
}

impl Wire for Strangers {
    type Kind = Kind;

    fn open(site: &Site) -> io::Result<Strangers> {
        let place = site.uri.strip_prefix("udp://").unwrap_or_default();
        let victim = place.parse().map_err(|_| io::Error::other(format!("no address in {}", site.uri)))?;
        Ok(Strangers {
            victim,
            ip: Ipv4Addr::LOCALHOST.into(),
            sockets: Vec::new(),
            next_socket: 0,
            recordings: Vec::new(),
            begun: HashMap::new(),
            cookie: (0, [0; 20]),
            next_id: 0x5151_0000_0000_0000 | site.number << 32,
            buffer: vec![0; DATAGRAM_BYTES_MAX],
        })
    }

    fn take(&mut self) -> Option<Kind> {
        let len = self.receive()?;
        let datagram = &self.buffer[..len];
        let id = u64::from_le_bytes(datagram.get(8..16)?.try_into().ok()?);
        match (datagram[0], datagram[1]) {
            (FIRST_BYTE, HANDSHAKE) if datagram.get(FLAGS_AT)? & FLAG_INITIATOR != 0 => {
                self.recordings.push(datagram.to_vec());
                Some(Kind::Recorded)
            }
            (FIRST_BYTE, COOKIE) => {
                let mut cookie = [0; 20];
                cookie[..4].copy_from_slice(datagram.get(16..20)?);
                cookie[4..].copy_from_slice(datagram.get(24..40)?);
                self.cookie = (id, cookie);
                Some(Kind::Cookie)
            }
            (FIRST_BYTE, HANDSHAKE) => Some(Kind::Handshake),
            _ => Some(Kind::Other),
        }
    }

    fn addresses(&self) -> Vec<String> {
        let at = self.sockets.iter().filter_map(|socket| socket.local_addr().ok());
        at.map(|at| format!("udp://{at}")).collect()
    }
}

impl Strangers {
    /// What came to some of the sockets, in turn.
    fn receive(&mut self) -> Option<usize> {
        for _ in 0..self.sockets.len().min(SOCKETS_PER_LOOK) {
            self.next_socket = (self.next_socket + 1) % self.sockets.len();
            let socket = self.sockets.get(self.next_socket)?;
            if let Ok(len) = socket.recv(&mut self.buffer) {
                return Some(len);
            }
        }
        None
    }

    fn socket(&mut self) -> usize {
        let socket = UdpSocket::bind((self.ip, 0)).expect("a port");
        socket.set_nonblocking(true).expect("a socket");
        self.sockets.push(socket);
        self.sockets.len() - 1
    }

    fn begin(&mut self, socket: usize, part: Vec<u8>) {
        let id = u64::from_le_bytes(std::array::from_fn(|at| part[8 + at]));
        let _ = self.sockets[socket].send_to(&part, self.victim);
        self.begun.insert(id, (socket, part));
    }
}

/// Opens one more address, at which somebody who has a key may think that a peer is.
pub fn tap() -> Act<Strangers> {
    act(|strangers: &mut Strangers| {
        strangers.socket();
    })
}

/// Sends from this address from now on.
pub fn from_address(ip: IpAddr) -> Act<Strangers> {
    act(move |strangers: &mut Strangers| strangers.ip = ip)
}

/// Sends each recording to the victim, each from an address of its own, without the cookie that may be in it.
pub fn replay() -> Act<Strangers> {
    act(|strangers: &mut Strangers| {
        for mut part in std::mem::take(&mut strangers.recordings) {
            part[FLAGS_AT] &= !FLAG_COOKIE;
            part[COOKIE_AT..HEADER_BYTES].fill(0);
            let socket = strangers.socket();
            strangers.begin(socket, part);
        }
    })
}

/// Begins a handshake by these bytes, from the next of all addresses that were opened by [`tap`].
pub fn begin(bytes: &'static [u8]) -> Act<Strangers> {
    act(move |strangers: &mut Strangers| {
        strangers.next_id += 1;
        let bytes = if VERSION < 2 { bytes.to_vec() } else { [&ID, bytes].concat() };
        let len = (HEADER_BYTES + bytes.len()).next_multiple_of(8);
        let mut part = vec![FIRST_BYTE, HANDSHAKE];
        part.extend((len as u16).to_le_bytes());
        part.extend(0_u32.to_le_bytes());
        part.extend(strangers.next_id.to_le_bytes());
        part.extend((strangers.next_id as u32).to_le_bytes());
        part.extend(0_u16.to_le_bytes());
        part.extend((bytes.len() as u16).to_le_bytes());
        part.extend(0_u16.to_le_bytes());
        part.extend([FLAG_INITIATOR | FLAG_ASKS, 0]);
        part.resize(HEADER_BYTES, 0);
        part[VERSION_AT] = if VERSION < 2 { 0 } else { VERSION };
        part.extend(bytes);
        part.resize(len, 0);
        let socket = strangers.next_id as usize % strangers.sockets.len();
        strangers.begin(socket, part);
    })
}

/// Shows the cookie that came, with the same first part.
pub fn show_cookie() -> Act<Strangers> {
    act(|strangers: &mut Strangers| {
        let (id, cookie) = strangers.cookie;
        let Some((socket, mut part)) = strangers.begun.remove(&id) else { return };
        part[FLAGS_AT] |= FLAG_COOKIE;
        part[COOKIE_AT..HEADER_BYTES].copy_from_slice(&cookie);
        let _ = strangers.sockets[socket].send_to(&part, strangers.victim);
    })
}
