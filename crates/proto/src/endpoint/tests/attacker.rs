//! A peer that holds a connection and lies in its headers: what it says may shorten what this side does and never make it wait,
//! send or keep more than the protocol allows.

use super::*;
use crate::conn::Conn;
use crate::limits::{HEADER_BYTES, PARTIALS_MAX, WINDOW_BUNDLES_MAX, record_bytes};
use crate::wire::{Head, Kind, PartHead, Sack, flags, write_record};

/// A network whose end 1 was replaced by the liar, once there was a connection and some honest traffic.
pub(super) struct Attacker {
    pub net: Net,
    pub key: ConnKey,
    /// Datagrams that it has sent, and those that came back, with their bytes.
    pub sent: u64,
    pub heard: u64,
    pub heard_bytes: u64,
}

impl Attacker {
    pub fn new(attribute: Attribute, config: Config) -> Attacker {
        let mut net = Net::new(5, vec![config.clone(), config]);
        let (key, _) = net.join(attribute);
        // The congestion window opens.
        for context in 0..6_000 {
            net.send(0, key, &[1; 1_400], context);
        }
        net.run(SECOND / 2);
        net.apps[0].events.clear();
        Attacker { net, key, sent: 0, heard: 0, heard_bytes: 0 }
    }

    pub fn conn(&self) -> &Conn {
        self.net.ends[0].connections.table.get(self.key).expect("a connection")
    }

    /// An honest header of the peer's: nothing new is acknowledged, and nothing is refused.
    pub fn head(&self, kind: Kind) -> Head {
        let conn = self.conn();
        let (ack, seq, path) = match conn.active.as_deref() {
            Some(active) => (active.tx.unacked, active.rx.next, active.paths.first.rtt.min_ns()),
            None => (conn.base.idle_tx, conn.base.idle_rx, 0),
        };
        let now = crate::wire::timestamp(self.net.now);
        Head {
            kind,
            flags: 0,
            index: self.key.index,
            generation: self.key.generation,
            source_index: conn.base.peer_index,
            nonce: conn.base.nonce,
            seq,
            ack,
            timestamp: now,
            echo: now.wrapping_sub((path >> 6) as u32),
            window_kib: u16::MAX,
            epoch: conn.base.rx_epoch,
            epoch_ack: conn.base.tx_epoch,
        }
    }

    /// Says it, with that body, and hears what comes of it at once.
    pub fn send_record(&mut self, head: &Head, body: &[u8]) -> Vec<Vec<u8>> {
        let mut bytes = vec![0; HEADER_BYTES + body.len()];
        head.emit(&Sack::default(), body.len(), &mut bytes);
        bytes[HEADER_BYTES..].copy_from_slice(body);
        let now = self.net.now;
        self.sent += 1;
        self.net.ends[0].handle_datagram(now, address(1), &bytes, &mut self.net.apps[0]);
        self.hear()
    }

    pub fn hear(&mut self) -> Vec<Vec<u8>> {
        let mut out = Out { sent: VecDeque::new(), next: None, bytes: Vec::new(), space: 1_024 };
        self.net.ends[0].poll_transmit(self.net.now, &mut out, &mut self.net.apps[0]);
        self.heard += out.sent.len() as u64;
        self.heard_bytes += out.sent.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
        out.sent.into_iter().map(|(_, bytes)| bytes).collect()
    }

    /// Lets time pass, with nothing said.
    pub fn wait(&mut self, ns: u64) {
        let until = self.net.now.plus(ns);
        loop {
            self.hear();
            let due = self.net.ends[0].next_deadline().unwrap_or(Time::FAR).min(until);
            self.net.now = due.max(self.net.now.plus(1_000)).min(until);
            let now = self.net.now;
            self.net.ends[0].handle_timeout(now, &mut self.net.apps[0]);
            if now >= until {
                return;
            }
        }
    }

    /// Sends as much as the window takes.
    pub fn fill_window(&mut self) -> u64 {
        let mut sent = 0;
        while self.net.ends[0].send(self.net.now, self.key, &[&[2; 1_400]], sent, false).is_ok() {
            sent += 1;
            self.hear();
        }
        sent
    }
}

/// What may come back for each datagram that is said, whatever it says.
const DATAGRAMS_MAX: u64 = 2;

#[test]
fn an_epoch_with_every_acknowledgement_does_not_have_the_window_sent_again_and_again() {
    let mut attacker = Attacker::new(Attribute::ReliableOrdered, Config::default());
    let sent = attacker.fill_window();
    assert!(sent > u64::from(WINDOW_BUNDLES_MAX) / 2, "{sent} bundles are under way");
    attacker.heard = 0;
    for _ in 0..1_000 {
        let mut head = attacker.head(Kind::Ack);
        head.epoch_ack = head.epoch_ack.wrapping_add(1);
        attacker.send_record(&head, &[]);
        attacker.net.now = attacker.net.now.plus(1_000);
    }
    let (sent, heard) = (attacker.sent, attacker.heard);
    println!("{heard} datagrams for {sent}, {} bytes for {}", attacker.heard_bytes, sent * 48);
    // A window may go out once more, since the first word may be true.
    assert!(heard <= u64::from(WINDOW_BUNDLES_MAX) + DATAGRAMS_MAX * sent, "{heard} datagrams for {sent}");
    assert!(attacker.net.ends[0].counters().faults() > 0, "it can't have refused what it has not been sent");
}

