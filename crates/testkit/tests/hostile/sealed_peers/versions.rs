//! Peers whose handshakes are of version 1, by the bytes that they sent.

use super::stage::*;
use cci::ConnectFailure;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// The first datagram of a handshake of version 1, with as many bytes of its Noise or TLS.
fn first_datagram(len_claimed: usize) -> Vec<u8> {
    let len = (48 + len_claimed) as u16;
    let mut bytes = vec![0; len.into()];
    bytes[..4].copy_from_slice(&[0x1e, 2, len as u8, (len >> 8) as u8]);
    bytes[8..16].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
    bytes[16] = 9;
    bytes[22] = len_claimed as u8;
    // From the initiator; version 1 had a zero where versions after it say theirs.
    bytes[26] = 1;
    bytes[48..].fill(0xa5);
    bytes
}

/// What version 1 answered to a first datagram: a cookie.
fn cookie(to: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 40];
    bytes[..4].copy_from_slice(&[0x1e, 3, 40, 0]);
    bytes[4..8].copy_from_slice(&to[16..20]);
    bytes[8..16].copy_from_slice(&to[8..16]);
    bytes[16] = 7;
    bytes[24..].fill(0x55);
    bytes
}

fn address(side: &Side) -> &str {
    side.endpoint.uri().split_once("://").unwrap().1.split('?').next().unwrap()
}

#[test]
fn an_old_client_is_refused_and_counted_as_such() {
    for method in METHODS {
        let mut server = Side::new(local("udp", method, ""));
        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        client.set_nonblocking(true).unwrap();
        client.send_to(&first_datagram(56), address(&server)).unwrap();
        let heard = |sides: &[&mut Side]| sides[0].drops("handshake-version") == 1;
        assert!(run(&mut [&mut server], &mut Nobody, PATIENCE, heard), "{:?}", server.endpoint.counters());
        run(&mut [&mut server], &mut Nobody, Duration::from_millis(50), |_| false);
        let mut answer = [0; 100];
        let answered = client.recv(&mut answer).ok();
        // With keys there is no word for who has shown none.
        assert_eq!(answered, (method == "certificates").then_some(24));
        assert!(answered.is_none() || answer[16] == 2, "which version this is: {answer:?}");

        let mut server = Side::new(local("tcp", method, ""));
        let mut stream = TcpStream::connect(address(&server)).unwrap();
        let number = if method == "psk" { 1 } else { 2 };
        stream.write_all(&[b'C', b'C', b'I', b's', 1, number, 0, 0]).unwrap();
        assert!(run(&mut [&mut server], &mut Nobody, PATIENCE, heard), "{:?}", server.endpoint.counters());
        assert_eq!(server.drops("handshake-refused"), 0);
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let expected: &[u8] = if method == "psk" { &[] } else { &[b'C', b'C', b'I', b's', 2, 2, 0, 0] };
        assert_eq!(answer, expected);
    }
}

#[test]
fn an_old_server_is_told_of_by_its_version() {
    for method in METHODS {
        let mut client = Side::new(local("udp", method, ""));
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        server.set_nonblocking(true).unwrap();
        client.dial(&format!("udp://{}", server.local_addr().unwrap()), None, PATIENCE);
        let start = Instant::now();
        let mut bytes = [0; 2000];
        while client.made.is_empty() {
            client.poll();
            if let Ok((_, from)) = server.recv_from(&mut bytes) {
                server.send_to(&cookie(&bytes), from).unwrap();
            }
            assert!(start.elapsed() < PATIENCE, "{:?}", client.endpoint.counters());
        }
        assert_eq!(client.made, [Err(ConnectFailure::Version { theirs: 1 })], "{method}");

        // Version 1 closed without a word; one that says its version is reported with it.
        for (answer, why) in [
            (&b""[..], ConnectFailure::NotPermitted),
            (&b"CCIs\x03\x01\0\0"[..], ConnectFailure::Version { theirs: 3 }),
        ] {
            let mut client = Side::new(local("tcp", method, ""));
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            client.dial(&format!("tcp://{}", listener.local_addr().unwrap()), None, PATIENCE);
            client.poll();
            let (mut stream, _) = listener.accept().unwrap();
            let mut first = [0; 4096];
            client.poll();
            // All of it: what is not read has the kernel reset the stream.
            let len = stream.read(&mut first).unwrap();
            assert!(len > 50 && first.starts_with(b"CCIs\x02"), "{len} bytes");
            stream.write_all(answer).unwrap();
            drop(stream);
            let over = |sides: &[&mut Side]| !sides[0].made.is_empty();
            assert!(run(&mut [&mut client], &mut Nobody, PATIENCE, over));
            assert_eq!(client.made, [Err(why)], "{method}");
        }
    }
}
