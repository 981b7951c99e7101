//! Peers that are no messengers, or no honest ones: endpoints that send what they like.

use crate::common::{self, PATIENCE, contents, endpoint, messenger};
use cci::limits::{CALLS_ALL_MAX, CALLS_MAX, HELD_MESSAGES_MAX, LONG_MESSAGES_MAX};
use cci::messages::{CallFailure, Event, Limits, Messenger, ReplyError, SendFailure};
use cci::{
    Access, Attribute, Connection, DisconnectReason, Endpoint, Event as Core, Memory, Options, RegionHandle,
    SendError, SendFlags,
};
use std::time::Instant;

/// A messenger, and a plain endpoint that is connected to it and writes its own frames.
struct Scene {
    honest: Messenger,
    to_liar: Connection,
    liar: Endpoint,
    to_honest: Connection,
}

/// What a request of a messenger begins with.
pub const HELLO: &[u8] = b"CCImsg\x02\0";

impl Scene {
    fn new(device: &str, attribute: Attribute) -> Scene {
        Scene::with(device, attribute, Options::default())
    }

    /// With these options of the honest side.
    fn with(device: &str, attribute: Attribute, options: Options) -> Scene {
        let limits = Limits::default().whole_bytes_max(100_000);
        let honest = Endpoint::create(&common::device(device), options).unwrap();
        let (mut honest, mut liar) = (Messenger::new(honest, limits).unwrap(), endpoint(device));
        liar.connect(honest.endpoint().uri(), HELLO, attribute, 0, None).unwrap();
        let (mut to_liar, mut to_honest) = (None, None);
        let start = Instant::now();
        while to_liar.is_none() || to_honest.is_none() {
            assert!(start.elapsed() < PATIENCE);
            match honest.next_event() {
                Some(Event::ConnectRequest(request)) => honest.accept(request, 4).unwrap(),
                Some(Event::Accept { result, .. }) => to_liar = Some(result.unwrap()),
                _ => {}
            }
            if let Some(Core::Connect { result, .. }) = liar.next_event() {
                to_honest = Some(result.unwrap());
            }
        }
        Scene { honest, to_liar: to_liar.unwrap(), liar, to_honest: to_honest.unwrap() }
    }

    fn say(&mut self, frame: &[u8]) {
        self.liar.send(self.to_honest, frame, 0, SendFlags::SILENT).unwrap();
    }

    /// The next event of the honest side.
    fn event(&mut self) -> Event {
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < PATIENCE);
            self.liar.progress();
            if let Some(event) = self.honest.next_event() {
                return event;
            }
        }
    }

    /// The next message that the liar gets.
    fn heard(&mut self) -> Vec<u8> {
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < PATIENCE);
            if let Some(event) = self.honest.next_event() {
                panic!("{event:?}");
            }
            if let Some(Core::Recv(message)) = self.liar.next_event() {
                return message.to_vec();
            }
        }
    }

    /// Registers memory of the liar's.
    fn region(&mut self, len: usize) -> (Memory, RegionHandle) {
        let memory = self.liar.allocate(len).unwrap();
        assert!(memory.write(0, &contents(len, 1)));
        let handle = self.liar.register(&memory, Access::READ).unwrap();
        (memory, handle)
    }

    /// The honest side ends the connection, once, and counts why.
    fn is_found_out(&mut self) {
        loop {
            match self.event() {
                Event::Disconnected { connection, context: 4, reason: DisconnectReason::Refused } => {
                    assert_eq!(connection, self.to_liar);
                    break;
                }
                // What came before, and the end of what was offered.
                Event::Offer(_) | Event::Message(_) | Event::Received { result: Err(_), .. } => {}
                event => panic!("{event:?}"),
            }
        }
        assert_eq!(self.honest.counters().faults, 1);
        assert_eq!(self.honest.endpoint().counters().regions, 0);
        assert_eq!(self.honest.counters().lent_bytes, 0);
        let refused = self.honest.send(self.to_liar, b"", 0, SendFlags::NONE);
        assert!(refused.is_err(), "{refused:?}");
    }
}

pub fn head(kind: u8, detail: u8, number: u32) -> Vec<u8> {
    [&[kind, detail, 0, 0][..], &number.to_le_bytes()].concat()
}

fn segment(handle: RegionHandle, offset: u64, len_bytes: u64) -> Vec<u8> {
    [&handle.to_bytes()[..], &offset.to_le_bytes(), &len_bytes.to_le_bytes()].concat()
}

