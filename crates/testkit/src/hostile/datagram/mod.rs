//! A hostile peer that speaks the datagram protocol, over UDP or in frames of Ethernet, in the clear.
//!
//! [`client`] is a script up to the open connection. [`ack`], [`data`] and [`send`] fill in the header as an honest peer would:
//! the closure falsifies its fields. Nothing is acknowledged that no rule acknowledges: `.on(Kind::Data, ack(honestly))`.

mod carrier;
mod wire;

pub use carrier::Carrier;
pub use wire::{Head, Kind, Record, Shake, VERSION, flag};

use super::script::{Act, Script, Site, Wire, act};
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::time::Instant;
use wire::{Came, u32_at};

/// Nanoseconds in a unit of timestamps.
const TIMESTAMP_NS: u128 = 64;
/// The longest datagram there is.
const DATAGRAM_BYTES_MAX: usize = 1 << 16;
const NONCE: u64 = 0x0abc_def0_1234_5678;

/// The state of a hostile peer that speaks datagrams.
pub struct Datagrams {
    /// Sends and receives.
    pub carrier: Carrier,
    /// What is known of the handshake.
    pub shake: Shake,
    /// This peer dialled.
    is_client: bool,
    listens: bool,
    /// Region and key of the victim's region.
    pub region: [u64; 2],
    /// The number of the next bundle.
    pub seq: u32,
    came: Came,
    /// The header of the datagram that came last, with its body.
    pub head: Head,
    /// The record that came last.
    pub record: Record,
    records: VecDeque<(Kind, Record)>,
    /// The epoch in which the victim takes bundles.
    pub epoch: u16,
    /// The timestamp to be echoed, and when it came.
    echo: (u32, Instant),
    clock: Instant,
    buffer: Vec<u8>,
    /// The datagram that came last, as it came.
    pub last: Vec<u8>,
    /// For scripts to remember something in; 0 at first.
    pub mark: u32,
    noise: u64,
}

impl Wire for Datagrams {
    type Kind = Kind;

    fn open(site: &Site) -> io::Result<Datagrams> {
        let handle = site.region.to_bytes();
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| handle[at + byte]));
        let shake = Shake {
            version: VERSION,
            index: 3,
            generation: 5,
            nonce: NONCE ^ site.number,
            first_seq: 1_000,
            datagram_bytes_max: 1_472,
            window_kib: 256,
            payload: site.request(),
            server_index: 3,
            server_generation: 5,
            server_nonce: NONCE ^ site.number,
            ..Shake::default()
        };
        let now = Instant::now();
        Ok(Datagrams {
            carrier: Carrier::open(&site.uri, site.number)?,
            seq: shake.first_seq,
            shake,
            is_client: true,
            listens: false,
            region: [word(0), word(16)],
            came: Came::default(),
            head: Head::default(),
            record: Record::new(Kind::Message, 0, &[], &[]),
            records: VecDeque::new(),
            epoch: 0,
            echo: (0, now),
            clock: now,
            buffer: vec![0; DATAGRAM_BYTES_MAX],
            last: Vec::new(),
            mark: 0,
            noise: 0x9e37_79b9_7f4a_7c15 ^ site.number,
        })
    }

    fn take(&mut self) -> Option<Kind> {
        if let Some((kind, record)) = self.records.pop_front() {
            self.record = record;
            return Some(kind);
        }
        let len = self.carrier.recv(&mut self.buffer)?;
        self.last = self.buffer.get(..len).unwrap_or_default().to_vec();
        let kind = Kind::of(self.last.first().copied().unwrap_or(0));
        self.learn(kind);
        Some(kind)
    }

    fn uri(&self) -> Option<String> {
        self.carrier.uri().filter(|_| self.listens)
    }
}

impl Datagrams {
    fn learn(&mut self, kind: Kind) {
        self.shake.learn(kind, &self.last);
        match kind {
            // The first bundle of the other side, which this side has not had.
            Kind::Accept => self.came.next = u32_at(&self.last, 28),
            Kind::Connect => self.came.next = u32_at(&self.last, 36),
            Kind::Data | Kind::Ack | Kind::Ping | Kind::Close | Kind::CloseAck | Kind::Path => {
                self.head = Head::read(&self.last);
                self.epoch = self.head.epoch_ack;
                if kind == Kind::Data {
                    self.came.enter(self.head.seq);
                    self.echo = (self.head.timestamp, Instant::now());
                    if self.head.flags & flag::PART == 0 {
                        self.records.extend(Record::read(&self.head.body));
                    }
                }
            }
            _ => {}
        }
    }

    fn timestamp(&self) -> u32 {
        (self.clock.elapsed().as_nanos() / TIMESTAMP_NS) as u32
    }

    /// The header of a datagram of this kind, as an honest peer fills it in.
    pub fn header(&self, kind: Kind) -> Head {
        let shake = &self.shake;
        let (client, server) = (
            (shake.index, shake.generation, shake.nonce),
            (shake.server_index, shake.server_generation, shake.server_nonce),
        );
        let (own, theirs) = if self.is_client { (client, server) } else { (server, client) };
        let waited = (self.echo.1.elapsed().as_nanos() / TIMESTAMP_NS) as u32;
        Head {
            version: VERSION,
            kind: kind.number(),
            index: theirs.0,
            generation: theirs.1,
            source_index: own.0,
            nonce: theirs.2,
            seq: self.seq,
            ack: self.came.next,
            timestamp: self.timestamp(),
            echo: self.echo.0.wrapping_add(waited),
            window_kib: self.shake.window_kib,
            epoch: self.epoch,
            words: self.came.words(),
            ..Head::default()
        }
    }

