//! Bundles in parts.

use super::{ALWAYS, ms, soon};
use cci_testkit::hostile::datagram::{Datagrams, Kind, Record, client, part};
use cci_testkit::hostile::{Scene, Script, act};

fn open() -> Scene {
    Scene::open("udp", soon()).expect("UDP is everywhere")
}

/// A bundle of one message, which is sent in two parts.
fn bundle() -> Vec<u8> {
    Record::new(Kind::Message, 0, &[], &[3; 992]).bytes()
}

/// A peer that sends a bundle in two parts, some time apart, again and again until it is acknowledged.
fn in_two_parts() -> Script<Datagrams> {
    let script = client();
    (0..20).fold(script, |script, _| {
        let script = script.now(part(bundle(), 0, 504, |_, _| {})).rest(ms(5));
        script.now(part(bundle(), 1, 504, |_, _| {})).rest(ms(5))
    })
}

/// B7: parts of bundles that never become whole take no place from others'.
fn parts_that_never_become_whole(what: &str, seq: fn(&mut Datagrams) -> u32) {
    let mut scene = open();
    let half = part(bundle(), 0, 504, move |head, peer| head.seq = seq(peer));
    let half_of_many = act(move |peer: &mut Datagrams| (0..50).for_each(|_| half(peer)));
    scene.join(client().every(ms(1), ALWAYS, half_of_many));
    let other = scene.join(in_two_parts());
    scene.for_time(ms(200));
    let from = scene.connection(other);
    let received = scene.victim.received.get(&from).copied().unwrap_or(0);
    assert_eq!(received, 1, "messages in parts beside parts {what}");
    scene.judge();
}

#[test]
fn parts_beyond_the_window() {
    parts_that_never_become_whole("beyond the window", |peer| {
        peer.mark = peer.mark.wrapping_add(1);
        peer.seq.wrapping_add(10_000 + peer.mark)
    });
}

#[test]
fn parts_in_the_window() {
    parts_that_never_become_whole("in the window", |peer| {
        peer.mark = (peer.mark + 1) % 200;
        peer.seq.wrapping_add(1 + peer.mark)
    });
}
