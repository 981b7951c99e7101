//! Streams of peers that may send anything: to an endpoint that listens or dials, after an honest handshake or instead of one,
//! and over the second stream of a connection. The streams may be cut anywhere.

use crate::config::ini;
use crate::fuzzing::{Script, with_handle};
use crate::transport::tcp::preamble::{Preamble, Ticket};
use crate::transport::tcp::wire::{Header, Kind};
use crate::{
    Access, Attribute, Connection, Device, Endpoint, Event, Foreign, Memory, Options, Polled, RegionHandle,
};
use cci_secure::{Challenge, NONCE_BYTES, PROOF_BYTES, Prover};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(10);
const STEPS_MAX: usize = 200;

fn device() -> &'static Device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    let text = "[t]\ntransport = tcp\nip = 127.0.0.1\n";
    DEVICE.get_or_init(|| ini::devices(text, Path::new("fuzz.ini")).unwrap().remove(0))
}

/// The endpoint, and the streams whose other ends belong to the test.
struct Scene {
    endpoint: Endpoint,
    handle: RegionHandle,
    streams: Vec<TcpStream>,
    /// The endpoint's output that was read.
    heard: Vec<u8>,
    connections: Vec<Connection>,
    /// Whether the last poll was by a handler.
    was_handled: bool,
}

/// The first byte says how the scene begins; then come lengths and bytes. When all streams have ended, the connections must have
/// ended as well.
pub fn tcp_peer(data: &[u8]) {
    let mut script = Script(data);
    let how = script.byte();
    let options = Options { recv_buffers: 8, send_buffers: 16, rma_operations: 16, ..Options::default() };
    let mut endpoint = Endpoint::create(device(), options).unwrap();
    let memory = Memory::foreign(Foreign::owned(vec![0x11; 4096].into_boxed_slice()));
    let handle = endpoint.register(&memory, Access::ALL).unwrap();
    let (streams, heard, connections) = (Vec::new(), Vec::new(), Vec::new());
    let mut scene = Scene { endpoint, handle, streams, heard, connections, was_handled: false };
    let attribute = if how & 0x40 == 0 { Attribute::ReliableOrdered } else { Attribute::Unreliable };
    match how % 4 {
        // Nothing is sent yet.
        0 => scene.dial(),
        1 => scene.accepted(attribute),
        2 => scene.dialled(attribute, how & 0x80 == 0),
        _ => {
            scene.accepted(attribute);
            scene.second();
        }
    }
    for _ in 0..STEPS_MAX {
        if script.is_empty() {
            break;
        }
        scene.step(&mut script);
    }
    scene.end();
}

impl Scene {
    fn dial(&mut self) {
        let stream = TcpStream::connect(self.endpoint.uri().strip_prefix("tcp://").unwrap()).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream.set_nodelay(true).unwrap();
        self.streams.push(stream);
    }

    /// Takes an event, or has a handler called once, in turns.
    fn poll(&mut self) {
        let mut event = None;
        self.was_handled = !self.was_handled;
        if !self.was_handled {
            event = self.endpoint.next_event();
        } else {
            self.endpoint.poll(1, |polled| match polled {
                Polled::Event(other) => event = Some(other),
                Polled::Message(message) => drop(message.keep()),
            });
        }
        match event {
            Some(Event::ConnectRequest(request)) => drop(self.endpoint.accept(request, 1)),
            Some(Event::Accept { result: Ok(on), .. } | Event::Connect { result: Ok(on), .. }) => {
                self.connections.push(on);
            }
            _ => {}
        }
    }

