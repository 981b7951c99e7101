//! Peers that try to keep a sleeper asleep, or a listener busy.

use crate::transport::shm::doorbell;
use crate::transport::shm::scripted::{PATIENCE, ask, confirm, dropped, endpoint, until};
use crate::transport::shm::server::Asked;
use crate::transport::shm::server::SILENT_MAX;
use crate::transport::shm::wire::{self, Message, Request, kind};
use crate::{Attribute, Endpoint, Event, SendFlags};
use cci_memory::ring::{Armed, RecordHeader};
use cci_sys::heavy_fence;
use cci_sys::process;
use cci_sys::unix::{Name, Stream};
use rustix::fs::OFlags;
use std::sync::mpsc;
use std::time::{Duration, Instant};

fn message(lie: &crate::transport::shm::scripted::Joined) -> RecordHeader {
    RecordHeader { kind: kind::MESSAGE, flags: lie.conn.generation as u8, conn: lie.conn.index, ack: 0 }
}

/// The peer clears a flag of the open file that is our bell, and writes without ringing it: whoever silences the bell before the next
/// sleep must not wait for a ring that never comes.
#[test]
fn a_bell_that_the_peer_made_blocking_freezes_nobody() {
    let mut server = endpoint();
    let attacker = ask(&mut server, 1, Attribute::ReliableOrdered);
    let mut lie = confirm(&mut server, attacker);
    let (done, slept) = mpsc::channel();
    let (to_sleep, sleep) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        while sleep.recv().is_ok() {
            let event = server.wait(Some(Duration::from_millis(1))).unwrap();
            let _ = done.send(event.is_some());
        }
    });
    rustix::fs::fcntl_setfl(&lie.peer_bell, OFlags::empty()).unwrap();
    let mut messages = 0;
    for _ in 0..8 {
        lie.producer.push(message(&lie), &[b"no ring"]).unwrap();
        for _ in 0..4 {
            to_sleep.send(()).unwrap();
            messages += u32::from(slept.recv_timeout(PATIENCE).expect("it sleeps for ever"));
        }
    }
    assert_eq!(messages, 8);
}

/// A link to a process of another user, as the kernel would say it.
fn stranger(server: &mut Endpoint) -> crate::transport::shm::scripted::Joined {
    let name = server.uri().strip_prefix("shm://").unwrap().to_owned();
    let stream = Stream::connect(&Name::Abstract(format!("cci/{name}").into_bytes())).unwrap();
    let own = crate::transport::shm::scripted::OWN;
    let request = Request { endpoint: 1, conn: own, mss: 4096, attribute: Attribute::ReliableOrdered };
    stream.send(Message::Request(request, b"").bytes().as_slice(), &[]).unwrap();
    until(server, "a request", |server, event| {
        let Some(Event::ConnectRequest(mut request)) = event else { return None };
        let asked = request.body.as_mut().unwrap().inner.downcast_mut::<Asked>().unwrap();
        asked.peer.uid = process::uid() + 1;
        server.accept(request, 1).unwrap();
        Some(())
    });
    let mut buffer = [0; wire::BYTES_MAX];
    let offered = stream.recv(&mut buffer, 2).unwrap();
    let Ok(Message::Accept(accept)) = wire::parse(&buffer[..offered.len]) else { panic!() };
    confirm(server, crate::transport::shm::scripted::Stranger { stream, accept, offered })
}

