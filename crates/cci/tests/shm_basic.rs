//! Shared memory: connections and messages.

mod shm_common;

use cci::{
    Attribute, ConnectError, ConnectFailure, CreateError, Event, Options, SendError, SendFlags, Status,
};
use shm_common::*;
use std::time::{Duration, Instant};

const ALL: [Attribute; 3] = [Attribute::ReliableOrdered, Attribute::ReliableUnordered, Attribute::Unreliable];

#[test]
fn messages_of_all_sizes_arrive_whole_and_in_order() {
    for attribute in ALL {
        let (mut a, mut b) = (endpoint(), endpoint());
        let (ours, theirs) = connect(&mut a, &mut b, attribute);
        let max = a.max_send_size(ours).unwrap() as usize;
        assert_eq!(max, 8192);
        let sizes: Vec<usize> = (0..200).chain((200..max).step_by(97)).chain([max - 1, max]).collect();
        for (number, &len) in sizes.iter().enumerate() {
            exchange(&mut a, &mut b, ours, &pattern(number as u64, len));
            exchange(&mut b, &mut a, theirs, &pattern(number as u64, len));
        }
        let too_long = vec![0; max + 1];
        assert!(matches!(a.send(ours, &too_long, 0, SendFlags::NONE), Err(SendError::TooLong { .. })));
        let counters = b.counters();
        assert_eq!(counters.messages_received, sizes.len() as u64);
        assert!(counters.drops.is_empty(), "{:?}", counters.drops);
    }
}

#[test]
fn a_stream_is_complete_in_order_and_completes_in_order() {
    let (mut a, mut b) = (endpoint(), endpoint());
    let (ours, _) = connect(&mut a, &mut b, Attribute::ReliableOrdered);
    let (count, mut sent, mut completed, mut received) = (100_000u64, 0u64, 0u64, 0u64);
    let start = Instant::now();
    while completed < count || received < count {
        assert!(start.elapsed() < PATIENCE, "{sent} sent, {received} received, {completed} completed");
        while sent < count {
            let message = pattern(sent, (sent % 300) as usize);
            match a.send(ours, &message, sent, SendFlags::NONE) {
                Ok(()) => sent += 1,
                Err(SendError::WouldBlock) => break,
                Err(error) => panic!("{error}"),
            }
        }
        while let Some(event) = a.next_event() {
            let Event::Send { context, status: Status::Success, .. } = event else { panic!("{event:?}") };
            assert_eq!(context, completed);
            completed += 1;
        }
        while let Some(event) = b.next_event() {
            let Event::Recv(message) = event else { panic!("{event:?}") };
            assert_eq!(&*message, pattern(received, (received % 300) as usize));
            received += 1;
        }
    }
    assert_eq!(a.connection_counters(ours).unwrap().sends_in_progress, 0);
}

#[test]
fn requests_are_rejected_refused_and_time_out() {
    let (mut a, mut b) = (endpoint(), endpoint());
    let uri = b.uri().to_owned();
    a.connect(&uri, &[1; 1024], Attribute::ReliableOrdered, 1, Some(PATIENCE)).unwrap();
    let why = run(&mut a, &mut b, "a rejection", |_, event, _| match event {
        Event::ConnectRequest(request) => {
            assert_eq!(request.data().len(), 1024);
            request.reject();
            None
        }
        Event::Connect { context: 1, result } => Some(result.unwrap_err()),
        other => panic!("{other:?}"),
    });
    assert_eq!(why, ConnectFailure::Refused);

    // Nobody there: at once.
    a.connect("shm://nobody.listens.here", b"", Attribute::ReliableOrdered, 2, Some(PATIENCE)).unwrap();
    let Some(Event::Connect { context: 2, result: Err(ConnectFailure::Refused) }) = a.next_event() else {
        panic!()
    };
    a.connect("shm:///tmp/nobody.listens.here", b"", Attribute::Unreliable, 3, None).unwrap();
    let Some(Event::Connect { context: 3, result: Err(ConnectFailure::Refused) }) = a.next_event() else {
        panic!()
    };

    // The program never answers.
    let start = Instant::now();
    a.connect(&uri, b"", Attribute::ReliableOrdered, 4, Some(Duration::from_millis(50))).unwrap();
    let event = a.wait(Some(PATIENCE)).unwrap();
    let Some(Event::Connect { context: 4, result: Err(ConnectFailure::TimedOut) }) = event else {
        panic!("{event:?}")
    };
    assert!(start.elapsed() >= Duration::from_millis(50));
    // Its program takes the request after all: too late, and it learns that.
    let event = b.wait(Some(PATIENCE)).unwrap();
    let Some(Event::ConnectRequest(request)) = event else { panic!("{event:?}") };
    assert!(matches!(b.accept(request, 0), Err(cci::AcceptError::Gone)));
    assert!(b.next_event().is_none());

    assert!(matches!(
        a.connect(&uri, &[0; 1025], Attribute::Unreliable, 0, None),
        Err(ConnectError::RequestTooLong { len_bytes: 1025 })
    ));
    assert!(matches!(
        a.connect("udp://127.0.0.1:1", b"", Attribute::Unreliable, 0, None),
        Err(ConnectError::BadUri { .. })
    ));
    assert_eq!(a.counters().connections_open, 0);
}

