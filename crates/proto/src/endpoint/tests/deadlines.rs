//! Peers that talk and do nothing: whatever they say, what was started ends in time.

use super::rma::{pair, segment};
use super::*;
use crate::rma::{DATA_HEAD_BYTES, Record, emit_data_head};
use crate::wire::{Head, Kind, Sack, flags, timestamp};

/// The send timeout of end 0 in these tests.
const TIMEOUT: u64 = SECOND;

/// Nothing may take longer, and one look of the timer more.
const LONGEST: u64 = 2 * TIMEOUT + 200 * MS;

/// Two connected ends. From now on the network carries nothing, and the test speaks for end 1.
fn with_an_attacker(seed: u64) -> (Net, ConnKey) {
    let (mut net, client, _) = pair(seed, Attribute::ReliableOrdered, 100_000);
    net.ends[0].set_send_timeout(client, TIMEOUT).expect("open");
    net.run(MS);
    net.cut = true;
    (net, client)
}

/// One datagram to end 0 from its peer: as an honest one would be that has nothing to say, but for what `change` does.
fn send_record(net: &mut Net, client: ConnKey, kind: Kind, body: &[u8], change: impl FnOnce(&mut Head)) {
    let now = net.now;
    let Some(conn) = net.ends[0].connections.table.get(client) else { return };
    let active = conn.active.as_deref();
    let mut head = Head {
        kind,
        flags: 0,
        index: client.index,
        generation: client.generation,
        source_index: conn.base.peer_index,
        nonce: conn.base.nonce,
        seq: active.map_or(conn.base.idle_rx, |active| active.rx.next),
        ack: active.map_or(conn.base.idle_tx, |active| active.tx.unacked),
        timestamp: timestamp(now),
        echo: timestamp(now),
        window_kib: 1000,
        epoch: conn.base.rx_epoch,
        epoch_ack: conn.base.tx_epoch,
    };
    change(&mut head);
    let mut datagram = vec![0; limits::HEADER_BYTES + body.len()];
    datagram[limits::HEADER_BYTES..].copy_from_slice(body);
    head.emit(&Sack::default(), body.len(), &mut datagram);
    net.ends[0].handle_datagram(now, address(1), &datagram, &mut net.apps[0]);
}

/// Says in turn that it is not ready and that it is, for so long. `raise`: in a new epoch each time, as R-RNR-1 wants it.
fn toggle(net: &mut Net, client: ConnKey, raise: bool, ns: u64) {
    let until = net.now.plus(ns);
    let mut refuses = false;
    while net.now < until {
        net.run(130 * MS);
        refuses = !refuses;
        send_record(net, client, Kind::Ack, &[], |head| {
            head.flags = if refuses { flags::RNR } else { 0 };
            head.epoch_ack = head.epoch_ack.wrapping_add(u16::from(raise && refuses));
        });
    }
}

#[test]
fn ready_and_not_ready_in_turn_prolong_no_send_and_no_operation() {
    for raise in [true, false] {
        let (mut net, client) = with_an_attacker(1);
        net.send(0, client, b"never taken", 1);
        net.operate(client, RmaKind::Write, &[segment(0, 0, 64)], None, false, 2);
        net.operate(client, RmaKind::Read, &[segment(0, 0, 64)], Some(b"never"), false, 3);
        toggle(&mut net, client, raise, LONGEST);
        assert_eq!(net.apps[0].statuses().len(), 1, "the send is over, raise {raise}");
        assert_eq!(net.apps[0].operations().len(), 2, "the operations are over, raise {raise}");
        // Nor does it keep a later one.
        if net.ends[0].send(net.now, client, &[b"later"], 4, false).is_ok() {
            toggle(&mut net, client, raise, LONGEST);
            assert_eq!(net.apps[0].statuses().len(), 2, "raise {raise}");
        }
    }
}

#[test]
fn ready_and_not_ready_in_turn_hold_up_no_disconnect() {
    for raise in [true, false] {
        let (mut net, client) = with_an_attacker(2);
        net.send(0, client, b"never taken", 1);
        net.operate(client, RmaKind::Write, &[segment(0, 0, 64)], None, false, 2);
        net.ends[0].disconnect(net.now, client).expect("open");
        toggle(&mut net, client, raise, LONGEST + 12 * SECOND);
        assert!(net.apps[0].has(|event| matches!(event, Event::Closed { .. })), "raise {raise}");
        assert_eq!(net.ends[0].connections(), 0);
    }
}

