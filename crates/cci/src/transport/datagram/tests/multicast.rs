//! Groups over loopback, in one process. Tests with several processes and interfaces are in `testkit`.

use super::{PATIENCE, device, device_with, endpoint};
use crate::{
    Access, Attribute, ConnectError, Connection, Context, Endpoint, Event, Options, RegionAddress, RmaError,
    RmaFlags, SendError, SendFlags, SharedEndpoint, Status,
};
use std::collections::HashMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

const TX: Attribute = Attribute::MulticastSend;
const RX: Attribute = Attribute::MulticastReceive;

/// A group that no other test uses, on this machine and at this time.
fn group(test: u8) -> Ipv4Addr {
    let [_, _, a, b] = std::process::id().to_be_bytes();
    Ipv4Addr::new(239, a, b, test)
}

fn uri(test: u8) -> String {
    format!("udp://{}:47700", group(test))
}

fn join(endpoint: &mut Endpoint, uri: &str, attribute: Attribute) -> Connection {
    endpoint.connect(uri, &[], attribute, 5, None).unwrap();
    match endpoint.next_event() {
        Some(Event::Connect { context: 5, result: Ok(connection) }) => connection,
        other => panic!("{other:?}"),
    }
}

fn send(endpoint: &mut Endpoint, connection: Connection, message: &[u8]) {
    endpoint.send(connection, message, 0, SendFlags::SILENT).unwrap();
}

/// Collects messages until there are `count`.
fn take(endpoint: &mut Endpoint, count: usize) -> Vec<(Connection, Vec<u8>)> {
    let start = Instant::now();
    let mut got = Vec::new();
    while got.len() < count {
        match endpoint.next_event() {
            Some(Event::Recv(message)) => got.push((message.connection(), message.to_vec())),
            Some(other) => panic!("{other:?}"),
            None => {
                assert!(start.elapsed() < PATIENCE, "{} of {count}: {:?}", got.len(), endpoint.counters())
            }
        }
    }
    got
}

/// Checks that no more messages come. Loopback delivers before a send returns.
fn nothing(endpoint: &mut Endpoint) {
    for _ in 0..20 {
        if let Some(event) = endpoint.next_event() {
            panic!("{event:?}");
        }
    }
}

fn counted(endpoint: &Endpoint, name: &str) -> u64 {
    let counters = endpoint.counters();
    let drops = counters.drops.iter().map(|drop| (drop.name, drop.count));
    let found = counters.device.iter().copied().chain(drops).find(|(known, _)| *known == name);
    found.map_or(0, |(_, count)| count)
}

#[test]
fn every_member_gets_what_every_sender_sends() {
    let Some(device) = device("127.0.0.1") else { return };
    let mut senders = [endpoint(&device), endpoint(&device)];
    let mut members = [endpoint(&device), endpoint(&device), endpoint(&device)];
    let from = members.each_mut().map(|member| join(member, &uri(1), RX));
    let to = senders.each_mut().map(|sender| join(sender, &uri(1), TX));
    for number in 0..100u32 {
        for (which, sender) in senders.iter_mut().enumerate() {
            let mut message = vec![which as u8; 4 + 13 * number as usize];
            message[..4].copy_from_slice(&number.to_le_bytes());
            sender.send(to[which], &message, number.into(), SendFlags::NONE).unwrap();
        }
    }
    for sender in &mut senders {
        let mut completed = 0;
        while let Some(event) = sender.next_event() {
            let Event::Send { context, status: Status::Success, .. } = event else { panic!("{event:?}") };
            assert_eq!(context, completed);
            completed += 1;
        }
        assert_eq!(completed, 100);
    }
    for (member, from) in members.iter_mut().zip(from) {
        let mut next = [0u32; 2];
        for (connection, message) in take(member, 200) {
            assert_eq!(connection, from);
            let number = u32::from_le_bytes(*message.first_chunk().unwrap());
            let which = usize::from(*message.last().unwrap()).min(1);
            let which =
                if message.len() == 4 { next.iter().position(|next| *next == 0).unwrap() } else { which };
            assert_eq!((number, message.len()), (next[which], 4 + 13 * number as usize), "in order here");
            next[which] += 1;
        }
        assert_eq!(next, [100, 100]);
        nothing(member);
        assert_eq!(counted(member, "group_datagrams_missing"), 0);
        let text = member.explain(from).unwrap().to_string();
        assert!(
            text.contains("MC_RX") && text.contains("senders heard: 2") && text.contains("on lo"),
            "{text}"
        );
    }
    let text = senders[0].explain(to[0]).unwrap().to_string();
    assert!(
        text.contains("MC_TX") && text.contains("hop limit: 1") && text.contains("members: unknown"),
        "{text}"
    );
}