pub fn offer(number: u32, handle: RegionHandle, len_bytes: u64) -> Vec<u8> {
    [head(2, 1, number), segment(handle, 0, len_bytes)].concat()
}

crate::on_each_device!(
    frames_that_are_none,
    lengths_that_lie,
    an_offer_of_nothing,
    more_than_the_window,
    numbers_that_are_taken,
    answers_to_nothing,
    a_stranger_is_refused,
    a_server_that_is_no_messenger,
    requests_beyond_the_window,
    a_request_that_is_made_twice,
    replies_that_nobody_waits_for,
    a_reply_by_somebody_else,
    a_long_request_that_can_not_be_fetched,
    given_up_again_and_again,
);

fn frames_that_are_none(device: &str) {
    let handle = RegionHandle::from_bytes([7; 32]);
    let frames = [
        vec![],
        vec![1, 0, 0, 0, 0, 0, 0],
        head(0, 0, 0),
        head(1, 1, 0),
        head(1, 0, 1),
        head(6, 0, 0),
        [1, 0, 1, 0, 0, 0, 0, 0].to_vec(),
        // Offers: no segment, fewer or more than there are, a part of one, an empty one, one that ends nowhere, too long in all.
        head(2, 0, 0),
        [head(2, 2, 0), segment(handle, 0, 9)].concat(),
        [head(2, 1, 0), segment(handle, 0, 9), segment(handle, 0, 9)].concat(),
        [head(2, 1, 0), segment(handle, 0, 9)[..47].to_vec()].concat(),
        [head(2, 1, 0), segment(handle, 0, 0)].concat(),
        [head(2, 1, 0), segment(handle, u64::MAX, 1)].concat(),
        [head(2, 2, 0), segment(handle, 0, u64::MAX), segment(handle, 0, 1)].concat(),
        [head(2, 5, 0), segment(handle, 0, 9).repeat(5)].concat(),
        // Answers, cancellations and progress.
        head(3, 0, 0),
        [head(3, 4, 0), vec![0; 8]].concat(),
        [head(3, 0, 0), vec![1; 8]].concat(),
        [head(3, 1, 0), vec![1; 8]].concat(),
        [head(4, 0, 0), vec![0]].concat(),
        head(5, 0, 0),
        // Calls: no such detail, no such number, an error without its code, or with a wrong one.
        head(6, 6, 0),
        head(6, 1, CALLS_ALL_MAX),
        head(6, 3, 0),
        [head(6, 3, 0), vec![1; 8]].concat(),
        [head(6, 4, 0), vec![0]].concat(),
        head(6, 5, 0),
        [head(6, 5, 0), 3_u64.to_le_bytes().to_vec()].concat(),
        // Offers for calls: no such purpose, no number, and one that is none.
        [head(2, 0x41, 0), vec![0; 8], segment(handle, 0, 9)].concat(),
        [head(2, 0x11, 0), segment(handle, 0, 9)].concat(),
        [head(2, 0x11, 0), vec![255; 8], segment(handle, 0, 9)].concat(),
        [head(2, 0x31, 0), vec![0; 8], vec![1; 8], segment(handle, 0, 9)].concat(),
    ];
    for frame in frames {
        let mut scene = Scene::new(device, Attribute::ReliableOrdered);
        scene.say(&[&head(1, 0, 0)[..], b"good"].concat());
        scene.say(&frame);
        assert!(matches!(scene.event(), Event::Message(message) if message[..] == *b"good"), "{frame:?}");
        scene.is_found_out();
    }
}

/// An offer that is longer than what the region has ends without a message, and the connection lives.
fn lengths_that_lie(device: &str) {
    for attribute in [Attribute::ReliableOrdered, Attribute::ReliableUnordered] {
        let mut scene = Scene::new(device, attribute);
        let (_memory, handle) = scene.region(50_000);
        scene.say(&offer(1, handle, 50_001));
        assert_eq!(scene.heard(), [head(3, 3, 1), vec![0; 8]].concat(), "failed");
        scene.say(&offer(2, RegionHandle::from_bytes([9; 32]), 60_000));
        assert_eq!(scene.heard(), [head(3, 3, 2), vec![0; 8]].concat(), "failed");
        scene.say(&offer(3, handle, 50_000));
        assert!(matches!(scene.event(), Event::Message(message) if message[..] == contents(50_000, 1)));
        assert_eq!(scene.heard(), [head(3, 0, 3), vec![0; 8]].concat(), "received");
        scene.say(&offer(4, handle, u64::MAX));
        assert_eq!(scene.heard(), [head(3, 2, 4), (1_u64 << 40).to_le_bytes().to_vec()].concat(), "too long");
        assert_eq!(scene.honest.counters().faults, 0);
    }
}

