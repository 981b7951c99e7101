//! Programs that sleep, on the descriptor or in `wait`, are woken by whatever there is for them.

use crate::common::{At, Pair, contents};
use cci::messages::{Event, Limits, Messenger};
use cci::{Attribute, SendFlags};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use std::os::fd::AsFd;
use std::time::Duration;

crate::on_each_device!(
    a_loop_on_the_descriptors,
    there_and_back,
    there_and_back_by_edges,
    woken_by_memory_that_comes_back,
    waiting_ends,
);

/// Whether a descriptor becomes readable within `ms` milliseconds.
fn is_readable(descriptor: impl AsFd, ms: u64) -> bool {
    let timeout = Timespec::try_from(Duration::from_millis(ms)).unwrap();
    let mut descriptors = [PollFd::new(&descriptor, PollFlags::IN)];
    poll(&mut descriptors, Some(&timeout)).unwrap() > 0
}

/// Both sides sleep on their descriptors whenever there is nothing.
fn a_loop_on_the_descriptors(device: &str) {
    let limits = Limits::default().whole_bytes_max(20_000);
    let mut pair = Pair::with(device, Attribute::ReliableOrdered, limits);
    for at in 0..8 {
        let len = [5, 15_000, 700_000, 6_000_000][at % 4];
        pair.client.messenger.send(pair.client.peer, &contents(len, at), 0, SendFlags::NONE).unwrap();
    }
    let (mut came, mut sent) = (0, 0);
    while came < 8 || sent < 8 {
        let timeout = Timespec::try_from(crate::common::PATIENCE).unwrap();
        let (client, server) = (&mut pair.client.messenger, &mut pair.server.messenger);
        let mut descriptors = [PollFd::new(client, PollFlags::IN), PollFd::new(server, PollFlags::IN)];
        assert!(
            poll(&mut descriptors, Some(&timeout)).unwrap() > 0,
            "{device}: {came} came, {sent} were sent"
        );
        while let Some(event) = server.next_event() {
            match event {
                Event::Offer(offer) => server.receive(offer).unwrap(),
                Event::Message(message) => {
                    assert!(message[..] == contents(message.len(), came));
                    came += 1;
                }
                event => panic!("{event:?}"),
            }
        }
        while let Some(event) = client.next_event() {
            assert!(matches!(event, Event::Sent { result: Ok(()), .. }), "{event:?}");
            sent += 1;
        }
    }
    pair.idle();
    assert!(!is_readable(&pair.server.messenger, 0), "{device}: nothing is left");
    // What the program does may have an event at once.
    pair.client.messenger.send(pair.client.peer, &contents(100_000, 1), 0, SendFlags::NONE).unwrap();
    let id = pair.client.messenger.send(pair.client.peer, &contents(100_000, 1), 0, SendFlags::NONE).unwrap();
    let offer = pair.run(|_, at, event| match (at, event) {
        (At::Server, Event::Offer(offer)) => Some(offer),
        (at, event) => panic!("{at:?}: {event:?}"),
    });
    pair.idle();
    pair.server.messenger.refuse(offer, 1).unwrap();
    assert!(is_readable(&pair.server.messenger, 0), "{device}: the next offer is there");
    assert!(matches!(pair.server.messenger.next_event(), Some(Event::Offer(_))));
    assert!(pair.client.messenger.cancel(id));
}

