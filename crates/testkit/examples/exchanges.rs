//! What `cargo xtask counts` runs under callgrind: `exchanges SCENARIO COUNT`.
//!
//! Both ends are in one thread, so that nobody spins, and are polled by a fixed plan, which does not look at the time: the
//! kernel has delivered what was sent on loopback, or on a pair of virtual interfaces, when the system call returns. Where it
//! has not, that exchange's end is not counted.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a program for developers")]

use cci::futures::{self, Driver, Reactor, Received};
use cci::messages::{Event as MessengerEvent, Limits, Messenger};
use cci::{
    Access, Attribute, Connection, Endpoint, Event, Memory, Options, Polled, RegionAddress, RmaFlags,
    SendFlags,
};
use cci_testkit::conformance::{ANY, ETH, ETH_PACKET, SHM, TCP4, UDP4};
use cci_testkit::pair::{PATIENCE, Pair};
use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::process::ExitCode;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

const BYTES: usize = 8;
/// Messages of a burst.
const BURST: usize = 32;
/// Before counting: connections settle, the paths' widths are found, tables have grown.
const WARM_UP: usize = 2_000;

thread_local! {
    /// How often something had not arrived when it was looked for.
    static LATE: Cell<u64> = const { Cell::new(0) };
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (scenario, count) = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [scenario, count] => (scenario.to_owned(), count.parse().unwrap_or(0)),
        _ => (String::new(), 0),
    };
    let run: fn(Pair, usize) = match scenario.split_once('-').map_or("", |(what, _)| what) {
        "message" => messages,
        "stream" => streams,
        "rma" => writes,
        "silent" => silent_writes,
        "poll" => polls,
        "call" => calls,
        "messenger" => messenger_messages,
        "futures" => futures_messages,
        "messenger_stream" => messenger_streams,
        "futures_stream" => futures_streams,
        _ => return usage(),
    };
    let device = scenario.split_once('-').map_or("", |(_, device)| device);
    let Some(device) = [SHM, UDP4, TCP4, ETH, ETH_PACKET, ANY].into_iter().find(|known| known.name == device)
    else {
        return usage();
    };
    match Pair::open(&device, &Options::default()) {
        Ok(pair) => run(pair, count),
        Err(reason) => println!("skipped: {reason}"),
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: exchanges message-DEVICE|stream-DEVICE|rma-DEVICE|silent-DEVICE|poll-DEVICE|call-DEVICE|\
         messenger-DEVICE|futures-DEVICE|messenger_stream-DEVICE|futures_stream-DEVICE COUNT"
    );
    ExitCode::from(2)
}

/// Messages there and back.
fn messages(mut pair: Pair, count: usize) {
    let connections = pair.connect(Attribute::ReliableOrdered);
    let [one, other] = &mut pair.ends;
    rounds(count, |counted| {
        message(one, other, connections[0], counted);
        message(other, one, connections[1], counted);
    });
}

/// Some rounds to warm up, then those that are counted.
fn rounds(count: usize, mut round: impl FnMut(bool)) {
    (0..WARM_UP).for_each(|_| round(false));
    LATE.set(0);
    (0..count).for_each(|_| round(true));
    println!("late\t{}", LATE.get());
}

/// Acts, and what it does is counted, or not.
#[inline]
fn act<T>(is_counted: bool, act: impl FnOnce() -> T) -> T {
    if is_counted { counted(act) } else { act() }
}

/// Never inlined: callgrind finds it by its name.
#[inline(never)]
fn counted<T>(act: impl FnOnce() -> T) -> T {
    act()
}

