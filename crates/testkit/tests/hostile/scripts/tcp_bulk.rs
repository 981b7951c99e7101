//! Peers that keep TCP's second stream busy.

use super::{ALWAYS, late, ms, soon};
use cci::{Options, RmaKind};
use cci_testkit::hostile::tcp::{
    Kind, Tcp, bulk, bulk_raw, client, honestly, proving, proving_nothing, rma, send, server,
};
use cci_testkit::hostile::{Counter, Scene, Script};

fn open(options: Options) -> Scene {
    Scene::open("tcp", options).expect("TCP is everywhere")
}

/// Answers a read with a record that takes a minute and more.
fn trickle() -> Script<Tcp> {
    let answer = rma(Kind::Data, |data| {
        data.data = vec![1; 8_000];
        data.truncated_at = Some(100);
    });
    let script = Script::new().on(Kind::AskBulk, bulk(honestly)).expect(Kind::Read).now(answer);
    script.every(ms(20), ALWAYS, bulk_raw(&[1]))
}

/// B2a: an operation has a deadline of its own, whatever moves on the second stream.
#[test]
fn a_byte_now_and_then_does_not_keep_an_operation_alive() {
    let mut scene = open(soon());
    let peer = scene.join(client().then(trickle()));
    assert_eq!(scene.operate(peer, 1, RmaKind::Read, 8_000, None), 1);
    scene.until_ended(peer);
    scene.judge();
}

/// B2b: completions that wait behind an operation of one peer do not fill the queue for all.
#[test]
fn completions_held_behind_one_operation_leave_space_for_others() {
    let mut scene = open(late());
    let peer = scene.join(client().on(Kind::Message, send(Kind::Ack, honestly)).then(trickle()));
    assert_eq!(scene.operate(peer, 1, RmaKind::Read, 8_000, None), 1);
    let mut sent = 0;
    for _ in 0..2_000 {
        sent += scene.send(peer, 50);
        scene.turn();
    }
    println!("{sent} sends taken behind an operation that does not end");
    scene.judge();
    let connection = scene.connection(peer);
    scene.victim.endpoint.set_send_timeout(connection, ms(300)).expect("it is open");
    scene.until_ended(peer);
}

/// B4: messages of operations are shared among peers.
#[test]
fn messages_of_operations_that_nobody_answers_leave_space_for_others() {
    let mut scene = open(late());
    let peer = scene.join(client().on(Kind::AskBulk, bulk(honestly)));
    let begun = scene.operate(peer, 128, RmaKind::Write, 8, Some(&[7; 8_192]));
    println!("{begun} operations with messages of 8 KiB begun towards a peer that answers none");
    scene.judge();
}

/// B6: who dials the second stream has to know the secret.
#[test]
fn a_second_stream_without_the_secret_is_closed() {
    let mut scene = open(soon());
    let forgeries = [
        proving(|part| part.proof = Some([0; 32])),
        proving(|part| part.secret[3] ^= 1),
        proving(|part| part.nonces[1][0] ^= 1),
        proving(|part| part.key ^= 1),
    ];
    let count = forgeries.len() as u64;
    for forgery in forgeries {
        let script = client().now(forgery).on(Kind::AskBulk, bulk(honestly)).expect(Kind::BulkEnd);
        let peer = scene.join(script);
        assert_eq!(scene.operate(peer, 1, RmaKind::Write, 4_096, None), 1);
        scene.until_over();
        let ends = scene.until_ended(peer);
        assert_eq!(ends, [cci::Status::TimedOut], "the peer itself has not come");
    }
    assert_eq!(scene.victim.count("bad-second-stream"), count);
    scene.judge();
}

/// B6: nothing of an operation goes to somebody who does not know the secret, or does not say so.
#[test]
fn who_is_dialled_gets_nothing_without_the_secret() {
    let mut scene = open(soon());
    let forgeries = [
        proving_nothing(),
        proving(|part| part.proof = Some([0; 32])),
        proving(|part| part.secret = [9; 16]),
    ];
    for forgery in forgeries {
        let answered = Counter::default();
        let peer = scene.join(
            server(honestly).now(forgery).on(Kind::Write, answered.count()).on(Kind::Proof, answered.count()),
        );
        assert_eq!(scene.operate(peer, 1, RmaKind::Write, 4_096, None), 1);
        let ends = scene.until_ended(peer);
        assert!(!ends.contains(&cci::Status::Success), "{ends:?}");
        assert_eq!(answered.get(), 0, "records, and proofs for who gave none");
    }
    assert_eq!(scene.victim.count("bad-second-stream"), 2);
    scene.judge();
}

/// B3: second streams with part of a record on them neither starve remote memory nor keep the victim awake.
#[test]
fn parts_of_records_on_many_streams_leave_memory_to_others() {
    let options = late().memory_bytes_max(32 << 20);
    let mut scene = open(options);
    let part = |truncated_at: usize| {
        rma(Kind::Write, move |write| {
            (write.data, write.truncated_at) = (vec![1; 64], Some(truncated_at));
            // Behind what the honest peers write, and compare.
            write.words[2] = 6_000;
        })
    };
    for at in 0..96 {
        let truncated_at = [2, 30, 60][at % 3];
        scene.join(client().now(bulk(honestly)).expect(Kind::Challenge).now(part(truncated_at)));
    }
    scene.until_over();
    scene.judge();
}
