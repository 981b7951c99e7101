//! Raw Ethernet on pairs of virtual interfaces, in namespaces of the test's own. What every device promises is tested by the conformance suite; here is what only this one can get wrong.

use crate::process::Process;
use crate::stage::{self, PATIENCE, across, connect, pass};
use cci::{
    Attribute, ConnectError, ConnectFailure, Connection, CreateError, Device, Endpoint, Event, Options,
    Status,
};
use cci_sys::ethernet::{FrameHeader, FrameSocket, Link};
use cci_sys::packet;
use cci_testkit::net::{End, Veth, Wire};
use cci_testkit::traffic::Traffic;
use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};

const ALL: [Attribute; 3] = [Attribute::ReliableOrdered, Attribute::ReliableUnordered, Attribute::Unreliable];
/// Ways of the kernel's: what a device has to be configured with to take it.
const MODES: [&str; 3] = ["xdp", "xdp-generic", "packet"];

fn pair(mtu_bytes: u32) -> Option<Veth> {
    Veth::pair_in_one_namespace(mtu_bytes).map_err(|reason| println!("skipped: {reason}")).ok()
}

fn device(interface: &str, lines: &str) -> Device {
    stage::device(&format!("transport = eth\ninterface = {interface}\n{lines}"))
}

fn open(interface: &str, mode: &str) -> Endpoint {
    let device = device(interface, &format!("mode = {mode}"));
    let start = Instant::now();
    loop {
        match Endpoint::create(&device, Options::default()) {
            // The kernel frees the queue of a socket that was closed when it finds the time.
            Err(error) if error.to_string().contains("queue is taken") && start.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(5));
            }
            created => return created.unwrap(),
        }
    }
}

/// What a message of this number and length holds.
fn fill(number: usize, len: usize) -> Vec<u8> {
    let seed = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..len).map(|at| seed[at % 8] ^ (at / 8) as u8).collect()
}

/// Sends messages of all lengths up to the longest, the next when the last has come.
fn all_lengths(client: &mut Endpoint, server: &mut Endpoint, to: Connection) {
    let longest = client.max_send_size(to).unwrap() as usize;
    let steps = (0..=longest).step_by(97).chain([1, 7, 8, 9, longest - 1, longest]);
    for (number, len) in steps.enumerate() {
        pass(client, server, to, &fill(number, len));
    }
}

#[test]
fn messages_of_all_lengths_pass_on_all_kinds_of_connections() {
    let Some(veth) = pair(1500) else { return };
    for mode in MODES {
        for attribute in ALL {
            let mut client = open(&veth.name(End::A, 0), mode);
            let mut server = open(&veth.name(End::B, 0), mode);
            let [to_server, to_client] = connect(&mut client, &mut server, attribute);
            assert_eq!(client.max_send_size(to_server), Some(1480 - 56));
            all_lengths(&mut client, &mut server, to_server);
            all_lengths(&mut server, &mut client, to_client);
            let shown = client.explain(to_server).unwrap().to_string();
            assert!(shown.contains("AF_") && shown.contains("eth://"), "{shown}");
        }
    }
}

#[test]
fn jumbo_frames_carry_the_longest_messages() {
    let Some(veth) = pair(9000) else { return };
    for mode in MODES {
        let mut client = open(&veth.name(End::A, 0), mode);
        let mut server = open(&veth.name(End::B, 0), mode);
        let [to_server, _] = connect(&mut client, &mut server, Attribute::ReliableOrdered);
        assert!(
            client.max_send_size(to_server).unwrap() > 4000 - 100,
            "{:?}",
            client.max_send_size(to_server)
        );
        all_lengths(&mut client, &mut server, to_server);
    }
}

#[test]
fn endpoint_numbers_are_services() {
    let Some(veth) = pair(1500) else { return };
    let a = device(&veth.name(End::A, 0), "endpoint = 5");
    let first = Endpoint::create(&a, Options::default()).unwrap();
    assert_eq!(first.uri(), "eth://a0/02:00:00:00:00:01/5");
    let again = Endpoint::create(&a, Options::default());
    assert!(matches!(again, Err(CreateError::InUse { service }) if service == "5"));
    drop(first);
    assert!(Endpoint::create(&a, Options::default()).is_ok());
    for (service, good) in
        [("7", true), ("0", true), ("4294967295", true), ("4294967296", false), ("x", false), ("", false)]
    {
        let options = Options::default().service(service.to_owned());
        let opened = Endpoint::create(&a, options);
        assert_eq!(opened.is_ok(), good, "{service:?}");
        assert!(good || matches!(opened, Err(CreateError::BadService { .. })), "{service:?}");
    }
}

