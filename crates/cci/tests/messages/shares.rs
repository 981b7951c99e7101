//! Memory of the library that is lent for long messages: no peer gets all of it, and a message for which there is none ends.

use crate::awkward::{HELLO, head, offer};
use crate::common::{PATIENCE, contents, endpoint, messenger};
use cci::limits::LONG_MESSAGES_MAX;
use cci::messages::{Event, Limits, Messenger};
use cci::{Access, Attribute, Connection, Endpoint, Event as Core, Memory, SendFlags};
use std::time::Instant;

/// A messenger, and an endpoint that is connected to it, writes its own frames and has memory that may be read.
fn with_liar(device: &str, limits: Limits) -> (Messenger, Endpoint, Connection) {
    let (mut honest, mut liar) = (messenger(device, limits), endpoint(device));
    liar.connect(honest.endpoint().uri(), HELLO, Attribute::ReliableUnordered, 0, None).unwrap();
    let (mut is_accepted, mut to_honest) = (false, None);
    let start = Instant::now();
    while !is_accepted || to_honest.is_none() {
        assert!(start.elapsed() < PATIENCE);
        match honest.next_event() {
            Some(Event::ConnectRequest(request)) => honest.accept(request, 4).unwrap(),
            Some(Event::Accept { result, .. }) => is_accepted = result.is_ok(),
            _ => {}
        }
        if let Some(Core::Connect { result, .. }) = liar.next_event() {
            to_honest = Some(result.unwrap());
        }
    }
    (honest, liar, to_honest.unwrap())
}

fn offer_many(liar: &mut Endpoint, to_honest: Connection, len: usize) -> Memory {
    let memory = liar.allocate(len).unwrap();
    let handle = liar.register(&memory, Access::READ).unwrap();
    for number in 0..LONG_MESSAGES_MAX {
        liar.send(to_honest, &offer(number, handle, len as u64), 0, SendFlags::SILENT).unwrap();
    }
    // They leave, and nobody has read anything yet.
    for _ in 0..100 {
        liar.progress();
    }
    memory
}

/// A sender that offers as much as it may, and then makes no progress, so that nothing of it can be read: others get their messages.
fn a_sender_that_stalls(device: &str) {
    const LEN: usize = 100_000;
    let limits = Limits::default().whole_bytes_max(LEN as u64).lent_bytes_max(1 << 20);
    let (mut server, mut liar, to_server) = with_liar(device, limits);
    let _memory = offer_many(&mut liar, to_server, LEN);
    let start = Instant::now();
    // As many as leave as much to others: the sixth would not.
    while server.counters().lent_bytes < 5 * LEN as u64 {
        assert!(start.elapsed() < PATIENCE, "{:?}", server.counters());
        assert!(server.next_event().is_none());
    }
    let mut client = messenger(device, Limits::default());
    client.connect(server.endpoint().uri(), b"", Attribute::ReliableOrdered, 0, None).unwrap();
    let long = contents(LEN, 1);
    let mut came = 0;
    while came < 8 {
        assert!(start.elapsed() < PATIENCE, "{came} messages, {:?}", server.counters());
        assert!(server.counters().lent_bytes <= 8 * (LEN as u64 + 4_096));
        match server.next_event() {
            Some(Event::ConnectRequest(request)) => server.accept(request, 0).unwrap(),
            Some(Event::Message(message)) => {
                assert!(message[..] == long[..]);
                came += 1;
            }
            Some(Event::Accept { .. }) | None => {}
            event => panic!("{event:?}"),
        }
        if let Some(Event::Connect { result, .. }) = client.next_event() {
            let to = result.unwrap();
            for _ in 0..8 {
                client.send(to, &long, 0, SendFlags::SILENT).unwrap();
            }
        }
    }
    // It goes on, and all that it has offered comes, too.
    let mut came = 0;
    while came < LONG_MESSAGES_MAX {
        assert!(start.elapsed() < PATIENCE, "{came} messages, {:?}", server.counters());
        liar.progress();
        client.next_event();
        if let Some(Event::Message(message)) = server.next_event() {
            assert_eq!(message.len(), LEN);
            came += 1;
        }
    }
    assert_eq!(server.counters().lent_bytes, 0);
}

crate::on_each_device!(@ udp4 [a_sender_that_stalls]);

mod stream {
    #[test]
    fn a_sender_that_stalls() {
        super::a_sender_that_stalls("tcp4");
    }
}

/// A message that the system has no memory for ends, and the next one comes.
#[test]
fn more_memory_than_there_is() {
    const LEN: u64 = 1 << 47;
    let limits = Limits::default().message_bytes_max(LEN).lent_bytes_max(LEN).whole_bytes_max(LEN);
    let (mut honest, mut liar, to_honest) = with_liar("shm", limits);
    let memory = liar.allocate(50_000).unwrap();
    let handle = liar.register(&memory, Access::READ).unwrap();
    liar.send(to_honest, &offer(1, handle, LEN), 0, SendFlags::SILENT).unwrap();
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < PATIENCE, "{:?}", honest.counters());
        assert!(honest.next_event().is_none());
        if let Some(Core::Recv(answer)) = liar.next_event() {
            assert_eq!(answer[..], [head(3, 3, 1), vec![0; 8]].concat(), "failed");
            break;
        }
    }
    assert_eq!((honest.counters().long_failed, honest.counters().lent_bytes), (1, 0));
    liar.send(to_honest, &offer(2, handle, 50_000), 0, SendFlags::SILENT).unwrap();
    loop {
        assert!(start.elapsed() < PATIENCE);
        liar.progress();
        if let Some(Event::Message(message)) = honest.next_event() {
            assert_eq!(message.len(), 50_000);
            break;
        }
    }
}
