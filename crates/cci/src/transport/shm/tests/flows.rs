//! Connections with remote operations under way: what these need is memory under the cap, and no process has all of it.

use super::*;
use crate::device::{Cma, Device};
use crate::{Access, DisconnectReason, Memory, RegionAddress, RegionHandle, RmaError, RmaFlags};
use std::sync::Arc;

/// An endpoint that reaches memory through the ring alone, under this cap.
fn open(cap_bytes: u64) -> Endpoint {
    let mut info = (*builtin::shm("shm").0).clone();
    (info.shm.direct, info.shm.cma) = (false, Cma::Off);
    let options =
        Options { memory_bytes_max: cap_bytes, recv_buffers: 16, send_buffers: 16, ..Options::default() };
    Endpoint::create(&Device(Arc::new(info)), options).unwrap()
}

/// So many connections from one to the other, as the first knows them.
fn connect(client: &mut Endpoint, server: &mut Endpoint, count: usize) -> Vec<Connection> {
    let (mut open, mut asked) = (Vec::new(), 0);
    let start = Instant::now();
    while open.len() < count {
        assert!(start.elapsed() < Duration::from_secs(20), "{} of {count}", open.len());
        if asked == open.len() as u64 {
            client.connect(server.uri(), b"", Attribute::ReliableOrdered, asked, None).unwrap();
            asked += 1;
        }
        if let Some(Event::Connect { result, .. }) = client.next_event() {
            open.push(result.unwrap());
        }
        if let Some(Event::ConnectRequest(request)) = server.next_event() {
            server.accept(request, 0).unwrap();
        }
    }
    while server.counters().connections_open < count as u64 {
        server.next_event();
    }
    open
}

const BYTES: usize = 256 << 10;

fn memory(endpoint: &mut Endpoint) -> (Memory, RegionHandle) {
    let memory = endpoint.allocate(BYTES).unwrap();
    let handle = endpoint.register(&memory, Access::ALL).unwrap();
    (memory, handle)
}

fn is_under_its_cap(endpoint: &Endpoint) {
    let memory = endpoint.counters().memory;
    assert!(memory.total_bytes <= memory.cap_bytes, "{memory:?}");
}

#[test]
fn own_operations_on_many_connections_stay_under_the_cap() {
    let (mut client, mut server) = (open(4 << 20), open(64 << 20));
    let connections = connect(&mut client, &mut server, 400);
    let ((_source, from), (_target, to)) = (memory(&mut client), memory(&mut server));
    let (mut begun, mut refused) = (0, 0);
    for (context, connection) in (0..).zip(&connections) {
        let (from, to) = (RegionAddress::new(from, 0), RegionAddress::new(to, 0));
        match client.rma_write(*connection, from, to, 8, context, RmaFlags::NONE) {
            Ok(()) => begun += 1,
            Err(RmaError::WouldBlock) => refused += 1,
            Err(other) => panic!("{other}"),
        }
        is_under_its_cap(&client);
    }
    assert!(begun > 40 && refused > 300, "{begun} begun, {refused} refused");
    // Those that have ended leave room for others.
    let mut ended = 0;
    until(&mut client, "an end of each", |client, event| {
        server.next_event();
        match event {
            Some(Event::Send { status, .. }) => {
                assert_eq!(status, Status::Success);
                ended += 1;
            }
            None => {}
            other => panic!("{other:?}"),
        }
        is_under_its_cap(client);
        (ended == begun).then_some(())
    });
    let last = *connections.last().unwrap();
    client
        .rma_write(last, RegionAddress::new(from, 0), RegionAddress::new(to, 0), 8, 0, RmaFlags::NONE)
        .unwrap();
}

#[test]
fn a_process_with_more_operations_than_it_may_have_loses_the_connections_of_those() {
    let (mut client, mut server) = (open(64 << 20), open(2 << 20));
    let connections = connect(&mut client, &mut server, 60);
    let ((_target, to), (_source, from)) = (memory(&mut client), memory(&mut server));
    for (context, connection) in (0..).zip(&connections) {
        let (to, from) = (RegionAddress::new(to, 0), RegionAddress::new(from, 0));
        client.rma_read(*connection, to, from, BYTES as u64, context, RmaFlags::NONE).unwrap();
    }
    let (mut statuses, mut refused) = (Vec::new(), 0);
    until(&mut client, "an end of each", |_, event| {
        match server.next_event() {
            Some(Event::Disconnected { reason: DisconnectReason::Refused, .. }) => refused += 1,
            None => {}
            other => panic!("{other:?}"),
        }
        is_under_its_cap(&server);
        match event {
            Some(Event::Send { status, .. }) => statuses.push(status),
            Some(Event::Disconnected { reason: DisconnectReason::Closed, .. }) | None => {}
            other => panic!("{other:?}"),
        }
        (statuses.len() == connections.len()).then_some(())
    });
    let served = statuses.iter().filter(|status| **status == Status::Success).count();
    let shut_out = statuses.iter().filter(|status| **status == Status::Disconnected).count();
    assert_eq!(served + shut_out, 60, "{statuses:?}");
    assert!(served >= 20 && shut_out >= 20, "{served} served, {shut_out} shut out");
    assert_eq!((dropped(&server, "operations_over_quota"), refused), (shut_out as u64, shut_out));
    // The others live, on the same link.
    let open: Vec<_> = connections.into_iter().filter(|connection| client.is_open(*connection)).collect();
    assert_eq!(open.len(), served);
    client.send(open[0], b"still there", 0, SendFlags::SILENT).unwrap();
    until(&mut server, "a message", |_, event| {
        client.progress();
        match event {
            Some(Event::Recv(_)) => Some(()),
            None => None,
            other => panic!("{other:?}"),
        }
    });
}