#[test]
fn groups_and_ports_are_kept_apart() {
    let Some(device) = device("127.0.0.1") else { return };
    let uris = [uri(2), uri(3), format!("udp://{}:47701", group(2))];
    let mut receiver = endpoint(&device);
    let mut sender = endpoint(&device);
    let from = uris.each_ref().map(|uri| join(&mut receiver, uri, RX));
    let to = uris.each_ref().map(|uri| join(&mut sender, uri, TX));
    for round in 0..50u8 {
        for (which, to) in to.iter().enumerate() {
            send(&mut sender, *to, &[which as u8, round]);
        }
    }
    sender.progress();
    let mut counts = HashMap::new();
    for (connection, message) in take(&mut receiver, 150) {
        let which = from.iter().position(|from| *from == connection).unwrap();
        assert_eq!(usize::from(message[0]), which, "not a word of another group");
        *counts.entry(which).or_insert(0) += 1;
    }
    assert_eq!(counts, HashMap::from([(0, 50), (1, 50), (2, 50)]));
    nothing(&mut receiver);
}

#[test]
fn leaving_ends_it_and_coming_back_begins_anew() {
    let Some(device) = device("127.0.0.1") else { return };
    let (mut receiver, mut sender) = (endpoint(&device), endpoint(&device));
    for round in 0..3u8 {
        let from = join(&mut receiver, &uri(4), RX);
        let to = join(&mut sender, &uri(4), TX);
        send(&mut sender, to, &[round]);
        send(&mut sender, to, &[round, 1]);
        // What was sent before leaves first.
        sender.disconnect(to);
        assert!(sender.attribute(to).is_none(), "closed at once");
        assert_eq!(sender.send(to, b"x", 0, SendFlags::NONE), Err(SendError::UnknownConnection));
        let got: Vec<_> = take(&mut receiver, 2).into_iter().map(|(_, message)| message).collect();
        assert_eq!(got, [vec![round], vec![round, 1]], "numbers that begin anew are no repeats");
        receiver.disconnect(from);
        assert!(receiver.attribute(from).is_none());
        let to = join(&mut sender, &uri(4), TX);
        send(&mut sender, to, b"nobody listens");
        sender.disconnect(to);
        nothing(&mut receiver);
    }
    assert_eq!(receiver.counters().connections_open, 0);
}

#[test]
fn own_messages_are_for_others_unless_asked_for() {
    for (loops, own) in [("off", 0), ("on", 1)] {
        let Some(device) = device_with("127.0.0.1", &format!("multicast_loop = {loops}")) else { return };
        let (mut member, mut other) = (endpoint(&device), endpoint(&device));
        let from = join(&mut member, &uri(5), RX);
        join(&mut other, &uri(5), RX);
        let to = join(&mut member, &uri(5), TX);
        send(&mut member, to, b"mine");
        let theirs = take(&mut other, 1);
        assert_eq!(theirs[0].1, b"mine");
        let mine = take(&mut member, own);
        assert!(mine.iter().all(|(connection, message)| *connection == from && message == b"mine"));
        nothing(&mut member);
        assert_eq!(counted(&member, "group-own"), 1 - own as u64);
    }
}

