//! The device any.

mod one_request;

use crate::config::ini;
use crate::{
    Attribute, ConnectFailure, Connection, CreateError, Device, Endpoint, Event, Names, Options, Security,
    SendFlags,
};
use std::path::Path;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

fn device(transport: &str) -> Device {
    let ip = if transport == "shm" { "" } else { "ip = 127.0.0.1\n" };
    let text = format!("[x]\ntransport = {transport}\n{ip}");
    ini::devices(&text, Path::new("test.ini")).unwrap().remove(0)
}

fn endpoint(transport: &str) -> Endpoint {
    Endpoint::create(&device(transport), Options::default()).unwrap()
}

/// What a server and a client make of an attempt.
struct Made {
    result: Result<Connection, ConnectFailure>,
    /// The server's end, and how many requests its program saw.
    accepted: Option<Connection>,
    requests: u32,
}

/// Connects, with a server that accepts (or not) everything after `delay`.
fn connect(
    client: &mut Endpoint,
    uri: &str,
    server: &mut Endpoint,
    accept: bool,
    delay: Duration,
    timeout: Duration,
) -> Made {
    client.connect(uri, b"hello", Attribute::ReliableOrdered, 7, Some(timeout)).unwrap();
    let mut made = Made { result: Err(ConnectFailure::Version { theirs: 0 }), accepted: None, requests: 0 };
    let (start, mut reported, mut waiting) = (Instant::now(), false, Vec::new());
    while start.elapsed() < PATIENCE {
        match server.next_event() {
            Some(Event::ConnectRequest(request)) => {
                made.requests += 1;
                assert_eq!(request.data(), b"hello");
                waiting.push((Instant::now(), request));
            }
            Some(Event::Accept { result, .. }) => made.accepted = result.ok(),
            _ => {}
        }
        if waiting.first().is_some_and(|(came, _)| came.elapsed() >= delay) {
            let (_, request) = waiting.remove(0);
            if accept { server.accept(request, 9).unwrap() } else { request.reject() }
        }
        match client.next_event() {
            Some(Event::Connect { context: 7, result }) => {
                assert!(!reported, "reported twice");
                (reported, made.result) = (true, result);
            }
            Some(Event::Connect { .. }) => panic!("not its context"),
            _ => {}
        }
        if reported && (made.result.is_err() || made.accepted.is_some()) {
            return made;
        }
    }
    panic!("nothing came of it; client {:?}, server {:?}", client.counters(), server.counters());
}

fn quick(client: &mut Endpoint, uri: &str, server: &mut Endpoint) -> Made {
    connect(client, uri, server, true, Duration::ZERO, Duration::from_secs(10))
}

/// The connection carries messages in both directions.
fn exchange(client: &mut Endpoint, to: Connection, server: &mut Endpoint, back: Connection) {
    client.send(to, b"ping", 1, SendFlags::NONE).unwrap();
    let (start, mut answered) = (Instant::now(), false);
    while start.elapsed() < PATIENCE && !answered {
        if let Some(Event::Recv(message)) = server.next_event() {
            assert_eq!((&*message, message.connection()), (&b"ping"[..], back));
            server.send(back, b"pong", 2, SendFlags::NONE).unwrap();
        }
        if let Some(Event::Recv(message)) = client.next_event() {
            assert_eq!((&*message, message.connection()), (&b"pong"[..], to));
            answered = true;
        }
    }
    assert!(answered, "no answer");
}

fn transport_of(endpoint: &Endpoint, connection: Connection) -> String {
    let explanation = endpoint.explain(connection).unwrap();
    let kind = explanation.kind.expect("one was chosen").name();
    assert!(explanation.transport.starts_with(kind), "{kind}: {explanation}");
    explanation.transport
}

fn count(endpoint: &Endpoint, name: &str) -> u64 {
    endpoint.counters().device.iter().find(|(known, _)| *known == name).unwrap().1
}

/// The URI with one part put in another's place; None takes it out.
fn with(uri: &str, key: &str, value: Option<&str>) -> String {
    let tail = uri.strip_prefix("any://").unwrap();
    let parts = tail.split(',').filter(|part| !part.starts_with(&format!("{key}=")));
    let mut parts: Vec<String> = parts.map(str::to_owned).collect();
    parts.extend(value.map(|value| format!("{key}={value}")));
    format!("any://{}", parts.join(","))
}