/// One send and receive. The sender takes its completions and makes one empty poll, as a program does that has nothing else
/// to do; then the receiver takes what came.
fn message(sender: &mut Endpoint, receiver: &mut Endpoint, connection: Connection, is_counted: bool) {
    let mut arrived = act(is_counted, || {
        sender.send(connection, &[7; BYTES], 1, SendFlags::NONE).expect("there is room");
        while let Some(event) = sender.next_event() {
            assert!(matches!(event, Event::Send { .. }), "{event:?}");
        }
        receive(receiver)
    });
    if arrived {
        return;
    }
    // The clock is not read for a message in time: where instructions are counted, each reading moves it on.
    let started = Instant::now();
    while !arrived {
        late(started);
        while let Some(event) = sender.next_event() {
            assert!(matches!(event, Event::Send { .. }), "{event:?}");
        }
        arrived = receive(receiver);
    }
}

/// Bursts there and back, each received by a handler.
fn streams(mut pair: Pair, count: usize) {
    let connections = pair.connect(Attribute::ReliableOrdered);
    let [one, other] = &mut pair.ends;
    rounds(count, |counted| {
        burst(one, other, connections[0], counted);
        burst(other, one, connections[1], counted);
    });
}

/// One burst with a completion, which the sender gets with what comes back, and its messages lent to a handler.
fn burst(sender: &mut Endpoint, receiver: &mut Endpoint, connection: Connection, is_counted: bool) {
    let mut arrived = act(is_counted, || {
        let taken = sender.send_burst(connection, &[[7; BYTES].as_slice(); BURST], 1, SendFlags::NONE);
        assert_eq!(taken.expect("there is room"), BURST);
        handle(sender) + handle(receiver)
    });
    if arrived == BURST {
        return;
    }
    let started = Instant::now();
    while arrived < BURST {
        late(started);
        arrived += handle(sender) + handle(receiver);
    }
}

/// Has handled what came, until nothing is there. Returns how many messages that were.
#[inline]
fn handle(endpoint: &mut Endpoint) -> usize {
    let mut messages = 0;
    let mut handler = |polled: Polled<'_>| match polled {
        Polled::Message(message) => {
            assert_eq!(message.len(), BYTES);
            messages += 1;
        }
        Polled::Event(Event::Send { .. }) => {}
        Polled::Event(other) => panic!("{other:?}"),
    };
    while endpoint.poll(2 * BURST, &mut handler) > 0 {}
    messages
}

/// Takes events until a message; false when there is none.
#[inline]
fn receive(receiver: &mut Endpoint) -> bool {
    loop {
        match receiver.next_event() {
            Some(Event::Recv(message)) => {
                assert_eq!(message.len(), BYTES);
                return true;
            }
            Some(Event::Send { .. }) => {}
            Some(other) => panic!("{other:?}"),
            None => return false,
        }
    }
}

/// The kernel has not delivered yet: the waiting is not counted.
fn late(started: Instant) {
    LATE.set(LATE.get() + 1);
    assert!(started.elapsed() < PATIENCE, "nothing came");
    std::thread::sleep(Duration::from_micros(20));
}

/// Memory of both sides, for writes.
struct Writes {
    connection: Connection,
    from: RegionAddress,
    to: RegionAddress,
    _memory: [Memory; 2],
}

impl Writes {
    fn of(pair: &mut Pair) -> Writes {
        let connection = pair.connect(Attribute::ReliableOrdered)[0];
        let [client, server] = &mut pair.ends;
        let local = client.allocate(4096).expect("memory");
        let remote = server.allocate(4096).expect("memory");
        let here = client.register(&local, Access::LOCAL).expect("room in the table");
        let there = server.register(&remote, Access::WRITE).expect("room in the table");
        let (from, to) = (RegionAddress::new(here, 0), RegionAddress::new(there, 0));
        Writes { connection, from, to, _memory: [local, remote] }
    }

    #[inline]
    fn start(&self, client: &mut Endpoint, flags: RmaFlags) {
        client.rma_write(self.connection, self.from, self.to, BYTES as u64, 1, flags).expect("there is room");
    }
}

