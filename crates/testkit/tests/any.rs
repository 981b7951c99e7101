//! The device `any` between hosts: network namespaces joined by a wire stand for them. As root; else each test says why it
//! does nothing. What happens on one host is tested beside the transport.

use cci::{Attribute, Connection, Context, Device, Endpoint, Event, Options, SendFlags};
use cci_testkit::net::{End, Veth, Wire};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Nothing here takes as long; a test that does is stuck.
const PATIENCE: Duration = Duration::from_secs(60);

fn across() -> Option<Veth> {
    Veth::across(&[Wire::default()]).map_err(|reason| println!("skipped: {reason}")).ok()
}

fn device(lines: &str) -> Device {
    let text = format!("[x]\n{lines}\n");
    Context::from_text(&text, Path::new("test.ini")).unwrap().default_device().clone()
}

fn open(veth: &Veth, end: End, service: Option<&str>) -> Endpoint {
    open_at(veth, end, &[0], service)
}

/// On one or two wires.
fn open_at(veth: &Veth, end: End, wires: &[u8], service: Option<&str>) -> Endpoint {
    let _inside = veth.enter(end);
    let ips: Vec<String> = wires.iter().map(|wire| veth.ip(end, *wire, false).to_string()).collect();
    let device = device(&format!("transport = any\nip = {}", ips.join(", ")));
    assert!(device.is_up(), "{:?}", device.unavailable());
    Endpoint::create(&device, Options::default().service(service.map(str::to_owned))).unwrap()
}

/// Connects, and has a message go there and back. How long it took to connect, too.
fn connect(client: &mut Endpoint, server: &mut Endpoint) -> (Connection, Duration) {
    let uri = server.uri().to_owned();
    client.connect(&uri, b"hello", Attribute::ReliableOrdered, 7, Some(PATIENCE)).unwrap();
    let (start, mut requests, mut opened) = (Instant::now(), 0, None);
    while start.elapsed() < PATIENCE {
        match server.next_event() {
            Some(Event::ConnectRequest(request)) => {
                requests += 1;
                server.accept(request, 9).unwrap();
            }
            Some(Event::Recv(message)) => {
                server.send(message.connection(), &message, 0, SendFlags::SILENT).unwrap();
            }
            Some(Event::Accept { result, .. }) => drop(result.unwrap()),
            _ => {}
        }
        match client.next_event() {
            Some(Event::Connect { result, .. }) => {
                let connection = result.unwrap();
                opened = Some((connection, start.elapsed()));
                client.send(connection, b"there and back", 0, SendFlags::SILENT).unwrap();
            }
            Some(Event::Recv(message)) => {
                assert_eq!((&*message, requests), (&b"there and back"[..], 1));
                return opened.unwrap();
            }
            _ => {}
        }
    }
    panic!("no answer: {:?} {:?}", client.counters(), server.counters());
}

fn explained(endpoint: &Endpoint, connection: Connection) -> (String, String) {
    let explanation = endpoint.explain(connection).unwrap();
    (explanation.transport.clone(), explanation.to_string())
}

#[test]
fn between_hosts_it_is_udp_at_once() {
    let Some(veth) = across() else { return };
    let (mut client, mut server) = (open(&veth, End::A, None), open(&veth, End::B, None));
    let (connection, after) = connect(&mut client, &mut server);
    let (transport, text) = explained(&client, connection);
    assert_eq!(transport, "udp (any)", "{text}");
    assert!(text.contains("not  shared memory: nobody listens there"), "{text}");
    assert!(after < Duration::from_millis(700), "{after:?}");
    println!("{text}");
}

#[test]
fn a_process_of_the_same_name_on_this_host_is_not_the_peer() {
    let Some(veth) = across() else { return };
    let name = format!("any-namesake-{}", std::process::id());
    let (mut client, mut server) = (open(&veth, End::A, None), open(&veth, End::B, Some(&name)));
    let mut namesake = {
        let _inside = veth.enter(End::A);
        let service = Some(name);
        Endpoint::create(&device("transport = shm"), Options::default().service(service)).unwrap()
    };
    // It has to poll to say anything, and says no.
    std::thread::scope(|scope| {
        let polls = scope.spawn(move || {
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(1500) {
                assert!(namesake.next_event().is_none(), "it heard of the request");
            }
        });
        let (connection, _) = connect(&mut client, &mut server);
        let (transport, text) = explained(&client, connection);
        assert_eq!(transport, "udp (any)", "{text}");
        assert!(text.contains("not  shared memory: somebody else has the endpoint's name here"), "{text}");
        polls.join().unwrap();
    });
}

#[test]
fn containers_that_share_a_folder_share_memory() {
    let Some(veth) = across() else { return };
    let path = std::env::temp_dir().join(format!("cci-any-{}.sock", std::process::id()));
    let (mut client, mut server) = (open(&veth, End::A, None), open(&veth, End::B, path.to_str()));
    let (connection, _) = connect(&mut client, &mut server);
    let (transport, text) = explained(&client, connection);
    assert_eq!(transport, "shm (any)", "{text}");
}

#[test]
fn where_a_filter_drops_udp_it_is_tcp() {
    let Some(veth) = across() else { return };
    {
        let _inside = veth.enter(End::B);
        let rule = "rule add ipproto udp priority 10 blackhole";
        let done = Command::new("ip").args(rule.split(' ')).output();
        if !done.as_ref().is_ok_and(|output| output.status.success()) {
            return println!("skipped: this kernel can't route by protocol: ip {rule}: {done:?}");
        }
    }
    let (mut client, mut server) = (open(&veth, End::A, None), open(&veth, End::B, None));
    let (connection, after) = connect(&mut client, &mut server);
    let (transport, text) = explained(&client, connection);
    assert_eq!(transport, "tcp (any)", "{text}");
    assert!(text.contains("not  UDP: nothing was heard in time"), "{text}");
    assert!(after >= Duration::from_millis(900) && after < Duration::from_secs(4), "{after:?}");
    println!("{text}");
}

#[test]
fn two_interfaces_are_listed_and_bonded() {
    let veth = match Veth::across(&[Wire::default(), Wire::default()]) {
        Ok(veth) => veth,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let mut server = open_at(&veth, End::B, &[0, 1], None);
    assert_eq!(server.uri().matches(",udp=").count(), 2, "{}", server.uri());
    for wires in [&[0, 1][..], &[0]] {
        let mut client = open_at(&veth, End::A, wires, None);
        let (connection, _) = connect(&mut client, &mut server);
        let (transport, text) = explained(&client, connection);
        assert_eq!(transport, "udp (any)", "{text}");
        println!("{text}");
    }
}
