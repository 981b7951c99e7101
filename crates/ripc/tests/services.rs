//! Services of several nodes in one thread: every promise of the interface, by shared memory, UDP and TCP.

use cci::{Context, TransportKind};
use cci_ripc::{
    CallError, CallId, CallOptions, ClaimError, Content, Event, Message, Node, Options, Part, Partner,
    ReachError, SendError, Service, ServiceName, directory,
};
use cci_sys::event::{Epoll, Events, Interest, Trigger};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// A directory of the test's own, and nodes in it.
struct World {
    folder: tempfile::TempDir,
    device: &'static str,
}

impl World {
    fn new(device: &'static str) -> World {
        World { folder: tempfile::tempdir().unwrap(), device }
    }

    fn node_with(&self, options: Options) -> Node {
        self.node_on(&format!("[{0}]\ntransport = {0}\n", self.device), options)
    }

    fn node_on(&self, config: &str, options: Options) -> Node {
        let directory = directory::open(&format!("host:{}", self.folder.path().display())).unwrap();
        let context = Context::from_text(config, "test".as_ref()).unwrap();
        Node::open(options.directory(directory).device(context.default_device())).unwrap()
    }

    fn node(&self) -> Node {
        self.node_with(Options::default())
    }
}

fn on_all(test: impl Fn(&World)) {
    for device in ["shm", "udp", "tcp", "any"] {
        eprintln!("over {device}");
        test(&World::new(device));
    }
}

fn name(name: &str) -> ServiceName {
    ServiceName::new(name).unwrap()
}

/// Turns both nodes until `look` finds something.
fn until<T>(nodes: &mut [&mut Node], mut look: impl FnMut(&mut [&mut Node]) -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look(nodes) {
            return found;
        }
        nodes.iter_mut().for_each(|node| node.progress());
        assert!(began.elapsed() < PATIENCE, "nothing came");
    }
}

fn next_message(node: &mut Node, service: Service) -> Option<Message> {
    match node.next_event(service)? {
        Event::Message(message) => Some(message),
        other => panic!("{other:?} is no message"),
    }
}

/// A client and a server, and the server as the client sees it.
fn pair(world: &World) -> (Node, Service, Partner, Node, Service) {
    let mut server = world.node();
    let serving = server.register(&name("server")).unwrap();
    let mut client = world.node();
    let asking = client.client().unwrap();
    let to = client.partner(asking, &name("server")).unwrap();
    (client, asking, to, server, serving)
}

#[test]
fn short_messages_are_gathered_and_come_in_order() {
    on_all(|world| {
        let (mut client, asking, to, mut server, serving) = pair(world);
        for number in 0..40_u32 {
            client.send(to, &[&b"number "[..], &number.to_le_bytes(), b""]).unwrap();
        }
        for number in 0..40_u32 {
            let message = until(&mut [&mut client, &mut server], |nodes| next_message(nodes[1], serving));
            let items: Vec<&[u8]> = message.items().collect();
            assert_eq!(items, [&b"number "[..], &number.to_le_bytes(), b""]);
            assert!(message.from().as_str().starts_with("client-"));
            server.send(message.partner(), b"back").unwrap();
        }
        for _ in 0..40 {
            let message = until(&mut [&mut client, &mut server], |nodes| next_message(nodes[0], asking));
            assert_eq!((message.item(0), message.from()), (&b"back"[..], &name("server")));
        }
    });
}

#[test]
fn a_short_item_may_be_as_long_as_the_path_takes() {
    let paths = [
        (TransportKind::Shm, "[shm]\ntransport = shm\n"),
        (TransportKind::Udp, "[udp]\ntransport = udp\nip = 127.0.0.1\nmtu = 1400\n"),
    ];
    let most = paths.map(|(transport, config)| {
        let world = World::new("");
        let mut server = world.node_on(config, Options::default());
        let serving = server.register(&name("server")).unwrap();
        let mut client = world.node_on(config, Options::default());
        let asking = client.client().unwrap();
        let to = client.partner(asking, &name("server")).unwrap();
        assert_eq!((client.short_item_bytes_max(to), client.transport(to)), (None, None));
        client.send(to, b"first").unwrap();
        until(&mut [&mut client, &mut server], |nodes| next_message(nodes[1], serving));
        assert_eq!(client.transport(to), Some(transport));
        let most = client.short_item_bytes_max(to).unwrap();
        client.send(to, &vec![7; most][..]).unwrap();
        let message = until(&mut [&mut client, &mut server], |nodes| next_message(nodes[1], serving));
        assert_eq!(message.item(0).len(), most);
        let too_long = client.send(to, &vec![7; most + 1][..]);
        assert!(matches!(too_long, Err(SendError::TooLong { .. })), "{too_long:?}");
        most
    });
    assert!(most[0] >= 2_000 && most[1] < 1_400, "{most:?}");
}

