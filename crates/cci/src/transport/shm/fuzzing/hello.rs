//! The handshake over the UNIX socket, from both sides: false clients of a server and a false server of a client send every
//! message and every descriptor at the wrong time.

use super::menu::Menu;
use crate::config::builtin;
use crate::fuzzing::Script;
use crate::transport::shm::scripted::{OWN, RING_BYTES};
use crate::transport::shm::wire::{Accept, BYTES_MAX, Message, Offer, PeerConn, Request};
use crate::{Attribute, ConnectFailure, Endpoint, Event, Options};
use cci_sys::unix::{Listener, Name, Stream};
use std::time::{Duration, Instant};

const STEPS_MAX: usize = 200;
const STREAMS_MAX: usize = 4;

struct Scene {
    endpoint: Endpoint,
    /// The name at which the endpoint listens.
    name: Name,
    /// The socket to which the endpoint connects.
    listener: Listener,
    uri: String,
    streams: Vec<Stream>,
    menu: Menu,
    dialled: u32,
}

/// Runs a script with an endpoint, and with strangers at the other side of its handshakes. When all strangers have gone, nothing
/// of them may be left.
pub fn shm_handshake(data: &[u8]) {
    let mut script = Script(data);
    let options = Options { recv_buffers: 16, send_buffers: 16, rma_operations: 16, ..Options::default() };
    let endpoint = Endpoint::create(&builtin::shm("shm"), options).unwrap();
    let address = super::name::parse_uri(endpoint.uri()).unwrap();
    // A name made from the endpoint's, so that several runs do not meet.
    let uri = format!("{}-liar", endpoint.uri());
    let listener = Listener::bind(&super::name::parse_uri(&uri).unwrap().name).unwrap();
    let menu = Menu::new();
    let (name, streams) = (address.name, Vec::new());
    let mut scene = Scene { endpoint, name, listener, uri, streams, menu, dialled: 0 };
    for _ in 0..STEPS_MAX {
        if script.is_empty() {
            break;
        }
        scene.step(&mut script);
    }
    scene.end();
}

impl Scene {
    fn step(&mut self, script: &mut Script<'_>) {
        match script.byte() % 12 {
            0 if self.streams.len() < STREAMS_MAX => self.streams.extend(Stream::connect(&self.name)),
            1 if self.dialled < 4 => {
                self.dialled += 1;
                let attribute = Attribute::ReliableOrdered;
                let _ = self.endpoint.connect(&self.uri, b"", attribute, 7, Some(Duration::from_secs(5)));
            }
            2 => {
                if let Ok(Some(stream)) = self.listener.accept() {
                    self.streams.push(stream);
                }
            }
            3 if !self.streams.is_empty() => {
                let at = usize::from(script.byte()) % self.streams.len();
                self.streams.swap_remove(at);
            }
            4 | 5 => self.poll(script.byte() & 1 == 0),
            6 => {
                let _ = self.endpoint.wait(Some(Duration::ZERO));
            }
            _ => self.send_record(script),
        }
    }

    fn poll(&mut self, accepts: bool) {
        match self.endpoint.next_event() {
            Some(Event::ConnectRequest(request)) if accepts => drop(self.endpoint.accept(request, 1)),
            // A request that is dropped counts as refused.
            Some(Event::ConnectRequest(_)) | None => {}
            Some(
                Event::Accept { result: Ok(connection), .. } | Event::Connect { result: Ok(connection), .. },
            ) => {
                self.endpoint.disconnect(connection);
            }
            Some(_) => {}
        }
    }

    fn send_record(&mut self, script: &mut Script<'_>) {
        let (which, kind, how) = (script.byte(), script.byte(), script.byte());
        let mut buffer = [0; BYTES_MAX];
        let Some(stream) = self.streams.get(usize::from(which) % self.streams.len().max(1)) else { return };
        let heard = stream.recv(&mut buffer, 2).map_or(0, |received| received.len);
        let conn = PeerConn { index: u32::from(how & 3), generation: u32::from(how >> 2 & 1) };
        // The link that the server has just offered, or another.
        let link_id = buffer.get(16..24).filter(|_| heard > 24).and_then(|id| id.try_into().ok());
        let link_id = link_id.map_or(u64::from(how), u64::from_ne_bytes);
        let ring_bytes = if how & 0x40 == 0 { RING_BYTES } else { script.odd_u64() as u32 };
        let attribute = [Attribute::ReliableOrdered, Attribute::Unreliable][usize::from(how & 1)];
        let request = Request { endpoint: u64::from(how >> 5), conn: OWN, mss: 4096, attribute };
        let accept = |offer| Message::Accept(Accept { endpoint: 1, link_id, conn, mss: 4096, offer });
        let hello = match kind % 12 {
            0..=2 => Message::Request(request, b"let me in"),
            3 => accept(Offer::New { ring_bytes }),
            4 => accept(Offer::Join { server_made_it: how & 0x20 == 0 }),
            5 | 6 => Message::Confirm { ring_bytes },
            7 => Message::Refuse(ConnectFailure::NoMemory),
            8 => Message::NoLink,
            9 => Message::Who,
            10 => Message::Shown,
            _ => {
                let len = usize::from(script.byte());
                let bytes = script.take(len);
                let fds = self.menu.pick(script);
                if !bytes.is_empty() {
                    let _ = stream.send(bytes, &fds);
                }
                return;
            }
        };
        let mut bytes = hello.bytes().as_slice().to_vec();
        if how & 0x80 != 0 {
            let at = usize::from(script.byte()) % bytes.len();
            bytes[at] ^= script.byte();
        }
        let fds = self.menu.pick(script);
        let _ = stream.send(&bytes, &fds);
    }

    /// Closes all streams, and waits until everything is given back.
    fn end(mut self) {
        self.streams.clear();
        drop(self.listener);
        let (start, mut quiet) = (Instant::now(), 0);
        while quiet < 20 {
            assert!(start.elapsed() < Duration::from_secs(10), "{:?}", self.endpoint.counters());
            match self.endpoint.next_event() {
                Some(Event::ConnectRequest(_)) => {}
                Some(
                    Event::Accept { result: Ok(connection), .. }
                    | Event::Connect { result: Ok(connection), .. },
                ) => self.endpoint.disconnect(connection),
                _ => {}
            }
            let counters = self.endpoint.counters();
            let rings = counters.memory.kinds.iter().find(|(kind, _)| *kind == "rings");
            let idle = counters.connections_open == 0 && rings.is_none_or(|(_, bytes)| *bytes == 0);
            quiet = if idle { quiet + 1 } else { 0 };
        }
    }
}
