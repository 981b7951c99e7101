//! Sealed peers that send parts of records, or read nothing: what they hold is bounded and has a time, and nobody else
//! notices.

use super::crowds::dial_from;
use super::hostile::{RO, hello, record};
use super::{PATIENCE, address, connect, device, dropped};
use crate::device::{DeviceInfo, TransportKind};
use crate::sealing::Sealing;
use crate::transport::tcp::preamble::Preamble;
use crate::transport::tcp::wire::Kind;
use crate::{
    Access, Connection, Endpoint, Event, Memory, Options, RegionAddress, RegionHandle, RmaFlags, Security,
    SendFlags, Status,
};
use cci_secure::limits::{RECORD_HEADER_BYTES, TAG_BYTES};
use cci_secure::{EndpointId, SealedStream, StreamConfig, UpdateLimits};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const KEY: &[u8] = b"a = 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";
const CAP_BYTES: u64 = 4 << 20;
/// What sealed streams may keep of that, and the two buffers that they work in.
const SEALED_BYTES_MAX: u64 = CAP_BYTES / 8 + (128 << 10);
/// More than there are buffers under that cap.
const MANY: usize = 40;
/// In so many polls of the server a message of an honest peer has come, whatever others do.
const POLLS_MAX: u32 = 1_000;
const HERE: [u8; 4] = [127, 0, 0, 1];
const ELSEWHERE: [u8; 4] = [127, 0, 0, 2];

fn options() -> Options {
    Options {
        security: Some(Security::psk(KEY).unwrap()),
        send_timeout: Duration::from_millis(700),
        ..Options::default()
    }
}

/// A server that has little memory.
fn server() -> Endpoint {
    let poor = Options { recv_buffers: 64, send_buffers: 2048, rma_operations: 16, ..options() };
    Endpoint::create(&device(), Options { memory_bytes_max: CAP_BYTES, ..poor }).unwrap()
}

/// A scripted peer that seals what it sends.
struct Peer {
    stream: TcpStream,
    sealed: SealedStream,
    came: Vec<u8>,
    plain: Vec<u8>,
}

impl Peer {
    /// Shakes hands, and says nothing of what follows.
    fn dial(server: &mut Endpoint, ip: [u8; 4]) -> Peer {
        let mut peer = Peer::begin(server, ip, &options());
        let start = Instant::now();
        while !peer.sealed.is_open() {
            assert!(server.next_event().is_none() && start.elapsed() < PATIENCE);
            peer.hear();
            let received = std::mem::take(peer.sealed.outgoing());
            peer.stream.write_all(&received).unwrap();
        }
        peer
    }

    /// Says the first words of a handshake, and no more.
    fn begin(server: &Endpoint, ip: [u8; 4], options: &Options) -> Peer {
        let info = DeviceInfo::new("t".to_owned(), TransportKind::Tcp);
        let sealing = Sealing::of(&info, options).unwrap().unwrap();
        let config = StreamConfig {
            credentials: sealing.credentials,
            authorisation: sealing.authorisation,
            update: UpdateLimits::default(),
            own: EndpointId::random().unwrap(),
        };
        let stream = dial_from(ip, address(server));
        stream.set_nonblocking(true).unwrap();
        let sealed = SealedStream::dial(&config, None).unwrap();
        let mut peer = Peer { stream, sealed, came: Vec::new(), plain: Vec::new() };
        let received = std::mem::take(peer.sealed.outgoing());
        peer.stream.write_all(&received).unwrap();
        peer
    }

    /// A connection that the server has accepted, as the server knows it.
    fn join(server: &mut Endpoint, ip: [u8; 4]) -> (Peer, Connection) {
        let mut peer = Peer::dial(server, ip);
        let hello = peer.seal(&hello());
        peer.stream.write_all(&hello).unwrap();
        let (answer_bytes, start) = (Preamble::Heard.bytes().len() + 40, Instant::now());
        let mut is_confirmed = false;
        loop {
            match server.next_event() {
                Some(Event::ConnectRequest(request)) => server.accept(request, 0).unwrap(),
                Some(Event::Accept { result, .. }) => return (peer, result.unwrap()),
                _ => {}
            }
            peer.hear();
            if peer.plain.len() >= answer_bytes && !is_confirmed {
                let confirm = peer.seal(&record(Kind::Confirm, 0, b""));
                peer.stream.write_all(&confirm).unwrap();
                is_confirmed = true;
            }
            assert!(start.elapsed() < PATIENCE, "{:?}", server.counters());
        }
    }