#[test]
fn what_comes_wakes_who_sleeps_on_an_armed_node() {
    on_all(|world| {
        let (mut client, _, to, mut server, serving) = pair(world);
        client.send(to, b"first").unwrap();
        until(&mut [&mut client, &mut server], |nodes| next_message(nodes[1], serving));
        let sleeper = server.sleeper().unwrap();
        let epoll = Epoll::new().unwrap();
        epoll.add(sleeper.as_fd(), 0, Interest::Read, Trigger::Level).unwrap();
        let mut events = Events::with_capacity(1);
        for number in 0..20_u32 {
            // Armed before the message has come, or behind it: it is not lost.
            if number % 2 == 0 {
                server.arm();
            }
            client.send(to, &number.to_le_bytes()).unwrap();
            server.arm();
            // Whoever sleeps makes progress when awake, and sleeps again.
            let message = loop {
                client.progress();
                let timeout_ns = PATIENCE.min(server.next_due()).as_nanos() as u64;
                epoll.wait(&mut events, Some(timeout_ns)).unwrap();
                if let Some(message) = next_message(&mut server, serving) {
                    break message;
                }
                server.arm();
            };
            assert_eq!(message.item(0), number.to_le_bytes());
        }
    });
}

#[test]
fn long_items_are_fetched_whole_and_given_back() {
    on_all(|world| {
        let (mut client, asking, to, mut server, serving) = pair(world);
        for len in [1, 4_096, 100_000, 3 << 20] {
            let memory = client.allocate(len + 10).unwrap();
            let bytes: Vec<u8> = (0..len).map(|index| (index * 7 + len) as u8).collect();
            assert!(memory.write(5, &bytes));
            let long_items = [Part::new(&memory, 5..5 + len), Part::new(&memory, 5..6)];
            client.send(to, Content::from(b"two").long_items(&long_items).context(9)).unwrap();
            let message = until(&mut [&mut client, &mut server], |nodes| next_message(nodes[1], serving));
            let [Some(item), Some(one)] = message.long_items() else { panic!("{message:?}") };
            assert!(item.bytes() == Some(&bytes[..]) && one.bytes() == Some(&bytes[..1]));
            let returned = until(&mut [&mut client, &mut server], |nodes| nodes[0].next_event(asking));
            assert!(matches!(returned, Event::Returned { context: 9, fetched: true, .. }), "{returned:?}");
            assert_eq!(client.counters().leases, 0);
        }
    });
}

#[test]
fn windows_are_used_once_and_the_first_that_fits() {
    on_all(|world| {
        let mut server = world.node_with(Options::default().fetched_bytes_max(0));
        let serving = server.register(&name("server")).unwrap();
        let mut client = world.node();
        let asking = client.client().unwrap();
        let to = client.partner(asking, &name("server")).unwrap();
        let windows: Vec<_> =
            [100, 1_000, 1_000].into_iter().map(|len| server.allocate(len).unwrap()).collect();
        server.give_window(Some(serving), &windows[0]).unwrap();
        server.give_window(Some(serving), &windows[1]).unwrap();
        server.give_window(None, &windows[2]).unwrap();
        let memory = client.allocate(1_000).unwrap();
        assert!(memory.write(0, &[7; 1_000]));
        let part = |len| Part::new(&memory, 0..len);
        let long_items = [part(500), part(50), part(501), part(1)];
        client.send(to, Content::default().long_items(&long_items)).unwrap();
        let message = until(&mut [&mut client, &mut server], |nodes| next_message(nodes[1], serving));
        let places: Vec<_> = message
            .long_items()
            .iter()
            .map(|item| item.as_ref().map(|item| (item.place().unwrap().0.as_ptr(), item.to_vec())))
            .collect();
        let at = |window: usize, len| Some((windows[window].as_ptr(), vec![7; len]));
        assert_eq!(places, [at(1, 500), at(0, 50), at(2, 501), None], "there is no fourth window");
        let returned = until(&mut [&mut client, &mut server], |nodes| nodes[0].next_event(asking));
        assert!(matches!(returned, Event::Returned { fetched: false, .. }), "{returned:?}");
    });
}

