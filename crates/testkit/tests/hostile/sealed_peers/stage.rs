//! Endpoints with credentials, and somebody between two of them who has none.

use cci::{Attribute, ConnectFailure, Connection, Context, Device, Endpoint, Event, Options, SendFlags};
use cci_sys::ethernet::{FrameHeader, FrameSocket, Link};
use cci_sys::packet;
use cci_testkit::credentials;
use std::path::Path;
use std::time::{Duration, Instant};

pub const PATIENCE: Duration = Duration::from_secs(20);
/// What nobody is to hear but who was meant.
pub const SECRET: &[u8] = b"for the peer alone";

/// How peers prove who they are: lines of a device's section.
pub const METHODS: [&str; 2] = ["psk", "certificates"];

/// A device that seals, with more lines.
pub fn device(transport: &str, method: &str, lines: &str) -> Device {
    let files = credentials::folder().display().to_string();
    let how = match method {
        "psk" => format!("psk_file = {files}/cluster.psk"),
        _ => format!(
            "certificate = {files}/node1.pem\nprivate_key = {files}/node1.key\nauthorities = {files}/authority.pem"
        ),
    };
    let text = format!("[d]\ntransport = {transport}\nsecurity = {method}\n{how}\n{lines}\n");
    Context::from_text(&text, Path::new("test.ini")).unwrap().default_device().clone()
}

/// One of loopback.
pub fn local(transport: &str, method: &str, lines: &str) -> Endpoint {
    let device = device(transport, method, &format!("ip = 127.0.0.1\n{lines}"));
    Endpoint::create(&device, Options::default()).unwrap()
}

/// An endpoint whose program accepts everybody, and what it saw.
pub struct Side {
    pub endpoint: Endpoint,
    pub made: Vec<Result<Connection, ConnectFailure>>,
    /// What came with requests, and from whom.
    pub asked: Vec<(Vec<u8>, String)>,
    pub messages: Vec<Vec<u8>>,
}

impl Side {
    pub fn new(endpoint: Endpoint) -> Side {
        Side { endpoint, made: Vec::new(), asked: Vec::new(), messages: Vec::new() }
    }

    pub fn poll(&mut self) {
        while let Some(event) = self.endpoint.next_event() {
            match event {
                Event::ConnectRequest(request) => {
                    let name = request.peer_identity().map_or("nobody", |peer| peer.name()).to_owned();
                    self.asked.push((request.data().to_vec(), name));
                    let _ = self.endpoint.accept(request, 0);
                }
                Event::Connect { result, .. } | Event::Accept { result, .. } => self.made.push(result),
                Event::Recv(message) => self.messages.push(message.to_vec()),
                _ => {}
            }
        }
        if let Some(Ok(connection)) = self.made.last() {
            let _ = self.endpoint.send(*connection, SECRET, 0, SendFlags::SILENT);
        }
    }

    pub fn dial(&mut self, uri: &str, expected: Option<&str>, timeout: Duration) {
        let attribute = Attribute::ReliableOrdered;
        match expected {
            None => self.endpoint.connect(uri, SECRET, attribute, 0, Some(timeout)),
            Some(name) => self.endpoint.connect_expecting(name, uri, SECRET, attribute, 0, Some(timeout)),
        }
        .unwrap();
    }

    pub fn drops(&self, name: &str) -> u64 {
        self.endpoint.counters().drops.iter().find(|drop| drop.name == name).map_or(0, |drop| drop.count)
    }
}

/// Has all go on until `done`; false: it was not in that time.
pub fn run(
    sides: &mut [&mut Side],
    between: &mut dyn Between,
    patience: Duration,
    done: impl Fn(&[&mut Side]) -> bool,
) -> bool {
    let start = Instant::now();
    while !done(sides) {
        sides.iter_mut().for_each(|side| side.poll());
        between.pump();
        if start.elapsed() > patience {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

/// Somebody on the path.
pub trait Between {
    /// Passes on what has come.
    fn pump(&mut self);
    /// Where the victim is to think that its peer is.
    fn uri(&self) -> String;
}

/// Nobody.
pub struct Nobody;

impl Between for Nobody {
    fn pump(&mut self) {}

    fn uri(&self) -> String {
        String::new()
    }
}

/// A mirror of frames, at the other end of the wire.
pub struct EthMirror {
    sockets: [packet::Socket; 2],
    link: Link,
    numbers: [u32; 2],
    victim: ([u8; 6], u32),
}

impl EthMirror {
    pub fn of(victim: &Endpoint, victims_interface: &str, interface: &str) -> EthMirror {
        let link = Link::of(interface).unwrap();
        let numbers = [71, 72];
        let open = |endpoint: u32| {
            let options = packet::Options {
                interface_index: link.index,
                endpoint,
                frame_bytes_max: 1514,
                recv_frames: 64,
                send_frames: 64,
            };
            packet::Socket::open(&options).unwrap()
        };
        let number = victim.uri().rsplit('/').next().unwrap().parse().unwrap();
        let mac = Link::of(victims_interface).unwrap().mac;
        EthMirror { sockets: numbers.map(open), link, numbers, victim: (mac, number) }
    }
}

impl Between for EthMirror {
    fn pump(&mut self) {
        for (from, to) in [(0, 1), (1, 0)] {
            let mut came = Vec::new();
            while let Some(frame) = self.sockets[from].receive() {
                let Ok((header, payload)) = FrameHeader::parse(frame) else { continue };
                if header.from_endpoint == self.victim.1 && header.to == self.link.mac {
                    came.push(payload.to_vec());
                }
            }
            self.sockets[from].release();
            let socket = &mut self.sockets[to];
            for payload in came {
                let header = FrameHeader {
                    to: self.victim.0,
                    from: self.link.mac,
                    to_endpoint: self.victim.1,
                    from_endpoint: self.numbers[to],
                };
                let head = header.emit(payload.len() as u16);
                let Some(frame) = socket.begin(head.len() + payload.len()) else { continue };
                frame[..head.len()].copy_from_slice(&head);
                frame[head.len()..].copy_from_slice(&payload);
                socket.commit(head.len() + payload.len());
            }
            let _ = socket.flush();
        }
    }

    fn uri(&self) -> String {
        let mac: Vec<String> = self.link.mac.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("eth://{}/{}/{}", self.link.name, mac.join(":"), self.numbers[0])
    }
}
