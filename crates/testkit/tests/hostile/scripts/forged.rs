//! Packets in others' names.

use cci::Options;
use cci_testkit::hostile::raw::too_big;
use cci_testkit::hostile::{Scene, Script, Side, Stage};
use std::net::SocketAddrV4;

const MESSAGES: u64 = 300;

/// B1: nobody's word is taken for what the path carries.
#[test]
fn a_forged_icmp_does_not_slow_a_sender() {
    let Some(stage) = Stage::apart("udp") else { return };
    let mut scene = Scene::on(stage, Options::default());
    let at = |side: &Side| side.endpoint.uri().strip_prefix("udp://").unwrap().parse().unwrap();
    let (victim, honest): (SocketAddrV4, SocketAddrV4) = (at(&scene.victim), at(&scene.honest));
    scene.stream(1_400, 100);
    scene.add(Script::new().now(too_big(victim, honest, 552)));
    scene.until_over();
    let before = scene.victim.count("retransmissions");
    scene.stream(1_400, MESSAGES);
    let repeated = scene.victim.count("retransmissions") - before;
    println!("{repeated} bundles sent again for {MESSAGES} messages behind a forged ICMP");
    assert!(repeated < MESSAGES / 4, "{repeated} bundles sent again for {MESSAGES} messages");
    scene.judge();
}