#[test]
fn services_can_be_names_and_paths_and_are_not_stolen() {
    let name = format!("test.{}", std::process::id());
    let path = format!("/tmp/cci-test-{}.sock", std::process::id());
    for (service, uri) in [(name.clone(), format!("shm://{name}")), (path.clone(), format!("shm://{path}"))] {
        let options = Options::default().service(service);
        let mut server = endpoint_with(options.clone());
        assert_eq!(server.uri(), uri);
        assert!(matches!(cci::Endpoint::create(&device(), options.clone()), Err(CreateError::InUse { .. })));
        let mut client = endpoint();
        let (ours, _) = connect(&mut client, &mut server, Attribute::ReliableOrdered);
        exchange(&mut client, &mut server, ours, b"by name");
        drop(server);
        drop(endpoint_with(options));
    }
    assert!(!std::path::Path::new(&path).exists(), "the socket's file is gone with its endpoint");
    let options = Options::default().service("not a name".to_owned());
    assert!(matches!(cci::Endpoint::create(&device(), options), Err(CreateError::BadService { .. })));
}

#[test]
fn connections_share_a_link_and_an_endpoint_can_call_itself() {
    let (mut a, mut b) = (endpoint(), endpoint());
    let mut pairs = Vec::new();
    for number in 0..50 {
        pairs.push(connect(&mut a, &mut b, ALL[number % 3]));
    }
    // The other way round, too.
    let back = connect(&mut b, &mut a, Attribute::ReliableOrdered);
    assert_eq!((counter(&a, "links"), counter(&b, "links")), (1, 1));
    for &(ours, theirs) in &pairs {
        exchange(&mut a, &mut b, ours, b"there");
        exchange(&mut b, &mut a, theirs, b"and back");
    }
    exchange(&mut b, &mut a, back.0, b"the other way");
    exchange(&mut a, &mut b, back.1, b"round");

    let mut alone = endpoint();
    let uri = alone.uri().to_owned();
    for _ in 0..3 {
        alone.connect(&uri, b"me", Attribute::ReliableOrdered, 1, Some(PATIENCE)).unwrap();
        let (mut out, mut back) = (None, None);
        while out.is_none() || back.is_none() {
            match alone.wait(Some(PATIENCE)).unwrap().expect("in time") {
                Event::ConnectRequest(request) => alone.accept(request, 2).unwrap(),
                Event::Connect { result, .. } => out = Some(result.unwrap()),
                Event::Accept { result, .. } => back = Some(result.unwrap()),
                other => panic!("{other:?}"),
            }
        }
        alone.send(out.unwrap(), b"to myself", 9, SendFlags::NONE).unwrap();
        let (mut sent, mut came) = (false, false);
        while !sent || !came {
            match alone.wait(Some(PATIENCE)).unwrap().expect("in time") {
                Event::Recv(message) => {
                    assert_eq!((&*message, Some(message.connection())), (b"to myself".as_slice(), back));
                    came = true;
                }
                Event::Send { context: 9, status: Status::Success, .. } => sent = true,
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(counter(&alone, "links"), 2, "both ends of one link");
}

#[test]
fn many_at_once_make_one_link_and_workers_can_accept() {
    let (mut a, mut broker, mut worker) = (endpoint(), endpoint(), endpoint());
    let uri = broker.uri().to_owned();
    for number in 0..200 {
        a.connect(&uri, b"", Attribute::ReliableOrdered, number, Some(PATIENCE)).unwrap();
    }
    let (mut made, mut accepted, mut turn) = (Vec::new(), 0, 0);
    let start = Instant::now();
    while made.len() < 200 || accepted < 200 {
        assert!(start.elapsed() < PATIENCE, "{} made, {accepted} accepted", made.len());
        if let Some(event) = broker.next_event() {
            match event {
                Event::ConnectRequest(request) => {
                    turn += 1;
                    if turn % 2 == 0 { worker.accept(request, 0) } else { broker.accept(request, 0) }
                        .unwrap();
                }
                Event::Accept { result, .. } => accepted += u32::from(result.is_ok()),
                other => panic!("{other:?}"),
            }
        }
        match worker.next_event() {
            Some(Event::Accept { result, .. }) => accepted += u32::from(result.is_ok()),
            Some(other) => panic!("{other:?}"),
            None => {}
        }
        if let Some(Event::Connect { result, .. }) = a.next_event() {
            made.push(result.unwrap());
        }
    }
    assert_eq!((counter(&a, "links"), counter(&broker, "links"), counter(&worker, "links")), (2, 1, 1));
    for (number, &connection) in made.iter().enumerate() {
        a.send(connection, &pattern(number as u64, 8), 0, SendFlags::SILENT).unwrap();
    }
    let mut came = 0;
    while came < 200 {
        assert!(start.elapsed() < PATIENCE);
        a.progress();
        came += u32::from(matches!(broker.next_event(), Some(Event::Recv(_))));
        came += u32::from(matches!(worker.next_event(), Some(Event::Recv(_))));
    }
}

#[test]
fn blocking_waits_are_woken() {
    let mut b = endpoint();
    let uri = b.uri().to_owned();
    let server = std::thread::spawn(move || {
        let mut echoed = 0;
        loop {
            match b.wait(Some(PATIENCE)).unwrap().expect("in time") {
                Event::ConnectRequest(request) => b.accept(request, 0).unwrap(),
                Event::Recv(message) if message.is_empty() => return echoed,
                Event::Recv(message) => {
                    // Long enough for the other side to fall asleep.
                    if echoed % 10 == 0 {
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    b.send(message.connection(), &message, 0, SendFlags::SILENT).unwrap();
                    echoed += 1;
                }
                _ => {}
            }
        }
    });
    let mut a = endpoint();
    a.connect(&uri, b"", Attribute::ReliableOrdered, 0, Some(PATIENCE)).unwrap();
    let Some(Event::Connect { result: Ok(connection), .. }) = a.wait(Some(PATIENCE)).unwrap() else {
        panic!()
    };
    for number in 0..200u64 {
        if number % 7 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let status = a.send_blocking(connection, &[&number.to_ne_bytes()]).unwrap();
        assert_eq!(status, Status::Success);
        let Some(Event::Recv(message)) = a.wait(Some(PATIENCE)).unwrap() else { panic!("{number}") };
        assert_eq!(*message, number.to_ne_bytes());
    }
    a.send_blocking(connection, &[]).unwrap();
    assert_eq!(server.join().unwrap(), 200);
    assert!(a.counters().sleeps > 0);
}

#[test]
fn a_connection_explains_itself() {
    let (mut a, mut b) = (endpoint(), endpoint());
    let (ours, _) = connect(&mut a, &mut b, Attribute::ReliableOrdered);
    let text = a.explain(ours).unwrap().to_string();
    assert!(text.contains("shared-memory ring") && text.contains("held up by nothing"), "{text}");
    while a.send(ours, &[0; 4096], 0, SendFlags::SILENT).is_ok() {}
    let text = a.explain(ours).unwrap().to_string();
    assert!(text.contains("ring full"), "{text}");
    let memory = a.counters().memory;
    assert!(memory.total_bytes <= memory.cap_bytes && memory.kinds.iter().any(|(kind, _)| *kind == "rings"));
}
