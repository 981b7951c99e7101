//! The second path of a bonded connection: how it is proved, and what strangers can do about it.

use super::*;
use proptest::prelude::*;

/// Two endpoints with two interfaces each, and a wire that hands over what the test lets it.
struct Pair {
    now: Time,
    ends: [Endpoint; 2],
    apps: [App; 2],
    /// Whose, where to, what: in order of sending.
    wire: VecDeque<(usize, Address, Vec<u8>)>,
    /// Datagrams that went on, with their sender.
    kept: Vec<(usize, Address, Vec<u8>)>,
}

/// Interface `rail` of an end.
fn at(end: usize, rail: u8) -> Address {
    SocketAddr::from(([10, 0, rail, 1], 1000 + end as u16)).into()
}

/// Somebody else, as the first interface hears him.
fn stranger() -> Address {
    SocketAddr::from(([192, 0, 2, 66], 666)).into()
}

fn is_path(datagram: &[u8]) -> bool {
    datagram[0] & 15 == 15
}

impl Pair {
    fn new() -> Pair {
        let end =
            |secret: u8| Endpoint::new(Config { secret: [secret; 32], ..Config::default() }).expect("config");
        Pair {
            now: Time(1_000_000_000_000),
            ends: [end(1), end(2)],
            apps: [App::default(), App::default()],
            wire: VecDeque::new(),
            kept: Vec::new(),
        }
    }

    /// Lets both ends do what is due now.
    fn poll(&mut self) {
        for end in [0, 1] {
            self.ends[end].handle_timeout(self.now, &mut self.apps[end]);
            let mut out = Out { sent: VecDeque::new(), next: None, bytes: Vec::new(), space: 64 };
            self.ends[end].poll_transmit(self.now, &mut out, &mut self.apps[end]);
            self.wire.extend(out.sent.into_iter().map(|(to, bytes)| (end, to, bytes)));
        }
    }

    fn hand(&mut self, target: usize, from: Address, bytes: &[u8]) {
        self.ends[target].handle_datagram(self.now, from, bytes, &mut self.apps[target]);
    }

    /// Hands over everything on the wire for which `passes` says so, for so long; the rest is lost.
    fn run(&mut self, ns: u64, passes: impl Fn(usize, Address, &[u8]) -> bool) {
        let until = self.now.plus(ns);
        while self.now < until {
            self.poll();
            for (sender, to, bytes) in std::mem::take(&mut self.wire) {
                let rail = match to.socket_addr() {
                    Some(SocketAddr::V4(v4)) if v4.ip().octets()[..2] == [10, 0] => v4.ip().octets()[2],
                    _ => continue,
                };
                if passes(sender, to, &bytes) {
                    self.hand(1 - sender, at(sender, to.via()).with_via(rail), &bytes);
                    self.kept.push((sender, to, bytes));
                }
            }
            self.now = self.now.plus(MS / 10);
        }
    }

    /// A bonded connection; the second path is as `passes` lets it be.
    fn join(&mut self, passes: impl Fn(usize, Address, &[u8]) -> bool) -> [ConnKey; 2] {
        let to = [at(1, 0), at(1, 1).with_via(1)];
        let attribute = Attribute::ReliableUnordered;
        let client = self.ends[0].connect_bonded(self.now, to, b"", attribute, 7, None).expect("room");
        let is_request = |event: &Event| matches!(event, Event::Request(_));
        while !self.apps[1].has(is_request) {
            self.run(MS, &passes);
        }
        let address = self.apps[1].events.iter().position(is_request).expect("there");
        let Event::Request(request) = self.apps[1].events.remove(address) else { unreachable!() };
        let server = self.ends[1].accept(self.now, request, 9).expect("room");
        self.run(5 * MS, passes);
        [client, server]
    }

    fn states(&self, keys: [ConnKey; 2]) -> [[PathState; 2]; 2] {
        [0, 1].map(|end| self.ends[end].paths(keys[end]).expect("bonded").map(|path| path.state))
    }

    fn faults(&self, end: usize, fault: PeerFault) -> u64 {
        self.ends[end].counters().fault(fault)
    }