#[test]
fn what_makes_no_sense_is_refused_and_says_why() {
    let Some(device) = device("127.0.0.1") else { return };
    let mut endpoint = endpoint(&device);
    let port = "127.0.0.1:47700";
    for attribute in super::ALL {
        let error = endpoint.connect(&uri(6), &[], attribute, 0, None).unwrap_err();
        assert!(error.to_string().contains("MulticastSend"), "{error}");
    }
    for attribute in [TX, RX] {
        for (uri, word) in [
            (format!("udp://{port}"), "no multicast group"),
            ("udp://[ff15::1]:47700".to_owned(), "speaks IPv4"),
            (format!("udp://{}", group(6)), "host:port"),
            (format!("udp://{}:0", group(6)), "port"),
            ("udp://[ff15::1%nosuch]:47700".to_owned(), "no interface"),
        ] {
            let error = endpoint.connect(&uri, &[], attribute, 0, None).unwrap_err();
            assert!(
                matches!(&error, ConnectError::BadUri { reason, .. } if reason.contains(word)),
                "{error}"
            );
        }
        let error = endpoint.connect(&uri(6), b"hello", attribute, 0, None).unwrap_err();
        assert!(matches!(error, ConnectError::RequestToGroup { len_bytes: 5 }), "{error}");
        assert!(error.to_string().contains("nobody answers"), "{error}");
    }
    nothing(&mut endpoint);
    let (from, to) = (join(&mut endpoint, &uri(6), RX), join(&mut endpoint, &uri(6), TX));
    assert_eq!(endpoint.attribute(from), Some(RX));
    assert_eq!(endpoint.attribute(to), Some(TX));
    assert_eq!(endpoint.send(from, b"x", 0, SendFlags::NONE), Err(SendError::ReceiveOnly));
    let max = endpoint.max_send_size(to).unwrap();
    assert_eq!(max, device.max_send_size());
    let long = vec![0; max as usize + 1];
    assert!(matches!(endpoint.send(to, &long, 0, SendFlags::NONE), Err(SendError::TooLong { .. })));
    let memory = endpoint.allocate(64).unwrap();
    let address = RegionAddress::new(endpoint.register(&memory, Access::WRITE).unwrap(), 0);
    for connection in [from, to] {
        let refused = endpoint.rma_write(connection, address, address, 8, 0, RmaFlags::NONE);
        assert_eq!(refused, Err(RmaError::Unreliable));
    }
    nothing(&mut endpoint);
}

#[test]
fn ipv6_loopback_says_that_it_has_none() {
    let Some(device) = device("::1") else { return };
    let lack = device.unavailable().iter().find(|lack| lack.what == "multicast").unwrap();
    assert!(!lack.reason.is_empty() && !lack.remedy.is_empty());
    let mut endpoint = endpoint(&device);
    for attribute in [TX, RX] {
        let refused = endpoint.connect("udp://[ff15::1]:47700", &[], attribute, 0, None);
        assert!(matches!(refused, Err(ConnectError::Unsupported)));
    }
}

#[test]
fn each_connection_gets_its_copy() {
    let Some(device) = device("127.0.0.1") else { return };
    let (mut member, mut sender) = (endpoint(&device), endpoint(&device));
    let from = [0; 3].map(|_| join(&mut member, &uri(7), RX));
    let to = [0; 2].map(|_| join(&mut sender, &uri(7), TX));
    send(&mut sender, to[0], b"a");
    send(&mut sender, to[1], b"b");
    sender.progress();
    let got = take(&mut member, 6);
    for connection in from {
        let mine: Vec<_> = got.iter().filter(|(of, _)| *of == connection).map(|(_, m)| &m[..]).collect();
        assert_eq!(mine, [b"a", b"b"]);
    }
    assert_eq!(counted(&member, "group_datagrams_received"), counted(&sender, "group_datagrams_sent"));
    member.disconnect(from[1]);
    sender.disconnect(to[0]);
    send(&mut sender, to[1], b"c");
    sender.progress();
    let got = take(&mut member, 2);
    assert_eq!(got, [(from[0], b"c".to_vec()), (from[2], b"c".to_vec())]);
    nothing(&mut member);
    assert_eq!(member.connection_counters(from[0]).unwrap().messages_received, 3);
    assert_eq!(sender.connection_counters(to[1]).unwrap().messages_sent, 2);
}