/// A round trip after each of its words the liar refuses again: each time it has been sent something since.
#[test]
fn an_epoch_with_every_round_trip_leaves_a_small_window() {
    let mut attacker = Attacker::new(Attribute::ReliableOrdered, Config::default());
    attacker.fill_window();
    attacker.heard = 0;
    for _ in 0..1_000 {
        let mut head = attacker.head(Kind::Ack);
        head.epoch_ack = head.epoch_ack.wrapping_add(1);
        attacker.send_record(&head, &[]);
        attacker.net.now = attacker.net.now.plus(100_000);
    }
    let (sent, heard) = (attacker.sent, attacker.heard);
    println!("{heard} datagrams for {sent}");
    assert!(
        heard <= 4 * u64::from(WINDOW_BUNDLES_MAX) + DATAGRAMS_MAX * sent,
        "{heard} datagrams for {sent}"
    );
}

/// Says that it is not ready, and ready again, in turn, and acknowledges nothing.
#[test]
fn refusals_in_turn_do_not_keep_a_send_for_ever() {
    for bumps in [false, true] {
        let timeout_ns = 2 * SECOND;
        let config = Config { send_timeout_ns: timeout_ns, ..Config::default() };
        let mut attacker = Attacker::new(Attribute::ReliableOrdered, config);
        attacker.net.ends[0].send(attacker.net.now, attacker.key, &[&[3; 100]], 77, false).unwrap();
        attacker.hear();
        let start = attacker.net.now;
        let is_over =
            |attacker: &Attacker| attacker.net.apps[0].statuses().iter().any(|(context, _)| *context == 77);
        let mut refuses = false;
        while !is_over(&attacker) && attacker.net.now.since(start) < 20 * timeout_ns {
            attacker.wait(timeout_ns / 4);
            if attacker.net.ends[0].connections.table.get(attacker.key).is_none() {
                break;
            }
            refuses = !refuses;
            let mut head = attacker.head(Kind::Ack);
            if refuses {
                head.flags |= flags::RNR;
                head.epoch_ack = head.epoch_ack.wrapping_add(bumps.into());
            }
            attacker.send_record(&head, &[]);
        }
        let took_ns = attacker.net.now.since(start);
        println!("bumps {bumps}: {took_ns} ns, {:?}", attacker.net.apps[0].statuses());
        assert!(is_over(&attacker) && took_ns <= 2 * timeout_ns + timeout_ns / 2, "{took_ns} ns");
    }
}

/// Says that it is not ready, without a new epoch: what it may have taken can't be given up, and it answers all questions.
#[test]
fn a_refusal_of_what_was_taken_does_not_keep_a_send_for_ever() {
    let timeout_ns = 2 * SECOND;
    let config = Config { send_timeout_ns: timeout_ns, ..Config::default() };
    let mut attacker = Attacker::new(Attribute::ReliableOrdered, config);
    attacker.net.ends[0].send(attacker.net.now, attacker.key, &[&[3; 100]], 77, false).unwrap();
    attacker.hear();
    let start = attacker.net.now;
    while attacker.net.apps[0].statuses().is_empty() && attacker.net.now.since(start) < 20 * timeout_ns {
        let mut head = attacker.head(Kind::Ack);
        head.flags |= flags::RNR;
        attacker.send_record(&head, &[]);
        attacker.wait(timeout_ns / 20);
    }
    let took_ns = attacker.net.now.since(start);
    println!("{took_ns} ns, {:?}", attacker.net.apps[0].statuses());
    assert!(took_ns <= 2 * timeout_ns + timeout_ns / 2, "{took_ns} ns");
}

/// Begins to close, says now and then that it is there, and never closes.
#[test]
fn a_peer_that_never_finishes_closing_is_given_up() {
    let timeout_ns = 2 * SECOND;
    let config = Config { send_timeout_ns: timeout_ns, ..Config::default() };
    let mut attacker = Attacker::new(Attribute::ReliableOrdered, config);
    let start = attacker.net.now;
    let is_reported =
        |attacker: &Attacker| attacker.net.apps[0].has(|event| matches!(event, Event::Disconnected { .. }));
    while !is_reported(&attacker) && attacker.net.now.since(start) < 20 * timeout_ns {
        let mut head = attacker.head(Kind::Ping);
        head.flags |= flags::CLOSING;
        attacker.send_record(&head, &[]);
        attacker.wait(timeout_ns / 4);
    }
    let took_ns = attacker.net.now.since(start);
    println!("{took_ns} ns");
    assert!(took_ns <= 3 * timeout_ns, "{took_ns} ns");
}