#[test]
fn strange_addresses_are_refused() {
    let Some(veth) = pair(1500) else { return };
    let mut client = open(&veth.name(End::A, 0), "auto");
    for (uri, word) in [
        (client.uri().to_owned(), "shm://"),
        ("eth://b0/ff:ff:ff:ff:ff:ff/7".to_owned(), "no interface's"),
        ("udp://127.0.0.1:5".to_owned(), "begin with"),
    ] {
        match client.connect(&uri, b"", Attribute::ReliableOrdered, 0, Some(PATIENCE)) {
            Err(ConnectError::BadUri { reason, .. }) => assert!(reason.contains(word), "{uri}: {reason}"),
            other => panic!("{uri}: {other:?}"),
        }
    }
    // Nobody there: frames vanish, as Ethernet has nobody to say so.
    let uri = "eth://b0/02:00:00:00:00:02/77";
    client.connect(uri, b"", Attribute::ReliableOrdered, 0, Some(Duration::from_millis(200))).unwrap();
    let start = Instant::now();
    let result = loop {
        match client.next_event() {
            Some(Event::Connect { result, .. }) => break result,
            Some(other) => panic!("{other:?}"),
            None => assert!(start.elapsed() < PATIENCE),
        }
    };
    assert!(matches!(result, Err(ConnectFailure::TimedOut)), "{result:?}");
}

/// One message each way.
fn still_talk(a: &mut Endpoint, b: &mut Endpoint, to_b: Connection, to_a: Connection, what: &str) {
    pass(a, b, to_b, what.as_bytes());
    pass(b, a, to_a, what.as_bytes());
}

fn count(of: &Endpoint, name: &str) -> u64 {
    let counters = of.counters();
    let known = counters.device.iter().find(|(known, _)| *known == name).map(|(_, count)| *count);
    let dropped = counters.drops.iter().find(|drop| drop.name == name).map(|drop| drop.count);
    known.or(dropped).unwrap_or(0)
}

#[test]
fn endpoints_share_an_interface_by_whatever_way_is_left() {
    let Some(veth) = pair(1500) else { return };
    let mut server = open(&veth.name(End::B, 0), "auto");
    let mut first = open(&veth.name(End::A, 0), "auto");
    let mut second = open(&veth.name(End::A, 0), "auto");
    let [to_server, to_first] = connect(&mut first, &mut server, Attribute::ReliableOrdered);
    let [also_to_server, to_second] = connect(&mut second, &mut server, Attribute::ReliableUnordered);
    all_lengths(&mut first, &mut server, to_server);
    all_lengths(&mut second, &mut server, also_to_server);
    let shown = first.explain(to_server).unwrap().to_string();
    if !shown.contains("uses AF_XDP") {
        println!("skipped the rest: {shown}");
        return;
    }
    // A new interface has one queue, and a queue one socket.
    let shown = second.explain(also_to_server).unwrap().to_string();
    assert!(shown.contains("uses AF_PACKET") && shown.contains("only queue is taken"), "{shown}");
    // Once it is free the next one has it, and the others go on.
    drop(first);
    still_talk(&mut second, &mut server, also_to_server, to_second, "after one has gone");
    let mut third = open(&veth.name(End::A, 0), "xdp");
    let _ = to_first;
    let [to_server, to_third] = connect(&mut third, &mut server, Attribute::ReliableOrdered);
    still_talk(&mut third, &mut server, to_server, to_third, "in its place");
}

/// A packet socket at an end, to send what no endpoint would.
fn raw(interface: &str) -> (Link, packet::Socket) {
    let link = Link::of(interface).unwrap();
    let options = packet::Options {
        interface_index: link.index,
        endpoint: 99,
        frame_bytes_max: 1514,
        recv_frames: 16,
        send_frames: 64,
    };
    (link, packet::Socket::open(&options).unwrap())
}

fn send_raw(socket: &mut packet::Socket, header: &FrameHeader, payload: &[u8], announced: usize) {
    let head = header.emit(announced as u16);
    let len = head.len() + payload.len();
    while socket.space() == 0 {
        socket.flush().unwrap();
    }
    let frame = socket.begin(len).unwrap();
    frame[..head.len()].copy_from_slice(&head);
    frame[head.len()..].copy_from_slice(payload);
    socket.commit(len);
    socket.flush().unwrap();
}

