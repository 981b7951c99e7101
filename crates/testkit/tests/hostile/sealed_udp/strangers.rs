//! What those get who have no key, or not the right one: nothing.

use super::stage::*;
use cci::{ConnectFailure, Security};
use cci_testkit::figures;
use std::net::UdpSocket;

/// The first datagrams of a plain endpoint, as they are on the wire.
fn plain_hello() -> Vec<u8> {
    let listener = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut client = Side::new(open(None, None));
    client.dial(listener.local_addr().unwrap(), PATIENCE);
    client.poll();
    let mut bytes = vec![0; 2000];
    let len = listener.recv(&mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

/// Bytes that look random.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Everything plain, and everything that is noise in whatever clothes.
fn bad_datagrams() -> Vec<Vec<u8>> {
    let hello = plain_hello();
    let mut all = Vec::new();
    for first in 0..=255 {
        let mut like_hello = hello.clone();
        like_hello[0] = first;
        all.push(like_hello);
        for len in [1, 8, 16, 32, 48, 64, 256, 1152, 1472] {
            let mut random = noise(u64::from(first) * 4096 + len as u64, len);
            random[0] = first;
            all.push(random);
        }
    }
    // Headers of sealed datagrams with a length that is right: all kinds, receivers that may exist.
    for kind in 0..=255 {
        for len in [32_u16, 40, 64, 1152] {
            for receiver in 0..3_u32 {
                let mut like = noise(u64::from(kind) + u64::from(receiver), len.into());
                like[..2].copy_from_slice(&[0x1e, kind]);
                like[2..4].copy_from_slice(&len.to_le_bytes());
                like[4..8].copy_from_slice(&receiver.to_le_bytes());
                all.push(like);
            }
        }
    }
    all
}

#[test]
fn who_has_no_key_gets_no_byte() {
    let mut server = Side::with(KEY1);
    let (bad, stranger) = (bad_datagrams(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let to = address(&server.endpoint);
    let answered = replay(&stranger, to, bad.iter().map(|bytes| &bytes[..]), &mut server);
    assert_eq!(answered, 0, "{:?}", server.endpoint.counters());
    assert!(server.asked.is_empty() && server.device_counter("plain-refused") > 1000);
    figures::note("encryption.strangers_datagrams", bad.len() as u64);
    // It still serves those who have one.
    let mut client = Side::with(KEY1);
    join(&mut client, &mut server, &mut None);
    talk(&mut client, &mut server, &mut None);
    // Nor does somebody between get more while there are associations.
    let answered = replay(&stranger, to, bad.iter().map(|bytes| &bytes[..]), &mut server);
    assert_eq!(answered, 0, "{:?}", server.endpoint.counters());
    talk(&mut client, &mut server, &mut None);
}

#[test]
fn what_was_recorded_is_of_no_use() {
    let mut server = Side::with(KEY1);
    let mut client = Side::with(KEY1);
    let mut tap = Some(Tap::to(address(&server.endpoint)));
    join(&mut client, &mut server, &mut tap);
    talk(&mut client, &mut server, &mut tap);
    // Until everything is acknowledged, and nothing but what is replayed can be the reason for an answer.
    wait(&mut [&mut client, &mut server], &mut tap, std::time::Duration::from_millis(200));
    let tapped = tap.as_ref().unwrap();
    assert!(tapped.seen.iter().all(|(_, bytes)| bytes[0] == 0x1e), "all of it is sealed");
    let has_message = |(_, bytes): &(bool, Vec<u8>)| bytes.windows(32).any(|run| run == [7; 32]);
    assert!(!tapped.seen.iter().any(has_message), "and none of it readable");
    let recorded: Vec<Vec<u8>> =
        tapped.seen.iter().filter(|(to, _)| *to).map(|(_, bytes)| bytes.clone()).collect();
    server.messages.clear();

    // From elsewhere, from the same address while the association lives, and to another endpoint with the key.
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = address(&server.endpoint);
    let elsewhere = replay(&stranger, to, recorded.iter().map(|bytes| &bytes[..]), &mut server);
    let in_place = tapped.replay(&mut server);
    let sent: usize = recorded.iter().map(Vec::len).sum();
    println!("{sent} bytes replayed: {elsewhere} answered elsewhere, {in_place} in place");
    assert_eq!(elsewhere, 0);
    assert!(in_place <= sent, "{in_place} of {sent}");
    assert!(server.messages.is_empty() && server.asked.len() == 1);
    assert!(server.device_counter("sealed-replayed") > 0, "{:?}", server.endpoint.counters());
    talk(&mut client, &mut server, &mut tap);

    let mut other = Side::with(KEY1);
    let to = address(&other.endpoint);
    let answered = replay(&stranger, to, recorded.iter().map(|bytes| &bytes[..]), &mut other);
    println!("{answered} bytes answered by another endpoint with the key");
    assert!(answered <= sent && other.asked.is_empty() && other.made.is_empty());
    figures::note("encryption.replayed_datagrams", 3 * recorded.len() as u64);
}

#[test]
fn a_wrong_key_is_no_key() {
    let mut server = Side::with(KEY1);
    let to = address(&server.endpoint);
    let same_name = KEY2.replace("node2", "node1");
    for other in [KEY2, &same_name] {
        assert_eq!(fails(&mut Side::with(other), &mut server, to), ConnectFailure::TimedOut);
    }
    assert!(server.device_counter("handshake-refused") > 0, "{:?}", server.endpoint.counters());
    // Nor without any.
    let mut plain = Side::new(open(None, None));
    assert_eq!(fails(&mut plain, &mut server, to), ConnectFailure::TimedOut);
    // Whoever asks sealed is not answered by somebody plain.
    let mut plain_server = Side::new(open(None, None));
    let to = address(&plain_server.endpoint);
    assert_eq!(fails(&mut Side::with(KEY1), &mut plain_server, to), ConnectFailure::TimedOut);
    let lenient = Side::new(open(Some(keys(KEY1).required(false)), None));
    assert_eq!(fails(&mut { lenient }, &mut plain_server, to), ConnectFailure::TimedOut);
}

#[test]
fn plain_peers_are_served_where_that_is_said() {
    let mut server = Side::new(open(Some(keys(KEY1).required(false)), None));
    let mut plain = Side::new(open(None, None));
    join(&mut plain, &mut server, &mut None);
    assert_eq!(server.asked.last(), Some(&None));
    assert_eq!(server.endpoint.peer_identity(server.last()), None);
    talk(&mut plain, &mut server, &mut None);
    let mut known = Side::with(KEY1);
    join(&mut known, &mut server, &mut None);
    assert_eq!(server.asked.last(), Some(&Some("node1".to_owned())));
    talk(&mut known, &mut server, &mut None);
    // But nobody without a name is among those that are named.
    let named = keys(KEY1).required(false).allow_connect(cci::Names::parse("node1").unwrap());
    let mut server = Side::new(open(Some(named), None));
    let to = address(&server.endpoint);
    assert_eq!(fails(&mut plain, &mut server, to), ConnectFailure::Refused);
}

#[test]
fn flipped_bits_are_losses_and_nothing_else() {
    let mut server = Side::with(KEY1);
    let mut client = Side::with(KEY1);
    let mut tap = Some(Tap::to(address(&server.endpoint)));
    join(&mut client, &mut server, &mut tap);
    tap.as_mut().unwrap().meddle = Some(|number, bytes| {
        if number % 3 == 0 {
            let at = number * 7919 % bytes.len();
            bytes[at] ^= 1 << (number % 8);
        }
    });
    for round in 0..40_u64 {
        client.send(&vec![round as u8; 1200], round);
        let all = |sides: &[&mut Side]| sides[1].messages.len() as u64 == round + 1;
        assert!(run(&mut [&mut client, &mut server], &mut tap, PATIENCE, all), "{round}");
    }
    let right = |(round, message): (usize, &Vec<u8>)| *message == vec![round as u8; 1200];
    assert!(server.messages.iter().enumerate().all(right));
    let refused = ["sealed-forged", "sealed-malformed", "sealed-unknown", "plain-refused", "sealed-replayed"];
    assert!(refused.iter().map(|name| server.device_counter(name)).sum::<u64>() > 0);
}

#[test]
fn certificates_name_their_owners() {
    let folder = cci_testkit::credentials::folder();
    let by_certificate = || {
        let [own, key, authorities] =
            ["node1.pem", "node1.key", "authority.pem"].map(|name| folder.join(name));
        Security::certificate_files(own, key, authorities).unwrap()
    };
    let mut server = Side::new(open(Some(by_certificate()), None));
    let mut client = Side::new(open(Some(by_certificate()), None));
    join(&mut client, &mut server, &mut None);
    talk(&mut client, &mut server, &mut None);
    let identity = server.endpoint.peer_identity(server.last()).unwrap();
    let names: Vec<&str> = identity.names().collect();
    assert!(names.contains(&"node1.cci.test") && names.contains(&"storage.cci.test"), "{names:?}");
    let shown = client.endpoint.explain(client.last()).unwrap().to_string();
    assert!(shown.contains("sealed by AES-256-GCM") && shown.contains("TLS 1.3"), "{shown}");
    let to = address(&server.endpoint);
    assert_eq!(fails(&mut Side::with(KEY1), &mut server, to), ConnectFailure::TimedOut);
    let mut plain = Side::new(open(None, None));
    assert_eq!(fails(&mut plain, &mut server, to), ConnectFailure::TimedOut);
    // A name that may not be connected, whoever asks.
    let others =
        || by_certificate().allow_connect(cci::Names::parse("*.other.test, node2.cci.test").unwrap());
    let mut choosy = Side::new(open(Some(others()), None));
    assert_eq!(fails(&mut choosy, &mut server, to), ConnectFailure::NotPermitted);
    let to = address(&choosy.endpoint);
    let mut client = Side::new(open(Some(by_certificate()), None));
    assert_eq!(fails(&mut client, &mut choosy, to), ConnectFailure::TimedOut);
    let wanted = by_certificate().allow_connect(cci::Names::parse("*.cci.test").unwrap());
    join(&mut Side::new(open(Some(wanted), None)), &mut server, &mut None);
}