#[test]
fn return_buffers_are_filled_before_the_answer_is_received() {
    on_all(|world| {
        let (mut client, asking, to, mut server, serving) = pair(world);
        let small = client.allocate(1_000).unwrap();
        let large = client.allocate(100_000).unwrap();
        let buffers = [Part::new(&small, 100..900), Part::all(&large)];
        client.send(to, Content::from(b"answer here").return_buffers(&buffers)).unwrap();
        let asked = until(&mut [&mut client, &mut server], |nodes| next_message(nodes[1], serving));
        let data = server.allocate(200_000).unwrap();
        assert!(data.write(0, &[42; 200_000]));
        // One for the large buffer, one for the small, one that must be fetched.
        let long_items = [Part::new(&data, 0..801), Part::new(&data, 0..800), Part::new(&data, 0..200_000)];
        server.send(asked.partner(), Content::default().long_items(&long_items).context(5)).unwrap();
        let answer = until(&mut [&mut client, &mut server], |nodes| next_message(nodes[0], asking));
        let [Some(first), Some(second), Some(third)] = answer.long_items() else { panic!("{answer:?}") };
        let place =
            |item: &cci_ripc::LongItem| item.place().map(|(memory, offset)| (memory.as_ptr(), offset));
        assert_eq!(place(first), Some((large.as_ptr(), 0)));
        assert_eq!(place(second), Some((small.as_ptr(), 100)));
        assert_eq!(third.bytes(), Some(&[42; 200_000][..]));
        assert_eq!((first.to_vec(), second.to_vec()), (vec![42; 801], vec![42; 800]));
        let mut around = [1; 1_000];
        assert!(small.read(0, &mut around));
        assert!(
            around[..100] == [0; 100] && around[900..] == [0; 100],
            "nothing beyond the buffer was written"
        );
        assert_eq!(client.counters().return_buffers, 0, "each is used once");
        let returned = until(&mut [&mut client, &mut server], |nodes| nodes[1].next_event(serving));
        assert!(matches!(returned, Event::Returned { context: 5, fetched: true, .. }), "{returned:?}");
    });
}

fn answer_of(event: Event) -> (CallId, Result<Message, CallError>) {
    match event {
        Event::Answer { call, result, .. } => (call, result),
        other => panic!("{other:?} is no answer"),
    }
}

#[test]
fn calls_are_answered_in_any_order() {
    on_all(|world| {
        let (mut client, asking, to, mut server, serving) = pair(world);
        let calls: Vec<CallId> =
            (0..20_u8).map(|number| client.call(to, &[number], CallOptions::default()).unwrap()).collect();
        let mut requests = Vec::new();
        while requests.len() < calls.len() {
            let event = until(&mut [&mut client, &mut server], |nodes| nodes[1].next_event(serving));
            let Event::Request(request) = event else { panic!("{event:?}") };
            requests.push(request.into_parts());
        }
        for (message, ticket) in requests.into_iter().rev() {
            let number = message.item(0)[0];
            if number % 5 == 0 {
                server.refuse(ticket, b"a multiple of five").unwrap();
            } else {
                server.answer(ticket, &[number, number]).unwrap();
            }
            assert_eq!(server.answer(ticket, b"twice").err(), Some(SendError::Gone));
        }
        let mut ended = Vec::new();
        while ended.len() < calls.len() {
            let event = until(&mut [&mut client, &mut server], |nodes| nodes[0].next_event(asking));
            ended.push(answer_of(event));
        }
        ended.sort_by_key(|(call, _)| *call);
        for (index, (call, result)) in ended.into_iter().enumerate() {
            assert_eq!(call, calls[index]);
            match result {
                Ok(answer) => assert_eq!(answer.item(0), [index as u8; 2]),
                Err(error) => {
                    assert_eq!((error, index % 5), (CallError::Refused(b"a multiple of five".to_vec()), 0))
                }
            }
        }
    });
}

