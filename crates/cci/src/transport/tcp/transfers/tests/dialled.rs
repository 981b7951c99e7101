//! Servers that choose where their client's second stream goes.

use super::{endpoint, until};
use crate::transport::tcp::preamble::{Preamble, Ticket};
use crate::transport::tcp::wire::HEADER_BYTES;
use crate::{Access, Attribute, Endpoint, Event, Options, RegionAddress, RmaFlags, Status};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

const SECRET: [u8; 16] = *b"a ticket's bytes";
const DATA: [u8; 25] = *b"what nobody else may read";

fn listen(ip: &str) -> TcpListener {
    let listener = TcpListener::bind((ip, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    listener
}

/// A client of the library that writes to the memory of a scripted server, which has the second stream dialled at the port of
/// `bulk_at`: it can't name another host.
fn client(bulk_at: SocketAddr) -> (Endpoint, TcpStream) {
    let mut client = endpoint(Options { send_timeout: Duration::from_millis(300), ..Options::default() });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("tcp://{}", listener.local_addr().unwrap());
    client.connect(&uri, b"", Attribute::ReliableOrdered, 1, Some(Duration::from_secs(5))).unwrap();
    let (mut first, _) = listener.accept().unwrap();
    client.progress();
    first.read_exact(&mut [0; 16]).unwrap();
    let ticket = Ticket { key: 7, secret: SECRET };
    let accept = Preamble::Accept { mss: 8192, port: bulk_at.port(), ticket };
    first.write_all(&[Preamble::Heard.bytes(), accept.bytes()].concat()).unwrap();
    let connection = until(&mut client, |client| match client.next_event() {
        Some(Event::Connect { result, .. }) => Some(result.unwrap()),
        _ => None,
    });
    first.read_exact(&mut [0; HEADER_BYTES]).unwrap();
    let memory = client.allocate(4096).unwrap();
    assert!(memory.write(0, &DATA));
    let handle = client.register(&memory, Access::ALL).unwrap();
    let (local, remote) = (RegionAddress::new(handle, 0), RegionAddress::new(handle, 100));
    client.rma_write(connection, local, remote, DATA.len() as u64, 5, RmaFlags::NONE).unwrap();
    (client, first)
}

/// What comes to a listener until the operation of the client has ended; None: nobody.
fn comes(client: &mut Endpoint, listener: &TcpListener, answer: &[u8]) -> (Option<Vec<u8>>, Status) {
    let (start, mut stream, mut bytes) = (Instant::now(), None::<TcpStream>, None::<Vec<u8>>);
    loop {
        assert!(start.elapsed() < Duration::from_secs(10));
        if let Ok((mut accepted, _)) = listener.accept() {
            accepted.set_nonblocking(true).unwrap();
            let _ = accepted.write_all(answer);
            (stream, bytes) = (Some(accepted), Some(Vec::new()));
        }
        let mut some = [0; 4096];
        match stream.as_mut().map(|stream| stream.read(&mut some)) {
            Some(Ok(len)) => bytes.get_or_insert_default().extend_from_slice(&some[..len]),
            Some(Err(error)) if error.kind() != ErrorKind::WouldBlock => stream = None,
            _ => {}
        }
        if let Some(Event::Send { context: 5, status, .. }) = client.next_event() {
            return (bytes, status);
        }
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn a_server_does_not_send_its_client_to_a_third_host() {
    let third = listen("127.0.0.2");
    let (mut client, _first) = client(third.local_addr().unwrap());
    let (came, status) = comes(&mut client, &third, b"");
    assert_eq!(came, None, "nobody comes to a host that is not the server's");
    assert_ne!(status, Status::Success);
}

#[test]
fn who_does_not_know_the_secret_gets_neither_that_nor_data() {
    let other = listen("127.0.0.1");
    let (mut client, _first) = client(other.local_addr().unwrap());
    let (came, status) = comes(&mut client, &other, b"");
    let came = came.expect("a port of the server's host");
    assert!(!contains(&came, &SECRET) && !contains(&came, &DATA), "{}", came.escape_ascii());
    assert_ne!(status, Status::Success);
}

#[test]
fn a_false_proof_ends_the_connection() {
    let answers = [
        b"220 mail.example ESMTP\r\n".to_vec(),
        Preamble::Challenge { nonce: [0; 16], proof: [0; 32] }.bytes(),
        // What it was sent itself, given back.
        Preamble::Bulk { key: 7, nonce: [0; 16] }.bytes(),
    ];
    for answer in answers {
        let other = listen("127.0.0.1");
        let (mut client, _first) = client(other.local_addr().unwrap());
        let (came, status) = comes(&mut client, &other, &answer);
        assert!(came.is_none_or(|came| !contains(&came, &SECRET) && !contains(&came, &DATA)));
        assert_eq!(status, Status::Disconnected);
        let drops = client.counters().drops;
        assert!(
            drops.iter().any(|drop| matches!(drop.name, "bad-second-stream" | "bad-handshake")),
            "{drops:?}"
        );
    }
}
