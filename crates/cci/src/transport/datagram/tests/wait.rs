//! Sleeping endpoints wake when something comes.

use super::*;
use crate::SendFlags;

#[test]
fn a_sleeping_endpoint_is_woken_by_a_message() {
    let Some(pair) = Pair::on("127.0.0.1", Attribute::ReliableOrdered) else { return };
    let Pair { mut client, mut server, to_server, to_client } = pair;
    let other = std::thread::spawn(move || {
        for _ in 0..20 {
            let Some(Event::Recv(message)) = server.wait(Some(PATIENCE)).unwrap() else {
                panic!("no message")
            };
            server.send(to_client, &message, 0, SendFlags::SILENT).unwrap();
        }
        // The server stays until its answers are acknowledged.
        server
    });
    for number in 0..20 {
        std::thread::sleep(Duration::from_millis(3));
        client.send(to_server, &fill(number, 24), 0, SendFlags::SILENT).unwrap();
        let Some(Event::Recv(message)) = client.wait(Some(PATIENCE)).unwrap() else { panic!("no answer") };
        check(number, &message);
    }
    let server = other.join().unwrap();
    assert!(server.counters().sleeps > 0, "it slept: {:?}", server.counters());
}

#[test]
fn the_descriptor_is_readable_when_there_is_something_and_quiet_when_not() {
    use cci_sys::event::{Epoll, Events, Interest, Trigger};
    let Some(mut pair) = Pair::on("127.0.0.1", Attribute::ReliableOrdered) else { return };
    let (epoll, mut events) = (Epoll::new().unwrap(), Events::with_capacity(4));
    epoll.add(pair.server.os_handle(), 1, Interest::Read, Trigger::Level).unwrap();
    let to_server = pair.to_server;
    // The handshake is over, and the connection is idle.
    let start = Instant::now();
    pair.run(|_, _, _, event| {
        assert!(event.is_none(), "{event:?}");
        start.elapsed() > Duration::from_millis(300)
    });
    assert!(pair.server.next_event().is_none());
    assert_eq!(epoll.wait(&mut events, Some(20_000_000)).unwrap(), 0, "quiet");
    for number in 0..10 {
        pair.client.send(to_server, &fill(number, 24), 0, SendFlags::SILENT).unwrap();
        pair.client.progress();
        let start = Instant::now();
        let message = loop {
            assert!(epoll.wait(&mut events, Some(1_000_000_000)).unwrap() > 0, "readable");
            match pair.server.next_event() {
                Some(Event::Recv(message)) => break message,
                Some(other) => panic!("{other:?}"),
                None => assert!(start.elapsed() < PATIENCE),
            }
        };
        check(number, &message);
        while pair.server.next_event().is_some() {}
        pair.client.progress();
    }
}

#[test]
fn an_idle_endpoint_sleeps_for_the_whole_time() {
    let Some(mut pair) = Pair::on("127.0.0.1", Attribute::ReliableOrdered) else { return };
    let start = Instant::now();
    pair.run(|_, _, _, event| {
        assert!(event.is_none(), "{event:?}");
        start.elapsed() > Duration::from_millis(300)
    });
    let before = pair.client.counters().sleeps;
    assert!(pair.client.wait(Some(Duration::from_millis(200))).unwrap().is_none());
    assert!(pair.client.counters().sleeps - before <= 3, "nothing is due: {:?}", pair.client.counters());
}