#[test]
fn on_one_host_shared_memory_is_proven_and_taken() {
    let (mut client, mut server) = (endpoint("any"), endpoint("any"));
    let uri = server.uri().to_owned();
    assert!(
        uri.starts_with("any://id=") && uri.contains(",shm=") && uri.contains(",udp=127.0.0.1:"),
        "{uri}"
    );
    let made = quick(&mut client, &uri, &mut server);
    let (to, back) = (made.result.unwrap(), made.accepted.unwrap());
    assert_eq!((made.requests, transport_of(&client, to).as_str()), (1, "shm (any)"));
    exchange(&mut client, to, &mut server, back);
    let text = client.explain(to).unwrap().to_string();
    assert!(text.contains("showed the secret") && text.contains("not  UDP: not tried"), "{text}");
    println!("{text}");
    // A second one joins the link.
    let again = quick(&mut client, &uri, &mut server);
    exchange(&mut client, again.result.unwrap(), &mut server, again.accepted.unwrap());
    client.disconnect(to);
    exchange(&mut client, again.result.unwrap(), &mut server, again.accepted.unwrap());
}

#[test]
fn without_shared_memory_it_is_udp() {
    let (mut client, mut server) = (endpoint("any"), endpoint("any"));
    let uri = with(server.uri(), "shm", None);
    let made = quick(&mut client, &uri, &mut server);
    let (to, back) = (made.result.unwrap(), made.accepted.unwrap());
    assert_eq!(transport_of(&client, to), "udp (any)");
    exchange(&mut client, to, &mut server, back);
    println!("{}", client.explain(to).unwrap());
}

#[test]
fn a_name_that_nobody_has_here_falls_back_at_once() {
    let (mut client, mut server) = (endpoint("any"), endpoint("any"));
    let uri = with(server.uri(), "shm", Some("nobody-has-this-name"));
    let start = Instant::now();
    let made = quick(&mut client, &uri, &mut server);
    assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());
    let to = made.result.unwrap();
    assert_eq!((made.requests, transport_of(&client, to).as_str()), (1, "udp (any)"));
    exchange(&mut client, to, &mut server, made.accepted.unwrap());
    let text = client.explain(to).unwrap().to_string();
    assert!(text.contains("not  shared memory: nobody listens there"), "{text}");
    assert_eq!((count(&client, "attempts"), count(&client, "fallbacks")), (1, 1));
}

#[test]
fn an_impostor_with_the_name_hears_nothing() {
    for kind in ["shm", "any"] {
        let (mut client, mut server, mut impostor) = (endpoint("any"), endpoint("any"), endpoint(kind));
        let name = match impostor.uri().strip_prefix("shm://") {
            Some(name) => name.to_owned(),
            None => impostor.uri().split(",shm=").nth(1).unwrap().split(',').next().unwrap().to_owned(),
        };
        let uri = with(server.uri(), "shm", Some(&name));
        client.connect(&uri, b"hello", Attribute::ReliableOrdered, 7, Some(PATIENCE)).unwrap();
        let (start, mut connected) = (Instant::now(), None);
        while connected.is_none() && start.elapsed() < PATIENCE {
            assert!(impostor.next_event().is_none(), "the impostor heard of it");
            if let Some(Event::ConnectRequest(request)) = server.next_event() {
                server.accept(request, 1).unwrap();
            }
            if let Some(Event::Connect { result, .. }) = client.next_event() {
                connected = Some(result.unwrap());
            }
        }
        let to = connected.unwrap();
        assert_eq!(transport_of(&client, to), "udp (any)");
        let text = client.explain(to).unwrap().to_string();
        assert!(text.contains("somebody else has the endpoint's name"), "{text}");
        assert_eq!(count(&client, "paths_disproved"), 1);
    }
}

#[test]
fn a_mute_process_with_the_name_is_given_up() {
    let (mut client, mut server, mute) = (endpoint("any"), endpoint("any"), endpoint("shm"));
    let uri = with(server.uri(), "shm", mute.uri().strip_prefix("shm://"));
    let start = Instant::now();
    let made = quick(&mut client, &uri, &mut server);
    assert_eq!(transport_of(&client, made.result.unwrap()), "udp (any)");
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    assert_eq!(count(&client, "paths_silent"), 1);
}

/// The URI with one path left.
fn only(uri: &str, kind: &str) -> String {
    let others = ["shm", "udp", "tcp"].into_iter().filter(|other| *other != kind);
    others.fold(uri.to_owned(), |uri, other| with(&uri, other, None))
}