#[test]
fn a_lone_message_leaves_at_once_and_those_behind_it_share() {
    let Some(device) = device("127.0.0.1") else { return };
    let (mut member, mut sender) = (endpoint(&device), endpoint(&device));
    join(&mut member, &uri(8), RX);
    let to = join(&mut sender, &uri(8), TX);
    send(&mut sender, to, b"lone");
    // The sender makes no progress.
    assert_eq!(take(&mut member, 1)[0].1, b"lone");
    let before = counted(&sender, "group_datagrams_sent");
    for number in 0..1000u16 {
        send(&mut sender, to, &number.to_le_bytes());
    }
    sender.progress();
    let got = take(&mut member, 1000);
    assert!((0..1000u16).zip(&got).all(|(number, (_, message))| **message == number.to_le_bytes()));
    let datagrams = counted(&sender, "group_datagrams_sent") - before;
    assert!(datagrams <= 50, "{datagrams}: 256 messages fit one datagram");
    // Messages of every length arrive, up to the longest.
    let max = sender.max_send_size(to).unwrap() as usize;
    let lens: Vec<usize> = (0..=max).step_by(97).chain([max]).collect();
    for len in &lens {
        send(&mut sender, to, &vec![*len as u8; *len]);
    }
    sender.progress();
    for (len, (_, message)) in lens.iter().zip(take(&mut member, lens.len())) {
        assert_eq!(message, vec![*len as u8; *len]);
    }
}