fn endpoint_of(endpoint: &Endpoint) -> u32 {
    endpoint.uri().rsplit('/').next().unwrap().parse().unwrap()
}

#[test]
fn forged_and_random_frames_change_nothing() {
    let Some(veth) = pair(1500) else { return };
    for mode in MODES {
        let mut client = open(&veth.name(End::A, 0), mode);
        let mut server = open(&veth.name(End::B, 0), mode);
        let [to_server, to_client] = connect(&mut client, &mut server, Attribute::ReliableOrdered);
        let (near, mut socket) = raw(&veth.name(End::A, 0));
        let far = Link::of(&veth.name(End::B, 0)).unwrap();
        let header = FrameHeader {
            to: far.mac,
            from: near.mac,
            to_endpoint: endpoint_of(&server),
            from_endpoint: endpoint_of(&client),
        };
        let mut bits = 0x1234_5678_9abc_def1u64;
        let mut random = move || {
            bits ^= bits << 13;
            bits ^= bits >> 7;
            bits ^= bits << 17;
            bits
        };
        for round in 0..3_000u64 {
            let len = (random() % 200) as usize * if random() % 4 == 0 { 7 } else { 1 };
            let mut payload: Vec<u8> = (0..len).map(|_| random() as u8).collect();
            if round % 2 == 0
                && let Some(first) = payload.first_mut()
            {
                // Of our version, and every type.
                *first = 0x10 | (random() % 16) as u8;
            }
            let announced = if round % 5 == 0 { (random() % 1500) as usize } else { len };
            let header = FrameHeader {
                from_endpoint: if round % 3 == 0 { random() as u32 | 1 } else { header.from_endpoint },
                to_endpoint: if round % 7 == 0 { random() as u32 | 1 } else { header.to_endpoint },
                ..header
            };
            send_raw(&mut socket, &header, &payload, announced);
            server.progress();
        }
        // ACK for the server's first connection, from the right address and with a nonce by guess.
        let before = count(&server, "interface_frames_with_wrong_nonce") + count(&server, "nonce");
        for generation in 0..4u32 {
            let mut ack = [0; 48];
            ack[0] = 0x19;
            ack[8..12].copy_from_slice(&generation.to_le_bytes());
            ack[16..24].copy_from_slice(&random().to_le_bytes());
            send_raw(&mut socket, &header, &ack, ack.len());
        }
        still_talk(&mut client, &mut server, to_server, to_client, mode);
        let after = count(&server, "interface_frames_with_wrong_nonce") + count(&server, "nonce");
        assert!(after > before, "{mode}: {:?}", server.counters());
        if client.explain(to_server).unwrap().to_string().contains("uses AF_XDP") {
            assert!(count(&server, "interface_frames_with_wrong_nonce") > 0, "{:?}", server.counters());
        }
    }
}

#[test]
fn an_interface_that_is_down_for_a_while_loses_nothing() {
    let Some(veth) = pair(1500) else { return };
    for mode in MODES {
        let (client, server) = (open(&veth.name(End::A, 0), mode), open(&veth.name(End::B, 0), mode));
        let mut traffic = Traffic::join(client, server, Attribute::ReliableOrdered).unwrap();
        traffic.until_received(100);
        // What is sent from now on can't arrive.
        traffic.drain();
        veth.down(End::A, 0);
        let ended = |of: &Traffic| [&of.client, &of.server].map(|side| side.count(Status::Success));
        let before = ended(&traffic);
        traffic.run(Duration::from_millis(300));
        assert_eq!(ended(&traffic), before, "{mode}: nothing is over while the interface is down");
        assert!(traffic.received() <= before.iter().sum(), "{mode}: something came: {}", traffic.state());
        veth.up(End::A, 0);
        traffic.until_received(100);
        traffic.finish();
    }
}

