//! Somebody who sees nothing sends word to a sender that the path to its peer takes only small packets: ICMP's "fragmentation needed",
//! IPv6's "packet too big". Nobody can know whether a router says so or anybody else, so nothing may come of it: datagrams stay
//! as large as they were, and no bundle is sent twice. Two network namespaces stand for the hosts; as root.

use cci::{Attribute, Connection, Context, Device, Endpoint, Event, Options, SendFlags};
use cci_testkit::credentials;
use cci_testkit::hostile::raw::fragmentation_needed;
use cci_testkit::net::{End, Veth, Wire};
use rustix::net::{AddressFamily, SendFlags as Flags, SocketType, ipproto, sendto, socket};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
/// Messages that are counted, and their length.
const MESSAGES: u64 = 200;
const MESSAGE_BYTES: usize = 1_300;
/// What the lie says that the way takes.
const FORGED_V4_BYTES: u16 = 68;
const FORGED_V6_BYTES: u32 = 1_280;

fn device(ip: IpAddr, sealed: bool) -> Device {
    let mut text = format!("[x]\ntransport = udp\nip = {ip}\n");
    if sealed {
        let file = credentials::folder().join("cluster.psk");
        text += &format!("security = psk\npsk_file = {}\n", file.display());
    }
    Context::from_text(&text, Path::new("icmp.ini")).unwrap().devices()[0].clone()
}

/// Two endpoints and a connection.
struct Pair {
    client: Endpoint,
    server: Endpoint,
    connection: Connection,
    received: u64,
    sent: u64,
}

impl Pair {
    fn new(veth: &Veth, v6: bool, sealed: bool) -> Pair {
        let open = |end| {
            let _inside = veth.enter(end);
            Endpoint::create(&device(veth.ip(end, 0, v6), sealed), Options::default()).unwrap()
        };
        let (mut client, mut server) = (open(End::A), open(End::B));
        client.connect(server.uri(), b"", Attribute::ReliableOrdered, 0, Some(PATIENCE)).unwrap();
        let (mut connection, start) = (None, Instant::now());
        while connection.is_none() {
            assert!(start.elapsed() < PATIENCE);
            if let Some(Event::ConnectRequest(request)) = server.next_event() {
                server.accept(request, 0).unwrap();
            }
            if let Some(Event::Connect { result, .. }) = client.next_event() {
                connection = Some(result.unwrap());
            }
        }
        Pair { client, server, connection: connection.unwrap(), received: 0, sent: 0 }
    }

    /// Sends messages of this length one by one, each when the last one's send has completed, so that they go by the connected
    /// socket once there were some.
    fn exchange(&mut self, messages: u64, len_bytes: usize) {
        let (received, start) = (self.received + messages, Instant::now());
        let text = vec![7; len_bytes];
        let (mut left, mut under_way) = (messages, false);
        while self.received < received || under_way {
            if left > 0 && !under_way {
                self.client.send(self.connection, &text, 0, SendFlags::NONE).unwrap();
                (left, under_way) = (left - 1, true);
            }
            if let Some(Event::Recv(message)) = self.server.next_event() {
                assert_eq!(message.len(), len_bytes);
                self.received += 1;
            }
            if let Some(Event::Send { .. }) = self.client.next_event() {
                (self.sent, under_way) = (self.sent + 1, false);
            }
            assert!(start.elapsed() < PATIENCE, "{:#?}", self.client.counters());
        }
    }

    fn counter(&self, name: &str) -> u64 {
        let counters = self.client.counters();
        counters.device.iter().filter(|(known, _)| *known == name).map(|(_, count)| *count).sum()
    }

    fn largest_datagram(&self) -> String {
        let explained = self.client.explain(self.connection).unwrap();
        let fact = explained.facts.iter().find(|(name, _)| *name == "largest datagram").unwrap();
        fact.1.to_string()
    }

    /// The longest message.
    fn longest(&self) -> usize {
        self.client.max_send_size(self.connection).unwrap() as usize
    }

    fn addresses(&self) -> [SocketAddr; 2] {
        [&self.client, &self.server].map(|end| end.uri().trim_start_matches("udp://").parse().unwrap())
    }
}

/// What a router would say to `from` of a datagram that was too long on its way to `to`.
fn too_long(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let (source, target) = match (from, to) {
        (SocketAddr::V4(from), SocketAddr::V4(to)) => return fragmentation_needed(from, to, FORGED_V4_BYTES),
        (SocketAddr::V6(from), SocketAddr::V6(to)) => (from.ip().octets(), to.ip().octets()),
        other => unreachable!("{other:?}"),
    };
    // Packet too big; the kernel sums it up. Behind it are the headers of IPv6 and UDP.
    let len = (MESSAGE_BYTES as u16).to_be_bytes();
    let about = [&[0x60, 0, 0, 0][..], &len, &[17, 64], &source, &target].concat();
    let udp = [from.port().to_be_bytes(), to.port().to_be_bytes(), len, [0, 0]].concat();
    [&[2, 0, 0, 0][..], &FORGED_V6_BYTES.to_be_bytes(), &about, &udp].concat()
}

/// Tells the client so, from the other host.
fn forge(veth: &Veth, [client, server]: [SocketAddr; 2]) {
    let _inside = veth.enter(End::B);
    let (family, protocol) = match client {
        SocketAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
        SocketAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
    };
    let raw = socket(family, SocketType::RAW, Some(protocol)).unwrap();
    let to = SocketAddr::new(client.ip(), 0);
    sendto(&raw, &too_long(client, server), Flags::empty(), &to).unwrap();
    std::thread::sleep(Duration::from_millis(20));
}

#[test]
fn a_forged_word_on_the_way_changes_nothing() {
    let mut wrong = Vec::new();
    for v6 in [false, true] {
        for sealed in [false, true] {
            let Ok(veth) = Veth::across(&[Wire::default()]).map_err(|reason| println!("skipped: {reason}"))
            else {
                return;
            };
            let mut pair = Pair::new(&veth, v6, sealed);
            let addresses = pair.addresses();
            pair.exchange(MESSAGES, MESSAGE_BYTES);
            assert!(pair.counter("datagrams_sent_connected") > 0, "the second socket is in use");
            let names = ["bundles_sent", "retransmissions", "parts_sent", "paths_narrowed"];
            let mut counts = vec![(names.map(|name| pair.counter(name)), pair.largest_datagram())];
            for _ in 0..4 {
                forge(&veth, addresses);
                pair.exchange(MESSAGES / 4, MESSAGE_BYTES);
            }
            counts.push((names.map(|name| pair.counter(name)), pair.largest_datagram()));
            // Those who come later hear nothing of it either.
            let mut later = Pair::new(&veth, v6, sealed);
            later.exchange(MESSAGES, later.longest().min(MESSAGE_BYTES));
            counts.push((names.map(|name| later.counter(name)), later.largest_datagram()));
            println!("v6 {v6} sealed {sealed}: {names:?} {counts:?}");
            let [(before, largest), (after, largest_after), (new, largest_new)] = &counts[..] else {
                unreachable!()
            };
            let resent = after[1] - before[1];
            let ok = largest == largest_after
                && largest == largest_new
                && resent < MESSAGES
                && new[1] < MESSAGES
                && after[2..] == before[2..]
                && new[2..] == [0, 0];
            if !ok {
                wrong.push(format!("v6 {v6} sealed {sealed}: {names:?} {counts:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
