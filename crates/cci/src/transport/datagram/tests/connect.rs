//! Making and ending connections.

use super::*;
use crate::{AcceptError, ConnectError, CreateError, DisconnectReason};

#[test]
fn connects_over_both_ip_versions_with_every_attribute() {
    for ip in ["127.0.0.1", "::1"] {
        for attribute in ALL {
            let Some(pair) = Pair::on(ip, attribute) else { continue };
            let (client, server) = (&pair.client, &pair.server);
            let uri = if ip == "::1" { "udp://[::1]:" } else { "udp://127.0.0.1:" };
            assert!(server.uri().starts_with(uri), "{}", server.uri());
            assert_eq!(client.max_send_size(pair.to_server), Some(crate::limits::MESSAGE_BYTES_MAX));
            assert_eq!(server.max_send_size(pair.to_client), client.max_send_size(pair.to_server));
            assert_eq!(client.attribute(pair.to_server), Some(attribute));
            assert_eq!(server.attribute(pair.to_client), Some(attribute));
        }
    }
}

#[test]
fn the_smaller_side_sets_the_largest_message() {
    let (Some(large), Some(small)) = (device("127.0.0.1"), device_with("127.0.0.1", "mtu = 1500")) else {
        return;
    };
    let (mut client, mut server) = (endpoint(&large), endpoint(&small));
    let (to_server, to_client) = connect(&mut client, &mut server, Attribute::ReliableOrdered).unwrap();
    assert!(small.max_send_size() < 1500);
    assert_eq!(client.max_send_size(to_server), Some(small.max_send_size()));
    assert_eq!(server.max_send_size(to_client), Some(small.max_send_size()));
}

#[test]
fn rejecting_and_dropping_a_request_refuse_it() {
    let Some(device) = device("127.0.0.1") else { return };
    for drop_it in [false, true] {
        let (mut client, mut server) = (endpoint(&device), endpoint(&device));
        client.connect(server.uri(), &[1; 1024], Attribute::ReliableOrdered, 3, NO_FURTHER).unwrap();
        let start = Instant::now();
        let result = loop {
            if let Some(Event::ConnectRequest(request)) = server.next_event() {
                assert_eq!(request.data(), [1; 1024]);
                assert!(request.peer().starts_with("127.0.0.1:"));
                if drop_it { drop(request) } else { request.reject() }
            }
            if let Some(Event::Connect { context: 3, result }) = client.next_event() {
                break result;
            }
            assert!(start.elapsed() < PATIENCE);
        };
        assert_eq!(result, Err(ConnectFailure::Refused));
    }
}

#[test]
fn nobody_there_and_nobody_answering_both_time_out() {
    let Some(device) = device("127.0.0.1") else { return };
    let (mut client, mut server) = (endpoint(&device), endpoint(&device));
    // The port was free a moment ago. ICMP says that nobody is there, which proves nothing and ends nothing.
    let gone = endpoint(&device).uri().to_owned();
    let start = Instant::now();
    for (context, uri) in [(1, &gone), (2, &server.uri().to_owned())] {
        let timeout = Some(Duration::from_millis(150));
        client.connect(uri, b"", Attribute::ReliableUnordered, context, timeout).unwrap();
    }
    let mut failed = Vec::new();
    let mut kept = Vec::new();
    while failed.len() < 2 {
        if let Some(event) = client.wait(Some(Duration::from_millis(5))).unwrap() {
            let Event::Connect { context, result } = event else { panic!("{event:?}") };
            assert_eq!(result, Err(ConnectFailure::TimedOut));
            failed.push(context);
        }
        kept.extend(server.next_event());
        assert!(start.elapsed() < PATIENCE, "{:?}", client.counters());
    }
    assert!(start.elapsed() >= Duration::from_millis(150));
    failed.sort_unstable();
    assert_eq!(failed, [1, 2]);
}

#[test]
fn a_broker_hands_connections_to_workers() {
    let Some(device) = device("127.0.0.1") else { return };
    let (mut client, mut broker, mut worker) = (endpoint(&device), endpoint(&device), endpoint(&device));
    client.connect(broker.uri(), b"work", Attribute::ReliableOrdered, 1, NO_FURTHER).unwrap();
    let (mut to_worker, mut got) = (None, false);
    let start = Instant::now();
    while !got {
        if let Some(event) = broker.next_event() {
            let Event::ConnectRequest(request) = event else { panic!("{event:?}") };
            worker.accept(request, 2).unwrap();
        }
        match worker.next_event() {
            Some(Event::Recv(message)) => {
                assert_eq!(&*message, b"to the worker");
                got = true;
            }
            Some(Event::Accept { context: 2, result }) => drop(result.unwrap()),
            Some(other) => panic!("{other:?}"),
            None => {}
        }
        if let Some(Event::Connect { result, .. }) = client.next_event() {
            let connection = result.unwrap();
            client.send(connection, b"to the worker", 5, crate::SendFlags::NONE).unwrap();
            to_worker = Some(connection);
        }
        assert!(start.elapsed() < PATIENCE, "{:?}", client.counters());
    }
    assert!(client.is_open(to_worker.unwrap()));
    assert!(broker.next_event().is_none(), "the broker is out of it");
}

#[test]
fn requests_of_another_device_are_refused() {
    let (Some(v4), Some(v6)) = (device("127.0.0.1"), device("::1")) else { return };
    let (mut client, mut server, mut other) = (endpoint(&v4), endpoint(&v4), endpoint(&v6));
    client.connect(server.uri(), b"", Attribute::ReliableOrdered, 1, NO_FURTHER).unwrap();
    let start = Instant::now();
    let result = loop {
        if let Some(Event::ConnectRequest(request)) = server.next_event() {
            assert!(matches!(other.accept(request, 2), Err(AcceptError::OtherDevice)));
        }
        if let Some(Event::Connect { result, .. }) = client.next_event() {
            break result;
        }
        assert!(start.elapsed() < PATIENCE);
    };
    assert_eq!(result, Err(ConnectFailure::Refused));
}

