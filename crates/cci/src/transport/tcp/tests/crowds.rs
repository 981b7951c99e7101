//! Many of something, which must not keep others out.

use super::hostile::{RO, hello};
use super::{PATIENCE, connect, endpoint, until};
use crate::transport::tcp::said::{Said, Ticket};
use crate::{Access, Connection, Endpoint, Event, Options, Place, RmaFlags};
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

/// A connection with a server by hand, whose second stream is to be dialled at `port`.
fn join(client: &mut Endpoint, listener: &TcpListener, port: u16) -> (Connection, TcpStream) {
    let at = listener.local_addr().unwrap();
    client.connect(&format!("tcp://{at}"), b"", RO, 1, Some(PATIENCE)).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    client.progress();
    stream.read_exact(&mut [0; 16]).unwrap();
    let ticket = Ticket { key: 7, secret: [7; 16] };
    let accept = Said::Accept { mss: 8192, port, ticket };
    stream.write_all(&[Said::Heard.bytes(), accept.bytes()].concat()).unwrap();
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
    for at in 0..super::super::CLIENTS_MAX + 10 {
        let (to, stream) = join(&mut server, &listeners[at as usize % 2], port);
        streams.push(stream);
        let (here, there) = (Place::new(handle, 0), Place::new(handle, 8));
        server.rma_write(to, here, there, 8, 0, RmaFlags::NONE).unwrap();
    }
    connect(&mut endpoint(Options::default()), &mut server, RO).unwrap();
}

/// One host asks for more connections than may wait for the program, which answers none.
#[test]
fn requests_of_one_host_keep_no_other_host_out() {
    let mut server = endpoint(Options::default());
    let at = super::address(&server).to_owned();
    let (mut crowd, mut requests) = (Vec::new(), Vec::new());
    while crowd.len() < crate::limits::REQUESTS_MAX as usize + 100 {
        let mut stream = TcpStream::connect(&at).unwrap();
        stream.write_all(&hello()).unwrap();
        crowd.push(stream);
        requests.extend(server.next_event());
    }
    let mut client = dial_from([127, 0, 0, 2], &at);
    let request = Said::Hello { attribute: RO, mss: 8192, payload: Some(b"from elsewhere".to_vec()) };
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
