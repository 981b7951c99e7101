//! Multicast groups between hosts: two namespaces joined by two wires, IPv4 and IPv6, several processes. What
//! one host can show is tested with the device itself.

use crate::process::Process;
use crate::stage::{PATIENCE, across, device};
use cci::{Attribute, ConnectError, Connection, Endpoint, Event, Explanation, Options, SendError, SendFlags};
use cci_testkit::net::{End, Veth, Wire};
use std::net::IpAddr;
use std::time::{Duration, Instant};

const TX: Attribute = Attribute::MulticastSend;
const RX: Attribute = Attribute::MulticastReceive;
/// How long to wait for what must not come.
const QUIET: Duration = Duration::from_millis(100);

fn network() -> Option<Veth> {
    across(&[Wire::default(); 2])
}

fn open(ip: IpAddr, lines: &str) -> Endpoint {
    Endpoint::create(&device(&format!("transport = udp\nip = {ip}\n{lines}")), Options::default()).unwrap()
}

fn open_at(veth: &Veth, end: End, wire: u8, v6: bool, lines: &str) -> Endpoint {
    let _inside = veth.enter(end);
    open(veth.ip(end, wire, v6), lines)
}

fn join(endpoint: &mut Endpoint, uri: &str, attribute: Attribute) -> Connection {
    endpoint.connect(uri, &[], attribute, 5, None).unwrap();
    match endpoint.next_event() {
        Some(Event::Connect { context: 5, result: Ok(connection) }) => connection,
        other => panic!("{other:?}"),
    }
}

/// Joins a group in the namespace where the endpoint was opened: the socket is made when the group is joined.
fn join_at(veth: &Veth, end: End, endpoint: &mut Endpoint, uri: &str, attribute: Attribute) -> Connection {
    let _inside = veth.enter(end);
    join(endpoint, uri, attribute)
}

fn send(endpoint: &mut Endpoint, connection: Connection, message: &[u8]) {
    let start = Instant::now();
    while let Err(error) = endpoint.send(connection, message, 0, SendFlags::SILENT) {
        assert!(error == SendError::WouldBlock && start.elapsed() < PATIENCE, "{error}");
        endpoint.progress();
    }
    endpoint.progress();
}

fn expect(endpoint: &mut Endpoint, connection: Connection, expected: &[u8]) {
    match endpoint.wait(Some(PATIENCE)).unwrap() {
        Some(Event::Recv(message)) => {
            assert_eq!((message.connection(), &message[..]), (connection, expected));
        }
        other => panic!("{other:?} instead of {expected:?}; {:?}", endpoint.counters().device),
    }
}

fn expect_nothing(endpoint: &mut Endpoint) {
    let event = endpoint.wait(Some(QUIET)).unwrap();
    assert!(event.is_none(), "{event:?}");
}

fn fact(explanation: &Explanation, name: &str) -> String {
    explanation.facts.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string()).unwrap()
}

const GROUPS: [(bool, &str); 4] =
    [(false, "239.7.7.7"), (true, "[ff15::7]"), (true, "[ff02::7777]"), (true, "[ff15::8%a0]")];

/// Members on the chosen interface of either host hear it, and no others.
#[test]
fn the_devices_interface_is_used() {
    let Some(veth) = network() else { return };
    for (v6, group) in GROUPS {
        let uri = format!("udp://{group}:5000");
        let mut sender = open_at(&veth, End::A, 0, v6, "");
        let mut near = open_at(&veth, End::A, 0, v6, "");
        let mut near_other = open_at(&veth, End::A, 1, v6, "");
        let mut far = open_at(&veth, End::B, 0, v6, "");
        let mut far_other = open_at(&veth, End::B, 1, v6, "");
        let far_uri = uri.replace("%a0", "%b0");
        let to = join(&mut sender, &uri, TX);
        let from_near = join(&mut near, &uri, RX);
        let from_far = join_at(&veth, End::B, &mut far, &far_uri, RX);
        if uri.contains('%') {
            for (end, endpoint, uri) in [(End::A, &mut near_other, &uri), (End::B, &mut far_other, &far_uri)]
            {
                let _inside = veth.enter(end);
                let error = endpoint.connect(uri, &[], RX, 0, None).unwrap_err();
                assert!(matches!(error, ConnectError::BadUri { .. }), "{error}");
                assert!(error.to_string().contains("this endpoint is on interface"), "{error}");
            }
        } else {
            join(&mut near_other, &uri, RX);
            join_at(&veth, End::B, &mut far_other, &uri, RX);
        }
        for round in 0..20u8 {
            let message = vec![round; 1 + usize::from(round) * 70];
            send(&mut sender, to, &message);
            expect(&mut near, from_near, &message);
            expect(&mut far, from_far, &message);
        }
        expect_nothing(&mut near_other);
        expect_nothing(&mut far_other);
        let explained = far.explain(from_far).unwrap();
        assert_eq!(
            (fact(&explained, "interface").as_str(), fact(&explained, "senders heard").as_str()),
            ("b0", "1")
        );
        assert!(explained.peer.contains(":5000"), "{explained}");
        far.disconnect(from_far);
        send(&mut sender, to, b"who has left hears nothing");
        expect(&mut near, from_near, b"who has left hears nothing");
        expect_nothing(&mut far);
    }
}