/// A sender that offers and does nothing more holds nothing but its own connection's places.
fn an_offer_of_nothing(device: &str) {
    let mut scene = Scene::new(device, Attribute::ReliableOrdered);
    let (_memory, handle) = scene.region(200_000);
    for number in 0..LONG_MESSAGES_MAX {
        scene.say(&offer(number, handle, 200_000));
    }
    let Event::Offer(first) = scene.event() else { panic!() };
    assert_eq!(scene.honest.counters().lent_bytes, 0);
    // The memory of the offer is gone, and the program accepts it now.
    scene.liar.deregister(&handle).unwrap();
    scene.honest.receive(first).unwrap();
    assert!(matches!(scene.event(), Event::Received { offer, result: Err(_), .. } if offer == first));
    assert!(matches!(scene.event(), Event::Offer(_)));
    scene.liar.disconnect(scene.to_honest);
    assert!(matches!(scene.event(), Event::Received { result: Err(_), .. }));
    assert!(matches!(scene.event(), Event::Disconnected { .. }));
    assert_eq!(scene.honest.counters().lent_bytes, 0);
}

fn more_than_the_window(device: &str) {
    let mut scene = Scene::new(device, Attribute::ReliableOrdered);
    let (_memory, handle) = scene.region(200_000);
    for number in 0..=LONG_MESSAGES_MAX {
        scene.say(&offer(number, handle, 200_000));
    }
    scene.is_found_out();
    let mut scene = Scene::new(device, Attribute::ReliableOrdered);
    let (_memory, handle) = scene.region(200_000);
    scene.say(&offer(0, handle, 200_000));
    for _ in 0..=HELD_MESSAGES_MAX {
        scene.say(&head(1, 0, 0));
    }
    scene.is_found_out();
}

fn numbers_that_are_taken(device: &str) {
    for attribute in [Attribute::ReliableOrdered, Attribute::ReliableUnordered] {
        let mut scene = Scene::new(device, attribute);
        let (_memory, handle) = scene.region(200_000);
        scene.say(&offer(5, handle, 200_000));
        scene.say(&offer(5, handle, 200_000));
        scene.is_found_out();
    }
}

/// Answers and cancellations for messages that are unknown are counted, and change nothing; so is a second answer.
fn answers_to_nothing(device: &str) {
    let mut scene = Scene::new(device, Attribute::ReliableOrdered);
    scene.say(&[head(3, 0, 9), vec![0; 8]].concat());
    scene.say(&head(4, 0, 9));
    scene.say(&[head(5, 0, 9), vec![0; 8]].concat());
    scene.honest.send(scene.to_liar, &contents(30_000, 1), 6, SendFlags::NONE).unwrap();
    let offered = scene.heard();
    assert_eq!((offered[0], offered.len()), (2, 56));
    // Progress beyond the end, and backwards.
    scene.say(&[head(5, 0, 0), vec![255; 8]].concat());
    scene.say(&[head(5, 0, 0), vec![0; 8]].concat());
    scene.say(&[head(3, 1, 0), 12_u64.to_le_bytes().to_vec()].concat());
    scene.say(&[head(3, 0, 0), vec![0; 8]].concat());
    let Event::Sent { context: 6, result, .. } = scene.event() else { panic!() };
    assert_eq!(result, Err(SendFailure::Refused(12)));
    scene.say(&head(1, 0, 0));
    assert!(matches!(scene.event(), Event::Message(_)));
    assert_eq!((scene.honest.counters().late, scene.honest.counters().faults), (3, 0));
}

fn a_stranger_is_refused(device: &str) {
    let (mut honest, mut stranger) = (messenger(device, Limits::default()), endpoint(device));
    stranger.connect(honest.endpoint().uri(), b"CCIms", Attribute::ReliableOrdered, 0, None).unwrap();
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < PATIENCE);
        assert!(honest.next_event().is_none());
        if let Some(Core::Connect { result, .. }) = stranger.next_event() {
            assert_eq!(result, Err(cci::ConnectFailure::Refused));
            break;
        }
    }
    assert_eq!(honest.counters().strangers, 1);
}

