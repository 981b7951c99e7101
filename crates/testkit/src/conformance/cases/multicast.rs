//! Multicast groups (CCI-012, CCI-031): connections that only send or only receive, made without anybody's word.

use crate::conformance::{
    Conn, Driver, Environment, Flags, Port, Refusal, Setup, Side, conformance_timeout, number_of, pattern,
};
use cci::{Attribute, Status};
use std::time::Instant;

const TX: Attribute = Attribute::MulticastSend;
const RX: Attribute = Attribute::MulticastReceive;

/// A group that no other case uses, nor this one in another process of this machine.
fn group<D: Driver>(env: &Environment<D>, case: u8, port: u16) -> String {
    let [_, _, a, b] = std::process::id().to_be_bytes();
    // The two languages' cases run in different processes, those of two devices may run in one.
    if env.device.starts_with("udp6") {
        format!("udp://[ff15::{a:x}:{b:x}:{case:x}]:{port}")
    } else {
        format!("udp://239.{a}.{b}.{case}:{port}")
    }
}

/// One more connection to or from a group: open at once, reported once.
fn join<D: Driver>(side: &mut Side<D>, uri: &str, attribute: Attribute) -> Conn<D> {
    let count = side.connected.len();
    side.port.connect(uri, b"", attribute, count as u64, None).expect("joining starts");
    let until = Instant::now() + conformance_timeout();
    while side.connected.len() == count {
        assert!(Instant::now() < until, "a group keeps nobody waiting");
        side.poll();
    }
    let (context, connected) = side.connected[count];
    assert_eq!(context, count as u64);
    connected.expect("joined")
}

/// Polls until a side has so many messages; the numbers in them, by connection.
fn numbers<D: Driver>(side: &mut Side<D>, count: usize) -> Vec<(Conn<D>, u64)> {
    let until = Instant::now() + conformance_timeout();
    while side.inbox.len() < count {
        assert!(Instant::now() < until, "{} of {count} messages came", side.inbox.len());
        side.poll();
    }
    side.settle();
    assert_eq!(side.inbox.len(), count, "no more than were sent");
    side.inbox.drain(..).map(|(connection, message)| (connection, number_of(message.as_ref()))).collect()
}

fn send<D: Driver>(side: &mut Side<D>, to: Conn<D>, number: u64, len_bytes: usize) {
    let until = Instant::now() + conformance_timeout();
    let message = pattern(number, len_bytes);
    while let Err(refused) = side.port.send(to, &message, number, Flags::default()) {
        assert_eq!(refused, Refusal::WouldBlock);
        assert!(Instant::now() < until, "no room for a send in time");
        side.poll();
    }
    side.poll();
}

/// Several senders, several receivers: each gets everything once; each send completes once.
pub fn every_member_hears_every_sender<D: Driver>(env: &Environment<D>) {
    let uri = group(env, 1, 47720);
    let mut members: Vec<Side<D>> = (0..3).map(|_| Side::plain(env)).collect();
    let mut senders: Vec<Side<D>> = (0..2).map(|_| Side::plain(env)).collect();
    let from: Vec<_> = members.iter_mut().map(|member| join(member, &uri, RX)).collect();
    let to: Vec<_> = senders.iter_mut().map(|sender| join(sender, &uri, TX)).collect();
    for round in 0..20 {
        for (which, (sender, to)) in senders.iter_mut().zip(&to).enumerate() {
            for number in round * 5..round * 5 + 5 {
                let len_bytes = 8 + (number as usize * 71) % (sender.port.max_send_size(*to) - 8);
                send(sender, *to, which as u64 * 1000 + number, len_bytes);
            }
        }
        for (member, from) in members.iter_mut().zip(&from) {
            let mut got: Vec<u64> = numbers(member, 10)
                .into_iter()
                .map(|(connection, number)| {
                    assert_eq!(connection, *from);
                    number
                })
                .collect();
            got.sort_unstable();
            let wanted = (0..2).flat_map(|which| (round * 5..round * 5 + 5).map(move |n| which * 1000 + n));
            assert_eq!(got, wanted.collect::<Vec<_>>());
        }
    }
    for (which, sender) in senders.iter_mut().enumerate() {
        sender.settle();
        assert!(sender.statuses().iter().all(|status| *status == Status::Success));
        let mut contexts = sender.contexts();
        contexts.sort_unstable();
        assert_eq!(contexts, (0..100).map(|number| which as u64 * 1000 + number).collect::<Vec<_>>());
    }
}

/// Every length up to the longest, the longest included; one more is refused.
pub fn every_size_arrives_in_a_group<D: Driver>(env: &Environment<D>) {
    let uri = group(env, 2, 47720);
    let (mut sender, mut member) = (Side::plain(env), Side::plain(env));
    join(&mut member, &uri, RX);
    let to = join(&mut sender, &uri, TX);
    let longest = sender.port.max_send_size(to);
    assert!(longest >= 1024, "{longest}");
    for len_bytes in (8..longest).step_by(211).chain([longest - 1, longest]) {
        send(&mut sender, to, len_bytes as u64, len_bytes);
        assert_eq!(numbers(&mut member, 1)[0].1, len_bytes as u64);
    }
    let refused = sender.port.send(to, &pattern(1, longest + 1), 1, Flags::default());
    assert_eq!(refused, Err(Refusal::TooLong));
    sender.port.send(to, b"", 1, Flags::default()).expect("none is a length, too");
    let until = Instant::now() + conformance_timeout();
    while member.inbox.is_empty() {
        assert!(Instant::now() < until, "a message of no bytes is a message");
        sender.poll();
        member.poll();
    }
    assert!(member.inbox[0].1.as_ref().is_empty());
}

