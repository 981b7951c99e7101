//! Lies in frames of Ethernet.

use super::{ms, soon};
use cci_testkit::hostile::datagram::Kind;
use cci_testkit::hostile::datagram::{Datagrams, ack, client, honestly, spoof, write_tag};
use cci_testkit::hostile::{Act, Scene, Script, Stage};

/// Both kinds of sockets, and a peer that sends everything so: requests that it gets through.
fn requests_of(what: &str, forgery: &Act<Datagrams>) -> [u32; 2] {
    ["eth", "eth-packet"].map(|name| {
        let Some(stage) = Stage::find(name) else { return 0 };
        let mut scene = Scene::on(stage, soon());
        let peer = scene.add(Script::new().now(forgery.clone()).then(client()));
        scene.for_time(ms(100));
        println!("{name}, {what}: {} requests", scene.requests(peer));
        scene.judge();
        scene.requests(peer)
    })
}

/// An honest peer beside a peer that acknowledges each bundle by script: the framework speaks Ethernet.
#[test]
fn a_peer_by_script_is_a_peer() {
    for name in ["eth", "eth-packet"] {
        let Some(mut scene) = Scene::open(name, soon()) else { return };
        let peer = scene.join(client().on(Kind::Data, ack(honestly)));
        assert!(scene.send(peer, 20) > 0);
        assert!(scene.until_ended(peer).iter().all(|status| *status == cci::Status::Success));
        scene.judge();
    }
}

/// A frame with a tag is no frame of ours.
#[test]
fn frames_with_a_tag_are_nobodys() {
    assert_eq!(requests_of("with a tag", &write_tag(5)), [0, 0]);
}

/// Whoever sends in another's name hears no answer, and so never shows a cookie.
#[test]
fn frames_in_anothers_name_make_no_request() {
    assert_eq!(requests_of("in another's name", &spoof([2, 0, 0, 0, 9, 9])), [0, 0]);
}