/// Writes to the peer's memory, each with its completion.
fn writes(mut pair: Pair, count: usize) {
    let writes = Writes::of(&mut pair);
    let [client, server] = &mut pair.ends;
    rounds(count, |is_counted| {
        let mut complete = act(is_counted, || {
            writes.start(client, RmaFlags::NONE);
            // Where it takes the peer's work, that is counted too.
            completion(client) || {
                assert!(server.next_event().is_none());
                completion(client)
            }
        });
        if complete {
            return;
        }
        let started = Instant::now();
        while !complete {
            late(started);
            assert!(server.next_event().is_none());
            complete = completion(client);
        }
    });
}

/// Writes to mapped memory of the peer's, without completions.
fn silent_writes(mut pair: Pair, count: usize) {
    let writes = Writes::of(&mut pair);
    let [client, server] = &mut pair.ends;
    // The first one asks for the mapping, which comes soon after it has ended.
    writes.start(client, RmaFlags::NONE);
    let started = Instant::now();
    while !completion(client) {
        late(started);
        assert!(server.next_event().is_none());
    }
    for _ in 0..1_000 {
        assert!(server.next_event().is_none() && client.next_event().is_none());
    }
    rounds(count, |is_counted| act(is_counted, || writes.start(client, RmaFlags::SILENT)));
}

#[inline]
fn completion(client: &mut Endpoint) -> bool {
    match client.next_event() {
        Some(Event::Send { .. }) => true,
        Some(other) => panic!("{other:?}"),
        None => false,
    }
}

/// Polls that find nothing.
fn polls(mut pair: Pair, count: usize) {
    let _connections = pair.connect(Attribute::ReliableOrdered);
    let [client, _] = &mut pair.ends;
    rounds(count, |is_counted| act(is_counted, || assert!(client.next_event().is_none())));
}

/// Two messengers, and a connection between them as each names it.
fn messengers(pair: Pair) -> ([Messenger; 2], [Connection; 2]) {
    let messenger = |endpoint| Messenger::new(endpoint, Limits::default()).expect("the defaults fit");
    let [mut client, mut server] = pair.ends.map(messenger);
    let uri = server.endpoint().uri().to_owned();
    client
        .connect(&uri, b"", Attribute::ReliableOrdered, 0, Some(PATIENCE))
        .expect("nothing stands in the way");
    let started = Instant::now();
    let (mut connected, mut accepted) = (None, None);
    loop {
        assert!(started.elapsed() < PATIENCE, "not connected");
        match server.next_event() {
            Some(MessengerEvent::ConnectRequest(request)) => {
                server.accept(request, 0).expect("it was just asked");
            }
            Some(MessengerEvent::Accept { result, .. }) => accepted = Some(result.expect("both want it")),
            _ => {}
        }
        if let Some(MessengerEvent::Connect { result, .. }) = client.next_event() {
            connected = Some(result.expect("both want it"));
        }
        if let (Some(connected), Some(accepted)) = (connected, accepted) {
            return ([client, server], [connected, accepted]);
        }
    }
}

/// Messages of messengers there and back, each with its completion.
fn messenger_messages(pair: Pair, count: usize) {
    let ([mut one, mut other], connections) = messengers(pair);
    one.send(connections[0], &[7; BYTES], 1, SendFlags::NONE).expect("there is room");
    rounds(count, |is_counted| {
        act(is_counted, || {
            messenger_turn(&mut other, connections[1]);
            messenger_turn(&mut one, connections[0]);
        });
    });
}

