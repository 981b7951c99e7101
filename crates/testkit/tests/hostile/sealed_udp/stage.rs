//! Endpoints with keys, and a wire between them that can be listened to.

use cci::{
    Attribute, ConnectFailure, ConnectRequest, Connection, Context, Endpoint, Event, Options, Security,
    SendFlags, Status,
};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

pub const KEY1: &str = "node1 = 0b4a1f2e3d5c6b7a8998a7b6c5d4e3f20112233445566778899aabbccddeeff0\n";
pub const KEY2: &str = "node2 = 1c5b2f3e4d6c7b8a99a8b7c6d5e4f3021223344556677889aabbccddeeff0011\n";
pub const PATIENCE: Duration = Duration::from_secs(20);
/// How long an attempt takes that is to fail.
pub const BRIEF: Duration = Duration::from_millis(400);

pub fn keys(text: &str) -> Security {
    Security::psk(text.as_bytes()).unwrap()
}

pub fn open(security: Option<Security>, service: Option<u16>) -> Endpoint {
    open_with(
        Options::default()
            .security(security)
            .service(service.map(|port| port.to_string()))
            .send_timeout(Duration::from_secs(5)),
    )
}

pub fn open_with(options: Options) -> Endpoint {
    let text = "[u]\ntransport = udp\nip = 127.0.0.1\nmtu = 1500\n";
    let context = Context::from_text(text, Path::new("test.ini")).unwrap();
    Endpoint::create(context.default_device(), options).unwrap()
}

pub fn address(endpoint: &Endpoint) -> SocketAddr {
    let rest = endpoint.uri().strip_prefix("udp://").unwrap();
    rest.split('?').next().unwrap().trim_end_matches('/').parse().unwrap()
}

/// An endpoint that accepts everybody, and what it saw.
pub struct Side {
    pub endpoint: Endpoint,
    /// Connections that opened, or failed to.
    pub made: Vec<Result<Connection, ConnectFailure>>,
    /// Who asked: names, or nothing.
    pub asked: Vec<Option<String>>,
    pub messages: Vec<Vec<u8>>,
    pub ended: Vec<(u64, Status)>,
}

impl Side {
    pub fn new(endpoint: Endpoint) -> Side {
        Side { endpoint, made: Vec::new(), asked: Vec::new(), messages: Vec::new(), ended: Vec::new() }
    }

    pub fn with(keys_text: &str) -> Side {
        Side::new(open(Some(keys(keys_text)), None))
    }