    /// The first challenge that the client sent by the second path.
    fn challenge(&self) -> Vec<u8> {
        let sent = self.kept.iter().find(|(sender, _, bytes)| *sender == 0 && is_path(bytes));
        sent.expect("a challenge").2.clone()
    }
}

const UP: [PathState; 2] = [PathState::Up; 2];

#[test]
fn both_sides_prove_the_second_path() {
    let mut pair = Pair::new();
    let keys = pair.join(|_, _, _| true);
    assert_eq!(pair.states(keys), [UP, UP]);
    let [_, second] = pair.ends[1].paths(keys[1]).expect("bonded");
    assert_eq!(second.to, Some(at(0, 1).with_via(1)));
    // Four datagrams in all, none longer than the one it answers.
    let paths: Vec<usize> =
        pair.kept.iter().filter(|(_, _, bytes)| is_path(bytes)).map(|(_, _, bytes)| bytes.len()).collect();
    assert_eq!(paths, [64; 4]);
    assert_eq!(pair.faults(0, PeerFault::Source) + pair.faults(1, PeerFault::Source), 0);
}

#[test]
fn lost_challenges_and_answers_are_repeated() {
    for lost in 0..4 {
        let seen = std::cell::Cell::new(0);
        let mut pair = Pair::new();
        let passes = |_: usize, _: Address, bytes: &[u8]| {
            seen.set(seen.get() + u32::from(is_path(bytes)));
            !(is_path(bytes) && seen.get() == lost + 1)
        };
        let keys = pair.join(passes);
        pair.run(100 * MS, passes);
        assert_eq!(pair.states(keys), [UP, UP], "datagram {lost} lost");
    }
}

/// At a server that waits to be confirmed only the client's questions about the first path arrive.
#[test]
fn the_answer_to_a_question_acknowledges_nothing_that_did_not_come() {
    let mut pair = Pair::new();
    let questions = |_: usize, to: Address, bytes: &[u8]| is_path(bytes) && to.via() == 0;
    let [client, _] =
        pair.join(|sender, to, bytes| sender == 1 || bytes[0] & 15 < 8 || questions(sender, to, bytes));
    pair.ends[0].send(pair.now, client, &[b"once"], 3, false).expect("room");
    pair.kept.clear();
    pair.run(3 * SECOND, questions);
    assert!(pair.kept.iter().any(|(sender, _, bytes)| *sender == 1 && is_path(bytes)), "no answer");
    assert_eq!((pair.apps[1].messages.len(), pair.apps[0].statuses()), (0, vec![]));
    pair.run(3 * SECOND, |_, _, _| true);
    assert_eq!((pair.apps[1].messages.len(), pair.apps[0].statuses()), (1, vec![(3, Status::Success)]));
}

#[test]
fn nothing_but_answers_goes_to_an_unproved_address() {
    let mut pair = Pair::new();
    let keys = pair.join(|sender, _, bytes| !(sender == 1 && is_path(bytes)));
    assert_eq!(pair.states(keys)[1], [PathState::Up, PathState::Unproved]);
    pair.kept.clear();
    for context in 0..300 {
        let _ = pair.ends[1].send(pair.now, keys[1], &[&[7; 1000]], context, false);
        pair.run(MS, |_, to, bytes| {
            assert!(to.via() == 0 || is_path(bytes), "data by a way that is not proved");
            !is_path(bytes)
        });
    }
    assert_eq!(pair.apps[0].messages.len(), 300);
}

#[test]
fn a_challenge_without_the_nonce_does_nothing() {
    let mut pair = Pair::new();
    let keys = pair.join(|_, to, _| to.via() == 0 || to == at(1, 1).with_via(1));
    let mut forged = pair.challenge();
    forged[16] ^= 1;
    let known = pair.ends[1].paths(keys[1]);
    pair.hand(1, stranger(), &forged);
    assert_eq!((pair.faults(1, PeerFault::Nonce), pair.ends[1].paths(keys[1])), (1, known));
    pair.poll();
    assert!(pair.wire.iter().all(|(_, to, _)| *to != stranger()));
}