    /// Sends any bytes as a datagram.
    pub fn send(&mut self, datagram: &[u8]) {
        self.carrier.send(datagram);
    }

    /// The next pseudo-random number: the same ones in each run.
    pub fn random(&mut self) -> u64 {
        self.noise ^= self.noise << 13;
        self.noise ^= self.noise >> 7;
        self.noise ^= self.noise << 17;
        self.noise
    }
}

/// Sends a datagram of the handshake.
pub fn shake(kind: Kind, falsify: impl Fn(&mut Shake) + 'static) -> Act<Datagrams> {
    act(move |peer: &mut Datagrams| {
        let mut shake = peer.shake.clone();
        shake.timestamp = peer.timestamp();
        falsify(&mut shake);
        peer.is_client = matches!(kind, Kind::Hello | Kind::Connect);
        peer.send(&shake.bytes(kind));
    })
}

/// Sends a datagram of the open connection that is no bundle.
pub fn send(kind: Kind, falsify: impl Fn(&mut Head) + 'static) -> Act<Datagrams> {
    send_by(kind, move |head, _| falsify(head))
}

/// Sends a datagram of the open connection with a lie that depends on what came.
pub fn send_by(kind: Kind, falsify: impl Fn(&mut Head, &mut Datagrams) + 'static) -> Act<Datagrams> {
    act(move |peer: &mut Datagrams| {
        let mut head = peer.header(kind);
        falsify(&mut head, peer);
        peer.send(&head.bytes());
    })
}

/// Acknowledges all that has come.
pub fn ack(falsify: impl Fn(&mut Head) + 'static) -> Act<Datagrams> {
    send(Kind::Ack, falsify)
}

/// Sends a bundle of the records that the closure makes.
pub fn data(
    records: impl Fn(&Datagrams) -> Vec<Record> + 'static,
    falsify: impl Fn(&mut Head) + 'static,
) -> Act<Datagrams> {
    act(move |peer: &mut Datagrams| {
        let mut head = peer.header(Kind::Data);
        head.body = records(peer).iter().flat_map(Record::bytes).collect();
        falsify(&mut head);
        peer.seq = peer.seq.wrapping_add(1);
        peer.send(&head.bytes());
    })
}

/// Sends the part `number` of the bundle that comes next, whose parts are `stride_bytes` long.
pub fn part(
    bundle: Vec<u8>,
    number: u16,
    stride_bytes: u16,
    falsify: impl Fn(&mut Head, &mut Datagrams) + 'static,
) -> Act<Datagrams> {
    send_by(Kind::Data, move |head, peer| {
        head.flags |= flag::PART;
        let words = [number, stride_bytes / 8, bundle.len() as u16 / 8, 0];
        head.body = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let data = bundle.chunks(stride_bytes.into()).nth(number.into()).unwrap_or_default();
        head.body.extend_from_slice(data);
        falsify(head, peer);
    })
}

/// Sends what came last once more.
pub fn reflect() -> Act<Datagrams> {
    act(|peer: &mut Datagrams| {
        let last = std::mem::take(&mut peer.last);
        peer.send(&last);
    })
}

/// Waits for the victim to connect.
pub fn listen() -> Act<Datagrams> {
    act(|peer: &mut Datagrams| peer.listens = true)
}

/// Sends everything from this address from now on.
pub fn from_address(ip: IpAddr) -> Act<Datagrams> {
    act(move |peer: &mut Datagrams| peer.carrier.rebind(ip))
}

/// Sends everything by an interface of another VLAN from now on: the kernel carries the tag beside the frame. Takes `ip`.
pub fn enter_vlan(number: u16) -> Act<Datagrams> {
    act(move |peer: &mut Datagrams| peer.carrier.enter_vlan(number))
}

/// Writes a VLAN tag into each frame from now on.
pub fn write_tag(number: u16) -> Act<Datagrams> {
    act(move |peer: &mut Datagrams| peer.carrier.write_tag(number))
}

/// Sends every frame in the name of another interface from now on.
pub fn spoof(mac: [u8; 6]) -> Act<Datagrams> {
    act(move |peer: &mut Datagrams| peer.carrier.spoof(mac))
}

/// As the header says.
pub fn honestly<T>(_: &mut T) {}

/// A client up to the open connection.
pub fn client() -> Script<Datagrams> {
    client_that(honestly)
}

/// A client whose request has falsified fields.
pub fn client_that(falsify: impl Fn(&mut Shake) + 'static) -> Script<Datagrams> {
    let script = Script::new().now(shake(Kind::Hello, honestly)).expect(Kind::Retry);
    script.now(shake(Kind::Connect, falsify)).expect(Kind::Accept).now(send(Kind::Ping, honestly))
}

/// A server up to the open connection.
pub fn server(falsify: impl Fn(&mut Shake) + 'static) -> Script<Datagrams> {
    let script = Script::new().now(listen()).expect(Kind::Hello).now(shake(Kind::Retry, honestly));
    script.expect(Kind::Connect).now(shake(Kind::Accept, falsify)).expect(Kind::Ping)
}
