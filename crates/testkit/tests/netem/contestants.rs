//! Who carries bytes from one end to the other: one plain TCP stream, and CCI in several ways. All of them wait asleep:
//! the guest has one processor.

use cci::{
    Access, Attribute, Connection, Context, Endpoint, Event, Memory, Options, RegionHandle, Rma, RmaFlags,
    RmaKind, Security, Segment, SendFlags, Status,
};
use cci_testkit::net::{End, Veth};
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

/// Written to the stream at once.
const CHUNK_BYTES: usize = 64 << 10;
/// Of a message: what fits one datagram.
const MESSAGE_BYTES: usize = 1_360;
/// Both ends' key: everybody has it.
const KEY: &str = "netem = 8b1f6a6f0d1c2e0f7a5b3c4d9e8f7061524334251607f8e9dacbbcad9e8f7061\n";
const MESSAGES_UNDER_WAY: u64 = 512;
/// Of a remote write, and how many of them are under way.
const SLOT_BYTES: usize = 128 << 10;
const SLOTS: u64 = 8;
/// Contents repeat after so many messages.
const CONTENTS: usize = 251;
const NAP: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(20);

/// Who carries the bytes.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Contestant {
    /// One stream, written 64 KiB at a time.
    Tcp,
    Ordered,
    Unordered,
    /// RO messages that nobody else can read or forge.
    Sealed,
    /// Remote writes of 128 KiB, each announced by a message, after which its place is written again.
    Writes,
    /// Messages on the device `tcp`.
    OverTcp,
}

/// What both threads see.
#[derive(Default)]
struct Shared {
    bytes: AtomicU64,
    stop: AtomicBool,
    /// The sender has gone.
    over: AtomicBool,
}