#[test]
fn a_thousand_connections_on_one_endpoint() {
    let Some(device) = device("127.0.0.1") else { return };
    let (mut client, mut server) = (endpoint(&device), endpoint(&device));
    let uri = server.uri().to_owned();
    let (mut made, mut accepted, mut received) = (Vec::new(), 0, 0);
    let mut asked = 0;
    let start = Instant::now();
    while made.len() < 1000 || accepted < 1000 || received < 1000 {
        if asked < 1000 && asked - made.len() < 64 {
            client.connect(&uri, b"", Attribute::ReliableOrdered, asked as u64, NO_FURTHER).unwrap();
            asked += 1;
        }
        while let Some(event) = client.next_event() {
            match event {
                Event::Connect { result, context } => {
                    let connection = result.unwrap();
                    client
                        .send(connection, &context.to_le_bytes(), context, crate::SendFlags::SILENT)
                        .unwrap();
                    made.push(connection);
                }
                other => panic!("{other:?}"),
            }
        }
        while let Some(event) = server.next_event() {
            match event {
                Event::ConnectRequest(request) => server.accept(request, 0).unwrap(),
                Event::Accept { result, .. } => accepted += usize::from(result.is_ok()),
                Event::Recv(message) => {
                    assert_eq!(message.len(), 8);
                    received += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(start.elapsed() < PATIENCE, "{} {accepted} {received} {:?}", made.len(), server.counters());
    }
    assert_eq!(server.counters().connections_open, 1000);
    let memory = server.counters().memory;
    assert!(memory.total_bytes <= memory.cap_bytes, "{memory:?}");
    for connection in made {
        client.disconnect(connection);
    }
    let start = Instant::now();
    let mut reported = 0;
    while reported < 1000 {
        assert!(client.next_event().is_none());
        match server.next_event() {
            Some(Event::Disconnected { reason: DisconnectReason::Closed, .. }) => reported += 1,
            other => assert!(other.is_none(), "{other:?}"),
        }
        assert!(start.elapsed() < PATIENCE, "{:?}", server.counters());
    }
    assert_eq!(server.counters().connections_open, 0, "without a word of the server's program");
    let server = std::thread::spawn(move || server.wait(Some(Duration::from_millis(500))).unwrap().is_none());
    assert!(client.close(Duration::from_secs(5)), "every connection closed");
    // No further event comes.
    assert!(server.join().unwrap());
}

#[test]
fn mistakes_are_told_at_the_call() {
    let Some(device) = device("127.0.0.1") else { return };
    let mut client = endpoint(&device);
    for uri in ["shm://x", "udp://nohost:1", "udp://[::1]:1", "udp://127.0.0.1"] {
        let error = client.connect(uri, b"", Attribute::ReliableOrdered, 1, NO_FURTHER).unwrap_err();
        assert!(matches!(error, ConnectError::BadUri { .. }), "{uri}: {error}");
    }
    let error = client.connect("udp://127.0.0.1:1", &[0; 1025], Attribute::ReliableOrdered, 1, NO_FURTHER);
    assert!(matches!(error, Err(ConnectError::RequestTooLong { .. })));
    let at = |service: &str| {
        Endpoint::create(&device, Options { service: Some(service.to_owned()), ..Options::default() })
    };
    assert!(matches!(at("http"), Err(CreateError::BadService { .. })));
    assert!(matches!(at("70000"), Err(CreateError::BadService { .. })));
    let port = client.uri().rsplit(':').next().unwrap().to_owned();
    assert!(matches!(at(&port), Err(CreateError::InUse { .. })));
    let small = Options { memory_bytes_max: 1 << 20, ..Options::default() };
    assert!(matches!(Endpoint::create(&device, small), Err(CreateError::NoMemory { .. })));
}

#[test]
fn the_port_comes_from_the_service_or_the_device() {
    let Some(any) = device("127.0.0.1") else { return };
    let free = endpoint(&any).uri().rsplit(':').next().unwrap().to_owned();
    let served =
        Endpoint::create(&any, Options { service: Some(free.clone()), ..Options::default() }).unwrap();
    assert_eq!(served.uri(), format!("udp://127.0.0.1:{free}"));
    drop(served);
    let fixed = device_with("127.0.0.1", &format!("port = {free}")).unwrap();
    assert_eq!(endpoint(&fixed).uri(), format!("udp://127.0.0.1:{free}"));
}

#[test]
fn a_small_memory_cap_holds() {
    let Some(device) = device_with("127.0.0.1", "mtu = 1500") else { return };
    let options =
        Options { recv_buffers: 64, send_buffers: 64, memory_bytes_max: 1 << 20, ..Options::default() };
    let mut pair = Pair::of(&device, Attribute::ReliableOrdered, options);
    let mut got = 0;
    let (to_server, mut next) = (pair.to_server, 0u64);
    pair.run(|client, _, side, event| {
        while next < 500 && client.send(to_server, &fill(next, 1000), next, crate::SendFlags::NONE).is_ok() {
            next += 1;
        }
        match (side, event) {
            (Side::Server, Some(Event::Recv(message))) => {
                check(got, &message);
                got += 1;
            }
            (Side::Client, Some(Event::Send { status, .. })) => is_success(status),
            (_, None) => {}
            (side, other) => panic!("{side:?} {other:?}"),
        }
        got == 500
    });
    for endpoint in [&pair.client, &pair.server] {
        let memory = endpoint.counters().memory;
        assert!(memory.total_bytes <= memory.cap_bytes, "{memory:?}");
    }
}