#[test]
fn who_waits_is_told_when_the_interface_is_taken_away() {
    for mode in MODES {
        let Some(veth) = pair(1500) else { return };
        let mut waiting = open(&veth.name(End::A, 0), mode);
        let remover = std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            let done = Command::new("ip").args(["link", "del", "a0"]).status().unwrap();
            assert!(done.success());
        });
        let start = Instant::now();
        loop {
            match waiting.wait(Some(Duration::from_secs(5))).unwrap() {
                Some(Event::DeviceFailed) => break,
                Some(other) => panic!("{mode}: {other:?}"),
                None => {}
            }
            assert!(start.elapsed() < PATIENCE, "{mode}: {:?}", waiting.counters());
        }
        remover.join().unwrap();
        // It dies but once, and does not keep its owner awake.
        let start = Instant::now();
        assert!(waiting.wait(Some(Duration::from_millis(200))).unwrap().is_none(), "{mode}");
        assert!(start.elapsed() >= Duration::from_millis(200), "{mode}");
    }
}

#[test]
fn other_traffic_passes_untouched() {
    let Some(veth) = across(&[Wire::default()]) else { return };
    let mut client = open("a0", "auto");
    let near = UdpSocket::bind((veth.ip(End::A, 0, false), 0)).unwrap();
    let (mut server, far) = {
        let _inside = veth.enter(End::B);
        (open("b0", "auto"), UdpSocket::bind((veth.ip(End::B, 0, false), 0)).unwrap())
    };
    let [to_server, to_client] = connect(&mut client, &mut server, Attribute::ReliableOrdered);
    far.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    for round in 0..100u8 {
        near.send_to(&[round; 1400], far.local_addr().unwrap()).unwrap();
        still_talk(&mut client, &mut server, to_server, to_client, "meanwhile");
        let mut heard = [0; 1500];
        assert_eq!(far.recv(&mut heard).unwrap(), 1400);
        assert_eq!(heard[0], round);
    }
}

/// Not a test of its own: what the processes of the next one run.
#[test]
fn victim_process() {
    let Some(interface) = std::env::var_os("CCI_TEST_VICTIM") else { return };
    let mut endpoint = open(interface.to_str().unwrap(), "auto");
    println!("URI {}", endpoint.uri());
    let until = Instant::now() + 3 * PATIENCE;
    while Instant::now() < until {
        if let Some(Event::ConnectRequest(request)) = endpoint.wait(Some(Duration::from_secs(1))).unwrap() {
            endpoint.accept(request, 0).unwrap();
        }
    }
}

#[test]
fn a_killed_process_leaves_nothing_behind() {
    let Some(veth) = pair(1500) else { return };
    let (a, b) = (veth.name(End::A, 0), veth.name(End::B, 0));
    let mut server = open(&b, "auto");
    let mut was_xdp = None;
    for round in 0..3 {
        // It accepts everybody and never leaves.
        let mut victim = Process::start(&veth, End::A, "eth::victim_process", &[("CCI_TEST_VICTIM", &a)]);
        let uri = victim.printed("URI ");
        let mut survivor = open(&a, "auto");
        let [to_server, to_survivor] = connect(&mut survivor, &mut server, Attribute::ReliableOrdered);
        server.connect(&uri, b"", Attribute::ReliableOrdered, 0, Some(PATIENCE)).unwrap();
        let start = Instant::now();
        let doomed = loop {
            match server.next_event() {
                Some(Event::Connect { result, .. }) => break result.unwrap(),
                Some(other) => panic!("{other:?}"),
                None => assert!(start.elapsed() < PATIENCE),
            }
        };
        victim.kill();
        still_talk(&mut survivor, &mut server, to_server, to_survivor, "after the other was killed");
        drop(survivor);
        let _ = doomed;
        // Its queue and its number are free again.
        let mut next = open(&a, "auto");
        let [to_server, to_next] = connect(&mut next, &mut server, Attribute::ReliableOrdered);
        let is_xdp = next.explain(to_server).unwrap().to_string().contains("uses AF_XDP");
        assert_eq!(*was_xdp.get_or_insert(is_xdp), is_xdp, "round {round}");
        still_talk(&mut next, &mut server, to_server, to_next, "in its place");
        next.close(Duration::from_secs(1));
        while server.next_event().is_some() {}
    }
    drop(server);
    // The kernel takes a program away some time after the last process let go of it.
    let until = Instant::now() + PATIENCE;
    while let shown = link_details(&a)
        && shown.contains("xdp")
    {
        assert!(Instant::now() < until, "{shown}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn link_details(interface: &str) -> String {
    let shown = Command::new("ip").args(["-d", "link", "show", interface]).output().unwrap();
    String::from_utf8_lossy(&shown.stdout).into_owned()
}
