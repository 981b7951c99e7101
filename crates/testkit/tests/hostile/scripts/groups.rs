//! Lies in datagrams of multicast groups.

use cci::{Attribute, Options, SendFlags};
use cci_testkit::hostile::raw::{Kind, spoof, watch};
use cci_testkit::hostile::{Scene, Script, Stage};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// B7: whoever has once sent in a sender's name does not silence it.
#[test]
fn a_spoofed_number_does_not_silence_a_group() {
    let Some(stage) = Stage::apart("udp") else { return };
    let mut scene = Scene::on(stage, Options::default());
    let group = SocketAddrV4::new(Ipv4Addr::new(239, 77, 7, 7), 7_707);
    let uri = format!("udp://{group}");
    let (from, to) = (
        scene.victim.group(&uri, Attribute::MulticastReceive),
        scene.honest.group(&uri, Attribute::MulticastSend),
    );
    scene
        .add(Script::new().now(watch(group)).expect(Kind::Group).now(spoof(|group| group.number = u64::MAX)));
    let mut got = Vec::new();
    for _ in 0..200 {
        scene.honest.endpoint.send(to, b"to all", 0, SendFlags::SILENT).expect("a group has space");
        scene.for_time(Duration::from_micros(200));
        got.push(scene.victim.received.get(&from).copied().unwrap_or(0));
    }
    scene.until_over();
    let late = got[199] - got[99];
    println!("{} of 200 messages to the group came, {late} of the last 100", got[199]);
    assert!(late >= 90, "{late} of the last 100 messages to the group came");
    scene.judge();
}