#[test]
fn a_call_with_a_long_answer_brings_it() {
    on_all(|world| {
        let (mut client, asking, to, mut server, serving) = pair(world);
        let data = server.allocate(1 << 20).unwrap();
        assert!(data.write(0, &[3; 1 << 20]));
        client.call(to, b"all", CallOptions::default()).unwrap();
        let event = until(&mut [&mut client, &mut server], |nodes| nodes[1].next_event(serving));
        let Event::Request(request) = event else { panic!("{event:?}") };
        server.answer(request.ticket(), Content::from(b"here").long_items(&[Part::all(&data)])).unwrap();
        let event = until(&mut [&mut client, &mut server], |nodes| nodes[0].next_event(asking));
        let answer = answer_of(event).1.unwrap();
        assert_eq!(answer.item(0), b"here");
        assert_eq!(answer.long_items()[0].as_ref().and_then(|item| item.bytes()), Some(&[3; 1 << 20][..]));
    });
}

#[test]
fn a_service_that_comes_later_or_again_is_found() {
    on_all(|world| {
        let mut client = world.node();
        let asking = client.client().unwrap();
        let to = client.partner(asking, &name("server")).unwrap();
        for life in 0..3_u8 {
            let call = client.call(to, &[life], CallOptions::default()).unwrap();
            for _ in 0..5 {
                client.progress();
            }
            let mut server = world.node();
            let serving = server.register(&name("server")).unwrap();
            let event = until(&mut [&mut client, &mut server], |nodes| nodes[1].next_event(serving));
            let Event::Request(request) = event else { panic!("{event:?}") };
            server.answer(request.ticket(), b"yes").unwrap();
            let event = until(&mut [&mut client, &mut server], |nodes| nodes[0].next_event(asking));
            let (ended, result) = answer_of(event);
            assert_eq!((ended, result.unwrap().item(0)), (call, &b"yes"[..]));
            // One more that this life gets and does not answer: the next one does.
            client.call(to, b"for the next", CallOptions::default().context(77)).unwrap();
            until(&mut [&mut client, &mut server], |nodes| nodes[1].next_event(serving));
            drop(server);
            let mut server = world.node();
            let serving = server.register(&name("server")).unwrap();
            let event = until(&mut [&mut client, &mut server], |nodes| nodes[1].next_event(serving));
            let Event::Request(request) = event else { panic!("{event:?}") };
            assert_eq!(request.message().item(0), b"for the next");
            server.answer(request.ticket(), b"done").unwrap();
            let event = until(&mut [&mut client, &mut server], |nodes| nodes[0].next_event(asking));
            assert!(matches!(event, Event::Answer { context: 77, result: Ok(_), .. }), "{event:?}");
        }
    });
}

#[test]
fn a_call_that_may_not_be_repeated_is_lost_with_its_service() {
    on_all(|world| {
        let (mut client, asking, to, mut server, serving) = pair(world);
        client.call(to, b"once", CallOptions::default().once()).unwrap();
        until(&mut [&mut client, &mut server], |nodes| nodes[1].next_event(serving));
        drop(server);
        let event = until(&mut [&mut client], |nodes| nodes[0].next_event(asking));
        assert_eq!(answer_of(event).1.err(), Some(CallError::Lost));
    });
}

#[test]
fn an_unknown_service_is_an_error_that_says_what_was_asked_where() {
    let world = World::new("shm");
    let mut client = world.node_with(Options::default().resolve_timeout(Duration::from_millis(50)));
    let asking = client.client().unwrap();
    let to = client.partner(asking, &name("nobody")).unwrap();
    let error = client.reach(to, Duration::from_millis(20)).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, ReachError::Unknown { .. }) && text.contains("nobody"), "{text}");
    assert!(text.contains(&world.folder.path().display().to_string()), "{text}");
    client.send(to, b"hello").unwrap();
    let event = until(&mut [&mut client], |nodes| nodes[0].next_event(asking));
    assert!(matches!(event, Event::Unreachable { messages: 1, .. }), "{event:?}");
    let options = CallOptions::default().timeout(Duration::from_millis(30));
    let error = client.call_blocking(to, b"hello", options).unwrap_err();
    assert!(matches!(error, CallError::TimedOut { reached: false, .. }), "{error}");
}

#[test]
fn a_name_is_taken_once() {
    let world = World::new("shm");
    let (mut one, mut other) = (world.node(), world.node());
    let service = one.register(&name("kv")).unwrap();
    assert!(matches!(one.register(&name("kv")), Err(ClaimError::Taken { .. })));
    assert!(matches!(other.register(&name("kv")), Err(ClaimError::Taken { .. })));
    one.unregister(service);
    assert_eq!(one.name(service), None);
    other.register(&name("kv")).unwrap();
}

