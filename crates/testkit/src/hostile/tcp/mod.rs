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
use std::rc::Rc;
use wire::{BULK_RECORDS, MAGIC, PARTS, RECORDS, number};

/// Falsifies a part of a handshake.
type Falsify = Rc<dyn Fn(&mut Part)>;

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
    /// Key for the second stream: from the victim's ACCEPT, or the one that was given to it.
    pub key: u64,
    /// Secret for the second stream, from where the key is.
    pub secret: [u8; 16],
    /// Where the second stream is to be dialled.
    pub bulk_at: Option<SocketAddr>,
    /// What the two sides of the second stream have drawn: first the one that dialled it.
    nonces: [[u8; 16]; 2],
    /// What falsifies this peer's proof on the second stream. None: it says none.
    proof: Option<Falsify>,
    /// The second stream carries records.
    is_second_open: bool,
    /// What is to be sent on it then.
    second_waits: Vec<u8>,
    /// Messages that have come.
    pub taken: u32,
    /// The payload of the record that came last on the first stream.
    pub payload: Vec<u8>,
    /// Slot and words of the record that came last on the second stream.
    pub slot: u16,
    /// Words behind the head of that record, six at most; where it has fewer, its data.
    pub words: Vec<u64>,
    /// How long that record is behind its head.
    pub rest_bytes: usize,
    /// The version that this peer speaks.
    pub version: u8,
    /// Bytes of HELLO that [`dribble`] has sent.
    dribbled: usize,
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
            key: 1,
            secret: [7; 16],
            bulk_at: None,
            nonces: [[3; 16], [4; 16]],
            proof: Some(Rc::new(honestly)),
            is_second_open: false,
            second_waits: Vec::new(),
            taken: 0,
            payload: Vec::new(),
            slot: 0,
            words: Vec::new(),
            rest_bytes: 0,
            version: VERSION,
            dribbled: 0,
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
            Kind::Request => {
                let &[.., l0, l1] = self.first.input.first_chunk::<10>()?;
                16 + usize::from(u16::from_le_bytes([l0, l1]))
            }
            Kind::Accept => 40,
            Kind::Reject | Kind::Version => 16,
            _ => 8,
        };
        let part = self.first.take(len)?;
        if let (Kind::Accept, Some(bytes)) = (kind, part.first_chunk::<40>()) {
            let port = u16::from_le_bytes([bytes[12], bytes[13]]);
            self.bulk_at = Some(SocketAddr::new(self.victim.ip(), port));
            self.key = u64::from_le_bytes(std::array::from_fn(|at| bytes[16 + at]));
            self.secret = std::array::from_fn(|at| bytes[24 + at]);
        }
        Some(kind)
    }

    /// A part of the second stream's handshake, which this peer answers with its proof.
    fn take_second_part(&mut self) -> Option<Kind> {
        let &[_, _, _, _, number, ..] = self.second.input.first_chunk::<8>()?;
        let kind = PARTS.get(usize::from(number).wrapping_sub(1)).copied().unwrap_or(Kind::Unknown);
        let part = self.second.take(match kind {
            Kind::Bulk => 32,
            Kind::Challenge => 56,
            Kind::Proof => 40,
            Kind::Version => 16,
            _ => 8,
        })?;
        let (answer, nonce) = match kind {
            Kind::Bulk => (Kind::Challenge, Some((0, 16))),
            Kind::Challenge => (Kind::Proof, Some((1, 8))),
            _ => (Kind::Unknown, None),
        };
        if let Some((whose, from)) = nonce {
            self.nonces[whose] = std::array::from_fn(|at| part[from + at]);
            if let Some(falsify) = self.proof.clone() {
                let mut part = self.part();
                falsify(&mut part);
                self.second.write(&part.bytes(answer));
            }
        }
        if matches!(kind, Kind::Challenge | Kind::Proof) {
            self.is_second_open = true;
            self.second.write(&std::mem::take(&mut self.second_waits));
        }
        Some(kind)
    }

    /// Sends this on the second stream, behind its handshake.
    fn write_second(&mut self, bytes: &[u8]) {
        if self.is_second_open {
            self.second.write(bytes);
        } else {
            self.second_waits.extend(bytes);
        }
    }

    fn take_second(&mut self) -> Option<Kind> {
        self.second.read();
        if self.second.input.starts_with(b"CCI") {
            return self.take_second_part();
        }
        let Some(&[l0, l1, l2, l3, kind, _, s0, s1]) = self.second.input.first_chunk() else {
            return self.second.take_end().then_some(Kind::BulkEnd);
        };
        let record = self.second.take(4 + u32::from_le_bytes([l0, l1, l2, l3]) as usize)?;
        self.slot = u16::from_le_bytes([s0, s1]);
        self.rest_bytes = record.len().saturating_sub(12);
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
            flags: 0,
            port: own.unwrap_or(self.victim).port(),
            key: self.key,
            secret: self.secret,
            nonces: self.nonces,
            proof: None,
        }
    }
}

/// Dials the victim.
pub fn dial() -> Act<Tcp> {
    act(|tcp: &mut Tcp| (tcp.first, tcp.dribbled) = (Stream::dial(tcp.victim), 0))
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
        (tcp.key, tcp.secret) = (part.key, part.secret);
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

/// Dials the second stream and names the connection. The proof follows when the victim has proved its own
/// ([`proving`]), and only then what is sent on the stream beside that.
pub fn bulk(falsify: impl Fn(&mut Part) + 'static) -> Act<Tcp> {
    act(move |tcp: &mut Tcp| {
        let mut part = tcp.part();
        falsify(&mut part);
        tcp.nonces = part.nonces;
        (tcp.is_second_open, tcp.second_waits) = (false, Vec::new());
        tcp.second = Stream::dial(tcp.bulk_at.unwrap_or(tcp.victim));
        tcp.second.write(&part.bytes(Kind::Bulk));
    })
}

/// Falsifies the proof that this peer says on the second stream, whichever side has dialled it.
pub fn proving(falsify: impl Fn(&mut Part) + 'static) -> Act<Tcp> {
    let falsify: Falsify = Rc::new(falsify);
    act(move |tcp: &mut Tcp| tcp.proof = Some(falsify.clone()))
}

/// Says no proof on the second stream.
pub fn proving_nothing() -> Act<Tcp> {
    act(|tcp: &mut Tcp| tcp.proof = None)
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
            Rma { len: None, kind: number, flags: 0, slot, words, data: Vec::new(), truncated_at: None };
        falsify(&mut record);
        tcp.write_second(&record.bytes());
    })
}

/// Sends the next byte of HELLO, and never the last one.
pub fn dribble() -> Act<Tcp> {
    act(|tcp: &mut Tcp| {
        let hello = tcp.part().bytes(Kind::Hello);
        if tcp.dribbled + 1 < hello.len() {
            tcp.first.write(&hello[tcp.dribbled..=tcp.dribbled]);
            tcp.dribbled += 1;
        }
    })
}

/// Sends any bytes on the first stream.
pub fn raw(bytes: &'static [u8]) -> Act<Tcp> {
    act(move |tcp: &mut Tcp| tcp.first.write(bytes))
}

/// Sends any bytes on the second stream.
pub fn bulk_raw(bytes: &'static [u8]) -> Act<Tcp> {
    act(move |tcp: &mut Tcp| tcp.write_second(bytes))
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