fn a_server_that_is_no_messenger(device: &str) {
    let (mut honest, mut server) = (messenger(device, Limits::default()), endpoint(device));
    honest.connect(server.uri(), b"", Attribute::ReliableOrdered, 4, None).unwrap();
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < PATIENCE);
        match server.next_event() {
            Some(Core::ConnectRequest(request)) => server.accept(request, 0).unwrap(),
            Some(Core::Accept { result, .. }) => {
                server.send(result.unwrap(), b"welcome to something else", 0, SendFlags::SILENT).unwrap();
            }
            _ => {}
        }
        match honest.next_event() {
            Some(Event::Disconnected { context: 4, reason: DisconnectReason::Refused, .. }) => break,
            Some(Event::Connect { result, .. }) => drop(result.unwrap()),
            Some(event) => panic!("{event:?}"),
            None => {}
        }
    }
    assert_eq!(honest.counters().faults, 1);
}

fn requests_beyond_the_window(device: &str) {
    let mut scene = Scene::new(device, Attribute::ReliableUnordered);
    for number in 0..=CALLS_MAX {
        scene.say(&head(6, 1, number));
    }
    let mut kept = Vec::new();
    loop {
        match scene.event() {
            Event::Request(request) => kept.push(request),
            Event::Disconnected { reason: DisconnectReason::Refused, .. } => break,
            event => panic!("{event:?}"),
        }
    }
    assert_eq!((kept.len(), scene.honest.counters().faults), (CALLS_MAX as usize, 1));
    for request in kept {
        assert!(matches!(scene.honest.reply(request, b""), Err(ReplyError::Ended)));
    }
}

fn a_request_that_is_made_twice(device: &str) {
    let mut scene = Scene::new(device, Attribute::ReliableOrdered);
    scene.say(&head(6, 1, 5));
    let Event::Request(first) = scene.event() else { panic!() };
    scene.honest.reply(first, b"yes").unwrap();
    assert_eq!(scene.heard(), [&head(6, 2, 5)[..], b"yes"].concat());
    // It was answered, so the number is free again.
    scene.say(&head(6, 1, 5));
    let Event::Request(second) = scene.event() else { panic!() };
    // Two that wait under one number could not be distinguished.
    scene.say(&head(6, 1, 5));
    scene.is_found_out();
    drop(second);
    assert!(scene.honest.next_event().is_none());
}

/// Replies to calls that have ended, to none, and twice; and long ones.
fn replies_that_nobody_waits_for(device: &str) {
    let mut scene = Scene::new(device, Attribute::ReliableOrdered);
    let (_memory, handle) = scene.region(50_000);
    scene.say(&head(6, 2, 0));
    scene.say(&[head(6, 3, 7), vec![0; 8]].concat());
    scene.say(&[head(6, 5, 3), vec![0; 8]].concat());
    scene.say(&head(6, 4, 3));
    scene.say(&[head(2, 0x21, 1), vec![0; 8], segment(handle, 0, 50_000)].concat());
    assert_eq!(scene.heard(), [head(3, 1, 1), vec![0; 8]].concat(), "refused");
    assert_eq!(scene.honest.counters().late, 5);

    scene.honest.call(scene.to_liar, b"?", None, 8).unwrap();
    let asked = scene.heard();
    assert_eq!((&asked[..2], &asked[8..]), (&[6, 1][..], &b"?"[..]));
    let reply = [&[6, 2][..], &asked[2..8], b"!"].concat();
    scene.say(&reply);
    scene.say(&reply);
    let Event::Reply { context: 8, result, .. } = scene.event() else { panic!() };
    assert_eq!(result.unwrap()[..], *b"!");
    // While a long reply is being fetched, which is never there, a short one ends the call, once.
    scene.honest.call(scene.to_liar, b"??", None, 9).unwrap();
    let asked = scene.heard();
    let number = [&asked[4..8], &asked[2..4], &[0, 0]].concat();
    scene.say(
        &[head(2, 0x21, 2), number.clone(), segment(RegionHandle::from_bytes([9; 32]), 0, 60_000)].concat(),
    );
    scene.say(&[head(2, 0x21, 3), number, segment(handle, 0, 50_000)].concat());
    let Event::Reply { context: 9, result, .. } = scene.event() else { panic!() };
    assert!(matches!(result, Err(CallFailure::ReplyLost | CallFailure::Failed(_))), "{result:?}");
    scene.say(&head(1, 0, 0));
    assert!(matches!(scene.event(), Event::Message(_)), "the connection lives");
    let counters = scene.honest.counters();
    assert_eq!((counters.faults, counters.lent_bytes, counters.late), (0, 0, 7));
}

