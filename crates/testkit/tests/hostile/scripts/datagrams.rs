//! Lies in datagrams, over UDP.

use super::ms;
use cci::Options;
use cci_testkit::figures;
use cci_testkit::hostile::Scene;
use cci_testkit::hostile::datagram::{Datagrams, Head, Kind, ack, client, flag, honestly, send_by};

/// Messages that the honest peer has to get.
const MESSAGES: u64 = 2_000;
/// Bundles that are acknowledged honestly: what it takes to introduce oneself.
const HONEST_AT_FIRST: u32 = 12;

fn open(options: Options) -> Scene {
    Scene::open("udp", options).expect("UDP is everywhere")
}

/// A peer that lies in each of its acknowledgements, and an honest one beside it.
fn forge_each_acknowledgement(what: &str, forgery: fn(&mut Head, &mut Datagrams)) {
    let mut scene = open(Options::default().recv_buffers(64).send_buffers(192));
    let script = client().on(Kind::Data, ack(honestly));
    let peer = scene
        .join(script.expect_times(HONEST_AT_FIRST, Kind::Data).on(Kind::Data, send_by(Kind::Ack, forgery)));
    let [honest, hostile] = scene.race(peer, MESSAGES);
    println!("{what}: {honest} to the honest peer, {hostile} to the hostile one");
    assert!(hostile <= 10 * honest, "the hostile one gets more: {hostile}, and the honest one {honest}");
    let connection = scene.connection(peer);
    let _ = scene.victim.endpoint.set_send_timeout(connection, ms(300));
    scene.until_ended(peer);
    scene.judge();
    figures::note("hostile.lies", 1);
}

tests! {
    fn not_ready_for_ever() = forge_each_acknowledgement("not ready for ever", |head, _| head.flags |= flag::RNR);
    fn no_window() = forge_each_acknowledgement("no window", |head, _| head.window_kib = 0);
    fn a_huge_window() = forge_each_acknowledgement("a huge window", |head, _| head.window_kib = u16::MAX);
}

#[test]
fn acknowledging_what_was_never_sent() {
    forge_each_acknowledgement("more than was sent", |head, peer| {
        head.ack = peer.head.seq.wrapping_add(2 + peer.random() as u32 % 100_000);
    });
}

#[test]
fn acknowledging_what_did_not_come() {
    forge_each_acknowledgement("all up to the newest", |head, peer| {
        // Seven bundles of eight it does not look at.
        (head.ack, head.words) = (peer.head.seq.wrapping_add(1), Vec::new());
    });
}

/// The word of a selective acknowledgement that says "all of the first `count`", from bit `at` on.
fn bits(count: u32, at: u32) -> u64 {
    let count = count.saturating_sub(at);
    1_u64.checked_shl(count).map_or(u64::MAX, |bit| bit - 1)
}

#[test]
fn acknowledging_all_but_the_first() {
    forge_each_acknowledgement("all but the first", |head, peer| {
        if peer.mark == 0 {
            peer.mark = head.ack;
        }
        let beyond = head.ack.wrapping_sub(peer.mark).min(255);
        (head.ack, head.words) = (peer.mark, (0..4).map(|word| bits(beyond, 64 * word)).collect());
        head.words[0] &= !1;
    });
}

#[test]
fn an_echo_of_any_time() {
    forge_each_acknowledgement("any echo", |head, peer| head.echo = peer.random() as u32);
}

#[test]
fn a_new_epoch_each_time() {
    forge_each_acknowledgement("a new epoch", |head, peer| head.epoch_ack = peer.random() as u16);
}

#[test]
fn an_old_generation() {
    forge_each_acknowledgement("an old generation", |head, _| {
        head.generation = head.generation.wrapping_sub(1)
    });
}

#[test]
fn a_guessed_nonce() {
    forge_each_acknowledgement("a guessed nonce", |head, peer| head.nonce = peer.random());
}

#[test]
fn each_acknowledgement_eight_times() {
    forge_each_acknowledgement("eight times", |head, peer| {
        (0..7).for_each(|_| peer.send(&head.bytes()));
    });
}

#[test]
fn any_word_in_the_header() {
    forge_each_acknowledgement("any word", |head, peer| {
        let noise = peer.random();
        let (half, word) = ((noise >> 16) as u16, (noise >> 32) as u32);
        match noise % 10 {
            0 => head.flags = half as u8,
            1 => head.words = vec![noise; usize::from(half % 7)],
            2 => head.seq = word,
            3 => head.ack = word,
            4 => head.timestamp = word,
            5 => head.echo = word,
            6 => head.window_kib = half,
            7 => head.epoch = half,
            8 => head.epoch_ack = half,
            _ => head.body_units = Some(half),
        }
    });
}