impl Contestant {
    /// The one that the others are compared with comes first.
    pub const ALL: [Contestant; 6] = [
        Contestant::Tcp,
        Contestant::Ordered,
        Contestant::Unordered,
        Contestant::Sealed,
        Contestant::Writes,
        Contestant::OverTcp,
    ];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Contestant::Tcp => "plain TCP",
            Contestant::Ordered => "UDP, RO messages",
            Contestant::Unordered => "UDP, RU messages",
            Contestant::Sealed => "UDP, RO messages, sealed (psk)",
            Contestant::Writes => "UDP, remote writes",
            Contestant::OverTcp => "TCP, RO messages",
        }
    }

    /// Bytes that arrived and were right, per second, from A to B.
    pub fn run(self, veth: &Veth, time: Duration) -> f64 {
        let shared = Arc::new(Shared::default());
        let (far, seen) = (veth.namespace(End::B), shared.clone());
        let to = veth.ip(End::B, 0, false);
        let (address, addresses) = std::sync::mpsc::channel();
        let receiver = thread::spawn(move || {
            let _inside = far.enter().expect("as root");
            match self {
                Contestant::Tcp => receive_stream(to, address, &seen),
                _ => self.receive(to, &address, &seen),
            }
        });
        let far = addresses.recv().expect("it listens");
        let (from, sent) = (veth.ip(End::A, 0, false), shared.clone());
        let near = veth.namespace(End::A);
        let sender = thread::spawn(move || {
            let _inside = near.enter().expect("as root");
            match self {
                Contestant::Tcp => send_stream(&far, &sent),
                _ => self.send(from, &far, &sent),
            }
        });
        // Until the first bytes are there, and then some more: how it begins is not measured.
        let start = Instant::now();
        while shared.bytes.load(Ordering::Relaxed) == 0 {
            assert!(start.elapsed() < PATIENCE, "{self:?}: nothing arrives");
            assert!(!receiver.is_finished() && !sender.is_finished(), "{self:?} failed");
            thread::sleep(NAP);
        }
        thread::sleep(time / 4);
        let (before, start) = (shared.bytes.load(Ordering::Relaxed), Instant::now());
        thread::sleep(time);
        let (after, took) = (shared.bytes.load(Ordering::Relaxed), start.elapsed());
        shared.stop.store(true, Ordering::Relaxed);
        sender.join().expect("the sender found nothing wrong");
        shared.over.store(true, Ordering::Relaxed);
        receiver.join().expect("the receiver found nothing wrong");
        (after - before) as f64 / took.as_secs_f64()
    }

    fn open(self, ip: IpAddr) -> Endpoint {
        let transport = if self == Contestant::OverTcp { "tcp" } else { "udp" };
        let text = format!("[n]\ntransport = {transport}\nip = {ip}\n");
        let context = Context::from_text(&text, Path::new("test.ini")).expect("a device");
        let security = (self == Contestant::Sealed).then(|| Security::psk(KEY.as_bytes()).expect("a key"));
        let options = Options::default().security(security);
        Endpoint::create(context.default_device(), options).expect("an endpoint")
    }

    fn attribute(self) -> Attribute {
        match self {
            Contestant::Unordered | Contestant::Writes => Attribute::ReliableUnordered,
            _ => Attribute::ReliableOrdered,
        }
    }

    fn receive(self, ip: IpAddr, address: &Sender<String>, shared: &Shared) {
        let mut endpoint = self.open(ip);
        address.send(endpoint.uri().to_owned()).expect("the other thread waits for it");
        let memory = endpoint.allocate(SLOTS as usize * SLOT_BYTES).expect("memory");
        let handle = endpoint.register(&memory, Access::ALL).expect("a region");
        let (contents, mut found) = (contents(MESSAGE_BYTES), vec![0; SLOT_BYTES]);
        let slots = contents_of_slots();
        while !shared.over.load(Ordering::Relaxed) {
            match endpoint.wait(Some(NAP)).expect("it can wait") {
                Some(Event::ConnectRequest(request)) => endpoint.accept(request, 0).expect("it can accept"),
                Some(Event::Accept { result, .. }) => {
                    let connection = result.expect("a connection");
                    if self == Contestant::Writes {
                        let announced = endpoint.send(connection, &handle.to_bytes(), 0, SendFlags::SILENT);
                        announced.expect("there is room");
                    }
                }
                Some(Event::Recv(message)) if self == Contestant::Writes => {
                    let round = u64::from_le_bytes(message[..8].try_into().expect("a number"));
                    assert!(memory.read((round % SLOTS) as usize * SLOT_BYTES, &mut found));
                    assert!(found == slots[(round % CONTENTS as u64) as usize], "write {round} is right");
                    shared.bytes.fetch_add(SLOT_BYTES as u64, Ordering::Relaxed);
                    // Its place may be written again.
                    let connection = message.connection();
                    while endpoint.send(connection, &message[..8], 0, SendFlags::SILENT).is_err() {
                        endpoint.progress();
                    }
                }
                Some(Event::Recv(message)) => {
                    let number = u64::from_le_bytes(message[..8].try_into().expect("a number"));
                    assert!(
                        message[8..] == contents[(number % CONTENTS as u64) as usize][8..],
                        "message {number}"
                    );
                    shared.bytes.fetch_add(message.len() as u64, Ordering::Relaxed);
                }
                Some(Event::Send { .. }) | None => {}
                Some(other) => panic!("{other:?}"),
            }
        }
    }

    fn send(self, ip: IpAddr, uri: &str, shared: &Shared) {
        let mut endpoint = self.open(ip);
        endpoint.connect(uri, b"", self.attribute(), 0, Some(PATIENCE)).expect("a good URI");
        let connection = loop {
            match endpoint.wait(Some(PATIENCE)).expect("it can wait") {
                Some(Event::Connect { result, .. }) => break result.expect("a connection"),
                other => assert!(other.is_some(), "no connection"),
            }
        };
        if self == Contestant::Writes {
            self.write(&mut endpoint, connection, shared);
        } else {
            self.send_messages(&mut endpoint, connection, shared);
        }
        if std::env::var("CCI_NETEM").is_ok_and(|asked| asked.contains(',')) {
            println!("{}\n{:?}", endpoint.explain(connection).expect("open"), endpoint.counters());
        }
    }

    fn send_messages(self, endpoint: &mut Endpoint, connection: Connection, shared: &Shared) {
        let mut contents = contents(MESSAGE_BYTES);
        let (mut number, mut under_way) = (0u64, 0);
        while !shared.stop.load(Ordering::Relaxed) {
            while under_way < MESSAGES_UNDER_WAY {
                let message = &mut contents[(number % CONTENTS as u64) as usize];
                message[..8].copy_from_slice(&number.to_le_bytes());
                if endpoint.send(connection, message, number, SendFlags::NONE).is_err() {
                    break;
                }
                (number, under_way) = (number + 1, under_way + 1);
            }
            let mut event = endpoint.wait(Some(NAP)).expect("it can wait");
            while let Some(Event::Send { status, .. }) = event {
                assert_eq!(status, Status::Success);
                under_way -= 1;
                event = endpoint.next_event();
            }
            assert!(event.is_none(), "{event:?}");
        }
    }

    fn write(self, endpoint: &mut Endpoint, connection: Connection, shared: &Shared) {
        let source = endpoint.allocate(SLOTS as usize * SLOT_BYTES).expect("memory");
        let local = endpoint.register(&source, Access::LOCAL).expect("a region");
        let remote = loop {
            if let Some(Event::Recv(announced)) = endpoint.wait(Some(PATIENCE)).expect("it can wait") {
                break RegionHandle::from_message(&announced).expect("a handle");
            }
        };
        let slots = contents_of_slots();
        (0..SLOTS).for_each(|round| write(endpoint, connection, round, &source, local, remote, &slots));
        while !shared.stop.load(Ordering::Relaxed) {
            match endpoint.wait(Some(NAP)).expect("it can wait") {
                Some(Event::Recv(done)) => {
                    let round = u64::from_le_bytes(done[..8].try_into().expect("a number")) + SLOTS;
                    write(endpoint, connection, round, &source, local, remote, &slots);
                }
                Some(Event::Send { status, .. }) => assert_eq!(status, Status::Success),
                None => {}
                Some(other) => panic!("{other:?}"),
            }
        }
    }
}

