//! The device `any` between hosts: network namespaces joined by a wire stand for them. What
//! happens on one host is tested beside the transport.

use crate::stage::{across, connect, device, ips, open, pass};
use cci::{Attribute, Connection, Endpoint, Options};
use cci_testkit::net::{End, Veth, Wire};
use std::process::Command;
use std::time::{Duration, Instant};

fn network() -> Option<Veth> {
    across(&[Wire::default()])
}

/// An endpoint at an end, on the first wire.
fn open_any(veth: &Veth, end: End, service: Option<&str>) -> Endpoint {
    open_on(veth, end, &[0], service)
}

fn open_on(veth: &Veth, end: End, wires: &[u8], service: Option<&str>) -> Endpoint {
    let lines = format!("transport = any\nip = {}", ips(veth, end, wires));
    open(veth, end, &lines, Options::default().service(service.map(str::to_owned)))
}

/// Connects, and has a message go there and back. How long it took to connect, too.
fn talk(client: &mut Endpoint, server: &mut Endpoint) -> (Connection, Duration) {
    let start = Instant::now();
    let [to_server, to_client] = connect(client, server, Attribute::ReliableOrdered);
    let took = start.elapsed();
    pass(client, server, to_server, b"there");
    pass(server, client, to_client, b"and back");
    (to_server, took)
}

fn explained(endpoint: &Endpoint, connection: Connection) -> (String, String) {
    let explanation = endpoint.explain(connection).unwrap();
    (explanation.transport.clone(), explanation.to_string())
}

#[test]
fn between_hosts_it_is_udp_at_once() {
    let Some(veth) = network() else { return };
    let (mut client, mut server) = (open_any(&veth, End::A, None), open_any(&veth, End::B, None));
    let (connection, after) = talk(&mut client, &mut server);
    let (transport, text) = explained(&client, connection);
    assert_eq!(transport, "udp (any)", "{text}");
    assert!(text.contains("not  shared memory: nobody listens there"), "{text}");
    assert!(after < Duration::from_millis(700), "{after:?}");
    println!("{text}");
}

#[test]
fn a_process_of_the_same_name_on_this_host_is_not_the_peer() {
    let Some(veth) = network() else { return };
    let name = format!("any-namesake-{}", std::process::id());
    let (mut client, mut server) = (open_any(&veth, End::A, None), open_any(&veth, End::B, Some(&name)));
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
        let (connection, _) = talk(&mut client, &mut server);
        let (transport, text) = explained(&client, connection);
        assert_eq!(transport, "udp (any)", "{text}");
        assert!(text.contains("not  shared memory: somebody else has the endpoint's name here"), "{text}");
        polls.join().unwrap();
    });
}

#[test]
fn containers_that_share_a_folder_share_memory() {
    let Some(veth) = network() else { return };
    let path = std::env::temp_dir().join(format!("cci-any-{}.sock", std::process::id()));
    let (mut client, mut server) = (open_any(&veth, End::A, None), open_any(&veth, End::B, path.to_str()));
    let (connection, _) = talk(&mut client, &mut server);
    let (transport, text) = explained(&client, connection);
    assert_eq!(transport, "shm (any)", "{text}");
}

#[test]
fn where_a_filter_drops_udp_it_is_tcp() {
    let Some(veth) = network() else { return };
    {
        let _inside = veth.enter(End::B);
        let rule = "rule add ipproto udp priority 10 blackhole";
        let done = Command::new("ip").args(rule.split(' ')).output();
        if !done.as_ref().is_ok_and(|output| output.status.success()) {
            return println!("skipped: this kernel can't route by protocol: ip {rule}: {done:?}");
        }
    }
    let (mut client, mut server) = (open_any(&veth, End::A, None), open_any(&veth, End::B, None));
    let (connection, after) = talk(&mut client, &mut server);
    let (transport, text) = explained(&client, connection);
    assert_eq!(transport, "tcp (any)", "{text}");
    assert!(text.contains("not  UDP: nothing was heard in time"), "{text}");
    assert!(after >= Duration::from_millis(900) && after < Duration::from_secs(4), "{after:?}");
    println!("{text}");
}

#[test]
fn two_interfaces_are_listed_and_bonded() {
    let Some(veth) = across(&[Wire::default(); 2]) else { return };
    let mut server = open_on(&veth, End::B, &[0, 1], None);
    assert_eq!(server.uri().matches(",udp=").count(), 2, "{}", server.uri());
    for wires in [&[0, 1][..], &[0]] {
        let mut client = open_on(&veth, End::A, wires, None);
        let (connection, _) = talk(&mut client, &mut server);
        let (transport, text) = explained(&client, connection);
        assert_eq!(transport, "udp (any)", "{text}");
        println!("{text}");
    }
}
