//! Multicast groups between hosts: two namespaces joined by two wires, IPv4 and IPv6, several processes. As root; else each
//! test says why it does nothing. What one host can show is tested with the device itself.

use cci::{
    Attribute, ConnectError, Connection, Context, Endpoint, Event, Explanation, Options, SendError, SendFlags,
};
use cci_testkit::net::{End, Veth, Wire};
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const TX: Attribute = Attribute::MulticastSend;
const RX: Attribute = Attribute::MulticastReceive;
/// Nothing here takes as long; a test that does is stuck.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long to wait for what must not come.
const QUIET: Duration = Duration::from_millis(100);

fn network() -> Option<Veth> {
    let wires = [Wire::default(), Wire::default()];
    Veth::across(&wires).map_err(|reason| println!("skipped: {reason}")).ok()
}

fn open(ip: IpAddr, lines: &str) -> Endpoint {
    let text = format!("[u]\ntransport = udp\nip = {ip}\n{lines}\n");
    let context = Context::from_text(&text, Path::new("test.ini")).unwrap();
    let device = context.default_device();
    assert!(device.is_up(), "{:?}", device.unavailable());
    Endpoint::create(device, Options::default()).unwrap()
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

/// A child of this test, killed if it is left behind.
struct Process(Child);

impl Process {
    fn start(veth: &Veth, end: End, v6: bool, uri: &str, role: &str) -> Process {
        let _inside = veth.enter(end);
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["child", "--exact", "--nocapture"])
            .env("CCI_TEST_GROUP_ROLE", role)
            .env("CCI_TEST_GROUP_IP", veth.ip(end, 0, v6).to_string())
            .env("CCI_TEST_GROUP_URI", uri)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut process = Process(child);
        process.wait_until_ready();
        process
    }

    fn wait_until_ready(&mut self) {
        use std::io::Read;
        let out = self.0.stdout.as_mut().unwrap();
        let mut printed = Vec::new();
        let mut byte = [0];
        while !printed.ends_with(b"ready\n") {
            assert_eq!(out.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&printed));
            printed.push(byte[0]);
        }
    }

    fn end(mut self) {
        let start = Instant::now();
        while start.elapsed() < 2 * PATIENCE {
            if let Some(status) = self.0.try_wait().unwrap() {
                assert!(status.success(), "{status}");
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("a child does not end");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two senders and three receivers, each a process, on two hosts.
#[test]
fn processes_of_two_hosts_meet_in_a_group() {
    let Some(veth) = network() else { return };
    for (v6, group) in &GROUPS[..2] {
        let uri = format!("udp://{group}:5003");
        let receivers = [End::A, End::B, End::B].map(|end| Process::start(&veth, end, *v6, &uri, "receiver"));
        let mut senders: Vec<Process> = (0..SENDERS)
            .zip([End::A, End::B])
            .map(|(number, end)| Process::start(&veth, end, *v6, &uri, &number.to_string()))
            .collect();
        for sender in &mut senders {
            // Closing it is the word.
            drop(sender.0.stdin.take());
        }
        senders.into_iter().chain(receivers).for_each(Process::end);
    }
}