#[test]
fn a_disconnect_does_not_wait_for_what_was_given_up_before() {
    let (mut net, client) = with_an_attacker(3);
    net.send(0, client, b"never taken", 1);
    for _ in 0..20 {
        net.run(100 * MS);
        send_record(&mut net, client, Kind::Ack, &[], |head| (head.flags, head.epoch_ack) = (flags::RNR, 1));
    }
    assert_eq!(net.apps[0].statuses(), [(1, Status::ReceiverNotReady)]);
    net.ends[0].disconnect(net.now, client).expect("open");
    for _ in 0..140 {
        net.run(100 * MS);
        send_record(&mut net, client, Kind::Ack, &[], |head| (head.flags, head.epoch_ack) = (flags::RNR, 1));
    }
    assert_eq!(net.ends[0].connections(), 0);
}

#[test]
fn a_peer_that_is_notified_of_a_close_and_is_not_ready_does_not_stop_it() {
    let (mut net, client) = with_an_attacker(4);
    net.ends[0].disconnect(net.now, client).expect("open");
    net.run(MS);
    for refusing in [flags::RNR, 0] {
        send_record(&mut net, client, Kind::Ack, &[], |head| head.flags = refusing);
        net.run(MS);
    }
    net.run(12 * SECOND);
    assert_eq!(net.ends[0].connections(), 0);
}

/// Everything that end 0 has sent is acknowledged by a peer that says this.
fn all_sent(net: &Net, client: ConnKey) -> Seq {
    let conn = net.ends[0].connections.table.get(client).expect("open");
    conn.active.as_deref().map_or(conn.base.idle_tx, |active| active.tx.unsent)
}

/// Answers the read in this slot of end 0 with these bytes of it, and acknowledges all that was sent.
fn answer_read(net: &mut Net, client: ConnKey, slot: u16, offset: u64, bytes: usize) {
    let mut body = vec![0; 2048];
    let len = emit_data_head(slot, offset, bytes, &mut body).expect("fits");
    body[DATA_HEAD_BYTES..][..bytes].fill(9);
    let ack = all_sent(net, client);
    send_record(net, client, Kind::Data, &body[..len], |head| head.ack = ack);
}

/// Answers the request in this slot of end 0, and acknowledges all that was sent.
fn answer_done(net: &mut Net, client: ConnKey, slot: u16) {
    let mut body = [0; 16];
    let len = Record::Done { slot, result: Ok(None) }.emit(&mut body).expect("fits");
    let ack = all_sent(net, client);
    send_record(net, client, Kind::Data, &body[..len], |head| head.ack = ack);
}

#[test]
fn answers_of_no_bytes_or_of_one_at_a_time_prolong_no_read() {
    for bytes in [0, 1] {
        let (mut net, client) = with_an_attacker(5);
        net.operate(client, RmaKind::Read, &[segment(0, 0, 4096)], None, false, 1);
        net.operate(client, RmaKind::Read, &[segment(0, 0, 4096)], Some(b"behind it"), true, 2);
        let mut offset = 0;
        let until = net.now.plus(LONGEST);
        while net.now < until {
            net.run(300 * MS);
            answer_read(&mut net, client, 0, offset, bytes);
            offset += bytes as u64;
        }
        assert_eq!(net.apps[0].operations().len(), 2, "{bytes} bytes at a time");
        assert!(net.apps[0].operations().iter().all(|(_, status)| *status != Status::Success));
    }
}

#[test]
fn answers_to_others_prolong_no_read() {
    let (mut net, client) = with_an_attacker(6);
    net.operate(client, RmaKind::Read, &[segment(0, 0, 64)], None, false, 0);
    let until = net.now.plus(LONGEST);
    let mut operation = 1;
    while net.now < until {
        net.operate(client, RmaKind::Read, &[segment(64, 0, 1024)], None, false, operation);
        net.run(MS);
        answer_read(&mut net, client, 1, 0, 1024);
        operation += 1;
    }
    assert!(operation > 1_000 && net.apps[0].operations().len() as u64 >= operation - 2);
    assert!(net.apps[0].operations().contains(&(0, Status::TimedOut)), "the one that is not answered");
}

