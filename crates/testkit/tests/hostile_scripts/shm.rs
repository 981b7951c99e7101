//! Lies over shared memory.

use super::soon;
use cci::Options;
use cci_testkit::hostile::shm::{Kind, Memfd, Ring, client, confirm, connect, honestly, send, shake};
use cci_testkit::hostile::{Scene, Script};

fn open(options: Options) -> Scene {
    Scene::open("shm", options).expect("shared memory is everywhere")
}

/// What no honest peer writes into the ring costs the link.
#[test]
fn a_false_record_costs_its_sender_the_link() {
    let mut scene = open(soon());
    let lies = [
        send(Kind::Message, |message| message.check = Some(7)),
        send(Kind::Message, |message| message.len = Some(1 << 29)),
        send(Kind::Message, |message| message.ack += 1_000),
    ];
    let count = lies.len() as u64;
    for lie in lies {
        let peer = scene.join(client().now(lie).expect(Kind::End));
        scene.until_over();
        assert_eq!(scene.send(peer, 1), 0, "the connection is over");
    }
    assert_eq!(scene.victim.count("link_corrupt"), count);
    scene.judge();
}

/// A ring that is not what it should be makes no link.
#[test]
fn a_false_ring_makes_no_link() {
    let mut scene = open(soon());
    let honest = Memfd::honest(Ring::file_bytes(32 << 10));
    let lies = [
        Memfd { is_sealed: false, ..honest },
        Memfd { len_bytes: 4_096, ..honest },
        Memfd { len_bytes: 1 << 30, is_allocated: false, ..honest },
    ];
    for ring in lies {
        let script = Script::new().now(connect()).now(shake(Kind::Request, honestly)).expect(Kind::Accept);
        scene.add(script.now(confirm(ring)).expect(Kind::End));
        scene.until_over();
    }
    scene.judge();
}
