//! Somebody on the path, without a key, gives an endpoint what it says to its peer back from another address: unless it knows
//! its own words it connects to itself, as a peer of good name, and sends itself what was for the other one. Over UDP and TCP
//! the scripts show it.

use super::stage::*;
use cci::{ConnectFailure, Endpoint, Options};
use cci_testkit::net::{End, Veth};
use std::time::Duration;

fn is_not_connected_to_itself(what: &str, endpoint: Endpoint, mirror: &mut dyn Between) {
    let mut side = Side::new(endpoint);
    side.dial(&mirror.uri(), None, Duration::from_millis(1500));
    let is_over = |sides: &[&mut Side]| !sides[0].made.is_empty();
    assert!(run(&mut [&mut side], mirror, PATIENCE, is_over), "{what}: {:?}", side.endpoint.counters());
    // What it may have sent itself is on the way.
    run(&mut [&mut side], mirror, Duration::from_millis(100), |_| false);
    println!("{what}: {:?}, asked by {:?}, {} messages", side.made, side.asked, side.messages.len());
    assert!(side.asked.is_empty(), "{what}: it was asked by itself: {:?}", side.asked);
    assert!(side.messages.is_empty(), "{what}: it got its own secrets");
    assert_eq!(side.made, [Err(ConnectFailure::TimedOut)], "{what}");
    assert!(side.drops("handshake-own") > 0, "{what}: {:?}", side.endpoint.counters());
}

#[test]
fn over_raw_ethernet() {
    let veth = match Veth::pair_in_one_namespace(1500) {
        Ok(veth) => veth,
        Err(reason) => return println!("skipped: {reason}"),
    };
    for method in METHODS {
        let (near, far) = (veth.name(End::A, 0), veth.name(End::B, 0));
        let device = device("eth", method, &format!("interface = {near}\nmode = packet"));
        let endpoint = Endpoint::create(&device, Options::default()).unwrap();
        let mut mirror = EthMirror::of(&endpoint, &near, &far);
        is_not_connected_to_itself(&format!("eth, {method}"), endpoint, &mut mirror);
    }
}