    fn seal(&mut self, body: &[u8]) -> Vec<u8> {
        let mut record = [&[0; RECORD_HEADER_BYTES], body, &[0; TAG_BYTES]].concat();
        assert!(self.sealed.seal(&mut record, 0));
        record
    }

    /// Takes what came. Returns false if the server has closed.
    fn hear(&mut self) -> bool {
        let mut some = [0; 4096];
        let open = match self.stream.read(&mut some) {
            Ok(0) => false,
            Ok(len) => {
                self.came.extend_from_slice(&some[..len]);
                true
            }
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        };
        while let Ok(wanted) = self.sealed.wanted(&self.came)
            && wanted <= self.came.len()
        {
            let mut part: Vec<u8> = self.came.drain(..wanted).collect();
            if self.sealed.is_open() {
                self.plain.extend_from_slice(self.sealed.open(&mut part).unwrap());
            } else {
                self.sealed.shake(&part, 0).unwrap();
            }
        }
        open
    }
}

/// An honest connection that sends messages and answers, and how many polls of the server each has taken.
struct Honest {
    endpoint: Endpoint,
    to_server: Connection,
    of_client: Connection,
    polls_max: u32,
}

impl Honest {
    fn join(server: &mut Endpoint) -> Honest {
        Honest::join_by(server, options())
    }

    fn join_by(server: &mut Endpoint, options: Options) -> Honest {
        let mut endpoint = Endpoint::create(&device(), options).unwrap();
        let (to_server, of_client) = connect(&mut endpoint, server, RO).unwrap();
        Honest { endpoint, to_server, of_client, polls_max: 0 }
    }

    /// Messages of many lengths go there, and one comes back for each.
    fn talk(&mut self, server: &mut Endpoint, messages: usize) {
        let body = |number: usize| vec![number as u8; number * 1_237 % 8_193];
        let (mut sent, mut back, mut polls) = (0, 0, 0);
        while back < messages {
            while sent < messages && sent < back + 8 {
                let (to, message) = (self.to_server, body(sent));
                match self.endpoint.send(to, &message, 0, SendFlags::SILENT) {
                    Ok(()) => sent += 1,
                    Err(error) => {
                        assert!(self.endpoint.is_open(to), "ended after {back}: {error}");
                        break;
                    }
                }
            }
            match server.next_event() {
                Some(Event::Recv(message)) if message.connection() == self.of_client => {
                    assert!(server.send(self.of_client, &message, 0, SendFlags::SILENT).is_ok());
                }
                Some(Event::Send { status, .. }) => assert_eq!(status, Status::Success),
                _ => {}
            }
            polls += 1;
            while let Some(event) = self.endpoint.next_event() {
                if let Event::Recv(message) = event {
                    assert!(*message == *body(back), "message {back}");
                    self.polls_max = self.polls_max.max(polls);
                    (back, polls) = (back + 1, 0);
                }
            }
            assert!(polls < POLLS_MAX, "message {back}: {:?}", server.counters());
            assert!(server.is_open(self.of_client) && self.endpoint.is_open(self.to_server));
        }
    }
}

fn kind_bytes(server: &Endpoint, kind: &str) -> u64 {
    let memory = server.counters().memory;
    assert!(memory.total_bytes <= CAP_BYTES, "{memory:?}");
    memory.kinds.iter().find(|(name, _)| *name == kind).map_or(0, |(_, bytes)| *bytes)
}

fn progress(server: &mut Endpoint, polls: u32) {
    for _ in 0..polls {
        server.progress();
    }
}

