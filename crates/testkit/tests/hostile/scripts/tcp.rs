//! Lies over TCP's first stream, and in what is answered on the second.

use super::{ALWAYS, ms, soon};
use cci::{Options, RmaKind};
use cci_testkit::hostile::tcp::{Kind, bulk, client, honestly, raw, rma, send, server};
use cci_testkit::hostile::{Scene, all};
use std::io::Read;
use std::net::TcpListener;

fn open(options: Options) -> Scene {
    Scene::open("tcp", options).expect("TCP is everywhere")
}

/// What no honest peer says costs the connection, and is counted.
#[test]
fn a_false_record_costs_its_sender_the_connection() {
    let mut scene = open(soon());
    let forgeries = [
        send(Kind::Ack, |ack| ack.ack = 5),
        send(Kind::NotReady, honestly),
        send(Kind::Ready, honestly),
        send(Kind::Resume, honestly),
        send(Kind::AskBulk, honestly),
        send(Kind::Ready, |ready| ready.payload.truncate(2)),
        send(Kind::Message, |message| message.payload = vec![0; 8_193]),
        send(Kind::Ping, |ping| ping.kind = 77),
        send(Kind::Ping, |ping| ping.zero = 1),
        raw(b"\0\0\0\0\0\0\0\0"),
    ];
    let count = forgeries.len() as u64;
    for forgery in forgeries {
        let peer = scene.join(client().now(forgery).expect(Kind::End));
        scene.until_over();
        assert_eq!(scene.send(peer, 1), 0, "the connection is over");
    }
    assert_eq!(scene.victim.count("bad-record"), count);
    scene.judge();
}

/// What no honest peer says on the second stream ends the operation and costs the connection.
#[test]
fn a_false_answer_ends_the_operation() {
    let forgeries = [
        rma(Kind::Data, |data| (data.words, data.data) = (vec![1 << 40], vec![1; 64])),
        rma(Kind::Data, |data| data.data = vec![1; 8_192]),
        rma(Kind::Data, |data| data.slot += 1),
        rma(Kind::Done, |done| done.slot = 128),
        rma(Kind::Done, |done| done.flags = 9),
        rma(Kind::Gone, |gone| gone.len = Some(u32::MAX)),
    ];
    let mut scene = open(soon());
    for forgery in forgeries {
        let peer = scene.join(client().on(Kind::AskBulk, bulk(honestly)).on(Kind::Read, forgery));
        assert_eq!(scene.operate(peer, 1, RmaKind::Read, 4_096, None), 1);
        let ends = scene.until_ended(peer);
        assert!(!ends.contains(&cci::Status::Success), "{ends:?}");
    }
    scene.judge();
}

/// B5: "not ready" and "ready" in turn prolong nothing for ever.
#[test]
fn a_peer_that_is_ready_and_not_ready_in_turn_ends_a_send_and_a_disconnect() {
    let mut scene = open(soon());
    let untaken = |kind| send(kind, |record| record.ack = 0);
    let both = all([untaken(Kind::NotReady), untaken(Kind::Ready)]);
    let peer = scene.join(client().expect(Kind::Message).every(ms(20), ALWAYS, both));
    assert_eq!(scene.send(peer, 1), 1);
    let connection = scene.connection(peer);
    scene.disconnect(peer);
    scene.until_ended(peer);
    scene.until("the connection is closed", |scene| scene.victim.endpoint.attribute(connection).is_none());
    scene.judge();
}

/// B6: a server does not choose who gets what its client sends. The host is that of the first stream; whoever listens at the port
/// that it names, and does not know the secret, gets neither that nor data.
#[test]
fn a_third_program_gets_neither_secret_nor_data() {
    let third = TcpListener::bind("127.0.0.1:0").expect("a port");
    third.set_nonblocking(true).expect("a socket");
    let port = third.local_addr().expect("it is bound").port();
    let mut scene = open(soon());
    let peer = scene.join(server(move |accept| (accept.port, accept.secret) = (port, [0xab; 16])));
    assert_eq!(scene.operate(peer, 1, RmaKind::Write, 512, None), 1);
    let (mut stream, mut got) = (None, Vec::new());
    let to = scene.connection(peer);
    scene.until("the operation has ended", |scene| {
        stream = stream.take().or_else(|| third.accept().ok());
        if let Some((stream, _)) = &mut stream {
            stream.set_nonblocking(true).expect("a socket");
            let _ = stream.read_to_end(&mut got);
        }
        scene.victim.open(to) == 0
    });
    println!("the third program got {} bytes", got.len());
    assert!(got.len() <= 32, "{} bytes are more than BULK", got.len());
    assert!(!got.windows(16).any(|bytes| bytes == [0xab; 16]), "the secret went to a third program: {got:?}");
    scene.judge();
}
