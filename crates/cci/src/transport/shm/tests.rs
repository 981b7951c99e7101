//! Peers that lie: they run the handshake by a script, and send what an honest endpoint would never send.

mod files;
mod flows;
mod kept;
mod lasting;
mod loans;
mod mapped;
mod quotas;
mod rma;
mod taking_back;
mod waking;

use super::RING_BYTES_MAX;
use super::scripted::*;
use super::server::Asked;
use super::wire::{self, Message, Offer, Request, kind};
use crate::DisconnectReason;
use crate::config::builtin;
use crate::{
    AcceptError, Attribute, ConnectFailure, Connection, Endpoint, Event, Options, SendFlags, Status,
};
use cci_memory::bytes::Backing;
use cci_memory::ring::{RecordHeader, region_bytes};
use cci_sys::event::EventFd;
use cci_sys::process;
use cci_sys::shared_memory::SharedMemory;
use cci_sys::unix::{Name, Stream};
use rustix::fs::{MemfdFlags, SealFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

#[test]
fn what_an_honest_scripted_peer_does_works() {
    let mut server = endpoint();
    let attacker = ask(&mut server, 1, Attribute::ReliableOrdered);
    let mut lie = confirm(&mut server, attacker);
    let header =
        RecordHeader { kind: kind::MESSAGE, flags: lie.conn.generation as u8, conn: lie.conn.index, ack: 0 };
    lie.producer.push(header, &[b"forged"]).unwrap();
    let connection = until(&mut server, "a message", |_, event| match event {
        Some(Event::Recv(message)) if &*message == b"forged" => Some(message.connection()),
        _ => None,
    });
    assert_eq!(connection, lie.connection);
    assert_eq!(server.max_send_size(connection), Some(4096), "the smaller of both sides'");
    server.send(connection, b"answer", 3, SendFlags::NONE).unwrap();
    let record = lie.consumer.peek().unwrap().unwrap();
    assert_eq!(
        (record.header().kind, record.header().conn, record.len_bytes()),
        (kind::MESSAGE, OWN.index, 6)
    );
    lie.consumer.consume();
    lie.consumer.publish_head();
    until(&mut server, "a completion", |_, event| match event {
        Some(Event::Send { context: 3, status, .. }) => {
            assert_eq!(status, Status::Success);
            Some(())
        }
        _ => None,
    });
}

#[test]
fn a_peer_that_keeps_sending_leaves_a_quick_program_its_receive_buffers() {
    const BUFFERS: u32 = 256;
    let mut server =
        Endpoint::create(&builtin::shm("shm"), Options { recv_buffers: BUFFERS, ..Options::default() })
            .unwrap();
    let attacker = ask(&mut server, 1, Attribute::ReliableOrdered);
    let mut lie = confirm(&mut server, attacker);
    let header =
        RecordHeader { kind: kind::MESSAGE, flags: lie.conn.generation as u8, conn: lie.conn.index, ack: 0 };
    for _ in 0..400 {
        lie.producer.push(header, &[b"one of many"]).unwrap();
    }
    let (mut taken, mut free_min) = (0, BUFFERS);
    until(&mut server, "the last of the messages", |server, event| {
        taken += u32::from(matches!(event, Some(Event::Recv(_))));
        free_min = free_min.min(server.recv_buffers_free());
        (taken == 400).then_some(())
    });
    // A turn of progress takes 64 at most. One more has its turn if something else has the processor meanwhile.
    assert!(free_min >= BUFFERS / 4, "{free_min}");
}

#[test]
fn a_request_that_came_elsewhere_is_admitted_by_who_accepts_it() {
    let (mut front, mut worker) = (endpoint(), endpoint());
    let name = front.uri().strip_prefix("shm://").unwrap().to_owned();
    let client = Stream::connect(&Name::Abstract(format!("cci/{name}").into_bytes())).unwrap();
    let request = Request { endpoint: 1, conn: OWN, mss: 4096, attribute: Attribute::ReliableOrdered };
    client.send(Message::Request(request, b"").bytes().as_slice(), &[]).unwrap();
    let mut request = until(&mut front, "a request", |_, event| match event {
        Some(Event::ConnectRequest(request)) => Some(request),
        _ => None,
    });
    // As if the endpoint that it came to had all_users = on, and the process were another user's: neither this one's nor root's.
    let asked = request.body.as_mut().unwrap().inner.downcast_mut::<Asked>().unwrap();
    asked.peer.uid = process::uid() + 1;
    assert!(matches!(worker.accept(request, 1), Err(AcceptError::NotPermitted)));
    let mut buffer = [0; wire::BYTES_MAX];
    let got = client.recv(&mut buffer, 2).unwrap();
    assert_eq!(wire::parse(&buffer[..got.len]), Ok(Message::Refuse(ConnectFailure::NotPermitted)));
    assert_eq!((dropped(&worker, "not_permitted"), worker.counters().connections_open), (1, 0));
}

#[test]
fn records_that_name_nothing_are_counted_and_passed_over() {
    let mut server = endpoint();
    let attacker = ask(&mut server, 1, Attribute::ReliableOrdered);
    let mut lie = confirm(&mut server, attacker);
    let other = ask(&mut server, 2, Attribute::ReliableOrdered);
    let other = confirm(&mut server, other);
    let mut sent = 0;
    for kind in 0..=255 {
        // Another generation, no such place, and the connection of another link.
        let stale = lie.conn.generation as u8 ^ 1;
        for (conn, flags) in
            [(lie.conn.index, stale), (77, 1), (u32::MAX, 0), (other.conn.index, other.conn.generation as u8)]
        {
            if lie.producer.push(RecordHeader { kind, flags, conn, ack: 0 }, &[&[kind; 40]]).is_err() {
                server.progress();
                lie.producer.push(RecordHeader { kind, flags, conn, ack: 0 }, &[&[kind; 40]]).unwrap();
            }
            sent += 1;
        }
        server.progress();
        // PONGs, CLOSEs for those who confirm too late.
        while lie.consumer.peek().unwrap().is_some() {
            lie.consumer.consume();
            lie.consumer.publish_head();
        }
    }
    assert_eq!(sent, 1024);
    until(&mut server, "reading it all", |server, event| {
        assert!(event.is_none(), "{event:?}");
        (dropped(server, "bad_record") + dropped(server, "unknown_connection") >= 1000).then_some(())
    });
    assert!(server.is_open(lie.connection) && server.is_open(other.connection));
    server.send(other.connection, b"fine", 0, SendFlags::SILENT).unwrap();
}

#[test]
fn an_acknowledgement_of_what_was_never_sent_ends_the_link_and_no_other() {
    let mut server = endpoint();
    let attacker = ask(&mut server, 1, Attribute::ReliableOrdered);
    let mut lie = confirm(&mut server, attacker);
    let honest = ask(&mut server, 2, Attribute::ReliableOrdered);
    let honest = confirm(&mut server, honest);
    server.send(lie.connection, b"under way", 5, SendFlags::NONE).unwrap();
    let header = RecordHeader {
        kind: kind::MESSAGE,
        flags: lie.conn.generation as u8,
        conn: lie.conn.index,
        ack: 1_000,
    };
    lie.producer.push(header, &[b"I have read it all, and more"]).unwrap();
    until(&mut server, "the end of the send", |_, event| match event {
        Some(Event::Send { context: 5, status, .. }) => {
            assert_eq!(status, Status::Disconnected);
            Some(())
        }
        Some(other) => panic!("{other:?}"),
        None => None,
    });
    assert_eq!(dropped(&server, "link_corrupt"), 1);
    assert!(!server.is_open(lie.connection) && server.is_open(honest.connection));
    assert!(lie.stream.hung_up(), "the liar is hung up on");
}

/// This side has ended the connection, because of what its peer said.
fn is_refusal(event: &Event) -> bool {
    matches!(event, Event::Disconnected { reason: DisconnectReason::Refused, .. })
}

#[test]
fn a_close_beside_a_position_that_cannot_be_ends_the_connection_too() {
    let mut server = endpoint();
    let attacker = ask(&mut server, 1, Attribute::ReliableOrdered);
    let mut lie = confirm(&mut server, attacker);
    // How far the liar says to have read, in the first word of its ring: more than was ever written.
    assert!(lie.again.bytes().write(0, &(64_u64 << 20).to_le_bytes()));
    let header =
        RecordHeader { kind: kind::CLOSE, flags: lie.conn.generation as u8, conn: lie.conn.index, ack: 0 };
    lie.producer.push(header, &[]).unwrap();
    until(&mut server, "the end", |_, event| event.map(|event| assert!(is_refusal(&event), "{event:?}")));
    assert_eq!(dropped(&server, "link_corrupt"), 1);
    assert_eq!(server.counters().connections_open, 0);
}

#[test]
fn descriptors_that_are_not_what_they_should_be_fail_the_accept() {
    let good = SharedMemory::create("cci-liar", region_bytes(RING_BYTES as usize)).unwrap();
    let short = SharedMemory::create("cci-liar", region_bytes(4096)).unwrap();
    let odd = SharedMemory::create("cci-liar", 40_000).unwrap();
    // Longer than any that this version makes; and one without a single page.
    let long = SharedMemory::create("cci-liar", region_bytes(2 * RING_BYTES_MAX as usize)).unwrap();
    let sparse = sparse(region_bytes(RING_BYTES as usize) as u64);
    let (bell, file) = (EventFd::new().unwrap(), std::fs::File::open("/proc/self/exe").unwrap());
    let (segment, bell, file) = (good.fd().unwrap(), bell.as_fd(), file.as_fd());
    let cases: [(u32, Vec<BorrowedFd<'_>>); 10] = [
        (RING_BYTES, vec![]),
        (RING_BYTES, vec![segment]),
        (RING_BYTES, vec![segment, file]),
        (RING_BYTES, vec![file, bell]),
        (RING_BYTES, vec![bell, segment]),
        (RING_BYTES, vec![short.fd().unwrap(), bell]),
        (40_000 - 256, vec![odd.fd().unwrap(), bell]),
        (RING_BYTES, vec![segment, bell, bell]),
        (2 * RING_BYTES_MAX, vec![long.fd().unwrap(), bell]),
        (RING_BYTES, vec![sparse.as_fd(), bell]),
    ];
    let mut server = endpoint();
    for (number, (ring_bytes, fds)) in cases.into_iter().enumerate() {
        let before = std::fs::read_dir("/proc/self/fd").unwrap().count();
        let attacker = ask(&mut server, number as u64, Attribute::ReliableOrdered);
        attacker.stream.send(Message::Confirm { ring_bytes }.bytes().as_slice(), &fds).unwrap();
        let why = until(&mut server, "a failure", |_, event| match event {
            Some(Event::Accept { context: 1, result }) => Some(result.unwrap_err()),
            _ => None,
        });
        assert_eq!(why, ConnectFailure::Disconnected, "case {number}");
        assert_eq!(server.counters().connections_open, 0);
        let rings =
            server.counters().memory.kinds.iter().find(|(kind, _)| *kind == "rings").map(|(_, bytes)| *bytes);
        assert_eq!(rings, Some(0), "case {number}");
        drop(attacker);
        // Other tests of this program open descriptors of their own: look for growth beyond what they could have.
        let after = std::fs::read_dir("/proc/self/fd").unwrap().count();
        assert!(after < before + 200, "{before} {after}");
    }
    assert_eq!(
        rustix::fs::fstat(&sparse).unwrap().st_blocks,
        0,
        "blocks that a confirmation made us allocate"
    );
}

/// A file that is as long as it says, sealed, and empty.
fn sparse(len: u64) -> OwnedFd {
    let fd = rustix::fs::memfd_create("cci-sparse", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&fd, len).unwrap();
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).unwrap();
    fd
}

#[test]
fn a_request_for_anothers_link_gets_no_link_and_disturbs_nobody() {
    let mut server = endpoint();
    let victim = ask(&mut server, 42, Attribute::ReliableOrdered);
    let victim = confirm(&mut server, victim);
    // Both are in one process, so that even the pid is right: only the ring distinguishes the two.
    let thief = ask(&mut server, 42, Attribute::ReliableOrdered);
    let Offer::Join { server_made_it: true } = thief.accept.offer else { panic!("{:?}", thief.accept.offer) };
    assert!(thief.offered.fds.is_empty());
    // It says that it does not know the link, and is offered one of its own.
    thief.stream.send(Message::NoLink.bytes().as_slice(), &[]).unwrap();
    let mut buffer = [0; wire::BYTES_MAX];
    let offered = until(&mut server, "another offer", |_, event| {
        assert!(event.is_none(), "{event:?}");
        thief.stream.recv(&mut buffer, 2).ok()
    });
    let Ok(Message::Accept(accept)) = wire::parse(&buffer[..offered.len]) else { panic!() };
    assert!(matches!(accept.offer, Offer::New { .. }));
    let thief = confirm(&mut server, Stranger { stream: thief.stream, accept, offered });
    assert!(server.is_open(victim.connection) && server.is_open(thief.connection));
}

#[test]
fn a_word_on_the_lifeline_ends_the_link() {
    let mut server = endpoint();
    let attacker = ask(&mut server, 1, Attribute::ReliableOrdered);
    let lie = confirm(&mut server, attacker);
    lie.stream.send(b"psst", &[]).unwrap();
    until(&mut server, "the end", |_, event| event.map(|event| assert!(is_refusal(&event), "{event:?}")));
}

#[test]
fn a_stall_word_that_cannot_be_does_not_keep_a_send_for_ever() {
    let mut server = endpoint();
    let attacker = ask(&mut server, 1, Attribute::ReliableOrdered);
    let mut lie = confirm(&mut server, attacker);
    // "The producer is taking records back": a word that only the server may write.
    lie.consumer.stall();
    let mut producer = lie.again.into_producer(8192).unwrap();
    std::mem::forget(producer.try_cancel().unwrap().unwrap());
    server.set_send_timeout(lie.connection, Duration::from_millis(50)).unwrap();
    server.send(lie.connection, b"well?", 5, SendFlags::NONE).unwrap();
    until(&mut server, "the end of the send", |_, event| match event {
        Some(Event::Send { context: 5, status, .. }) => {
            assert_eq!(status, Status::TimedOut);
            Some(())
        }
        Some(other) => panic!("{other:?}"),
        None => None,
    });
    assert!(!server.is_open(lie.connection));
}