/// Takes the message and, but in the very first turn, the completion of the one before; then sends the next message.
#[inline]
fn messenger_turn(messenger: &mut Messenger, connection: Connection) {
    let mut messages = 0;
    while let Some(event) = messenger.next_event() {
        match event {
            MessengerEvent::Message(message) if message.len() == BYTES => messages += 1,
            MessengerEvent::Sent { result: Ok(()), .. } | MessengerEvent::Accept { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(messages, 1, "it is there at once");
    messenger.send(connection, &[7; BYTES], 1, SendFlags::NONE).expect("there is room");
    assert!(messenger.next_event().is_none());
}

/// Bursts of messages of messengers there and back. Each message has its completion, which comes with the burst that answers it.
fn messenger_streams(pair: Pair, count: usize) {
    let ([mut one, mut other], connections) = messengers(pair);
    send_burst(&mut one, connections[0]);
    rounds(count, |is_counted| {
        act(is_counted, || {
            take_burst(&mut other);
            send_burst(&mut other, connections[1]);
            take_burst(&mut one);
            send_burst(&mut one, connections[0]);
        });
    });
}

#[inline]
fn send_burst(messenger: &mut Messenger, connection: Connection) {
    for _ in 0..BURST {
        messenger.send(connection, &[7; BYTES], 1, SendFlags::NONE).expect("there is room");
    }
    assert!(messenger.next_event().is_none());
}

/// Takes a burst, and the completions of the one before.
#[inline]
fn take_burst(messenger: &mut Messenger) {
    let mut messages = 0;
    while let Some(event) = messenger.next_event() {
        match event {
            MessengerEvent::Message(message) if message.len() == BYTES => messages += 1,
            MessengerEvent::Sent { result: Ok(()), .. } | MessengerEvent::Accept { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(messages, BURST, "all are there at once");
}

/// Nothing wakes the driver: it is polled in turn.
struct InTurn;

impl Reactor for InTurn {
    fn poll_readable(
        &mut self,
        _: &mut Context<'_>,
        _: &mut dyn FnMut() -> bool,
    ) -> Poll<std::io::Result<()>> {
        Poll::Pending
    }
}

/// One end, in tasks.
struct Tasks {
    driver: Driver<InTurn>,
    connection: futures::Connection,
    _messenger: futures::Messenger,
}

/// Messages there and back as in [`messenger_messages`], in tasks: what they cost more is the futures' cost, without an executor.
fn futures_messages(pair: Pair, count: usize) {
    let mut context = Context::from_waker(Waker::noop());
    let [mut one, mut other] = tasks(pair, &mut context);
    let (mut sends_one, mut sends_other) =
        (pin!(send_all(&one.connection)), pin!(send_all(&other.connection)));
    assert!(sends_one.as_mut().poll(&mut context).is_pending());
    rounds(count, |is_counted| {
        act(is_counted, || {
            futures_turn(&mut other.driver, &other.connection, sends_other.as_mut(), &mut context);
            futures_turn(&mut one.driver, &one.connection, sends_one.as_mut(), &mut context);
        });
    });
}

/// A task that sends one message after the other.
async fn send_all(connection: &futures::Connection) {
    loop {
        connection.send(&[7; BYTES]).await.expect("the peer is there");
    }
}

/// A task that waits for a message gets it, the driver the completion of the one before, and the task that sends sends the next, on which the driver runs again.
#[inline]
fn futures_turn(
    driver: &mut Driver<InTurn>,
    connection: &futures::Connection,
    mut sends: Pin<&mut impl Future<Output = ()>>,
    context: &mut Context<'_>,
) {
    let received = pin!(connection.receive()).poll(context);
    assert!(matches!(received, Poll::Ready(Some(Received::Message(message))) if message.len() == BYTES));
    assert!(Pin::new(&mut *driver).poll(context).is_pending());
    assert!(sends.as_mut().poll(context).is_pending());
    assert!(Pin::new(driver).poll(context).is_pending());
}

/// Bursts of messages there and back as in [`messenger_streams`], in tasks.
fn futures_streams(pair: Pair, count: usize) {
    let mut context = Context::from_waker(Waker::noop());
    let [mut one, mut other] = tasks(pair, &mut context);
    let (mut posts_one, mut posts_other) =
        (pin!(post_all(&one.connection)), pin!(post_all(&other.connection)));
    assert!(posts_one.as_mut().poll(&mut context).is_pending());
    rounds(count, |is_counted| {
        act(is_counted, || {
            burst_turn(&mut other.driver, &other.connection, posts_other.as_mut(), &mut context);
            burst_turn(&mut one.driver, &one.connection, posts_one.as_mut(), &mut context);
        });
    });
}

/// A task that posts one burst after the other.
async fn post_all(connection: &futures::Connection) {
    loop {
        for _ in 0..BURST {
            connection.post(&[7; BYTES]).await.expect("there is room");
        }
        connection.flush().await.expect("the peer is there");
    }
}

/// A task takes a burst, the driver the completions of the one before, and the task that posts posts the next, on which the driver
/// runs again.
#[inline]
fn burst_turn(
    driver: &mut Driver<InTurn>,
    connection: &futures::Connection,
    mut posts: Pin<&mut impl Future<Output = ()>>,
    context: &mut Context<'_>,
) {
    let mut receives = pin!(async {
        for _ in 0..BURST {
            let received = connection.receive().await;
            assert!(matches!(received, Some(Received::Message(message)) if message.len() == BYTES));
        }
    });
    assert!(receives.as_mut().poll(context).is_ready());
    assert!(Pin::new(&mut *driver).poll(context).is_pending());
    assert!(posts.as_mut().poll(context).is_pending());
    assert!(Pin::new(driver).poll(context).is_pending());
}

/// Connects two ends, polling the tasks in turn.
fn tasks(pair: Pair, context: &mut Context<'_>) -> [Tasks; 2] {
    let messenger = |endpoint| Messenger::new(endpoint, Limits::default()).expect("the defaults fit");
    let [(client, mut client_driver), (server, mut server_driver)] =
        pair.ends.map(|endpoint| futures::Messenger::new(messenger(endpoint), InTurn));
    let uri = server.uri().to_owned();
    let (mut connected, mut accepted) = (None, None);
    {
        let mut connect = pin!(client.connect(&uri, b"", Attribute::ReliableOrdered, Some(PATIENCE)));
        let mut accept = pin!(async { server.incoming().await.expect("one comes").accept().await });
        let started = Instant::now();
        while connected.is_none() || accepted.is_none() {
            assert!(started.elapsed() < PATIENCE, "not connected");
            assert!(Pin::new(&mut client_driver).poll(context).is_pending());
            assert!(Pin::new(&mut server_driver).poll(context).is_pending());
            if connected.is_none()
                && let Poll::Ready(result) = connect.as_mut().poll(context)
            {
                connected = Some(result.expect("both want it"));
            }
            if accepted.is_none()
                && let Poll::Ready(result) = accept.as_mut().poll(context)
            {
                accepted = Some(result.expect("both want it"));
            }
        }
    }
    let tasks = |driver, connection: Option<futures::Connection>, messenger| Tasks {
        driver,
        connection: connection.expect("there is one"),
        _messenger: messenger,
    };
    [tasks(client_driver, connected, client), tasks(server_driver, accepted, server)]
}

/// Calls, each with its reply.
fn calls(pair: Pair, count: usize) {
    let ([mut client, mut server], [connection, _]) = messengers(pair);
    rounds(count, |is_counted| {
        let mut has_ended = act(is_counted, || {
            client.call(connection, &[7; BYTES], None, 1).expect("there is room");
            answer(&mut server);
            reply(&mut client)
        });
        if has_ended {
            return;
        }
        // The clock is not read for a call in time: where instructions are counted, each reading moves it on.
        let started = Instant::now();
        while !has_ended {
            late(started);
            answer(&mut server);
            has_ended = reply(&mut client);
        }
    });
}

/// Answers what was asked, until there is no event.
#[inline]
fn answer(server: &mut Messenger) {
    while let Some(event) = server.next_event() {
        match event {
            MessengerEvent::Request(request) => {
                server.reply(request, &[7; BYTES]).expect("there is room");
            }
            MessengerEvent::Accept { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Takes events until a reply; false when there is none.
#[inline]
fn reply(client: &mut Messenger) -> bool {
    match client.next_event() {
        Some(MessengerEvent::Reply { result, .. }) => {
            assert_eq!(result.expect("an answer").len(), BYTES);
            true
        }
        Some(other) => panic!("{other:?}"),
        None => false,
    }
}