#[test]
fn members_of_a_group_get_what_others_publish() {
    on_all(|world| {
        let mut nodes: Vec<Node> = (0..3).map(|_| world.node()).collect();
        let members: Vec<Service> = nodes.iter_mut().map(|node| node.join(&name("news")).unwrap()).collect();
        // Those who joined first hear of the others after a while.
        let mut all: Vec<&mut Node> = nodes.iter_mut().collect();
        until(&mut all, |nodes| (nodes[0].publish(members[0], &[&b"any"[..]]).unwrap() == 2).then_some(()));
        for member in 1..3 {
            let message = until(&mut all, |nodes| next_message(nodes[member], members[member]));
            assert_eq!((message.item(0), message.from()), (&b"any"[..], &name("news")));
        }
    });
}

#[test]
fn two_services_of_one_node_talk() {
    on_all(|world| {
        let mut node = world.node();
        let one = node.register(&name("one")).unwrap();
        let other = node.register(&name("other")).unwrap();
        let to = node.partner(one, &name("other")).unwrap();
        let memory = node.allocate(10_000).unwrap();
        assert!(memory.write(0, &[6; 10_000]));
        node.send(to, Content::from(b"you").long_items(&[Part::all(&memory)])).unwrap();
        let message = until(&mut [&mut node], |nodes| next_message(nodes[0], other));
        assert_eq!(message.long_items()[0].as_ref().map(|item| item.to_vec()), Some(vec![6; 10_000]));
        node.send(message.partner(), b"me").unwrap();
        let back = until(&mut [&mut node], |nodes| match nodes[0].next_event(one)? {
            Event::Message(message) => Some(message),
            _ => None,
        });
        assert_eq!((back.item(0), back.from()), (&b"me"[..], &name("other")));
    });
}

#[test]
fn a_service_is_handed_over_without_a_lost_request() {
    on_all(|world| {
        let (mut client, asking, to, mut old, serving) = pair(world);
        client.call(to, b"first", CallOptions::default()).unwrap();
        let event = until(&mut [&mut client, &mut old], |nodes| nodes[1].next_event(serving));
        let Event::Request(first) = event else { panic!("{event:?}") };
        // The new process asks in a thread of its own, since it waits.
        let folder = world.folder.path().to_owned();
        let device = world.device;
        let asked = std::thread::spawn(move || {
            let config = format!("[{device}]\ntransport = {device}\n");
            let context = Context::from_text(&config, "test".as_ref()).unwrap();
            let directory = directory::open(&format!("host:{}", folder.display())).unwrap();
            let mut new =
                Node::open(Options::default().directory(directory).device(context.default_device())).unwrap();
            let (service, state) = new.take_over(&name("server"), PATIENCE).unwrap();
            (new, service, state.unwrap().item(0).to_vec())
        });
        let event = until(&mut [&mut client, &mut old], |nodes| nodes[1].next_event(serving));
        let Event::TakeOver(request) = event else { panic!("{event:?}") };
        old.hand_over(request, b"state").unwrap();
        // One that comes after that, and may be carried out by one life only.
        client.call(to, b"second", CallOptions::default().once().context(2)).unwrap();
        while !asked.is_finished() {
            old.progress();
            client.progress();
        }
        let (mut new, now_serving, state) = asked.join().unwrap();
        assert_eq!(state, b"state");
        let event = until(&mut [&mut client, &mut old, &mut new], |nodes| nodes[2].next_event(now_serving));
        let Event::Request(second) = event else { panic!("{event:?}") };
        assert_eq!(second.message().item(0), b"second");
        new.answer(second.ticket(), b"2").unwrap();
        old.answer(first.ticket(), b"1").unwrap();
        let mut answers = Vec::new();
        while answers.len() < 2 {
            let event = until(&mut [&mut client, &mut old, &mut new], |nodes| nodes[0].next_event(asking));
            answers.push(answer_of(event).1.unwrap().item(0).to_vec());
        }
        answers.sort();
        assert_eq!(answers, [b"1", b"2"]);
    });
}

#[test]
fn a_service_that_nobody_is_is_taken_over_at_once() {
    on_all(|world| {
        let mut node = world.node();
        // Nobody waits for so long.
        let (service, state) = node.take_over(&name("free"), Duration::from_secs(86_400)).unwrap();
        assert!(state.is_none());
        assert_eq!(node.name(service), Some(&name("free")));
    });
}

/// The next event of a service that says that memory is the program's again, past others.
fn until_returned(nodes: &mut [&mut Node], node: usize, service: Service, expected_context: u64) {
    until(nodes, |nodes| match nodes[node].next_event(service)? {
        Event::Returned { context, fetched, .. } => {
            assert_eq!((context, fetched), (expected_context, false));
            Some(())
        }
        _ => None,
    });
}