#[test]
fn without_a_buffer_it_is_lost_and_counted() {
    let Some(device) = device("127.0.0.1") else { return };
    let mut member = Endpoint::create(&device, Options { recv_buffers: 4, ..Options::default() }).unwrap();
    let mut sender = endpoint(&device);
    let from = join(&mut member, &uri(9), RX);
    let to = join(&mut sender, &uri(9), TX);
    for number in 0..10u8 {
        send(&mut sender, to, &[number]);
    }
    sender.progress();
    let mut kept = Vec::new();
    while let Some(event) = member.next_event() {
        let Event::Recv(message) = event else { panic!("{event:?}") };
        kept.push(message);
    }
    assert_eq!(kept.iter().map(|message| message[0]).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(counted(&member, "group-no-receive-buffer"), 6);
    assert_eq!(counted(&member, "group_datagrams_missing"), 0, "they came");
    drop(kept);
    send(&mut sender, to, b"again");
    sender.progress();
    assert_eq!(take(&mut member, 1), [(from, b"again".to_vec())]);
}

#[test]
fn a_stranger_at_the_group_gains_nothing() {
    let Some(device) = device("127.0.0.1") else { return };
    let (mut member, mut sender) = (endpoint(&device), endpoint(&device));
    let from = join(&mut member, &uri(10), RX);
    let to = join(&mut sender, &uri(10), TX);
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let index = cci_sys::net::interfaces().unwrap().into_iter().find(|i| i.loopback).unwrap().index;
    rustix::net::sockopt::set_ip_multicast_if_with_ifindex(
        &stranger,
        &Ipv4Addr::UNSPECIFIED,
        &Ipv4Addr::UNSPECIFIED,
        index,
    )
    .unwrap();
    let send_record =
        |bytes: &[u8]| assert_eq!(stranger.send_to(bytes, (group(10), 47700)).unwrap(), bytes.len());
    let write = |group: &str, sender: u64, number: u64| {
        let mut bundle = cci_proto::GroupBundle::new(1472).unwrap();
        assert!(bundle.push(&[b"theirs"], 6));
        bundle.finish(group.parse::<std::net::SocketAddr>().unwrap().into(), sender, number).to_vec()
    };
    let name = format!("{}:47700", group(10));
    let good = write(&name, 99, 7);
    // These datagrams break the format, are cut off, belong to a connection, or are longer than any of the library's.
    let mut bytes = 0;
    for len in [0, 1, 7, 8, 39, 40, 48, 64, 1472, 9000, 60_000] {
        for fill in [0, 0x11, 0x18, 0x1d, 0xff] {
            send_record(&vec![fill; len]);
            bytes += 1;
        }
        send_record(&good[..len.min(good.len() - 1)]);
    }
    assert!(bytes > 0);
    nothing(&mut member);
    assert!(counted(&member, "group-malformed") >= 40 && counted(&member, "group-truncated") > 0);
    // One datagram names another group but goes to this address; another names this group's address with another port.
    send_record(&write("239.255.255.255:47700", 99, 7));
    send_record(&write(&format!("{}:47701", group(10)), 99, 7));
    nothing(&mut member);
    assert_eq!(counted(&member, "group-other"), 2);
    // Some datagrams are repeated, and one jumps far ahead.
    for _ in 0..3 {
        send_record(&good);
    }
    send_record(&write(&name, 99, u64::MAX));
    send_record(&write(&name, 99, 8));
    let got = take(&mut member, 2);
    assert!(got.iter().all(|(_, message)| message == b"theirs"));
    nothing(&mut member);
    // The jump was forged. It does not keep the sender's next datagram from being delivered.
    assert_eq!((counted(&member, "group-repeat"), counted(&member, "group-too-early")), (2, 1));
    assert_eq!(counted(&member, "group-too-late"), 0);
    // More senders come than are remembered.
    for sender in 0..1000 {
        send_record(&write(&name, sender << 16, 1));
        member.progress();
    }
    let many = take(&mut member, 1000);
    assert!(many.iter().all(|(connection, _)| *connection == from));
    assert!(counted(&member, "group_senders_forgotten") > 0);
    send(&mut sender, to, b"ours");
    assert_eq!(take(&mut member, 1)[0].1, b"ours");
}

#[test]
fn sleepers_are_woken() {
    let Some(device) = device("127.0.0.1") else { return };
    let mut member = endpoint(&device);
    join(&mut member, &uri(11), RX);
    let text = uri(11);
    let sends = std::thread::spawn(move || {
        let mut sender = endpoint(&device);
        let to = join(&mut sender, &text, TX);
        for number in 0..5u8 {
            std::thread::sleep(Duration::from_millis(20));
            send(&mut sender, to, &[number]);
        }
    });
    for number in 0..5u8 {
        match member.wait(Some(PATIENCE)).unwrap() {
            Some(Event::Recv(message)) => assert_eq!(&message[..], [number]),
            other => panic!("{other:?}"),
        }
    }
    sends.join().unwrap();
    assert!(member.wait(Some(Duration::from_millis(5))).unwrap().is_none());
}

#[test]
fn groups_stay_under_the_cap() {
    let Some(device) = device("127.0.0.1") else { return };
    let options = Options { recv_buffers: 64, memory_bytes_max: 32 << 20, ..Options::default() };
    let mut endpoint = Endpoint::create(&device, options).unwrap();
    let mut joined = 0;
    let refused = loop {
        match endpoint.connect(&format!("udp://239.9.{joined}.1:47700"), &[], RX, 0, None) {
            Ok(()) => joined += 1,
            Err(error) => break error,
        }
        assert!(joined < 200);
    };
    assert!(matches!(refused, ConnectError::NoMemory), "{refused}");
    assert!(joined >= 4, "{joined}");
    let memory = endpoint.counters().memory;
    let (_, groups_bytes) = *memory.kinds.iter().find(|(kind, _)| *kind == "multicast groups").unwrap();
    assert!(groups_bytes > 0 && groups_bytes <= memory.cap_bytes / 32, "{memory:?}");
    assert!(memory.total_bytes <= memory.cap_bytes, "{memory:?}");
    let least = Options {
        recv_buffers: 16,
        send_buffers: 16,
        rma_operations: 16,
        memory_bytes_max: 3 << 20,
        ..Options::default()
    };
    let mut small = Endpoint::create(&device, least).unwrap();
    assert!(matches!(small.connect(&uri(12), &[], TX, 0, None), Err(ConnectError::NoMemory)));
}

/// Sends a burst longer than any buffer. What is not delivered must be counted.
#[test]
fn losses_are_counted() {
    let Some(device) = device("127.0.0.1") else { return };
    let (mut member, mut sender) = (endpoint(&device), endpoint(&device));
    let from = join(&mut member, &uri(13), RX);
    let to = join(&mut sender, &uri(13), TX);
    let len = sender.max_send_size(to).unwrap() as usize;
    let message = vec![7; len];
    let sent = 4000;
    for _ in 0..sent {
        while sender.send(to, &message, 0, SendFlags::SILENT) == Err(SendError::WouldBlock) {
            sender.progress();
        }
    }
    sender.progress();
    let mut got = 0;
    while let Some(event) = member.next_event() {
        let Event::Recv(message) = event else { panic!("{event:?}") };
        assert_eq!(message.len(), len);
        got += 1;
    }
    // One more message ends the count, since nobody can know what was lost behind the last one that arrived.
    sender.progress();
    send(&mut sender, to, b"end");
    let last = take(&mut member, 1);
    assert_eq!(last[0].1, b"end");
    let missing = counted(&member, "group_datagrams_missing");
    assert_eq!(got + missing, sent, "each datagram held one");
    assert_eq!(counted(&member, "group-no-receive-buffer"), 0);
    assert!(counted(&member, "group-socket-buffer-full") <= missing);
    let text = member.explain(from).unwrap().to_string();
    assert!(text.contains(&format!("datagrams missing: {missing}")), "{text}");
}

/// Checks that an endpoint of several transports has groups by its UDP part, whether it sleeps or polls.
#[test]
fn the_device_any_has_groups() {
    let Some(udp) = device("127.0.0.1") else { return };
    let context =
        Context::from_text("[a]\ntransport = any\nip = 127.0.0.1\n", Path::new("test.ini")).unwrap();
    let (mut both, mut other) = (endpoint(context.default_device()), endpoint(&udp));
    let from = join(&mut both, &uri(14), RX);
    let to = join(&mut both, &uri(14), TX);
    let others_from = join(&mut other, &uri(14), RX);
    let others_to = join(&mut other, &uri(14), TX);
    for number in 0..20u8 {
        send(&mut both, to, &[number]);
        assert_eq!(take(&mut other, 1), [(others_from, vec![number])]);
        send(&mut other, others_to, &[100 + number]);
        other.progress();
        match both.wait(Some(PATIENCE)).unwrap() {
            Some(Event::Recv(message)) => {
                assert_eq!((message.connection(), message[0]), (from, 100 + number))
            }
            event => panic!("{event:?}"),
        }
    }
    let group = format!("any://{}", uri(14).trim_start_matches("udp://"));
    assert!(matches!(both.connect(&group, &[], RX, 0, None), Err(ConnectError::BadUri { .. })));
    assert!(both.explain(from).unwrap().to_string().contains("senders heard: 1"));
    both.disconnect(from);
    both.disconnect(to);
    nothing(&mut both);
}

/// Receives from a group with a progress thread, while the program sleeps on the descriptor.
#[test]
fn a_progress_thread_hears_groups() {
    let Some(device) = device("127.0.0.1") else { return };
    let member = SharedEndpoint::with_progress_thread(&device, Options::default()).unwrap();
    member.connect(&uri(15), &[], RX, 5, None).unwrap();
    assert!(matches!(member.wait(Some(PATIENCE)).unwrap(), Some(Event::Connect { result: Ok(_), .. })));
    let mut sender = endpoint(&device);
    let to = join(&mut sender, &uri(15), TX);
    for number in 0..20u8 {
        std::thread::sleep(Duration::from_millis(2));
        send(&mut sender, to, &[number]);
        sender.progress();
        match member.wait(Some(PATIENCE)).unwrap() {
            Some(Event::Recv(message)) => assert_eq!(message[0], number),
            event => panic!("{event:?}"),
        }
    }
}