/// Nobody writes to the counter of another user's process: it is rung over the lifeline, and rings so, too.
#[test]
fn processes_of_two_users_ring_over_the_lifeline() {
    let all_users = "[shm]\ntransport = shm\nall_users = on\n";
    let context = crate::Context::from_text(all_users, std::path::Path::new("test.ini")).unwrap();
    let mut server = Endpoint::create(context.default_device(), crate::Options::default()).unwrap();
    let mut lie = stranger(&mut server);
    // The peer sleeps, with a bell whose counter is full and blocks who writes to it.
    rustix::io::write(&lie.bell, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    rustix::fs::fcntl_setfl(&lie.bell, OFlags::empty()).unwrap();
    assert_eq!(lie.consumer.arm(), Armed::MaySleep);
    server.send(lie.connection, b"wake up", 0, SendFlags::SILENT).unwrap();
    server.progress();
    let mut buffer = [0; 64];
    let rung = lie.stream.recv(&mut buffer, 2).unwrap();
    assert_eq!(&buffer[..rung.len], doorbell::RING);
    // And a ring wakes us.
    while server.wait(Some(Duration::from_millis(1))).unwrap().is_some() {}
    let woken_before = woken(&server);
    let connection = lie.connection;
    let peer = std::thread::spawn(move || {
        // Long enough for the server to sleep; if it does not yet, it finds the message by itself.
        std::thread::sleep(Duration::from_millis(100));
        lie.producer.push(message(&lie), &[b"hello"]).unwrap();
        lie.stream.send(doorbell::RING, &[]).unwrap();
        lie
    });
    let Some(Event::Recv(message)) = server.wait(Some(PATIENCE)).unwrap() else { panic!("no message") };
    assert_eq!(&*message, b"hello");
    let _lie = peer.join().unwrap();
    until(&mut server, "the ring", |server, _| (woken(server) > woken_before).then_some(()));
    assert!(server.is_open(connection));
}

/// In a stream the fences are light, until the endpoint is about to sleep, or has sent nothing for a while. A peer that makes no heavy
/// fences gets ordinary ones.
#[test]
fn fences_are_light_in_a_stream_only() {
    let has_heavy_fences = heavy_fence::register();
    for (offers, sleeps) in [(true, true), (true, false), (false, true)] {
        let mut server = endpoint();
        let attacker = ask(&mut server, 1, Attribute::ReliableOrdered);
        let mut lie = confirm(&mut server, attacker);
        if offers {
            lie.consumer.offer_heavy_fences();
        }
        let mut armed = Armed::MaySleep;
        // One record at a time: the peer is awake, and the next one finds space.
        for _ in 0..600 {
            server.send(lie.connection, b"one of many", 0, SendFlags::SILENT).unwrap();
            let _ = lie.consumer.peek().unwrap().expect("the message");
            lie.consumer.consume();
            lie.consumer.publish_head();
            armed = lie.consumer.arm();
            lie.consumer.disarm();
        }
        let is_light = offers && has_heavy_fences;
        assert_eq!(armed, if is_light { Armed::NeedsHeavyFence } else { Armed::MaySleep });
        if sleeps {
            while server.wait(Some(Duration::from_millis(1))).unwrap().is_some() {}
            assert_eq!(lie.consumer.arm(), Armed::MaySleep);
        } else {
            until(&mut server, "an end of the stream", |_, _| {
                (lie.consumer.arm() == Armed::MaySleep).then_some(())
            });
        }
        // A peer that sleeps is rung, and behind that fences are ordinary again.
        server.send(lie.connection, b"wake up", 0, SendFlags::SILENT).unwrap();
        assert!(lie.bell.drain().unwrap());
        assert_eq!(lie.consumer.arm(), Armed::HasRecord);
    }
}

/// Who goes to sleep on a peer with light fences is woken by the next message.
#[test]
fn a_peer_with_light_fences_wakes_who_sleeps() {
    let mut server = endpoint();
    let attacker = ask(&mut server, 1, Attribute::ReliableOrdered);
    let mut lie = confirm(&mut server, attacker);
    lie.producer.begin_light_fences();
    while server.wait(Some(Duration::from_millis(1))).unwrap().is_some() {}
    let connection = lie.connection;
    let peer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        lie.producer.push(message(&lie), &[b"hello"]).unwrap();
        if lie.producer.needs_wake() {
            lie.peer_bell.signal().unwrap();
        }
        lie
    });
    let Some(Event::Recv(message)) = server.wait(Some(PATIENCE)).unwrap() else { panic!("no message") };
    assert_eq!(&*message, b"hello");
    assert!(server.is_open(connection));
    drop(peer.join().unwrap());
}

fn woken(server: &Endpoint) -> u64 {
    let counters = server.counters();
    counters.device.iter().find(|(name, _)| *name == "wakes_received").map_or(0, |(_, count)| *count)
}

/// Whoever asks who we are has more time for the next word, once; a crowd of them makes room for others like one that says nothing.
#[test]
fn a_crowd_that_asks_who_we_are_keeps_nobody_out() {
    let context = crate::Context::from_text(
        "[any]\ntransport = any\nip = 127.0.0.1\n",
        std::path::Path::new("test.ini"),
    );
    let mut server = Endpoint::create(context.unwrap().default_device(), crate::Options::default()).unwrap();
    let (_, tail) = server.uri().split_once("shm=").unwrap();
    let name = Name::Abstract(format!("cci/{}", tail.split(',').next().unwrap()).into_bytes());
    let mut many = Vec::new();
    let start = Instant::now();
    while many.len() < SILENT_MAX as usize && start.elapsed() < PATIENCE {
        if let Ok(stream) = Stream::connect(&name) {
            stream.send(Message::Who.bytes().as_slice(), &[]).unwrap();
            many.push(stream);
        }
        server.progress();
    }
    assert_eq!(many.len(), SILENT_MAX as usize);
    // One of them asks again: that is no more time for it, but its end.
    many[7].send(Message::Who.bytes().as_slice(), &[]).unwrap();
    until(&mut server, "the end of one that asks twice", |_, _| many[7].hung_up().then_some(()));
    // Another takes its place, so that there is none for an honest client.
    let another = Stream::connect(&name).unwrap();
    another.send(Message::Who.bytes().as_slice(), &[]).unwrap();
    let mut client = endpoint();
    client.connect(server.uri(), b"", Attribute::ReliableOrdered, 7, Some(PATIENCE)).unwrap();
    let start = Instant::now();
    let mut connected = false;
    while !connected && start.elapsed() < PATIENCE {
        if let Some(Event::ConnectRequest(request)) = server.next_event() {
            server.accept(request, 1).unwrap();
        }
        if let Some(Event::Connect { result, .. }) = client.next_event() {
            connected = result.is_ok();
        }
    }
    assert!(connected, "{:?}", server.counters());
    assert!(dropped(&server, "handshake_timed_out") > 0, "room was made: {:?}", server.counters());
}