#[test]
fn an_answer_nobody_asked_for_is_a_fault() {
    let mut pair = Pair::new();
    let keys = pair.join(|_, _, _| true);
    let mut forged = pair.challenge();
    forged[48..56].fill(0);
    forged[56..64].fill(5);
    for (from, fault) in [
        (at(0, 0), PeerFault::Unexpected),
        (at(0, 1).with_via(1), PeerFault::Unexpected),
        (stranger(), PeerFault::Source),
    ] {
        let before = pair.faults(1, fault);
        pair.hand(1, from, &forged);
        assert_eq!(pair.faults(1, fault), before + 1, "{from}");
    }
    assert_eq!(pair.states(keys), [UP, UP]);
}

#[test]
fn a_proved_path_is_moved_by_nobody() {
    let mut pair = Pair::new();
    let keys = pair.join(|_, _, _| true);
    let before = pair.ends[1].paths(keys[1]).map(|paths| paths.map(|path| path.to));
    let faults = pair.faults(1, PeerFault::Source);
    let copies: Vec<Vec<u8>> = pair
        .kept
        .iter()
        .filter(|(sender, _, bytes)| *sender == 0 && bytes[0] & 15 >= 8)
        .map(|kept| kept.2.clone())
        .collect();
    for copy in &copies {
        pair.hand(1, stranger(), copy);
    }
    pair.poll();
    assert!(pair.wire.iter().all(|(_, to, _)| *to != stranger()), "a stranger gets no answer");
    assert_eq!(pair.ends[1].paths(keys[1]).map(|paths| paths.map(|path| path.to)), before);
    assert_eq!(pair.faults(1, PeerFault::Source), faults + copies.len() as u64);
}

#[test]
fn a_copied_challenge_does_not_keep_the_client_out() {
    let mut pair = Pair::new();
    // The server hears nothing on the second path but what a stranger copies.
    let keys = pair.join(|sender, to, _| sender == 1 || to.via() == 0);
    pair.poll();
    while pair.wire.iter().all(|(_, _, bytes)| !is_path(bytes)) {
        pair.now = pair.now.plus(MS);
        pair.poll();
    }
    let (_, _, copy) = pair.wire.iter().find(|(_, _, bytes)| is_path(bytes)).expect("there").clone();
    pair.wire.clear();
    pair.hand(1, stranger(), &copy);
    pair.poll();
    let answers: Vec<usize> =
        pair.wire.iter().filter(|(_, to, _)| *to == stranger()).map(|(_, _, bytes)| bytes.len()).collect();
    assert_eq!(answers, [copy.len()], "one answer, no longer than the question");
    assert_eq!(pair.states(keys)[1][1], PathState::Unproved);
    pair.run(SECOND, |_, _, _| true);
    assert_eq!(pair.states(keys), [UP, UP]);
    assert_eq!(pair.ends[1].paths(keys[1]).expect("bonded")[1].to, Some(at(0, 1).with_via(1)));
}

#[test]
fn only_who_asked_is_bonded() {
    let mut pair = Pair::new();
    let attribute = Attribute::ReliableUnordered;
    let client = pair.ends[0].connect(pair.now, at(1, 0), b"", attribute, 7, None).expect("room");
    pair.run(MS, |_, _, _| true);
    let Some(Event::Request(request)) = pair.apps[1].events.pop() else { panic!("no request") };
    let server = pair.ends[1].accept(pair.now, request, 9).expect("room");
    pair.run(MS, |_, _, _| true);
    assert!(pair.ends[0].paths(client).is_none() && pair.ends[1].paths(server).is_none());
    // An unreliable connection is never bonded.
    let mut pair = Pair::new();
    let to = [at(1, 0), at(1, 1).with_via(1)];
    let client =
        pair.ends[0].connect_bonded(pair.now, to, b"", Attribute::Unreliable, 7, None).expect("room");
    pair.run(MS, |_, _, _| true);
    let Some(Event::Request(request)) = pair.apps[1].events.pop() else { panic!("no request") };
    let server = pair.ends[1].accept(pair.now, request, 9).expect("room");
    pair.run(MS, |_, _, _| true);
    assert!(pair.ends[0].paths(client).is_none() && pair.ends[1].paths(server).is_none());
}