#[test]
fn where_udp_is_filtered_it_is_tcp() {
    let (mut client, mut server) = (endpoint("any"), endpoint("any"));
    let mute = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let uri = with(&with(server.uri(), "shm", None), "udp", Some(&mute.local_addr().unwrap().to_string()));
    for (timeout, least) in [(Duration::from_secs(10), 950), (Duration::from_millis(1500), 450)] {
        let start = Instant::now();
        let made = connect(&mut client, &uri, &mut server, true, Duration::ZERO, timeout);
        let (to, back) = (made.result.unwrap(), made.accepted.unwrap());
        assert!(start.elapsed() >= Duration::from_millis(least), "{:?}", start.elapsed());
        assert!(start.elapsed() < Duration::from_millis(least + 1000), "{:?}", start.elapsed());
        assert_eq!((made.requests, transport_of(&client, to).as_str()), (1, "tcp (any)"));
        exchange(&mut client, to, &mut server, back);
        let text = client.explain(to).unwrap().to_string();
        assert!(text.contains("not  UDP: nothing was heard in time"), "{text}");
    }
}

#[test]
fn a_silent_way_has_a_second_turn_when_nothing_else_is_left() {
    let (mut client, mut server) = (endpoint("any"), endpoint("any"));
    let uri = with(&with(server.uri(), "shm", None), "tcp", Some("127.0.0.1:1"));
    let (start, mut requests, mut made) = (Instant::now(), 0, None);
    client.connect(&uri, b"hello", Attribute::ReliableOrdered, 7, Some(Duration::from_secs(9))).unwrap();
    while made.is_none() && start.elapsed() < PATIENCE {
        // The server's program does not poll for longer than a path may be silent.
        if start.elapsed() > Duration::from_millis(1800)
            && let Some(Event::ConnectRequest(request)) = server.next_event()
        {
            requests += 1;
            server.accept(request, 9).unwrap();
        }
        if let Some(Event::Connect { result, .. }) = client.next_event() {
            made = Some(result.unwrap());
        }
    }
    assert_eq!((requests, transport_of(&client, made.unwrap()).as_str()), (1, "udp (any)"));
    assert_eq!((count(&client, "paths_silent"), count(&client, "fallbacks")), (1, 2));
}

#[test]
fn a_refusal_is_final_and_heard_once() {
    let (mut client, mut server) = (endpoint("any"), endpoint("any"));
    let uri = server.uri().to_owned();
    for uri in [uri.clone(), with(&uri, "shm", None), only(&uri, "tcp")] {
        let made = connect(&mut client, &uri, &mut server, false, Duration::ZERO, PATIENCE);
        assert_eq!((made.result, made.requests), (Err(ConnectFailure::Refused), 1));
    }
    assert_eq!(count(&client, "fallbacks"), 0);
    drop(client);
    assert!(server.next_event().is_none());
}

#[test]
fn a_program_may_take_its_time_to_accept() {
    let (mut client, mut server) = (endpoint("any"), endpoint("any"));
    let uri = server.uri().to_owned();
    for uri in [uri.clone(), with(&uri, "shm", None), only(&uri, "tcp")] {
        let delay = Duration::from_millis(1500);
        let made = connect(&mut client, &uri, &mut server, true, delay, Duration::from_secs(10));
        assert_eq!(made.requests, 1);
        exchange(&mut client, made.result.unwrap(), &mut server, made.accepted.unwrap());
    }
    assert_eq!(count(&client, "fallbacks"), 0);
}

#[test]
fn where_every_way_is_dead_there_is_one_failure_in_time() {
    let mut client = endpoint("any");
    let mute = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = mute.local_addr().unwrap().port();
    let id = "0".repeat(32);
    let uri = format!("any://id={id},shm=nobody-has-this-name,udp=127.0.0.1:{port}");
    let start = Instant::now();
    client.connect(&uri, b"", Attribute::ReliableOrdered, 7, Some(Duration::from_millis(700))).unwrap();
    let mut results = Vec::new();
    while start.elapsed() < Duration::from_millis(1500) {
        if let Some(Event::Connect { context: 7, result }) =
            client.wait(Some(Duration::from_millis(10))).unwrap()
        {
            results.push((start.elapsed(), result));
        }
    }
    assert_eq!(results.len(), 1);
    let (after, result) = results[0];
    assert_eq!(result, Err(ConnectFailure::TimedOut));
    assert!(after >= Duration::from_millis(690) && after < Duration::from_millis(1200), "{after:?}");
}