#[test]
fn one_answer_now_and_then_does_not_keep_what_is_queued() {
    const OPERATIONS: u64 = limits::RMA_SLOTS as u64 + 12;
    let (mut net, client) = with_an_attacker(7);
    for operation in 0..OPERATIONS {
        net.operate(client, RmaKind::Write, &[segment(0, 0, 8)], None, false, operation);
    }
    let until = net.now.plus(LONGEST + OPERATIONS * limits::progress_ns(limits::PROGRESS_ANSWER_BYTES));
    let mut slot = 0;
    while net.now < until {
        // One slot becomes free, and one more write goes out.
        net.run(900 * MS);
        answer_done(&mut net, client, slot);
        slot += 1;
    }
    assert_eq!(net.apps[0].operations().len() as u64, OPERATIONS);
}

#[test]
fn who_makes_progress_at_the_least_rate_may_go_on() {
    const BYTES: usize = 300 << 10;
    for (faster, slower) in [(2, 1), (1, 2)] {
        let (mut net, client, _) = pair(8, Attribute::ReliableOrdered, BYTES);
        net.ends[0].set_send_timeout(client, TIMEOUT).expect("open");
        net.run(MS);
        net.cut = true;
        net.operate(client, RmaKind::Read, &[segment(0, 0, BYTES)], None, false, 1);
        let part_ns = limits::progress_ns(1024) * slower / faster;
        assert!(part_ns * 300 > 2 * TIMEOUT, "longer than a send timeout in any case");
        for part in 0..300u64 {
            net.run(part_ns);
            if net.apps[0].operations().is_empty() {
                answer_read(&mut net, client, (part / 256) as u16, (part % 256) << 10, 1024);
            }
        }
        let expected = if faster > slower { Status::Success } else { Status::TimedOut };
        assert_eq!(net.apps[0].operations(), [(1, expected)], "{faster} to {slower}");
    }
}

/// The longest time in which a peer must end what it has begun here, and one look of the timer more.
const UNENDED: u64 = 2 * limits::UNENDED_NS_MIN + SECOND;

/// Says something harmless now and then, for so long.
fn chat(net: &mut Net, client: ConnKey, ns: u64) {
    let until = net.now.plus(ns);
    while net.now < until {
        net.run(200 * MS);
        send_record(net, client, Kind::Ping, &[], |head| head.flags = flags::PROBE);
    }
}

fn is_reported(net: &Net) -> bool {
    net.apps[0].has(|event| matches!(event, Event::Disconnected { .. }))
}

#[test]
fn a_peer_that_announces_a_close_and_sends_on_is_missed_in_time() {
    let (mut net, client) = with_an_attacker(9);
    let mut body = [0; 16];
    let len = crate::wire::write_record(&mut body, &[b"one more"], 8);
    let began = net.now;
    while !is_reported(&net) {
        send_record(&mut net, client, Kind::Data, &body[..len], |head| head.flags = flags::CLOSING);
        chat(&mut net, client, SECOND);
        assert!(net.now.since(began) < UNENDED, "it may not go on for ever");
    }
    assert!(net.now.since(began) > limits::UNENDED_NS_MIN, "what it sent before may still come");
}

#[test]
fn a_peer_that_announces_a_close_and_is_not_ready_is_missed_in_time() {
    let (mut net, client) = with_an_attacker(10);
    for kind in [flags::CLOSING, flags::CLOSING | flags::RNR, flags::CLOSING] {
        send_record(&mut net, client, Kind::Ack, &[], |head| head.flags = kind);
        net.run(50 * MS);
    }
    net.run(UNENDED);
    assert!(is_reported(&net));
}

/// A WRITE to a region that is not there.
fn refused_write(net: &mut Net, client: ConnKey, bytes: usize) {
    let mut body = vec![0; 2048];
    let nowhere = RemoteAddress { region: 99, key: 1, offset: 0 };
    let len = Record::Write { slot: 3, at: nowhere, last: false, data: &vec![1; bytes] }
        .emit(&mut body)
        .expect("fits");
    send_record(net, client, Kind::Data, &body[..len], |_| {});
}