#[test]
fn the_end_of_a_bonded_connection_leaves_nothing() {
    let mut pair = Pair::new();
    let keys = pair.join(|_, _, _| true);
    pair.run(SECOND, |_, _, _| true);
    let bonded = pair.ends[0].memory().actives_bytes;
    pair.ends[0].disconnect(pair.now, keys[0]).expect("up");
    pair.run(SECOND, |_, _, _| true);
    assert!(pair.apps[0].has(|event| matches!(event, Event::Closed { .. })));
    assert!(pair.apps[1].has(|event| matches!(event, Event::Disconnected { .. })));
    assert!(pair.ends[0].memory().actives_bytes < bonded);
    pair.ends[1].disconnect(pair.now, keys[1]).expect("broken");
    pair.run(SECOND, |_, _, _| true);
    assert_eq!((pair.ends[0].next_deadline(), pair.ends[1].next_deadline()), (None, None));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Real datagrams with the right nonces, changed in a few places, from anywhere.
    #[test]
    fn changed_datagrams_do_no_harm(
        changes in prop::collection::vec(
            (any::<prop::sample::Index>(), 0usize..80, any::<u8>(), 0usize..5), 1..150,
        ),
    ) {
        let mut pair = Pair::new();
        let keys = pair.join(|_, _, _| true);
        for context in 0..20 {
            let _ = pair.ends[0].send(pair.now, keys[0], &[&[1; 900]], context, false);
            let _ = pair.ends[1].send(pair.now, keys[1], &[&[2; 90]], context, false);
            pair.run(MS, |_, _, _| true);
        }
        let kept = std::mem::take(&mut pair.kept);
        let mut context = 100;
        for (which, address, value, from) in changes {
            let (sender, _, mut bytes) = which.get(&kept).clone();
            if let Some(byte) = bytes.get_mut(address) {
                *byte = value;
            }
            let from = match from {
                rail @ 0..=1 => at(sender, rail as u8).with_via(rail as u8),
                2 => at(sender, 1),
                3 => at(sender, 0).with_via(1),
                _ => stranger(),
            };
            pair.hand(1 - sender, from, &bytes);
            if pair.ends[0].send(pair.now, keys[0], &[&[3; 700]], context, false).is_ok() {
                context += 1;
            }
            pair.run(MS / 5, |_, _, _| true);
        }
        pair.run(100 * MS, |_, _, _| true);
        let mut statuses: Vec<u64> =
            pair.apps[0].statuses().iter().map(|(context, _)| *context).collect();
        let count = statuses.len();
        statuses.sort_unstable();
        statuses.dedup();
        prop_assert_eq!(statuses.len(), count, "no send completes twice");
    }
}

/// Runs go by both paths; one path dies, and loses some.
#[test]
fn runs_on_two_paths_complete_once() {
    let mut pair = Pair::new();
    let [client, _] = pair.join(|_, _, _| true);
    let message = [7; 500];
    let (mut sent, mut turn) = (0, 0u64);
    while sent < 4_000 {
        let messages = vec![message.as_slice(); 40];
        let taken = pair.ends[0].send_burst(pair.now, client, &messages, 500, turn, false);
        sent += taken.messages;
        turn += 1;
        pair.run(MS / 10, |_, to, _| turn < 30 || to.via() == 0);
        assert!(turn < 100_000, "stuck at {sent}");
    }
    pair.run(5 * SECOND, |_, to, _| to.via() == 0);
    let statuses = pair.apps[0].statuses();
    assert_eq!((statuses.len(), pair.apps[1].messages.len()), (sent as usize, sent as usize));
    assert!(statuses.iter().all(|(_, status)| *status == Status::Success));
    let by_second =
        pair.kept.iter().filter(|(sender, to, bytes)| *sender == 0 && to.via() == 1 && bytes.len() > 500);
    assert!(by_second.count() > 5, "both paths carried some");
}