#[test]
fn plain_endpoints_take_their_part_of_a_list_and_lists_reach_plain_uris() {
    let mut server = endpoint("any");
    let uri = server.uri().to_owned();
    for kind in ["shm", "udp", "tcp"] {
        let mut client = endpoint(kind);
        let made = quick(&mut client, &uri, &mut server);
        exchange(&mut client, made.result.unwrap(), &mut server, made.accepted.unwrap());
        // And the other way round.
        let uri = client.uri().to_owned();
        let made = quick(&mut server, &uri, &mut client);
        exchange(&mut server, made.result.unwrap(), &mut client, made.accepted.unwrap());
        assert_eq!(transport_of(&server, made.result.unwrap()), format!("{kind} (any)"));
    }
}

#[test]
fn requests_are_accepted_on_other_endpoints_of_whatever_kind() {
    for kind in ["shm", "udp", "tcp"] {
        let (mut client, mut broker) = (endpoint("any"), endpoint("any"));
        let uri = only(broker.uri(), kind);
        for worker in ["any", kind] {
            let mut worker = endpoint(worker);
            client.connect(&uri, b"hello", Attribute::ReliableOrdered, 7, Some(PATIENCE)).unwrap();
            let (start, mut to, mut back) = (Instant::now(), None, None);
            while start.elapsed() < PATIENCE && (to.is_none() || back.is_none()) {
                if let Some(Event::ConnectRequest(request)) = broker.next_event() {
                    worker.accept(request, 1).unwrap();
                }
                if let Some(Event::Accept { result, .. }) = worker.next_event() {
                    back = Some(result.unwrap());
                }
                if let Some(Event::Connect { result, .. }) = client.next_event() {
                    to = Some(result.unwrap());
                }
            }
            exchange(&mut client, to.unwrap(), &mut worker, back.unwrap());
        }
        // One that cannot: the client hears no.
        let mut other = endpoint(if kind == "udp" { "shm" } else { "udp" });
        client.connect(&uri, b"hello", Attribute::ReliableOrdered, 7, Some(PATIENCE)).unwrap();
        let (start, mut refused) = (Instant::now(), false);
        while start.elapsed() < PATIENCE && !refused {
            if let Some(Event::ConnectRequest(request)) = broker.next_event() {
                assert!(other.accept(request, 1).is_err());
            }
            if let Some(Event::Connect { result, .. }) = client.next_event() {
                assert_eq!(result, Err(ConnectFailure::Refused));
                refused = true;
            }
        }
        assert!(refused);
    }
}

#[test]
fn services_are_ports_or_names() {
    let service = |text: &str| Options { service: Some(text.to_owned()), ..Options::default() };
    // Another program may have the port by TCP, or take it meanwhile.
    let try_one = |_| {
        let port = std::net::UdpSocket::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port();
        Some((port, Endpoint::create(&device("any"), service(&port.to_string())).ok()?))
    };
    let (port, by_port) = (0..20).find_map(try_one).expect("a port that nobody has");
    assert!(by_port.uri().contains(&format!(",udp=127.0.0.1:{port}")), "{}", by_port.uri());
    assert!(Endpoint::create(&device("any"), service(&port.to_string())).is_err());
    let name = format!("any-test-{}", std::process::id());
    let by_name = Endpoint::create(&device("any"), service(&name)).unwrap();
    assert!(by_name.uri().contains(&format!(",shm={name},udp=")), "{}", by_name.uri());
    assert!(matches!(
        Endpoint::create(&device("any"), service(&name)),
        Err(crate::CreateError::InUse { .. })
    ));
}

#[test]
fn groups_are_joined_through_it() {
    let (mut sender, mut member) = (endpoint("any"), endpoint("any"));
    let group =
        format!("udp://239.255.77.{}:{}", 1 + std::process::id() % 200, 40_000 + std::process::id() % 9_000);
    member.connect(&group, b"", Attribute::MulticastReceive, 1, Some(PATIENCE)).unwrap();
    sender.connect(&group, b"", Attribute::MulticastSend, 2, Some(PATIENCE)).unwrap();
    let list = member.uri().to_owned();
    assert!(sender.connect(&list, b"", Attribute::MulticastSend, 3, Some(PATIENCE)).is_err());
    let (start, mut joined, mut to, mut got) = (Instant::now(), false, None, false);
    while start.elapsed() < PATIENCE && !got {
        match member.next_event() {
            Some(Event::Connect { context: 1, result }) => joined = result.is_ok(),
            Some(Event::Recv(message)) => got = &*message == b"to all",
            _ => {}
        }
        if let Some(Event::Connect { context: 2, result }) = sender.next_event() {
            to = Some(result.unwrap());
        }
        if let (true, Some(to)) = (joined, to) {
            let _ = sender.send(to, b"to all", 0, SendFlags::SILENT);
        }
    }
    assert!(got);
}