#[test]
fn memory_that_nobody_fetches_comes_back_exactly_once() {
    on_all(|world| {
        let options =
            || Options::default().lease(Duration::from_secs(1)).resolve_timeout(Duration::from_millis(50));
        let mut server = world.node_with(options());
        let serving = server.register(&name("server")).unwrap();
        let memory = server.allocate(100_000).unwrap();
        let long_items = [Part::all(&memory)];
        // To a service that is nowhere.
        let nowhere = server.partner(serving, &name("nowhere")).unwrap();
        server.send(nowhere, Content::default().long_items(&long_items).context(1)).unwrap();
        until_returned(&mut [&mut server], 0, serving, 1);
        // To a client that died before it had its answer, known to be dead or not.
        for is_known in [false, true] {
            let mut client = world.node();
            let asking = client.client().unwrap();
            let to = client.partner(asking, &name("server")).unwrap();
            client.call(to, b"all", CallOptions::default()).unwrap();
            let event = until(&mut [&mut client, &mut server], |nodes| nodes[1].next_event(serving));
            let Event::Request(request) = event else { panic!("{event:?}") };
            drop(client);
            for _ in 0..if is_known { 200 } else { 0 } {
                server.progress();
                std::thread::sleep(Duration::from_millis(1));
            }
            server
                .answer(request.ticket(), Content::from(b"here").long_items(&long_items).context(2))
                .unwrap();
            until_returned(&mut [&mut server], 0, serving, 2);
        }
        // To a partner that died with return buffers offered.
        let mut client = world.node();
        let asking = client.client().unwrap();
        let to = client.partner(asking, &name("server")).unwrap();
        let buffer = client.allocate(100_000).unwrap();
        client.send(to, Content::from(b"answer here").return_buffers(&[Part::all(&buffer)])).unwrap();
        let asked = until(&mut [&mut client, &mut server], |nodes| next_message(nodes[1], serving));
        drop(client);
        match server.send(asked.partner(), Content::default().long_items(&long_items).context(3)) {
            Ok(()) => until_returned(&mut [&mut server], 0, serving, 3),
            Err(error) => assert!(matches!(error, SendError::Gone | SendError::Unknown), "{error}"),
        }
        assert_eq!(server.counters().leases, 0);
        assert!(server.next_event(serving).is_none(), "nothing comes back twice");
    });
}

#[test]
fn what_the_caller_gets_wrong_changes_nothing() {
    let world = World::new("shm");
    let (mut client, asking, to, mut server, serving) = pair(&world);
    let memory = client.allocate(100).unwrap();
    let items = vec![&b"x"[..]; 256];
    assert_eq!(client.send(to, &items[..]), Err(SendError::TooManyItems { items: 256, max: 255 }));
    let long_items = [Part::new(&memory, 50..101)];
    assert_eq!(client.send(to, Content::default().long_items(&long_items)), Err(SendError::Range));
    let long_items = [Part::new(&memory, 5..5)];
    assert_eq!(client.send(to, Content::default().long_items(&long_items)), Err(SendError::Range));
    let long = vec![0; 100_000];
    assert!(matches!(client.send(to, &long[..]), Err(SendError::TooLong { .. })));
    until(&mut [&mut client, &mut server], |nodes| nodes[0].reach(to, Duration::ZERO).ok());
    assert!(matches!(client.send(to, &long[..]), Err(SendError::TooLong { .. })));
    assert!(matches!(client.call(to, &long[..], CallOptions::default()), Err(SendError::TooLong { .. })));
    assert_eq!(server.send(Partner::default(), b"x"), Err(SendError::Unknown));
    assert_eq!(client.publish(asking, &[&b"x"[..]]), Err(SendError::Unknown));
    assert_eq!(client.give_window(Some(Service::default()), &memory), Err(SendError::Unknown));
    client.send(to, b"still here").unwrap();
    let message = until(&mut [&mut client, &mut server], |nodes| next_message(nodes[1], serving));
    assert_eq!(message.item(0), b"still here");
}

