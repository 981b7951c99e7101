//! A hostile peer that speaks TCP: both streams, as `docs/wire.md` has them in the chapter "Streams".
//!
//! [`client`] is a script up to the open connection; what follows it is the lie. A record is filled in as an honest peer
//! would; the closure that [`send`], [`bulk`] and [`rma`] take falsifies its fields.

mod stream;
mod wire;

pub use stream::Stream;
pub use wire::{Kind, Part, Record, Rma, VERSION};

use super::script::{Act, Script, Site, Wire, act};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use wire::{BULK_RECORDS, MAGIC, PARTS, RECORDS, number};

/// The state of a hostile peer on TCP.
pub struct Tcp {
    /// Where the victim listens.
    pub victim: SocketAddr,
    /// Where this peer listens, if it does.
    listener: Option<TcpListener>,
    /// The first stream.
    pub first: Stream,
    /// The second stream.
    pub second: Stream,
    /// More streams, which say only what a script has them say.
    pub others: Vec<Stream>,
    request: Vec<u8>,
    /// Region and key of the victim's region.
    pub region: [u64; 2],
    /// The ticket for the second stream: of the victim's ACCEPT, or the one that was given to it.
    pub ticket: [u8; 24],
    /// The address in the victim's ACCEPT.
    pub bulk_at: Option<SocketAddr>,
    /// Messages that have come.
    pub taken: u32,
    /// The payload of the record that came last on the first stream.
    pub payload: Vec<u8>,
    /// Slot and words of the record that came last on the second stream.
    pub slot: u16,
    /// Words behind the head of that record.
    pub words: Vec<u64>,
    /// The version that this peer speaks.
    pub version: u8,
}

impl Wire for Tcp {
    type Kind = Kind;

    fn open(site: &Site) -> io::Result<Tcp> {
        let at = site.uri.rsplit_once("tcp").map_or("", |(_, at)| at.trim_start_matches(['=', ':', '/']));
        let victim = at.parse().map_err(|_| io::Error::other(format!("no TCP address in {}", site.uri)))?;
        let handle = site.region.to_bytes();
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| handle[at + byte]));
        Ok(Tcp {
            victim,
            listener: None,
            first: Stream::none(),
            second: Stream::none(),
            others: Vec::new(),
            request: site.request(),
            region: [word(0), word(16)],
            ticket: [0; 24],
            bulk_at: None,
            taken: 0,
            payload: Vec::new(),
            slot: 0,
            words: Vec::new(),
            version: VERSION,
        })
    }

    fn take(&mut self) -> Option<Kind> {
        if let Some((stream, _)) = self.listener.as_ref().and_then(|listener| listener.accept().ok()) {
            let accepted = Stream::of(stream);
            if self.first.is_none() {
                self.first = accepted;
            } else {
                self.second = accepted;
            }
            return Some(Kind::Came);
        }
        self.take_first().or_else(|| self.take_second())
    }

    fn flush(&mut self) {
        self.first.flush();
        self.second.flush();
        self.others.iter_mut().for_each(Stream::flush);
    }

    fn uri(&self) -> Option<String> {
        Some(format!("tcp://{}", self.listener.as_ref()?.local_addr().ok()?))
    }
}

impl Tcp {
    fn take_first(&mut self) -> Option<Kind> {
        self.first.read();
        if self.first.input.starts_with(b"CCI") {
            return self.take_part();
        }
        let Some(&[l0, l1, number, _, _, _, _, _]) = self.first.input.first_chunk() else {
            return self.first.take_end().then_some(Kind::End);
        };
        let len = usize::from(u16::from_le_bytes([l0, l1]));
        let record = self.first.take(8 + len)?;
        self.payload = record[8..].to_vec();
        let kind = RECORDS.get(usize::from(number).wrapping_sub(1)).copied().unwrap_or(Kind::Unknown);
        self.taken = self.taken.wrapping_add(u32::from(kind == Kind::Message));
        Some(kind)
    }

    fn take_part(&mut self) -> Option<Kind> {
        let &[_, _, _, _, number, _, _, _] = self.first.input.first_chunk()?;
        let kind = PARTS.get(usize::from(number).wrapping_sub(1)).copied().unwrap_or(Kind::Unknown);
        let len = match kind {
            Kind::Hello => {
                let &[.., l0, l1, _, _] = self.first.input.first_chunk::<16>()?;
                16 + usize::from(u16::from_le_bytes([l0, l1]))
            }
            Kind::Bulk => 32,
            Kind::Accept => 56,
            Kind::Reject | Kind::Version => 16,
            _ => 8,
        };
        let part = self.first.take(len)?;
        if let (Kind::Accept, Some(bytes)) = (kind, part.first_chunk::<56>()) {
            let ip: [u8; 16] = std::array::from_fn(|at| bytes[16 + at]);
            let (port, ip) = (u16::from_le_bytes([bytes[12], bytes[13]]), std::net::Ipv6Addr::from(ip));
            let ip = ip.to_ipv4_mapped().map_or(ip.into(), std::net::IpAddr::from);
            self.bulk_at = Some(SocketAddr::new(ip, port));
            self.ticket = std::array::from_fn(|at| bytes[32 + at]);
        }
        Some(kind)
    }

