//! Raw Ethernet on pairs of virtual interfaces, in namespaces of the test's own. As root; else each test says why it does
//! nothing. What every device promises is tested by the conformance suite; here is what only this one can get wrong.

use cci::{
    Attribute, ConnectError, ConnectFailure, Connection, Context, CreateError, Device, Endpoint, Event,
    Options, SendFlags, Status,
};
use cci_testkit::net::{End, Veth};
use std::path::Path;
use std::time::{Duration, Instant};

const ALL: [Attribute; 3] = [Attribute::ReliableOrdered, Attribute::ReliableUnordered, Attribute::Unreliable];
/// Nothing here takes as long; a test that does is stuck.
const PATIENCE: Duration = Duration::from_secs(20);
/// Ways of the kernel's: what a device has to be configured with to take it.
const MODES: [&str; 3] = ["auto", "xdp-generic", "packet"];

fn pair(mtu_bytes: u32) -> Option<Veth> {
    Veth::pair_here(mtu_bytes).map_err(|reason| println!("skipped: {reason}")).ok()
}

fn device(interface: &str, lines: &str) -> Device {
    let text = format!("[e]\ntransport = eth\ninterface = {interface}\n{lines}\n");
    Context::from_text(&text, Path::new("test.ini")).unwrap().default_device().clone()
}

fn open(interface: &str, mode: &str) -> Endpoint {
    open_with(interface, mode, Options::default())
}

fn open_with(interface: &str, mode: &str, options: Options) -> Endpoint {
    let device = device(interface, &format!("mode = {mode}"));
    assert!(device.is_up(), "{:?}", device.unavailable());
    Endpoint::create(&device, options).unwrap()
}

/// Connects `client` to `server`, which accepts.
fn connect(client: &mut Endpoint, server: &mut Endpoint, attribute: Attribute) -> (Connection, Connection) {
    let uri = server.uri().to_owned();
    client.connect(&uri, b"hello", attribute, 7, Some(PATIENCE)).unwrap();
    let (mut ours, mut theirs) = (None, None);
    let start = Instant::now();
    while ours.is_none() || theirs.is_none() {
        match client.next_event() {
            Some(Event::Connect { result, .. }) => ours = Some(result.unwrap()),
            Some(other) => panic!("{other:?}"),
            None => {}
        }
        match server.next_event() {
            Some(Event::ConnectRequest(request)) => {
                assert_eq!((request.data(), request.attribute()), (&b"hello"[..], attribute));
                server.accept(request, 9).unwrap();
            }
            Some(Event::Accept { result, .. }) => theirs = Some(result.unwrap()),
            Some(other) => panic!("{other:?}"),
            None => {}
        }
        assert!(start.elapsed() < PATIENCE, "{:?} {:?}", client.counters(), server.counters());
    }
    (ours.unwrap(), theirs.unwrap())
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
        let message = fill(number, len);
        client.send(to, &message, 0, SendFlags::NONE).unwrap();
        let (mut came, mut done) = (false, false);
        let start = Instant::now();
        while !came || !done {
            match server.next_event() {
                Some(Event::Recv(got)) => {
                    assert!(*got == *message, "message {number} of {len} bytes");
                    came = true;
                }
                Some(other) => panic!("{other:?}"),
                None => {}
            }
            match client.next_event() {
                Some(Event::Send { status, .. }) => {
                    assert_eq!(status, Status::Success);
                    done = true;
                }
                Some(other) => panic!("{other:?}"),
                None => {}
            }
            assert!(
                start.elapsed() < PATIENCE,
                "{} bytes: {:?} {:?}",
                len,
                client.counters(),
                server.counters()
            );
        }
    }
}

#[test]
fn messages_of_all_lengths_pass_on_all_kinds_of_connections() {
    let Some(veth) = pair(1500) else { return };
    for mode in MODES {
        for attribute in ALL {
            let mut client = open(&veth.name(End::A, 0), mode);
            let mut server = open(&veth.name(End::B, 0), mode);
            let (to_server, to_client) = connect(&mut client, &mut server, attribute);
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
        let (to_server, _) = connect(&mut client, &mut server, Attribute::ReliableOrdered);
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
        let options = Options { service: Some(service.to_owned()), ..Options::default() };
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