/// A bundle of one message, and its parts.
fn parts_of(message: &[u8]) -> Vec<Vec<u8>> {
    let mut whole = vec![0; record_bytes(message.len())];
    write_record(&mut whole, &[message], message.len());
    let (stride_bytes, whole_bytes) = (104, whole.len() as u16);
    let count = PartHead { number: 0, stride_bytes, whole_bytes }.count() as u16;
    let part = |number: u16| {
        let mut body = vec![0; crate::limits::PART_HEAD_BYTES + 104];
        PartHead { number, stride_bytes, whole_bytes }.emit(&whole, &mut body);
        body
    };
    (0..count).map(part).collect()
}

/// Parts of bundles that could not be taken if they were whole.
#[test]
fn parts_of_what_would_not_be_taken_are_not_kept() {
    let part = &parts_of(&[5; 300])[0];
    for attribute in [Attribute::ReliableOrdered, Attribute::ReliableUnordered] {
        let mut attacker = Attacker::new(attribute, Config::default());
        let before = attacker.net.ends[0].connections.protocol.receiving.parts.bytes();
        for step in 0..2 * PARTIALS_MAX as u32 {
            let mut beyond = attacker.head(Kind::Data);
            beyond.flags |= flags::PART;
            beyond.seq = beyond.seq.plus(WINDOW_BUNDLES_MAX + step);
            attacker.send_record(&beyond, part);
            let mut old = attacker.head(Kind::Data);
            old.flags |= flags::PART;
            old.seq = old.seq.plus((step + 1).wrapping_neg());
            attacker.send_record(&old, part);
            let mut other_epoch = attacker.head(Kind::Data);
            other_epoch.flags |= flags::PART;
            other_epoch.epoch = other_epoch.epoch.wrapping_add(1);
            other_epoch.seq = other_epoch.seq.plus(step);
            attacker.send_record(&other_epoch, part);
        }
        assert_eq!(
            attacker.net.ends[0].connections.protocol.receiving.parts.bytes(),
            before,
            "{attribute:?}"
        );
    }
}

/// Two peers at one endpoint: one begins ever more bundles and ends none, the other's come in two rounds of parts.
#[test]
fn who_ends_no_bundle_does_not_push_out_who_does() {
    for hostile in [1, 4] {
        let mut net = Net::new(6, vec![Config::default(); hostile as usize + 2]);
        let mut conns = Vec::new();
        for end in 1..net.ends.len() {
            let now = net.now;
            net.ends[end]
                .connect(now, address(0), b"", Attribute::ReliableOrdered, end as u64, None)
                .unwrap();
            let is_request = |event: &Event| matches!(event, Event::Request(_));
            net.run_until(60 * SECOND, "request", |net| net.apps[0].has(is_request));
            let at = net.apps[0].events.iter().position(is_request).unwrap();
            let Event::Request(request) = net.apps[0].events.remove(at) else { unreachable!() };
            let now = net.now;
            let key = net.ends[0].accept(now, request, end as u64).unwrap_or_else(|_| panic!("room"));
            conns.push((end, key));
            net.run(SECOND);
        }
        let send_record = |net: &mut Net, (end, key): (usize, ConnKey), more: u32, body: &[u8]| {
            let conn = net.ends[0].connections.table.get(key).expect("a connection");
            let next = conn.active.as_deref().map_or(conn.base.idle_rx, |active| active.rx.next);
            let tx = conn.active.as_deref().map_or(conn.base.idle_tx, |active| active.tx.unacked);
            let head = Head {
                kind: Kind::Data,
                flags: flags::PART,
                index: key.index,
                generation: key.generation,
                source_index: conn.base.peer_index,
                nonce: conn.base.nonce,
                seq: next.plus(more),
                ack: tx,
                timestamp: 0,
                echo: 0,
                window_kib: 1_000,
                epoch: conn.base.rx_epoch,
                epoch_ack: conn.base.tx_epoch,
            };
            let mut bytes = vec![0; HEADER_BYTES + body.len()];
            head.emit(&Sack::default(), body.len(), &mut bytes);
            bytes[HEADER_BYTES..].copy_from_slice(body);
            let now = net.now;
            net.ends[0].handle_datagram(now, address(end), &bytes, &mut net.apps[0]);
        };
        let (honest, others) = conns.split_last().unwrap();
        let parts = parts_of(&[5; 300]);
        for _ in 0..10 {
            let before = net.apps[0].messages.len();
            send_record(&mut net, *honest, 0, &parts[0]);
            for more in 0..2 * PARTIALS_MAX as u32 {
                others.iter().for_each(|other| send_record(&mut net, *other, 1 + more, &parts[0]));
            }
            parts[1..].iter().for_each(|part| send_record(&mut net, *honest, 0, part));
            assert_eq!(net.apps[0].messages.len(), before + 1, "{hostile} begin bundles and end none");
        }
        assert!(net.ends[0].memory().total_bytes() <= net.ends[0].memory().cap_bytes);
    }
}