    pub fn poll(&mut self) {
        while let Some(event) = self.endpoint.next_event() {
            match event {
                Event::ConnectRequest(request) => {
                    self.asked.push(request.peer_identity().map(|identity| identity.name().to_owned()));
                    self.endpoint.accept(request, 0).unwrap();
                }
                Event::Connect { result, .. } | Event::Accept { result, .. } => self.made.push(result),
                Event::Recv(message) => self.messages.push(message.to_vec()),
                Event::Send { context, status, .. } => self.ended.push((context, status)),
                Event::Disconnected { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    pub fn dial(&mut self, to: SocketAddr, timeout: Duration) {
        let uri = format!("udp://{to}");
        self.endpoint.connect(&uri, b"hello", Attribute::ReliableOrdered, 0, Some(timeout)).unwrap();
    }

    pub fn last(&self) -> Connection {
        self.made.iter().rev().find_map(|made| made.ok()).expect("a connection")
    }

    pub fn device_counter(&self, name: &str) -> u64 {
        let counters = self.endpoint.counters();
        let of_device = counters.device.iter().find(|(is, _)| *is == name).map(|(_, count)| *count);
        of_device
            .or_else(|| counters.drops.iter().find(|drop| drop.name == name).map(|drop| drop.count))
            .unwrap_or(0)
    }

    pub fn send(&mut self, message: &[u8], context: u64) {
        let connection = self.last();
        self.endpoint.send(connection, message, context, SendFlags::NONE).unwrap();
    }
}

/// Makes everybody go on until `done`, or false after `patience`.
pub fn run(
    sides: &mut [&mut Side],
    tap: &mut Option<Tap>,
    patience: Duration,
    done: impl Fn(&[&mut Side]) -> bool,
) -> bool {
    let until = Instant::now() + patience;
    while !done(sides) {
        sides.iter_mut().for_each(|side| side.poll());
        if let Some(tap) = tap {
            tap.pump();
        }
        if Instant::now() > until {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

/// Lets time pass.
pub fn wait(sides: &mut [&mut Side], tap: &mut Option<Tap>, how_long: Duration) {
    run(sides, tap, how_long, |_| false);
}

/// Connects the first to the second, whose address is given, and checks that both know.
pub fn join(client: &mut Side, server: &mut Side, tap: &mut Option<Tap>) {
    let to = tap.as_ref().map_or_else(|| address(&server.endpoint), |tap| tap.address());
    let (ours, theirs) = (client.made.len(), server.made.len());
    client.dial(to, PATIENCE);
    let both = |sides: &[&mut Side]| sides[0].made.len() > ours && sides[1].made.len() > theirs;
    assert!(run(&mut [client, server], tap, PATIENCE, both), "{:?}", server.endpoint.counters());
    assert!(client.made.last().unwrap().is_ok() && server.made.last().unwrap().is_ok());
}

/// Has the first ask the second to connect, and takes the request before the second's program answers it.
pub fn ask(client: &mut Side, server: &mut Side) -> ConnectRequest {
    client.dial(address(&server.endpoint), PATIENCE);
    let until = Instant::now() + PATIENCE;
    loop {
        client.poll();
        if let Some(Event::ConnectRequest(request)) = server.endpoint.next_event() {
            return request;
        }
        assert!(Instant::now() < until);
    }
}

/// What becomes of an attempt that nobody is to hear of.
pub fn fails(client: &mut Side, server: &mut Side, to: SocketAddr) -> ConnectFailure {
    let asked = server.asked.len();
    client.dial(to, BRIEF);
    let made = client.made.len();
    assert!(run(&mut [client, server], &mut None, PATIENCE, |sides| sides[0].made.len() > made));
    assert_eq!(server.asked.len(), asked, "the program has heard of it");
    client.made.last().unwrap().expect_err("it connected")
}

/// A message there and one back, whole; afterwards neither side waits for a word of the other.
pub fn talk(client: &mut Side, server: &mut Side, tap: &mut Option<Tap>) {
    for len in [0, 1, 100, 1300] {
        let (message, back) = (vec![7; len], vec![9; len]);
        for side in [&mut *client, &mut *server] {
            side.messages.clear();
            side.ended.clear();
        }
        client.send(&message, 1);
        server.send(&back, 2);
        let is_over = |side: &&mut Side| !side.messages.is_empty() && !side.ended.is_empty();
        let both = |sides: &[&mut Side]| sides.iter().all(is_over);
        assert!(run(&mut [client, server], tap, PATIENCE, both), "{len} bytes");
        assert_eq!((&server.messages[0], &client.messages[0]), (&message, &back));
    }
}

/// A wire that is listened to: datagrams pass by way of two sockets, driven by the test.
pub struct Tap {
    front: UdpSocket,
    back: UdpSocket,
    server: SocketAddr,
    /// Who sent to the front last: answers go there.
    client: Option<SocketAddr>,
    /// Answers go to this one whoever else sends, and nothing else passes.
    pub only: Option<SocketAddr>,
    /// Everything, and whether it was for the server.
    pub seen: Vec<(bool, Vec<u8>)>,
    /// Changes datagrams on their way.
    pub meddle: Option<fn(usize, &mut Vec<u8>)>,
}

impl Tap {
    pub fn to(server: SocketAddr) -> Tap {
        let socket = || {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        };
        Tap {
            front: socket(),
            back: socket(),
            server,
            client: None,
            only: None,
            seen: Vec::new(),
            meddle: None,
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.front.local_addr().unwrap()
    }

    pub fn pump(&mut self) {
        let mut bytes = vec![0; 65_536];
        while let Ok((len, from)) = self.front.recv_from(&mut bytes) {
            if self.only.is_some_and(|only| only != from) {
                continue;
            }
            self.client = Some(from);
            let datagram = self.note(true, &bytes[..len]);
            let _ = self.back.send_to(&datagram, self.server);
        }
        while let Ok((len, _)) = self.back.recv_from(&mut bytes) {
            let datagram = self.note(false, &bytes[..len]);
            if let Some(client) = self.client {
                let _ = self.front.send_to(&datagram, client);
            }
        }
    }

    fn note(&mut self, to_server: bool, bytes: &[u8]) -> Vec<u8> {
        let mut datagram = bytes.to_vec();
        if let Some(meddle) = self.meddle {
            meddle(self.seen.len(), &mut datagram);
        }
        self.seen.push((to_server, bytes.to_vec()));
        datagram
    }

    /// Sends what went to the server again, from the address it came from then; the bytes that were answered.
    pub fn replay(&self, server: &mut Side) -> usize {
        replay(
            &self.back,
            self.server,
            self.seen.iter().filter(|(to, _)| *to).map(|(_, bytes)| &bytes[..]),
            server,
        )
    }
}

/// Sends these to an endpoint; the bytes that were answered.
pub fn replay<'a>(
    from: &UdpSocket,
    to: SocketAddr,
    datagrams: impl Iterator<Item = &'a [u8]>,
    server: &mut Side,
) -> usize {
    from.set_nonblocking(true).unwrap();
    let (mut answered, mut bytes) = (0, vec![0; 65_536]);
    let mut listen = |server: &mut Side, how_long| {
        let until = Instant::now() + how_long;
        while Instant::now() < until {
            server.poll();
            while let Ok(len) = from.recv(&mut bytes) {
                answered += len;
            }
        }
    };
    for datagram in datagrams {
        let _ = from.send_to(datagram, to);
        listen(server, Duration::from_micros(100));
    }
    listen(server, Duration::from_millis(300));
    answered
}