/// A crowd of this host or another one leaves what `part` says of a record on each connection: an honest connection goes on
/// as if it were alone, and those of the crowd end. Returns how many bytes of parts of messages were kept at most.
fn many_parts(ip: [u8; 4], part: impl Fn(&mut Peer) -> Vec<u8>) -> u64 {
    let mut server = server();
    let mut honest = Honest::join(&mut server);
    let mut many: Vec<Peer> = (0..MANY).map(|_| Peer::join(&mut server, ip).0).collect();
    let mut kept_bytes_max = 0;
    // A part has its time, after which its connection ends: on a busy machine the first may end before the last has come.
    let mut look = |server: &Endpoint| {
        assert!(kind_bytes(server, "sealed, or to be opened") <= SEALED_BYTES_MAX);
        let kept_bytes = kind_bytes(server, "read and not taken yet");
        assert!(kept_bytes <= CAP_BYTES / 16, "{kept_bytes}");
        kept_bytes_max = kept_bytes_max.max(kept_bytes);
    };
    for peer in &mut many {
        let bytes = part(peer);
        peer.stream.write_all(&bytes).unwrap();
        progress(&mut server, 3);
        look(&server);
    }
    progress(&mut server, 100);
    look(&server);
    honest.talk(&mut server, 200);
    // Before a sleep the kernel is asked for all that has come.
    for _ in 0..10 {
        // Parts whose time is over raise the event of their connections' ends.
        server.wait(Some(Duration::from_millis(2))).unwrap();
        look(&server);
    }
    let start = Instant::now();
    while dropped(&server, "unfinished-record") < MANY as u64 {
        honest.talk(&mut server, 1);
        look(&server);
        assert!(start.elapsed() < PATIENCE, "{:?}", server.counters().drops);
    }
    assert!(many.iter_mut().all(|peer| {
        progress(&mut server, 1);
        !peer.hear()
    }));
    honest.talk(&mut server, 20);
    println!("{} polls for a message at most, {kept_bytes_max} bytes kept", honest.polls_max);
    kept_bytes_max
}

#[test]
fn four_bytes_of_a_record_on_many_connections_end_no_other() {
    many_parts(ELSEWHERE, |peer| peer.seal(&[0; 400])[..4].to_vec());
}

#[test]
fn parts_of_connections_of_its_own_host_do_not_stop_an_honest_one() {
    many_parts(HERE, |peer| peer.seal(&record(Kind::Message, 0, &[1; 8000]))[..7000].to_vec());
}

/// The sealed record is whole, and the message in it is not.
#[test]
fn parts_of_messages_in_whole_records_stay_within_the_cap() {
    let kept_bytes = many_parts(HERE, |peer| peer.seal(&record(Kind::Message, 0, &[1; 8000])[..7000]));
    // Some, and not those of all.
    assert!((8_000..MANY as u64 * 7_000).contains(&kept_bytes), "{kept_bytes}");
}

/// Clients that have shown who they are, and then say a part of what they want.
#[test]
fn who_is_not_accepted_yet_takes_no_buffer() {
    let mut server = server();
    let mut honest = Honest::join(&mut server);
    let mut many: Vec<Peer> = (0..MANY).map(|_| Peer::dial(&mut server, ELSEWHERE)).collect();
    for peer in &mut many {
        let hello = peer.seal(&hello());
        peer.stream.write_all(&hello[..4]).unwrap();
        progress(&mut server, 3);
    }
    honest.talk(&mut server, 200);
    assert!(kind_bytes(&server, "sealed, or to be opened") <= SEALED_BYTES_MAX);
}

/// A peer that asks for more than the kernel takes, and reads nothing of it.
fn frozen(server: &mut Endpoint, remote: RegionHandle) -> Endpoint {
    let mut honest = Honest::join(server);
    let (_, local) = memory(&mut honest.endpoint);
    for at in 0..12 {
        let (local, remote) = (RegionAddress::new(local, 0), RegionAddress::new(remote, 0));
        honest.endpoint.rma_read(honest.to_server, local, remote, 1 << 20, at, RmaFlags::NONE).unwrap();
    }
    // The second stream is made, and the requests leave.
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(20) {
        server.progress();
        honest.endpoint.progress();
    }
    honest.endpoint
}

#[test]
fn who_reads_nothing_does_not_keep_an_honest_connection_from_sending() {
    let mut server = server();
    let (_, remote) = memory(&mut server);
    let mut honest = Honest::join(&mut server);
    let many: Vec<_> = (0..MANY / 2).map(|_| frozen(&mut server, remote)).collect();
    progress(&mut server, 20_000);
    honest.talk(&mut server, 200);
    println!("{} polls for a message at most", honest.polls_max);
    assert!(kind_bytes(&server, "sealed, or to be opened") <= SEALED_BYTES_MAX);
    drop(many);
}

fn by_certificates() -> Options {
    let [certificate, key, authority] = [
        &include_bytes!("../../../../../testkit/credentials/node1.pem")[..],
        include_bytes!("../../../../../testkit/credentials/node1.key"),
        include_bytes!("../../../../../testkit/credentials/authority.pem"),
    ];
    Options { security: Some(Security::certificates(certificate, key, authority).unwrap()), ..options() }
}