/// Numbers of calls are those of a connection: another peer that knows one can't answer it.
fn a_reply_by_somebody_else(device: &str) {
    let mut scene = Scene::new(device, Attribute::ReliableOrdered);
    let mut stranger = endpoint(device);
    let uri = scene.honest.endpoint().uri().to_owned();
    stranger.connect(&uri, HELLO, Attribute::ReliableOrdered, 0, None).unwrap();
    let (mut accepted, mut to_honest) = (false, None);
    let start = Instant::now();
    while !accepted || to_honest.is_none() {
        assert!(start.elapsed() < PATIENCE);
        match scene.honest.next_event() {
            Some(Event::ConnectRequest(request)) => scene.honest.accept(request, 5).unwrap(),
            Some(Event::Accept { .. }) => accepted = true,
            _ => {}
        }
        if let Some(Core::Connect { result, .. }) = stranger.next_event() {
            to_honest = Some(result.unwrap());
        }
    }
    scene.honest.call(scene.to_liar, b"?", None, 8).unwrap();
    let asked = scene.heard();
    let reply = |text: &[u8]| [&[6, 2][..], &asked[2..8], text].concat();
    stranger.send(to_honest.unwrap(), &reply(b"false"), 0, SendFlags::SILENT).unwrap();
    while scene.honest.counters().late == 0 {
        assert!(start.elapsed() < PATIENCE);
        stranger.progress();
        assert!(scene.honest.next_event().is_none(), "the call is answered by another peer");
    }
    scene.say(&reply(b"true"));
    let Event::Reply { context: 8, result, .. } = scene.event() else { panic!() };
    assert_eq!(result.unwrap()[..], *b"true");
    assert_eq!((scene.honest.counters().faults, scene.honest.counters().late), (0, 1));
}

fn a_long_request_that_can_not_be_fetched(device: &str) {
    let mut scene = Scene::new(device, Attribute::ReliableOrdered);
    let offered = |number, call: u64| {
        let segment = segment(RegionHandle::from_bytes([9; 32]), 0, 60_000);
        [head(2, 0x11, number), call.to_le_bytes().to_vec(), segment].concat()
    };
    // More often than may be unanswered: those that fail take no places.
    for number in 0..2 * CALLS_MAX {
        scene.say(&offered(number, 1));
        assert_eq!(scene.heard(), [head(3, 3, number), vec![0; 8]].concat(), "failed");
    }
    scene.say(&head(6, 1, 1));
    assert!(matches!(scene.event(), Event::Request(_)));
}

/// A client that asks and gives up at once, again and again, and never reads the answer: it is held back, or found out, before that
/// costs the server more than the window of calls.
fn given_up_again_and_again(device: &str) {
    const TIMES: u32 = 40_000;
    let mut scene = Scene::with(device, Attribute::ReliableOrdered, Options::default().send_buffers(64));
    let start = Instant::now();
    let (mut said, mut gone) = (0, false);
    while said < TIMES && !gone {
        assert!(start.elapsed() < PATIENCE, "{device}: {said} pairs");
        let number = said;
        for frame in [head(6, 1, number), head(6, 4, number)] {
            while !gone {
                match scene.liar.send(scene.to_honest, &frame, 0, SendFlags::SILENT) {
                    Ok(()) => break,
                    Err(SendError::WouldBlock) => {}
                    Err(_) => gone = true,
                }
                assert!(start.elapsed() < PATIENCE, "{device}: {said} pairs");
                scene.liar.progress();
                gone |= take_all(&mut scene.honest, scene.to_liar);
            }
        }
        gone |= take_all(&mut scene.honest, scene.to_liar);
        said += 1;
    }
    let memory = scene.honest.endpoint().counters().memory;
    assert!(memory.total_bytes <= memory.cap_bytes, "{device}: {memory:?}");
    assert!(gone, "{device}: {TIMES} requests were given up, and nobody minded");
    assert_eq!(scene.honest.counters().faults, 1);
}

/// Takes what the honest side has. Returns whether its connection has ended.
fn take_all(honest: &mut Messenger, to_liar: Connection) -> bool {
    let mut gone = false;
    while let Some(event) = honest.next_event() {
        gone |= matches!(event, Event::Disconnected { connection, .. } if connection == to_liar);
    }
    gone
}
