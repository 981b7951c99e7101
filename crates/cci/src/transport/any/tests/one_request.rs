//! A path that is lost while the peer's library answers: the program there sees one request all the same (ADR 11).

use super::{PATIENCE, endpoint};
use crate::{Attribute, Event};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// So long no datagram gets through: longer than a silent path is waited for.
const DEAF: Duration = Duration::from_millis(1_500);

/// Stands between a client and the TCP part of an endpoint. Passes on what the client says, and cuts both streams when the
/// endpoint answers, without passing that on.
struct Cutter {
    listener: TcpListener,
    to: SocketAddr,
    streams: Option<(TcpStream, TcpStream)>,
    cuts: u32,
}

impl Cutter {
    fn new(to: SocketAddr) -> Cutter {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Cutter { listener, to, streams: None, cuts: 0 }
    }

    fn turn(&mut self) {
        if let Ok((client, _)) = self.listener.accept() {
            let server = TcpStream::connect(self.to).unwrap();
            client.set_nonblocking(true).unwrap();
            server.set_nonblocking(true).unwrap();
            self.streams = Some((client, server));
        }
        let Some((client, server)) = &mut self.streams else { return };
        let mut bytes = [0; 4096];
        if let Ok(len) = client.read(&mut bytes) {
            server.write_all(&bytes[..len]).unwrap();
        }
        let answered =
            server.peek(&mut bytes).map_or_else(|error| error.kind() != ErrorKind::WouldBlock, |_| true);
        if answered {
            let _ = client.shutdown(Shutdown::Both);
            (self.streams, self.cuts) = (None, self.cuts + 1);
        }
    }
}

/// Stands between a client and the UDP part of an endpoint; passes nothing on before its time.
struct Deaf {
    front: UdpSocket,
    back: UdpSocket,
    client: Option<SocketAddr>,
    until: Instant,
}

impl Deaf {
    fn new(to: SocketAddr) -> Deaf {
        let [front, back] = [(); 2].map(|()| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        });
        back.connect(to).unwrap();
        Deaf { front, back, client: None, until: Instant::now() + DEAF }
    }

    fn turn(&mut self) {
        let mut bytes = [0; 1 << 16];
        while let Ok((len, from)) = self.front.recv_from(&mut bytes) {
            self.client = Some(from);
            if Instant::now() >= self.until {
                let _ = self.back.send(&bytes[..len]);
            }
        }
        while let Ok(len) = self.back.recv(&mut bytes) {
            if let Some(client) = self.client {
                let _ = self.front.send_to(&bytes[..len], client);
            }
        }
    }
}

#[test]
fn a_stream_cut_in_the_answer_shows_no_second_request() {
    let (mut client, mut server) = (endpoint("any"), endpoint("any"));
    let at = |key: &str| {
        let parts = server.uri().strip_prefix("any://").unwrap().split(',');
        let mut found = parts.filter_map(|part| part.strip_prefix(key));
        found.next().unwrap().parse::<SocketAddr>().unwrap()
    };
    let (mut deaf, mut cutter) = (Deaf::new(at("udp=")), Cutter::new(at("tcp=")));
    let id = server.uri().split(',').next().unwrap().to_owned();
    let (udp, tcp) = (deaf.front.local_addr().unwrap(), cutter.listener.local_addr().unwrap());
    let uri = format!("{id},udp={udp},tcp={tcp}");
    client.connect(&uri, b"hello", Attribute::ReliableOrdered, 7, Some(PATIENCE)).unwrap();
    let (start, mut requests, mut made) = (Instant::now(), 0, None);
    while made.is_none() {
        assert!(start.elapsed() < PATIENCE, "{requests} requests; {:?}", client.counters());
        cutter.turn();
        deaf.turn();
        match server.next_event() {
            Some(Event::ConnectRequest(request)) => {
                requests += 1;
                // One for an attempt that the client has given up can't be accepted.
                let _ = server.accept(request, 9);
            }
            Some(Event::Accept { .. }) | None => {}
            Some(other) => panic!("{other:?}"),
        }
        if let Some(Event::Connect { result, .. }) = client.next_event() {
            made = Some(result);
        }
    }
    assert!(cutter.cuts > 0, "TCP was tried");
    assert!(made.is_some_and(|result| result.is_ok()), "by UDP in the end");
    assert_eq!(requests, 1, "for one attempt");
}
