//! Networks and endpoints of the tests.

use cci::{Attribute, Connection, Context, Device, Endpoint, Event, Options, SendFlags, Status};
use cci_testkit::net::{End, Veth, Wire};
pub use cci_testkit::pair::PATIENCE;
use cci_testkit::pair::join;
use std::path::Path;
use std::time::Instant;

/// Two hosts joined by these wires; none where this machine can't have them.
pub fn across(wires: &[Wire]) -> Option<Veth> {
    Veth::across(wires).map_err(|reason| println!("skipped: {reason}")).ok()
}

/// The device that these lines configure. It is up.
pub fn device(lines: &str) -> Device {
    let text = format!("[x]\n{lines}\n");
    let device = Context::from_text(&text, Path::new("test.ini")).unwrap().default_device().clone();
    assert!(device.is_up(), "{lines}: {:?}", device.unavailable());
    device
}

/// An endpoint at an end, of the device that these lines configure.
pub fn open(veth: &Veth, end: End, lines: &str, options: Options) -> Endpoint {
    let _inside = veth.enter(end);
    Endpoint::create(&device(lines), options).unwrap()
}

/// The IPv4 addresses of an end on these wires, as a configuration lists them.
pub fn ips(veth: &Veth, end: End, wires: &[u8]) -> String {
    let ips: Vec<String> = wires.iter().map(|wire| veth.ip(end, *wire, false).to_string()).collect();
    ips.join(", ")
}

/// Connects `client` to `server`; the client's and the server's name of the connection.
pub fn connect(client: &mut Endpoint, server: &mut Endpoint, attribute: Attribute) -> [Connection; 2] {
    let uri = server.uri().to_owned();
    join(client, server, &uri, attribute, PATIENCE).unwrap()
}

/// Sends one message, and waits until it has come and its sending has ended.
pub fn pass(from: &mut Endpoint, to: &mut Endpoint, connection: Connection, message: &[u8]) {
    from.send(connection, message, 0, SendFlags::NONE).unwrap();
    let (mut came, mut done) = (false, false);
    let start = Instant::now();
    while !came || !done {
        match to.next_event() {
            Some(Event::Recv(got)) => {
                assert!(*got == *message, "a message of {} bytes", message.len());
                came = true;
            }
            // Of one whose peer was killed, or has left.
            Some(Event::Disconnected { .. }) | None => {}
            Some(other) => panic!("{other:?}"),
        }
        match from.next_event() {
            Some(Event::Send { status, .. }) => {
                assert_eq!(status, Status::Success);
                done = true;
            }
            Some(Event::Disconnected { .. }) | None => {}
            Some(other) => panic!("{other:?}"),
        }
        assert!(start.elapsed() < PATIENCE, "{:?} {:?}", from.counters(), to.counters());
    }
}