#[test]
fn a_sleeping_endpoint_wakes_for_every_way() {
    let (mut client, mut server) = (endpoint("any"), endpoint("any"));
    let uris = ["shm", "udp", "tcp"].map(|kind| only(server.uri(), kind));
    let thread = std::thread::spawn(move || {
        let start = Instant::now();
        let mut answered = 0;
        while answered < 3 && start.elapsed() < PATIENCE {
            match server.wait(Some(PATIENCE)).unwrap() {
                Some(Event::ConnectRequest(request)) => server.accept(request, 0).unwrap(),
                Some(Event::Recv(message)) => {
                    let _ = server.send(message.connection(), b"pong", 0, SendFlags::NONE);
                    answered += 1;
                }
                _ => {}
            }
        }
        server.close(Duration::from_secs(1))
    });
    for uri in uris {
        std::thread::sleep(Duration::from_millis(20));
        client.connect(&uri, b"", Attribute::ReliableOrdered, 7, Some(PATIENCE)).unwrap();
        loop {
            match client.wait(Some(PATIENCE)).unwrap().expect("in time") {
                Event::Connect { result, .. } => {
                    std::thread::sleep(Duration::from_millis(20));
                    client.send(result.unwrap(), b"ping", 0, SendFlags::SILENT).unwrap();
                }
                Event::Recv(message) => {
                    assert_eq!(&*message, b"pong");
                    break;
                }
                _ => {}
            }
        }
    }
    thread.join().unwrap();
}

/// The answer comes when the path is due to be given up, as to a process that was stopped meanwhile: both are seen at once.
#[test]
fn an_answer_at_the_last_moment_is_the_only_end() {
    let (mut client, mut server) = (endpoint("any"), endpoint("any"));
    let uri = server.uri().to_owned();
    // The first path may be silent for a third of that.
    let timeout = Duration::from_millis(1_500);
    client.connect(&uri, b"", Attribute::ReliableOrdered, 7, Some(timeout)).unwrap();
    let start = Instant::now();
    let request = loop {
        assert!(start.elapsed() < timeout / 3, "a machine too busy for this test");
        assert!(client.next_event().is_none());
        if let Some(Event::ConnectRequest(request)) = server.next_event() {
            break request;
        }
    };
    server.accept(request, 1).unwrap();
    while start.elapsed() < timeout / 2 {
        server.progress();
    }
    let (mut ends, mut accepts, mut connection) = (0, 0, None);
    while start.elapsed() < timeout * 2 {
        accepts += u32::from(matches!(server.next_event(), Some(Event::Accept { .. })));
        if let Some(Event::Connect { result, .. }) = client.next_event() {
            ends += 1;
            connection = connection.or(Some(result.unwrap()));
        }
    }
    assert_eq!((ends, accepts), (1, 1));
    assert!(client.is_open(connection.unwrap()));
}

const KEYS: &[u8] = b"node1 = 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";

fn sealed(security: Security, service: Option<&str>) -> Result<Endpoint, CreateError> {
    let service = service.map(str::to_owned);
    Endpoint::create(&device("any"), Options { security: Some(security), service, ..Options::default() })
}

#[test]
fn shared_memory_is_left_out_where_rights_go_by_name() {
    let keys = || Security::psk(KEYS).unwrap();
    let names = || Names::parse("node1").unwrap();
    assert!(
        sealed(keys(), None).unwrap().uri().contains("shm="),
        "one user's processes are as good as the key"
    );
    for security in
        [keys().allow_connect(names()), keys().allow_rma_read(names()), keys().allow_rma_write(names())]
    {
        let mut endpoint = sealed(security.clone(), None).unwrap();
        assert!(!endpoint.uri().contains("shm="), "{}", endpoint.uri());
        let refused =
            endpoint.connect("shm://somewhere", b"", Attribute::ReliableOrdered, 1, None).unwrap_err();
        assert!(refused.to_string().contains("proves no names"), "{refused}");
        let refused = sealed(security, Some("/tmp/cci-a-place")).err().unwrap().to_string();
        assert!(refused.contains("give a port"), "{refused}");
    }
}