/// A message waits for memory, and its receiver sleeps; another thread gives memory back.
fn woken_by_memory_that_comes_back(device: &str) {
    for on_descriptor in [false, true] {
        let limits = Limits::default().lent_bytes_max(1 << 20);
        let mut pair = Pair::with(device, Attribute::ReliableOrdered, limits);
        if on_descriptor {
            let _ = pair.server.messenger.as_fd();
        }
        for _ in 0..2 {
            pair.client
                .messenger
                .send(pair.client.peer, &contents(1_000_000, 1), 0, SendFlags::SILENT)
                .unwrap();
        }
        let kept = pair.run(|_, at, event| match (at, event) {
            (At::Server, Event::Message(message)) => Some(message),
            (at, event) => panic!("{at:?}: {event:?}"),
        });
        pair.idle();
        assert!(pair.server.messenger.next_event().is_none());
        let (mut client, server) = (pair.client.messenger, &mut pair.server.messenger);
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                drop(kept);
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    let _ = client.wait(Some(Duration::from_millis(1))).unwrap();
                }
            });
            let message = if on_descriptor {
                loop {
                    assert!(is_readable(&*server, 60_000), "{device}: asleep");
                    if let Some(event) = server.next_event() {
                        break event;
                    }
                }
            } else {
                server.wait(Some(crate::common::PATIENCE)).unwrap().expect("asleep")
            };
            assert!(matches!(message, Event::Message(_)), "{message:?}");
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
}

fn waiting_ends(device: &str) {
    let mut pair = Pair::new(device, Attribute::ReliableOrdered);
    pair.idle();
    assert!(pair.server.messenger.wait(Some(Duration::from_millis(5))).unwrap().is_none());
    pair.client.messenger.send(pair.client.peer, b"awake", 0, SendFlags::SILENT).unwrap();
    pair.client.messenger.next_event();
    let event = pair.server.messenger.wait(Some(crate::common::PATIENCE)).unwrap();
    assert!(matches!(event, Some(Event::Message(message)) if message[..] == *b"awake"));
}

/// Long messages go there and back, and both sides sleep on their descriptors whenever there is nothing.
fn there_and_back(device: &str) {
    echo(device, |client, server| {
        let timeout = Timespec::try_from(crate::common::PATIENCE).unwrap();
        let mut descriptors = [PollFd::new(client, PollFlags::IN), PollFd::new(server, PollFlags::IN)];
        poll(&mut descriptors, Some(&timeout)).unwrap() > 0
    });
}

/// As tokio has them: a descriptor that was readable is reported again only when something makes it readable anew.
fn there_and_back_by_edges(device: &str) {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let mut is_watched = false;
    echo(device, |client, server| {
        if !std::mem::replace(&mut is_watched, true) {
            for descriptor in [client, server] {
                let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
                epoll::add(&epoll, descriptor, epoll::EventData::new_u64(0), flags).unwrap();
            }
        }
        let timeout = Timespec::try_from(crate::common::PATIENCE).unwrap();
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 2];
        epoll::wait(&epoll, &mut events[..], Some(&timeout)).unwrap() > 0
    });
}

/// Sends long messages there and back. `sleep` returns false if nothing comes.
fn echo(device: &str, mut sleep: impl FnMut(&Messenger, &Messenger) -> bool) {
    let mut pair = Pair::new(device, Attribute::ReliableOrdered);
    let lens = [5, 9_000, 700_000, 700_000, 9_000, 700_000];
    let mut back = 0;
    pair.client.messenger.send(pair.client.peer, &contents(lens[0], 0), 0, SendFlags::SILENT).unwrap();
    while back < lens.len() {
        let (client, server) = (&mut pair.client.messenger, &mut pair.server.messenger);
        assert!(sleep(client, server), "{device}: {back} came back");
        while let Some(event) = server.next_event() {
            match event {
                Event::Message(message) => {
                    server.send(message.connection(), &message[..], 0, SendFlags::NONE).unwrap();
                }
                Event::Sent { result, .. } => assert_eq!(result, Ok(())),
                event => panic!("{event:?}"),
            }
        }
        while let Some(event) = client.next_event() {
            match event {
                Event::Message(message) => {
                    assert!(message[..] == contents(lens[back], back));
                    back += 1;
                    if let Some(len) = lens.get(back) {
                        client.send(message.connection(), &contents(*len, back), 0, SendFlags::NONE).unwrap();
                    }
                }
                Event::Sent { result, .. } => assert_eq!(result, Ok(())),
                event => panic!("{event:?}"),
            }
        }
    }
}