#[test]
fn long_items_wait_for_windows_where_the_program_says_so() {
    on_all(|world| {
        let mut server = world.node_with(Options::default().fetched_bytes_max(0).fetch_on_receive(true));
        let serving = server.register(&name("server")).unwrap();
        let mut client = world.node();
        let asking = client.client().unwrap();
        let to = client.partner(asking, &name("server")).unwrap();
        let memory = client.allocate(1_000).unwrap();
        assert!(memory.write(0, &[7; 1_000]));
        client.send(to, Content::from(b"long").long_items(&[Part::all(&memory)])).unwrap();
        client.send(to, b"short").unwrap();
        client.send(to, Content::from(b"lost").long_items(&[Part::all(&memory)])).unwrap();
        until(&mut [&mut client, &mut server], |nodes| nodes[1].has_event(serving).then_some(()));
        let window = server.allocate(3_000).unwrap();
        server.give_window_part(Some(serving), Part::new(&window, 100..1_100)).unwrap();
        server.give_window_part(None, Part::new(&window, 2_000..3_000)).unwrap();
        server.withdraw_buffers(&Part::new(&window, 2_999..3_000));
        for (text, item) in [(&b"long"[..], Some(100)), (b"short", None)] {
            let message = until(&mut [&mut client, &mut server], |nodes| next_message(nodes[1], serving));
            assert_eq!(message.item(0), text, "in order");
            let place = message.long_items().first().map(|item| item.as_ref().unwrap().place().unwrap().1);
            assert_eq!(place, item);
        }
        let mut got = [0; 1_002];
        assert!(window.read(99, &mut got));
        assert!(got[0] == 0 && got[1..1_001] == [7; 1_000] && got[1_001] == 0);
        // The sender dies before its message is received.
        until(&mut [&mut client, &mut server], |nodes| {
            nodes[0].progress();
            (nodes[1].has_event(serving)).then_some(())
        });
        drop(client);
        server.give_window(None, &window).unwrap();
        let message = until(&mut [&mut server], |nodes| {
            nodes[0].progress();
            next_message(nodes[0], serving)
        });
        assert_eq!((message.item(0), message.long_items().len()), (&b"lost"[..], 1));
    });
}

/// A service that lends for an hour, and for no time to clients that are gone: its memory is back when they are, and when it ends.
#[test]
fn what_answers_lend_ends_with_their_client_or_service() {
    on_all(|world| {
        let mut server = world.node_with(Options::default().lease(Duration::from_secs(3_600)));
        let serving = server.register(&name("server")).unwrap();
        let memory = server.allocate(100_000).unwrap();
        let long_items = [Part::all(&memory)];
        for is_over_by in ["its client", "the time", "its service"] {
            let mut client = world.node_with(Options::default().fetched_bytes_max(0).fetch_on_receive(true));
            let asking = client.client().unwrap();
            let to = client.partner(asking, &name("server")).unwrap();
            client.call(to, b"all", CallOptions::default()).unwrap();
            let event = until(&mut [&mut client, &mut server], |nodes| nodes[1].next_event(serving));
            let Event::Request(request) = event else { panic!("{event:?}") };
            let lease = Duration::from_millis(if is_over_by == "the time" { 20 } else { 3_600_000 });
            server.set_lease(serving, lease, Duration::ZERO).unwrap();
            // The client makes no progress from here on.
            server
                .answer(request.ticket(), Content::from(b"here").long_items(&long_items).context(2))
                .unwrap();
            assert_eq!(server.counters().leases, 1);
            match is_over_by {
                "its client" => drop(client),
                "its service" => server.unregister(serving),
                _ => {}
            }
            if is_over_by != "its service" {
                until_returned(&mut [&mut server], 0, serving, 2);
            }
            assert_eq!(server.counters().leases, 0, "ended by {is_over_by}");
            assert!(!server.is_lent(&long_items[0]));
        }
        assert!(matches!(server.set_lease(serving, PATIENCE, PATIENCE), Err(SendError::Unknown)));
    });
}

