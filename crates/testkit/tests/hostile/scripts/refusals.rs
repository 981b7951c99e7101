//! Refusals that keep the victim busy.

use super::{ms, soon};
use cci_testkit::hostile::datagram::{Datagrams, Kind, ack, client, honestly, send_by};
use cci_testkit::hostile::{Counter, Scene, act};

fn open() -> Scene {
    Scene::open("udp", soon()).expect("UDP is everywhere")
}

/// A8: a new epoch is no reason to send more than the network carries.
#[test]
fn new_epochs_do_not_have_the_window_sent_each_time() {
    let mut scene = open();
    let (data, epochs) = (Counter::default(), 100);
    let stop = act(|peer: &mut Datagrams| peer.mark = peer.header(Kind::Ack).ack);
    let bump = send_by(Kind::Ack, |head, peer| {
        peer.seq += 1;
        (head.ack, head.words) = (peer.mark, Vec::new());
        head.epoch_ack = (peer.seq - peer.shake.first_seq) as u16;
    });
    let script = client().on(Kind::Data, ack(honestly)).expect_times(100, Kind::Data).now(stop);
    let script = script.on(Kind::Data, data.count()).every(ms(1), epochs, bump).rest(ms(150));
    let peer = scene.join(script);
    for _ in 0..1_000 {
        scene.send(peer, 50);
        scene.turn();
    }
    scene.until_over();
    println!("{} bundles for {epochs} new epochs", data.get());
    assert!(data.get() <= 4 * epochs, "{} bundles for {epochs} new epochs", data.get());
    scene.until_ended(peer);
    scene.judge();
}
