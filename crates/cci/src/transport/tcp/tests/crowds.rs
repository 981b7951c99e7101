//! Many of something, which must not keep others out.

use super::hostile::{RO, accepted, hello, record};
use super::{PATIENCE, connect, counted, endpoint, until};
use crate::transport::tcp::preamble::{Preamble, Ticket};
use crate::transport::tcp::wire::Kind;
use crate::{Access, Connection, Endpoint, Event, Options, RegionAddress, RmaFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// A stream to `to` from another host, as far as that can see.
pub(in crate::transport::tcp) fn dial_from(ip: [u8; 4], to: &str) -> TcpStream {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from((ip, 0))).unwrap();
    rustix::net::connect(&socket, &to.parse::<SocketAddr>().unwrap()).unwrap();
    TcpStream::from(socket)
}

/// A port on which no stream is ever connected: its queue is full. And what fills that.
fn deaf_port() -> (u16, OwnedFd, Vec<OwnedFd>) {
    let socket = || {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap()
    };
    let listener = socket();
    rustix::net::bind(&listener, &"0.0.0.0:0".parse::<SocketAddr>().unwrap()).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let port = SocketAddr::try_from(rustix::net::getsockname(&listener).unwrap()).unwrap().port();
    let fill = (0..4).map(|_| {
        let stream = socket();
        let _ = rustix::net::connect(&stream, &SocketAddr::from(([127, 0, 0, 1], port)));
        stream
    });
    let fill = fill.collect();
    (port, listener, fill)
}

/// A connection with a scripted server, whose second stream is to be dialled at `port`.
fn join(client: &mut Endpoint, listener: &TcpListener, port: u16) -> (Connection, TcpStream) {
    let at = listener.local_addr().unwrap();
    client.connect(&format!("tcp://{at}"), b"", RO, 1, Some(PATIENCE)).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    client.progress();
    stream.read_exact(&mut [0; 16]).unwrap();
    let ticket = Ticket { key: 7, secret: [7; 16] };
    let accept = Preamble::Accept { mss: 8192, port, ticket };
    stream.write_all(&[Preamble::Heard.bytes(), accept.bytes()].concat()).unwrap();
    let mut connection = None;
    until(client, |_, event| {
        if let Some(Event::Connect { result, .. }) = event {
            connection = Some(result.unwrap());
        }
        connection.is_some()
    });
    (connection.unwrap(), stream)
}

/// Second streams that an endpoint dials are not clients that say nothing.
#[test]
fn second_streams_on_their_way_keep_no_client_out() {
    let mut server = endpoint(Options { send_timeout: 3 * PATIENCE, ..Options::default() });
    let memory = server.allocate(4096).unwrap();
    let handle = server.register(&memory, Access::ALL).unwrap();
    let (port, _listener, _fill) = deaf_port();
    let listeners = ["127.0.0.1:0", "127.0.0.3:0"].map(|at| TcpListener::bind(at).unwrap());
    let mut streams = Vec::new();
    for at in 0..super::super::handshakes::CLIENTS_MAX + 10 {
        let (to, stream) = join(&mut server, &listeners[at as usize % 2], port);
        streams.push(stream);
        let (local, remote) = (RegionAddress::new(handle, 0), RegionAddress::new(handle, 8));
        server.rma_write(to, local, remote, 8, 0, RmaFlags::NONE).unwrap();
    }
    connect(&mut endpoint(Options::default()), &mut server, RO).unwrap();
}

/// One host asks for more connections than may wait for the program, which answers none.
#[test]
fn requests_of_one_host_keep_no_other_host_out() {
    let mut server = endpoint(Options::default());
    let at = super::address(&server).to_owned();
    let (mut peers, mut requests) = (Vec::new(), Vec::new());
    while peers.len() < crate::limits::REQUESTS_MAX as usize + 100 {
        let mut stream = TcpStream::connect(&at).unwrap();
        stream.write_all(&hello()).unwrap();
        peers.push(stream);
        requests.extend(server.next_event());
    }
    let mut client = dial_from([127, 0, 0, 2], &at);
    let request = Preamble::Hello { attribute: RO, mss: 8192, payload: Some(b"from elsewhere".to_vec()) };
    client.write_all(&request.bytes()).unwrap();
    let start = Instant::now();
    loop {
        match server.next_event() {
            Some(Event::ConnectRequest(request)) if request.data() == b"from elsewhere" => break,
            Some(event) => requests.push(event),
            None => std::thread::sleep(Duration::from_micros(100)),
        }
        assert!(start.elapsed() < PATIENCE, "{} requests of one host", requests.len());
    }
    println!("{} requests of one host waited", requests.len());
}

/// A server without a receive buffer left, and connections of which each has a message that waits for one.
fn all_wait(peers: usize) -> (Endpoint, Vec<TcpStream>, Vec<Event>) {
    let mut server = endpoint(Options { recv_buffers: 16, ..Options::default() });
    let mut streams: Vec<TcpStream> = (0..peers).map(|_| accepted(&mut server)).collect();
    let mut kept = Vec::new();
    for stream in &mut streams {
        stream.write_all(&record(Kind::Message, 0, b"there")).unwrap();
        stream.set_nonblocking(true).unwrap();
        kept.extend(server.next_event());
    }
    let start = Instant::now();
    while counted(&server, "rnr_sent") < (peers - 16) as u64 {
        kept.extend(server.wait(Some(Duration::from_millis(2))).unwrap());
        assert!(start.elapsed() < PATIENCE, "{:?}", server.counters());
    }
    (server, streams, kept)
}

/// Many connections each have a message that finds no receive buffer: what a poll and a sleep look at does not grow with them.
#[test]
fn a_poll_looks_at_a_few_of_those_that_wait_for_a_buffer() {
    let looks_per_poll = |peers| {
        let (mut server, _streams, _kept) = all_wait(peers);
        let counts = |server: &Endpoint| {
            ["waiting_connections_looked_at", "kernel_polls"].map(|name| counted(server, name))
        };
        let before = counts(&server);
        for _ in 0..20 {
            assert!(server.wait(Some(Duration::from_millis(5))).unwrap().is_none());
        }
        let after = counts(&server);
        let [looks, polls] = [after[0] - before[0], after[1] - before[1]];
        println!("{peers} that wait: {looks} looks in {polls} polls");
        assert!(polls > 0 && looks > 0);
        looks as f64 / polls as f64
    };
    let (few, many) = (looks_per_poll(200), looks_per_poll(1_000));
    assert!(many < 1.5 * few, "{few} and {many} looks a poll");
}

/// Those of a crowd that are not looked at in a poll are in later ones: with buffers, each learns that it may go on.
#[test]
fn all_that_wait_for_a_buffer_have_their_turn() {
    const MANY: usize = 300;
    let (mut server, mut streams, kept) = all_wait(MANY);
    drop(kept);
    let (mut heard, start) = (vec![Vec::new(); MANY], Instant::now());
    let is_reported =
        |bytes: &&Vec<u8>| bytes.chunks(8).any(|header| header.get(2) == Some(&(Kind::Ready as u8)));
    while heard.iter().filter(is_reported).count() < MANY - 16 {
        server.progress();
        for (stream, heard) in streams.iter_mut().zip(&mut heard) {
            let mut some = [0; 64];
            let len = stream.read(&mut some).unwrap_or(0);
            heard.extend_from_slice(&some[..len]);
        }
        let lens: Vec<_> = heard.iter().map(Vec::len).collect();
        assert!(start.elapsed() < PATIENCE, "{lens:?}");
    }
}