/// A program that is given no item can't know that a window was tried: it is still one, for the next message.
#[test]
fn a_window_into_which_nothing_came_is_still_a_window() {
    on_all(|world| {
        let mut server = world.node_with(Options::default().fetched_bytes_max(0).fetch_on_receive(true));
        let serving = server.register(&name("server")).unwrap();
        let lends = |mut client: Node| {
            let asking = client.client().unwrap();
            let to = client.partner(asking, &name("server")).unwrap();
            let memory = client.allocate(1_000).unwrap();
            assert!(memory.write(0, &[7; 1_000]));
            (client, to, memory)
        };
        // What is to be in time is lent by another client, for longer than this machine may be busy.
        let (mut client, to, memory) =
            lends(world.node_with(Options::default().lease(Duration::from_millis(300))));
        client.send(to, Content::from(b"late").long_items(&[Part::all(&memory)])).unwrap();
        until(&mut [&mut client, &mut server], |nodes| {
            nodes[0].progress();
            let is_over = nodes[0].counters().leases == 0;
            (is_over && nodes[1].has_event(serving)).then_some(())
        });
        let window = server.allocate(3_000).unwrap();
        let parts = [0..1_000, 1_000..2_000, 2_000..3_000].map(|range| Part::new(&window, range));
        server.give_window_part(Some(serving), parts[0].clone()).unwrap();
        server.give_window_part(Some(serving), parts[1].clone()).unwrap();
        server.give_window_part(None, parts[2].clone()).unwrap();
        let message = until(&mut [&mut client, &mut server], |nodes| next_message(nodes[1], serving));
        assert!(message.item(0) == b"late" && message.long_items()[0].is_none(), "{message:?}");
        let (mut client, to, memory) = lends(world.node());
        for start in [0, 1_000, 2_000] {
            client.send(to, Content::from(b"in time").long_items(&[Part::all(&memory)])).unwrap();
            let message = until(&mut [&mut client, &mut server], |nodes| next_message(nodes[1], serving));
            let item = message.long_items()[0].as_ref().unwrap();
            assert_eq!((item.place().unwrap().1, item.to_vec()), (start, vec![7; 1_000]));
        }
        assert!(!parts.iter().any(|part| server.is_lent(part)), "all windows are the program's again");
    });
}

#[test]
fn requests_wait_for_windows_too() {
    on_all(|world| {
        let mut server = world.node_with(Options::default().fetched_bytes_max(0).fetch_on_receive(true));
        let serving = server.register(&name("server")).unwrap();
        let mut client = world.node();
        let asking = client.client().unwrap();
        let to = client.partner(asking, &name("server")).unwrap();
        let memory = client.allocate(1_000).unwrap();
        assert!(memory.write(0, &[7; 1_000]));
        until(&mut [&mut client, &mut server], |nodes| nodes[0].reach(to, Duration::ZERO).ok());
        let long_items = [Part::all(&memory)];
        let content = Content::from(b"store").long_items(&long_items);
        client.call(to, content, CallOptions::default()).unwrap();
        client.send(to, b"a message").unwrap();
        assert!(client.is_lent(&long_items[0]), "whether it was sent or not");
        until(&mut [&mut client, &mut server], |nodes| nodes[1].has_event(serving).then_some(()));
        let window = server.allocate(1_000).unwrap();
        server.give_window(None, &window).unwrap();
        let request = until(&mut [&mut client, &mut server], |nodes| match nodes[1].next_event(serving) {
            Some(Event::Request(request)) => Some(request),
            other => {
                assert!(other.is_none(), "{other:?} before the request");
                None
            }
        });
        assert_eq!(request.message().long_items()[0].as_ref().unwrap().to_vec(), [7; 1_000]);
        server.answer(request.ticket(), b"stored").unwrap();
        let message = until(&mut [&mut client, &mut server], |nodes| next_message(nodes[1], serving));
        assert_eq!(message.item(0), b"a message");
        server.send(message.partner(), b"before or behind the answer").unwrap();
        until(&mut [&mut client, &mut server], |nodes| {
            (nodes[0].has_answer(asking) && nodes[0].counters().leases == 0).then_some(())
        });
        let Some(Event::Answer { result: Ok(answer), .. }) = client.next_answer(asking) else { panic!() };
        assert_eq!(answer.item(0), b"stored");
        assert!(!client.has_answer(asking) && client.next_answer(asking).is_none());
        // The client dies before its request is received: what it lent is not there.
        client.call(to, content, CallOptions::default()).unwrap();
        until(&mut [&mut client, &mut server], |nodes| nodes[1].has_event(serving).then_some(()));
        drop(client);
        let mut other = world.node();
        let asking = other.client().unwrap();
        let to = other.partner(asking, &name("server")).unwrap();
        other.send(to, b"from another").unwrap();
        let message = until(&mut [&mut other, &mut server], |nodes| match nodes[1].next_event(serving)? {
            Event::Message(message) => Some(message),
            Event::Request(request) => {
                assert!(matches!(request.message().long_items(), [None]), "{request:?}");
                None
            }
            event => panic!("{event:?}"),
        });
        assert_eq!(message.item(0), b"from another");
    });
}