#[test]
fn a_refused_write_that_is_never_ended_is_not_kept() {
    for talks in [true, false] {
        let (mut net, client) = with_an_attacker(11);
        refused_write(&mut net, client, 8);
        assert_eq!(net.ends[0].connections.protocol.transfers.spare.len(), 0);
        if talks {
            chat(&mut net, client, UNENDED)
        } else {
            net.run(UNENDED)
        }
        assert!(is_reported(&net), "talks {talks}");
        net.run(SECOND);
        assert_eq!(
            net.ends[0].connections.protocol.transfers.spare.len() as u64,
            net.ends[0].connections.protocol.transfers.made,
            "talks {talks}"
        );
    }
}

#[test]
fn a_long_write_that_is_refused_at_once_may_go_on() {
    let (mut net, client) = with_an_attacker(12);
    let until = net.now.plus(2 * UNENDED);
    while net.now < until {
        net.run(limits::progress_ns(1024) / 2);
        refused_write(&mut net, client, 1024);
    }
    assert!(!is_reported(&net));
}

#[test]
fn what_is_stored_behind_a_gap_that_is_never_filled_is_not_kept() {
    for kind in [Attribute::ReliableOrdered, Attribute::ReliableUnordered] {
        for talks in [true, false] {
            let (mut net, client, _) = pair(13, kind, 100);
            net.run(MS);
            net.cut = true;
            let mut body = [0; 16];
            let len = crate::wire::write_record(&mut body, &[b"behind"], 6);
            send_record(&mut net, client, Kind::Data, &body[..len], |head| head.seq = head.seq.next());
            if talks {
                chat(&mut net, client, UNENDED)
            } else {
                net.run(UNENDED)
            }
            assert!(is_reported(&net), "{kind:?}, talks {talks}");
            net.run(SECOND);
            assert_eq!(net.ends[0].memory().pool_used_bytes, 0);
            assert!(net.ends[0].connections.table.at(client.index).unwrap().active.is_none(), "asleep");
        }
    }
}

#[test]
fn a_gap_that_is_filled_in_time_is_nobodys_fault() {
    let (mut net, client, _) = pair(14, Attribute::ReliableOrdered, 100);
    net.run(MS);
    net.cut = true;
    let mut body = [0; 16];
    let len = crate::wire::write_record(&mut body, &[b"one"], 3);
    send_record(&mut net, client, Kind::Data, &body[..len], |head| head.seq = head.seq.next());
    for _ in 0..8 {
        // There is a gap all the time, but always another one.
        send_record(&mut net, client, Kind::Data, &body[..len], |head| head.seq = head.seq.plus(3));
        net.run(limits::UNENDED_NS_MIN * 3 / 4);
        send_record(&mut net, client, Kind::Data, &body[..len], |_| {});
        assert!(!is_reported(&net));
    }
    assert_eq!(net.apps[0].messages.len(), 16);
}

#[test]
fn who_is_not_ready_and_then_dead_is_not_asked_for_ever() {
    let (mut net, client) = with_an_attacker(15);
    send_record(&mut net, client, Kind::Ack, &[], |head| (head.flags, head.epoch_ack) = (flags::RNR, 1));
    net.run(UNENDED);
    assert!(is_reported(&net));
    assert!(net.ends[0].connections.table.at(client.index).unwrap().active.is_none(), "asleep");
}

/// What waits in a gap is not what our program leaves waiting.
#[test]
fn a_gap_that_moves_keeps_no_connection_of_a_peer_that_closes() {
    let (mut net, client) = with_an_attacker(16);
    let mut body = [0; 16];
    let len = crate::wire::write_record(&mut body, &[b"one"], 3);
    let closing = |net: &mut Net, ahead: u32| {
        send_record(net, client, Kind::Data, &body[..len], |head| {
            (head.seq, head.flags) = (head.seq.plus(ahead), flags::CLOSING);
        });
    };
    closing(&mut net, 1);
    for _ in 0..8 {
        closing(&mut net, 3);
        chat(&mut net, client, limits::UNENDED_NS_MIN * 3 / 4);
        if is_reported(&net) {
            break;
        }
        closing(&mut net, 0);
    }
    assert!(is_reported(&net), "it goes on for ever");
    net.run(SECOND);
    assert_eq!(net.ends[0].memory().pool_used_bytes, 0);
}