    /// Reads the last stream until `len` bytes have come, or for a moment.
    fn hear(&mut self, len: usize) {
        let start = Instant::now();
        let mut buffer = [0; 4096];
        while self.heard.len() < len && start.elapsed() < Duration::from_millis(200) {
            self.poll();
            let Some(stream) = self.streams.last_mut() else { return };
            match stream.read(&mut buffer) {
                Ok(0) => return,
                Ok(got) => self.heard.extend_from_slice(&buffer[..got]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(stream) = self.streams.last_mut() {
            let _ = stream.write(bytes);
        }
    }

    /// An honest handshake, written out byte for byte.
    fn accepted(&mut self, attribute: Attribute) {
        self.dial();
        self.write(&Preamble::Hello { attribute, mss: 8192, payload: Some(b"hi".to_vec()) }.bytes());
        self.hear(Preamble::Heard.bytes().len() + 40);
        self.write(&Header { kind: Kind::Confirm, len: 0, ack: 0 }.bytes());
        for _ in 0..3 {
            self.poll();
        }
    }

    /// The second stream of that connection, by the ticket that the endpoint gave.
    fn second(&mut self) {
        let answer = self.heard.get(Preamble::Heard.bytes().len()..).unwrap_or_default();
        let Ok(Preamble::Accept { ticket, .. }) = Preamble::parse(answer) else { return };
        self.dial();
        let dialler = [5; NONCE_BYTES];
        self.write(&Preamble::Bulk { key: ticket.key, nonce: dialler }.bytes());
        self.heard.clear();
        self.hear(8 + NONCE_BYTES + PROOF_BYTES);
        if let Ok(Preamble::Challenge { nonce: acceptor, .. }) = Preamble::parse(&self.heard) {
            let challenge = Challenge { key: ticket.key, dialler, acceptor };
            let proof = challenge.prove(&ticket.secret, Prover::Dialler);
            self.write(&Preamble::Proof { proof }.bytes());
        }
        for _ in 0..3 {
            self.poll();
        }
    }

    /// The endpoint dials; the server is ours.
    fn dialled(&mut self, attribute: Attribute, answers: bool) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let uri = format!("tcp://{at}");
        self.endpoint.connect(&uri, b"hello", attribute, 3, Some(Duration::from_secs(5))).unwrap();
        let (stream, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        self.streams.push(stream);
        if answers {
            self.hear(16);
            let ticket = Ticket { key: 7, secret: [7; 16] };
            let accept = Preamble::Accept { mss: 8192, port: at.port(), ticket };
            self.write(&[Preamble::Heard.bytes(), accept.bytes()].concat());
            for _ in 0..3 {
                self.poll();
            }
        }
    }

    fn step(&mut self, script: &mut Script<'_>) {
        match script.byte() % 8 {
            0 => self.poll(),
            1 => {
                for on in &self.connections {
                    let _ = self.endpoint.send(*on, &[5; 100], 9, crate::SendFlags::NONE);
                }
                self.endpoint.progress();
            }
            2 => {
                self.heard.clear();
                let mut buffer = [0; 4096];
                if let Some(stream) = self.streams.last_mut() {
                    let _ = stream.read(&mut buffer);
                }
            }
            // A record that is right in form.
            3 | 4 => {
                let kinds = [
                    Kind::Message,
                    Kind::Ack,
                    Kind::NotReady,
                    Kind::Ready,
                    Kind::Resume,
                    Kind::Ping,
                    Kind::Pong,
                    Kind::Closing,
                    Kind::Close,
                    Kind::Confirm,
                    Kind::AskBulk,
                ];
                let kind = kinds[usize::from(script.byte()) % kinds.len()];
                let len = match kind {
                    Kind::Message => u16::from(script.byte()) * 4,
                    Kind::Ready => 4,
                    _ => 0,
                };
                let ack = script.odd_u64() as u32;
                let mut bytes = Header { kind, len, ack }.bytes().to_vec();
                bytes.resize(bytes.len() + usize::from(len), 3);
                self.write(&bytes);
                self.poll();
            }
            5 if self.streams.len() < 4 => self.dial(),
            _ => {
                let len = usize::from(script.byte());
                let bytes = with_handle(script.take(len), &self.handle);
                self.write(&bytes);
                self.poll();
            }
        }
    }

    fn end(mut self) {
        self.streams.clear();
        let (start, mut quiet) = (Instant::now(), 0);
        while quiet < 5 {
            assert!(start.elapsed() < PATIENCE, "{:?}", self.endpoint.counters());
            self.poll();
            for on in self.connections.drain(..) {
                self.endpoint.disconnect(on);
            }
            quiet = if self.endpoint.counters().connections_open == 0 { quiet + 1 } else { 0 };
        }
    }
}
