//! Messages that handlers are lent, a few of a datagram's with each call.

use super::*;
use crate::transport::lend_tests;
use crate::{Polled, SendFlags};

/// On loopback a datagram has some hundred short messages, across others fewer.
fn pair(mtu: &str) -> (Endpoint, Endpoint, Connection) {
    let device = device_with("127.0.0.1", mtu).unwrap();
    let Pair { client, server, to_server, .. } =
        Pair::of(&device, Attribute::ReliableOrdered, Options::default());
    (client, server, to_server)
}

#[test]
fn what_a_handler_does_not_get_comes_next_and_in_order() {
    for mtu in ["", "mtu = 4000"] {
        lend_tests::what_a_handler_does_not_get_comes_next_and_in_order(|| pair(mtu));
    }
}

#[test]
fn the_end_comes_behind_all_messages() {
    lend_tests::the_end_comes_behind_all_messages(pair(""), true);
}

/// Sends so many messages, which fill several datagrams, and has the server take the first.
fn begun(pair: &mut Pair, count: u64) {
    let message = [1_u8; 8];
    let burst = vec![message.as_slice(); count as usize];
    assert_eq!(pair.client.send_burst(pair.to_server, &burst, 0, SendFlags::SILENT), Ok(burst.len()));
    pair.client.progress();
    let start = Instant::now();
    while pair.server.poll(1, |polled| assert!(matches!(polled, Polled::Message(_)))) == 0 {
        assert!(start.elapsed() < PATIENCE, "{:?}", pair.server.counters());
    }
}

#[test]
fn a_handler_that_takes_few_at_a_time_uses_no_receive_buffers() {
    let mut pair = Pair::on("127.0.0.1", Attribute::ReliableOrdered).unwrap();
    let (mut buffers_used, mut left) = (0, 0);
    // Whoever is held up in between gets the rest as events, so that this is tried several times.
    for _ in 0..20 {
        begun(&mut pair, 900);
        left = 899;
        buffers_used = 0;
        let start = Instant::now();
        while left > 0 {
            left -= pair.server.poll(7, |_| {});
            buffers_used = buffers_used.max(1024 - pair.server.recv_buffers_free());
            assert!(start.elapsed() < PATIENCE, "{left}: {:?}", pair.server.counters());
        }
        if buffers_used == 0 {
            break;
        }
    }
    assert_eq!((left, buffers_used), (0, 0));
    let counters = pair.server.counters();
    assert_eq!(counters.bytes_received, 8 * counters.messages_received);
}

#[test]
fn what_was_lent_in_part_comes_as_events_to_a_program_that_asks_for_those() {
    for leaves in [false, true] {
        let mut pair = Pair::on("127.0.0.1", Attribute::ReliableOrdered).unwrap();
        begun(&mut pair, 300);
        if leaves {
            // What came before is still the program's.
            pair.server.disconnect(pair.to_client);
        } else {
            assert!(pair.server.arm(), "there is something");
        }
        // What has not been read of the socket is lost with the connection.
        let came = if leaves { pair.server.counters().messages_received } else { 300 };
        assert!(came > 100, "a datagram has many");
        let (mut taken, start) = (1, Instant::now());
        while taken < came {
            match pair.server.next_event() {
                Some(Event::Recv(message)) => taken += u64::from(*message == [1; 8]),
                other => assert!(other.is_none(), "{other:?}"),
            }
            assert!(start.elapsed() < PATIENCE, "{taken}: {:?}", pair.server.counters());
        }
        let counters = pair.server.counters();
        assert_eq!((counters.messages_received, counters.bytes_received), (came, 8 * came));
    }
}