    fn take_second(&mut self) -> Option<Kind> {
        self.second.read();
        if self.second.input.starts_with(b"CCI") {
            return self.second.take(32).map(|_| Kind::Bulk);
        }
        let Some(&[l0, l1, l2, l3, kind, _, s0, s1]) = self.second.input.first_chunk() else {
            return self.second.take_end().then_some(Kind::BulkEnd);
        };
        let record = self.second.take(4 + u32::from_le_bytes([l0, l1, l2, l3]) as usize)?;
        self.slot = u16::from_le_bytes([s0, s1]);
        let words = record.get(12..).unwrap_or_default().chunks_exact(8).take(6);
        self.words = words.map(|word| u64::from_le_bytes(std::array::from_fn(|at| word[at]))).collect();
        let known = BULK_RECORDS.iter().find(|(number, _)| *number == kind);
        Some(known.map_or(Kind::Unknown, |(_, kind)| *kind))
    }

    fn part(&self) -> Part {
        let own = self.listener.as_ref().and_then(|listener| listener.local_addr().ok());
        Part {
            magic: MAGIC,
            version: self.version,
            message_bytes_max: 8192,
            payload: self.request.clone(),
            service: 0,
            bulk_at: own.unwrap_or(self.victim),
            ticket: self.ticket,
        }
    }
}

/// Dials the victim.
pub fn dial() -> Act<Tcp> {
    act(|tcp: &mut Tcp| tcp.first = Stream::dial(tcp.victim))
}

/// Listens; the victim will connect.
pub fn listen() -> Act<Tcp> {
    act(|tcp: &mut Tcp| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        tcp.listener = Some(listener);
    })
}

/// Sends a part of the handshake on the first stream.
pub fn shake(kind: Kind, falsify: impl Fn(&mut Part) + 'static) -> Act<Tcp> {
    act(move |tcp: &mut Tcp| {
        let mut part = tcp.part();
        falsify(&mut part);
        tcp.ticket = part.ticket;
        tcp.first.write(&part.bytes(kind));
    })
}

/// Sends a record on the first stream. An honest peer's acknowledges all that has come.
pub fn send(kind: Kind, falsify: impl Fn(&mut Record) + 'static) -> Act<Tcp> {
    act(move |tcp: &mut Tcp| {
        let payload = if kind == Kind::Ready { 64_u32.to_le_bytes().to_vec() } else { Vec::new() };
        let mut record = Record { kind: number(kind), zero: 0, len: None, ack: tcp.taken, payload };
        falsify(&mut record);
        tcp.first.write(&record.bytes());
    })
}

/// Dials the second stream and shows the ticket.
pub fn bulk(falsify: impl Fn(&mut Part) + 'static) -> Act<Tcp> {
    act(move |tcp: &mut Tcp| {
        let mut part = tcp.part();
        falsify(&mut part);
        tcp.second = Stream::dial(tcp.bulk_at.unwrap_or(tcp.victim));
        tcp.second.write(&part.bytes(Kind::Bulk));
    })
}

/// Sends a record on the second stream: an answer to the one that came last, or a request in slot 0.
pub fn rma(kind: Kind, falsify: impl Fn(&mut Rma) + 'static) -> Act<Tcp> {
    act(move |tcp: &mut Tcp| {
        let [region, key] = tcp.region;
        let (words, slot) = match kind {
            Kind::Write | Kind::Read => (vec![region, key, 0, 64], 0),
            Kind::Data => (vec![0], tcp.slot),
            Kind::Atomic => (vec![region, key, 0, 8 << 8, 1, 0], 0),
            Kind::Notify => (Vec::new(), 0),
            _ => (Vec::new(), tcp.slot),
        };
        let number = number(kind);
        let mut record =
            Rma { len: None, kind: number, flags: 0, slot, words, data: Vec::new(), cut_at: None };
        falsify(&mut record);
        tcp.second.write(&record.bytes());
    })
}

/// Sends any bytes on the first stream.
pub fn raw(bytes: &'static [u8]) -> Act<Tcp> {
    act(move |tcp: &mut Tcp| tcp.first.write(bytes))
}

/// Sends any bytes on the second stream.
pub fn bulk_raw(bytes: &'static [u8]) -> Act<Tcp> {
    act(move |tcp: &mut Tcp| tcp.second.write(bytes))
}

/// Closes the first stream.
pub fn close() -> Act<Tcp> {
    act(|tcp: &mut Tcp| tcp.first = Stream::none())
}

/// As the record or part says.
pub fn honestly<T>(_: &mut T) {}

/// A client up to the open connection.
pub fn client() -> Script<Tcp> {
    let script = Script::new().now(dial()).now(shake(Kind::Hello, honestly));
    script.expect(Kind::Accept).now(send(Kind::Confirm, honestly))
}

/// A server up to the open connection.
pub fn server(falsify: impl Fn(&mut Part) + 'static) -> Script<Tcp> {
    let script = Script::new().now(listen()).expect(Kind::Hello).now(shake(Kind::Heard, honestly));
    script.now(shake(Kind::Accept, falsify)).expect(Kind::Confirm)
}
