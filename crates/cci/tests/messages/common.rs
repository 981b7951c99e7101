//! Two messengers that are connected, in one thread.

use cci::messages::{Event, Limits, Messenger};
use cci::{Attribute, Connection, Context, Device, Endpoint, Memory, Options};
use std::path::Path;
use std::time::{Duration, Instant};

/// No step of a test takes longer, or it has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

const CONFIG: &str = "\
[shm]
transport = shm
[shm_pull]
transport = shm
direct = off
cma = always
[udp4]
transport = udp
ip = 127.0.0.1
[udp4_small]
transport = udp
ip = 127.0.0.1
mtu = 1500
[tcp4]
transport = tcp
ip = 127.0.0.1
[any]
transport = any
ip = 127.0.0.1
";

pub fn device(name: &str) -> Device {
    Context::from_text(CONFIG, Path::new("test.ini")).unwrap().device(name).unwrap().clone()
}

pub fn endpoint(device_name: &str) -> Endpoint {
    Endpoint::create(&device(device_name), Options::default()).unwrap()
}

pub fn messenger(device_name: &str, limits: Limits) -> Messenger {
    Messenger::new(endpoint(device_name), limits).unwrap()
}

/// One side: a messenger and its end of the connection.
pub struct Side {
    pub messenger: Messenger,
    pub peer: Connection,
}

/// Two messengers with one connection between them.
pub struct Pair {
    pub client: Side,
    pub server: Side,
}

impl Pair {
    pub fn new(device_name: &str, attribute: Attribute) -> Pair {
        Pair::with(device_name, attribute, Limits::default())
    }

    /// `limits` are those of the server.
    pub fn with(device_name: &str, attribute: Attribute, limits: Limits) -> Pair {
        let mut server = messenger(device_name, limits);
        let mut client = messenger(device_name, Limits::default());
        client.connect(server.endpoint().uri(), b"hello", attribute, 1, None).unwrap();
        let (mut to_server, mut to_client) = (None, None);
        let start = Instant::now();
        while to_server.is_none() || to_client.is_none() {
            assert!(start.elapsed() < PATIENCE, "{device_name}: no connection");
            match server.next_event() {
                Some(Event::ConnectRequest(request)) => {
                    assert_eq!(request.data(), b"hello");
                    server.accept(request, 2).unwrap();
                }
                Some(Event::Accept { context: 2, result }) => to_client = Some(result.unwrap()),
                Some(event) => panic!("{event:?}"),
                None => {}
            }
            match client.next_event() {
                Some(Event::Connect { context: 1, result }) => to_server = Some(result.unwrap()),
                Some(event) => panic!("{event:?}"),
                None => {}
            }
        }
        Pair {
            client: Side { messenger: client, peer: to_server.unwrap() },
            server: Side { messenger: server, peer: to_client.unwrap() },
        }
    }

    /// Takes events of both sides until `done` returns something.
    pub fn run<T>(&mut self, mut done: impl FnMut(&mut Side, At, Event) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < PATIENCE, "it did not happen in {PATIENCE:?}");
            for (side, at) in [(&mut self.client, At::Client), (&mut self.server, At::Server)] {
                if let Some(event) = side.messenger.next_event()
                    && let Some(result) = done(side, at, event)
                {
                    return result;
                }
            }
        }
    }

    /// Takes events of both sides until `is_done`, and expects none but those that `handle` takes.
    pub fn run_until(&mut self, mut handle: impl FnMut(&mut Side, At, Event) -> bool) {
        self.run(|side, at, event| handle(side, at, event).then_some(()));
    }

    /// Lets both sides work for a while, in which nothing happens that a program would learn of.
    pub fn idle(&mut self) {
        for _ in 0..2_000 {
            for side in [&mut self.client, &mut self.server] {
                if let Some(event) = side.messenger.next_event() {
                    panic!("unexpected {event:?}");
                }
            }
        }
    }
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum At {
    Client,
    Server,
}

/// Bytes that are different at every place and for every seed.
pub fn contents(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 977 + seed * 101) as u8).collect()
}

/// Memory of the library with something in it.
pub fn filled(messenger: &mut Messenger, bytes: &[u8]) -> Memory {
    let memory = messenger.allocate(bytes.len().max(1)).unwrap();
    assert!(memory.write(0, bytes));
    memory
}