fn write(
    endpoint: &mut Endpoint,
    connection: Connection,
    round: u64,
    source: &Memory,
    local: RegionHandle,
    remote: RegionHandle,
    slots: &[Vec<u8>],
) {
    let offset = round % SLOTS * SLOT_BYTES as u64;
    assert!(source.write(offset as usize, &slots[(round % CONTENTS as u64) as usize]));
    let message = round.to_le_bytes();
    let rma = Rma {
        kind: RmaKind::Write,
        local: &[Segment::new(local, offset, SLOT_BYTES as u64)],
        remote: &[Segment::new(remote, offset, SLOT_BYTES as u64)],
        message: Some(&message),
        context: round,
        flags: RmaFlags::NONE,
    };
    endpoint.rma(connection, &rma).expect("there is room");
}

/// What messages hold, by number.
fn contents(len: usize) -> Vec<Vec<u8>> {
    (0..CONTENTS)
        .map(|number| (0..len).map(|at| (at * 7 + number * 13 + (at >> 8)) as u8).collect())
        .collect()
}

fn contents_of_slots() -> Vec<Vec<u8>> {
    contents(SLOT_BYTES)
}

fn receive_stream(ip: IpAddr, address: Sender<String>, shared: &Shared) {
    let listener = TcpListener::bind((ip, 0)).expect("an address of this namespace");
    address.send(listener.local_addr().expect("bound").to_string()).expect("the other thread waits for it");
    let (mut stream, _) = listener.accept().expect("somebody connects");
    let (chunk, mut found, mut at) = (chunk(), vec![0; CHUNK_BYTES], 0);
    loop {
        let count = stream.read(&mut found).expect("the stream goes on");
        if count == 0 {
            return;
        }
        let mut rest = &found[..count];
        while !rest.is_empty() {
            let (part, more) = rest.split_at(rest.len().min(CHUNK_BYTES - at));
            assert!(*part == chunk[at..at + part.len()], "the stream is right");
            (at, rest) = ((at + part.len()) % CHUNK_BYTES, more);
        }
        shared.bytes.fetch_add(count as u64, Ordering::Relaxed);
    }
}

fn send_stream(to: &str, shared: &Shared) {
    let mut stream = TcpStream::connect(to).expect("it listens");
    let chunk = chunk();
    while !shared.stop.load(Ordering::Relaxed) {
        stream.write_all(&chunk).expect("the stream goes on");
    }
}

fn chunk() -> Vec<u8> {
    (0..CHUNK_BYTES).map(|at| (at * 7 + (at >> 8) * 3) as u8).collect()
}