/// Clients that begin handshakes by certificates and do not go on: there are no more of them at a time than the cap has
/// memory for. Nobody who is connected notices, and others get in.
#[test]
fn handshakes_that_do_not_go_on_stay_within_the_cap() {
    let poor = Options { recv_buffers: 64, send_buffers: 2048, rma_operations: 16, ..by_certificates() };
    let poor = Options { memory_bytes_max: CAP_BYTES, ..poor };
    let mut server = Endpoint::create(&device(), poor).unwrap();
    let mut honest = Honest::join_by(&mut server, by_certificates());
    let mut many: Vec<Peer> =
        (0..MANY).map(|_| Peer::begin(&server, ELSEWHERE, &by_certificates())).collect();
    progress(&mut server, 300);
    let in_progress = many.iter_mut().filter_map(|peer| {
        let mut some = [0];
        peer.stream.peek(&mut some).ok().filter(|len| *len > 0)
    });
    let in_progress = in_progress.count();
    println!("{in_progress} handshakes under way");
    assert!((1..MANY / 2).contains(&in_progress), "{in_progress}");
    assert!(kind_bytes(&server, "handshakes") <= CAP_BYTES / 8);
    honest.talk(&mut server, 100);
    Honest::join_by(&mut server, by_certificates()).talk(&mut server, 10);
}

/// Clients that begin handshakes by certificates all at once: each costs a signature, and a poll makes a few.
#[test]
fn a_poll_shakes_hands_with_a_few() {
    let mut server = Endpoint::create(&device(), by_certificates()).unwrap();
    let mut many: Vec<Peer> = (0..24).map(|_| Peer::begin(&server, ELSEWHERE, &by_certificates())).collect();
    let answered = |many: &mut Vec<Peer>| {
        many.iter_mut().filter(|peer| peer.stream.peek(&mut [0]).is_ok_and(|len| len > 0)).count()
    };
    let (start, mut before, mut most) = (Instant::now(), 0, 0);
    while before < many.len() {
        assert!(start.elapsed() < PATIENCE, "{before} were answered");
        server.progress();
        let now = answered(&mut many);
        (before, most) = (now, most.max(now - before));
    }
    assert!(most <= 4, "{most} in one poll");
}

fn memory(endpoint: &mut Endpoint) -> (Memory, RegionHandle) {
    let memory = endpoint.allocate(1 << 20).unwrap();
    let handle = endpoint.register(&memory, Access::ALL).unwrap();
    (memory, handle)
}

/// Remote memory of an honest peer, while parts of records hold what there is to hold.
#[test]
fn parts_of_records_do_not_stop_remote_memory() {
    let mut server = server();
    let mut honest = Honest::join(&mut server);
    let mut many: Vec<Peer> = (0..MANY).map(|_| Peer::join(&mut server, HERE).0).collect();
    for peer in &mut many {
        let bytes = peer.seal(&[0; 400]);
        peer.stream.write_all(&bytes[..4]).unwrap();
        progress(&mut server, 3);
    }
    let (other, remote) = memory(&mut server);
    let (here, local) = memory(&mut honest.endpoint);
    let bytes: Vec<u8> = (0..1 << 20).map(|at: u32| (at * 7 + at / 253) as u8).collect();
    for round in 0..2 {
        assert!(if round == 0 { here.write(0, &bytes) } else { here.write(0, &vec![0; 1 << 20]) });
        let (local, remote) = (RegionAddress::new(local, 0), RegionAddress::new(remote, 0));
        let (endpoint, to) = (&mut honest.endpoint, honest.to_server);
        if round == 0 {
            endpoint.rma_write(to, local, remote, 1 << 20, 5, RmaFlags::NONE).unwrap();
        } else {
            endpoint.rma_read(to, local, remote, 1 << 20, 5, RmaFlags::NONE).unwrap();
        }
        let start = Instant::now();
        loop {
            server.progress();
            if let Some(Event::Send { status, .. }) = endpoint.next_event() {
                assert_eq!(status, Status::Success);
                break;
            }
            assert!(start.elapsed() < PATIENCE && endpoint.is_open(to), "{:?}", server.counters());
        }
        let mut came = vec![0; 1 << 20];
        assert!(if round == 0 { other.read(0, &mut came) } else { here.read(0, &mut came) });
        assert!(came == bytes);
    }
}
