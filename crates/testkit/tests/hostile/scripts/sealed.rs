//! Peers without a key, where one is asked for.

use super::{ALWAYS, ms, soon};
use cci::{Attribute, ConnectFailure};
use cci_testkit::hostile::mirror::reflect;
use cci_testkit::hostile::sealed::{Kind, begin, from_address, replay, show_cookie, tap};
use cci_testkit::hostile::{STRANGER, Scene, Script, act};
use std::net::Ipv4Addr;

/// Recordings of first messages.
const RECORDINGS: u32 = 20;

fn open(name: &str) -> Scene {
    Scene::open(name, soon()).expect("every machine has it")
}

/// A2: nobody connects an endpoint to itself, as a peer of good name that hears what was for another one.
fn what_is_reflected_is_refused(name: &str) {
    let mut scene = open(name);
    scene.connect_timeout = ms(500);
    let peer = scene.add(Script::new().now(reflect()));
    scene.until("the attempt is over", |scene| scene.failed(peer) > 0 || scene.has_met(peer));
    assert!(!scene.has_met(peer), "{name}: the victim is connected to itself");
    let requests = scene.victim.met.get(&STRANGER).map_or(0, |met| met.requests);
    assert_eq!(requests, 0, "{name}: the victim was shown its own request");
    let why = if name.starts_with("tcp") { ConnectFailure::NotPermitted } else { ConnectFailure::TimedOut };
    assert_eq!(scene.failure(peer), Some(why), "{name}");
    assert!(scene.victim.count("handshake-own") > 0, "{name}: its own words were not known as such");
    scene.judge();
}

tests! {
    fn reflected_datagrams_with_a_key() = what_is_reflected_is_refused("udp-psk");
    fn reflected_datagrams_with_certificates() = what_is_reflected_is_refused("udp-certificates");
    fn reflected_streams_with_a_key() = what_is_reflected_is_refused("tcp-psk");
    fn reflected_streams_with_certificates() = what_is_reflected_is_refused("tcp-certificates");
}

/// A4: handshakes of one host leave places for those of others.
#[test]
fn handshakes_of_one_host_keep_nobody_out() {
    let mut scene = open("udp-certificates");
    let alone = scene.time_of(|scene| (0..4).for_each(|_| scene.newcomer()));
    // The beginning of a ClientHello, and nothing behind it.
    let half = begin(&[0x16, 3, 1, 0, 200, 1, 0, 0]);
    let many = act(move |strangers| (0..20).for_each(|_| half(strangers)));
    let script = Script::new().now(from_address(Ipv4Addr::new(127, 0, 0, 2).into())).repeat(400, tap());
    scene.add(script.on(Kind::Cookie, show_cookie()).every(ms(1), ALWAYS, many));
    scene.for_time(ms(300));
    let beside = scene.time_of(|scene| (0..4).for_each(|_| scene.newcomer()));
    println!("four newcomers: {alone:?} alone, {beside:?} beside a host that begins handshakes all the time");
    assert!(beside < alone * 50, "{alone:?} alone, {beside:?} beside");
    scene.judge();
}

/// A5: a recorded first message makes no association.
#[test]
fn recorded_first_messages_make_no_association() {
    let mut scene = open("udp-psk");
    let before = scene.victim.count("security_handshakes");
    let script = Script::new().repeat(RECORDINGS, tap()).expect_times(RECORDINGS, Kind::Recorded);
    let peer = scene.add(script.on(Kind::Cookie, show_cookie()).now(replay()));
    // An endpoint with a key tries to reach addresses at which somebody listens who has none.
    for (number, uri) in (1_000..).zip(scene.addresses(peer)) {
        let connecting =
            scene.honest.endpoint.connect(&uri, b"", Attribute::ReliableOrdered, number, Some(ms(100)));
        connecting.expect("it may try");
    }
    scene.until_over();
    scene.for_time(ms(200));
    let made = scene.victim.count("security_handshakes") - before;
    println!("{made} associations made by {RECORDINGS} recordings");
    assert_eq!(made, 0, "associations made by recordings");
    scene.judge();
}