/// Two groups at one port and one group at two ports; the same group over two connections.
pub fn groups_do_not_mix<D: Driver>(env: &Environment<D>) {
    let uris = [group(env, 3, 47720), group(env, 4, 47720), group(env, 3, 47721)];
    let (mut sender, mut member) = (Side::plain(env), Side::plain(env));
    let from: Vec<_> = uris.iter().map(|uri| join(&mut member, uri, RX)).collect();
    let again = join(&mut member, &uris[0], RX);
    let to: Vec<_> = uris.iter().map(|uri| join(&mut sender, uri, TX)).collect();
    for round in 0..25 {
        for (which, to) in to.iter().enumerate() {
            send(&mut sender, *to, round * 10 + which as u64, 24);
        }
        let got = numbers(&mut member, 4);
        for (which, from) in from.iter().enumerate() {
            let mine: Vec<_> = got.iter().filter(|(connection, _)| connection == from).collect();
            assert!(mine.len() == 1 && mine[0].1 == round * 10 + which as u64, "{mine:?} in group {which}");
        }
        assert!(got.contains(&(again, round * 10)), "each connection gets its copy");
    }
}

/// Who has left hears nothing, who comes back hears again; and what was sent before a disconnect leaves.
pub fn leaving_ends_it<D: Driver>(env: &Environment<D>) {
    let uri = group(env, 5, 47720);
    let (mut sender, mut leaves, mut stays) = (Side::plain(env), Side::plain(env), Side::plain(env));
    join(&mut stays, &uri, RX);
    for round in 0..5 {
        let from = join(&mut leaves, &uri, RX);
        let to = join(&mut sender, &uri, TX);
        send(&mut sender, to, round * 10, 100);
        assert_eq!(numbers(&mut leaves, 1), [(from, round * 10)]);
        leaves.port.disconnect(from);
        sender.port.send(to, &pattern(round * 10 + 1, 100), 1, Flags::default()).expect("taken");
        sender.port.disconnect(to);
        let got: Vec<u64> = numbers(&mut stays, 2).into_iter().map(|(_, number)| number).collect();
        assert_eq!(got, [round * 10, round * 10 + 1]);
        leaves.settle();
        assert!(leaves.inbox.is_empty(), "who has left hears nothing");
    }
}

/// A sender that has joined its own group does not hear itself; others do.
pub fn own_messages_are_not_heard<D: Driver>(env: &Environment<D>) {
    let uri = group(env, 6, 47720);
    let (mut speaker, mut other) = (Side::plain(env), Side::plain(env));
    let heard = join(&mut speaker, &uri, RX);
    join(&mut other, &uri, RX);
    let to = join(&mut speaker, &uri, TX);
    let others_to = join(&mut other, &uri, TX);
    for number in 0..10 {
        send(&mut speaker, to, number, 50);
        assert_eq!(numbers(&mut other, 1)[0].1, number);
        send(&mut other, others_to, 100 + number, 50);
        assert_eq!(numbers(&mut speaker, 1), [(heard, 100 + number)]);
    }
}

/// What a group can't do is refused, nothing is started, and the endpoint goes on.
pub fn mistakes_with_groups_are_refused<D: Driver>(env: &Environment<D>) {
    let uri = group(env, 7, 47720);
    let (mut side, other) = (Side::plain(env), Side::plain(env));
    for attribute in super::ATTRIBUTES {
        assert_eq!(side.port.connect(&uri, b"", attribute, 1, None), Err(Refusal::BadArgument), "to a group");
    }
    for attribute in [TX, RX] {
        let one = other.port.uri();
        assert_eq!(
            side.port.connect(&one, b"", attribute, 1, None),
            Err(Refusal::BadArgument),
            "to one endpoint"
        );
        assert_eq!(
            side.port.connect(&uri, b"x", attribute, 1, None),
            Err(Refusal::BadArgument),
            "with a request"
        );
    }
    side.settle();
    assert!(side.connected.is_empty(), "nothing was started");
    let from = join(&mut side, &uri, RX);
    assert_eq!(
        side.port.send(from, b"x", 1, Flags::default()),
        Err(Refusal::BadArgument),
        "on a receiving one"
    );
    let to = join(&mut side, &uri, TX);
    for connection in [from, to] {
        let explained = side.port.explain(connection);
        assert!(explained.contains("MC_"), "{explained}");
    }
    side.settle();
    assert!(side.sent.is_empty() && side.inbox.is_empty());
}

/// Messages that find no receive buffer are lost and counted; the group goes on when there are buffers again.
pub fn members_without_a_buffer_lose<D: Driver>(env: &Environment<D>) {
    let uri = group(env, 8, 47720);
    let setup = Setup { recv_buffers: 4, ..Setup::default() };
    let (mut sender, mut member) = (Side::plain(env), Side::<D>::open(env, &setup));
    let from = join(&mut member, &uri, RX);
    let to = join(&mut sender, &uri, TX);
    for number in 0..100 {
        send(&mut sender, to, number, 64);
        member.poll();
    }
    member.settle();
    assert_eq!(member.inbox.len(), 4);
    assert!(member.port.counts().receiver_not_ready >= 96, "what is lost is counted");
    member.inbox.clear();
    member.settle();
    assert!(member.inbox.is_empty(), "nothing was kept");
    send(&mut sender, to, 1000, 64);
    assert_eq!(numbers(&mut member, 1), [(from, 1000)]);
}