#[test]
fn the_hop_limit_is_kept() {
    let Some(veth) = network() else { return };
    for (v6, group) in &GROUPS[..2] {
        let uri = format!("udp://{group}:5001");
        let mut near = open_at(&veth, End::A, 0, *v6, "");
        let mut far = open_at(&veth, End::B, 0, *v6, "");
        let from_near = join(&mut near, &uri, RX);
        let from_far = join_at(&veth, End::B, &mut far, &uri, RX);
        for (hops, word) in [(0, "this host"), (1, "this link"), (9, "as far")] {
            let mut sender = open_at(&veth, End::A, 0, *v6, &format!("multicast_ttl = {hops}"));
            let to = join(&mut sender, &uri, TX);
            let explained = sender.explain(to).unwrap();
            assert_eq!(fact(&explained, "hop limit"), hops.to_string());
            assert!(fact(&explained, "reaches").starts_with(word), "{explained}");
            send(&mut sender, to, &[hops]);
            expect(&mut near, from_near, &[hops]);
            if hops > 0 {
                expect(&mut far, from_far, &[hops]);
            } else {
                expect_nothing(&mut far);
            }
        }
    }
}

/// An interface that goes down and comes back: what was sent meanwhile is lost and counted; then it goes on.
#[test]
fn a_link_that_was_down_carries_on() {
    let Some(veth) = network() else { return };
    let uri = "udp://239.7.7.9:5002";
    let mut sender = open_at(&veth, End::A, 0, false, "");
    let mut far = open_at(&veth, End::B, 0, false, "");
    let to = join(&mut sender, uri, TX);
    let from = join_at(&veth, End::B, &mut far, uri, RX);
    send(&mut sender, to, b"before");
    expect(&mut far, from, b"before");
    veth.down(End::A, 0);
    for _ in 0..10 {
        send(&mut sender, to, b"meanwhile");
    }
    expect_nothing(&mut far);
    veth.up(End::A, 0);
    let start = Instant::now();
    let message = loop {
        assert!(start.elapsed() < PATIENCE, "{:?}", sender.counters());
        send(&mut sender, to, b"after");
        if let Some(Event::Recv(message)) = far.wait(Some(QUIET)).unwrap() {
            break message.to_vec();
        }
    };
    assert_eq!(message, b"after");
}

// ------------------------------------------------------------------------------------------------- processes ---

const MESSAGES: u32 = 2000;
const SENDERS: u8 = 2;

/// One of the processes of the test below; nothing unless started by it.
#[test]
fn child() {
    let Ok(role) = std::env::var("CCI_TEST_GROUP_ROLE") else { return };
    let ip: IpAddr = std::env::var("CCI_TEST_GROUP_IP").unwrap().parse().unwrap();
    let uri = std::env::var("CCI_TEST_GROUP_URI").unwrap();
    let mut endpoint = open(ip, "");
    match role.parse::<u8>() {
        Ok(number) => {
            let to = join(&mut endpoint, &uri, TX);
            wait_for_word();
            for count in 0..MESSAGES {
                let mut message = vec![number; 5 + count as usize % 900];
                message[1..5].copy_from_slice(&count.to_le_bytes());
                send(&mut endpoint, to, &message);
                if count % 20 == 0 {
                    // No faster than the receivers are scheduled on a small machine.
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
        Err(_) => {
            let from = join(&mut endpoint, &uri, RX);
            println!("ready");
            let mut next = [0u32; SENDERS as usize];
            let start = Instant::now();
            while next.iter().any(|next| *next < MESSAGES) {
                assert!(start.elapsed() < PATIENCE, "{next:?} {:?}", endpoint.counters());
                let Some(Event::Recv(message)) = endpoint.wait(Some(QUIET)).unwrap() else { continue };
                assert_eq!(message.connection(), from);
                let next = &mut next[usize::from(message[0])];
                assert_eq!(message[1..5], next.to_le_bytes(), "each once, in the order of one wire");
                assert_eq!(message.len(), 5 + *next as usize % 900);
                *next += 1;
            }
            println!("all");
        }
    }
}

/// Until the parent says so.
fn wait_for_word() {
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}

fn start(veth: &Veth, end: End, v6: bool, uri: &str, role: &str) -> Process {
    let ip = veth.ip(end, 0, v6).to_string();
    let variables = [("CCI_TEST_GROUP_ROLE", role), ("CCI_TEST_GROUP_IP", &ip), ("CCI_TEST_GROUP_URI", uri)];
    let mut process = Process::start(veth, end, "multicast::child", &variables);
    process.printed("ready");
    process
}

/// Two senders and three receivers, each a process, on two hosts.
#[test]
fn processes_of_two_hosts_meet_in_a_group() {
    let Some(veth) = network() else { return };
    for (v6, group) in &GROUPS[..2] {
        let uri = format!("udp://{group}:5003");
        let receivers = [End::A, End::B, End::B].map(|end| start(&veth, end, *v6, &uri, "receiver"));
        let mut senders: Vec<Process> = (0..SENDERS)
            .zip([End::A, End::B])
            .map(|(number, end)| start(&veth, end, *v6, &uri, &number.to_string()))
            .collect();
        senders.iter_mut().for_each(Process::go_on);
        senders.into_iter().chain(receivers).for_each(Process::end);
    }
}
