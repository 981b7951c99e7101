//! Peers that lie about remote memory.

use super::*;
use crate::{Access, Memory};

/// As the ordered channel writes them.
const WRITE: u8 = 1;
pub(super) const READ: u8 = 2;
const DATA: u8 = 3;
const NOTIFY: u8 = 6;
const DONE: u8 = 7;
const PULL: u8 = 8;
const HERE: u8 = 10;

pub(super) fn record(kind: u8, flags: u8, slot: u16, words: &[u64], tail: &[u8]) -> Vec<u8> {
    let [s0, s1] = slot.to_le_bytes();
    let words = words.iter().flat_map(|word| word.to_le_bytes());
    [kind, flags, s0, s1, 0, 0, 0, 0].into_iter().chain(words).chain(tail.iter().copied()).collect()
}

/// A server with a region, and a liar that does not know its key.
pub(super) fn scene() -> (Endpoint, Memory, crate::RegionHandle, Joined) {
    let mut server = endpoint();
    let memory = server.allocate(4096).unwrap();
    let handle = server.register(&memory, Access::ALL).unwrap();
    let attacker = ask(&mut server, 1, Attribute::ReliableOrdered);
    let lie = confirm(&mut server, attacker);
    (server, memory, handle, lie)
}

impl Joined {
    pub(super) fn send_record(&mut self, kind: u8, payload: &[u8]) -> bool {
        let (conn, flags) = (self.conn.index, self.conn.generation as u8);
        self.producer.push(RecordHeader { kind, flags, conn, ack: 0 }, &[payload]).is_ok()
    }

    pub(super) fn hear(&mut self) -> usize {
        let mut heard = 0;
        while let Ok(Some(_)) = self.consumer.peek() {
            self.consumer.consume();
            heard += 1;
        }
        self.consumer.publish_head();
        heard
    }
}

fn polls(server: &mut Endpoint) {
    for _ in 0..50 {
        while let Some(event) = server.next_event() {
            assert!(matches!(event, Event::Recv(_)) || super::is_refusal(&event), "{event:?}");
        }
        server.progress();
    }
}

fn is_untouched(memory: &Memory) -> bool {
    let mut bytes = [1; 4096];
    memory.read(0, &mut bytes) && bytes.iter().all(|&byte| byte == 0)
}

#[test]
fn what_no_honest_peer_says_ends_the_link() {
    let address = [1_u64, 2, 3];
    let with = |more: &[u64]| [&address[..], more].concat();
    let cases: Vec<(&str, Vec<Vec<u8>>)> = vec![
        ("nothing at all", vec![vec![]]),
        ("a slot that is none", vec![record(WRITE, 1, 128, &with(&[0]), &[])]),
        ("a kind that is none", vec![record(99, 0, 0, &[], &[])]),
        ("a flag that is none", vec![record(READ, 7, 0, &with(&[8]), &[])]),
        ("an answer to nothing", vec![record(DONE, 0, 0, &[], &[])]),
        ("data for nothing", vec![record(DATA, 0, 5, &[0], &[1, 2, 3])]),
        ("an address for nothing", vec![record(HERE, 0, 5, &[4096], &[])]),
        ("more data than the piece", vec![record(WRITE, 0, 0, &with(&[2]), &[1, 2, 3])]),
        ("something behind a read", vec![record(READ, 0, 0, &with(&[8]), &[1])]),
        (
            "a slot used twice",
            vec![record(READ, 0, 3, &with(&[8]), &[]), record(PULL, 0, 3, &with(&[8, 4096]), &[])],
        ),
        ("a message that is too long", vec![record(NOTIFY, 0, 0, &[], &[0; 8193])]),
    ];
    for (what, records) in cases {
        let (mut server, memory, _, mut lie) = scene();
        let mut received = 0;
        for record in &records {
            // The longest can't be said by the liar's own ring end.
            received += usize::from(lie.send_record(kind::RMA, record));
        }
        polls(&mut server);
        assert!(!server.is_open(lie.connection) || received < records.len(), "{what}");
        assert!(is_untouched(&memory), "{what}");
    }
}

#[test]
fn what_is_only_wrong_is_refused_and_the_link_lives() {
    let (mut server, memory, handle, mut lie) = scene();
    let forged = [handle.region(), handle.key() ^ 1, 0];
    let beyond = [handle.region(), handle.key(), 4090];
    for (slot, address) in [forged, beyond].into_iter().enumerate() {
        let slot = slot as u16 * 10;
        let with = |more: &[u64]| [&address[..], more].concat();
        assert!(lie.send_record(kind::RMA, &record(WRITE, 1, slot, &with(&[8]), &[9; 8])));
        assert!(lie.send_record(kind::RMA, &record(WRITE, 1, slot + 1, &with(&[9000]), &[9; 2])));
        assert!(lie.send_record(kind::RMA, &record(READ, 0, slot + 2, &with(&[8]), &[])));
        assert!(lie.send_record(kind::RMA, &record(PULL, 0, slot + 3, &with(&[8, 4096]), &[])));
        assert!(lie.send_record(kind::RMA, &record(WRITE, 0, slot + 4, &with(&[8]), &[9; 8])));
        assert!(lie.send_record(kind::RMA, &record(NOTIFY, 0, slot + 4, &[], b"no")));
    }
    polls(&mut server);
    assert!(server.is_open(lie.connection) && is_untouched(&memory));
    assert_eq!(server.counters().rma_refused, 10);
    assert_eq!(lie.hear(), 10, "each is answered, and no more");
    // An address that is not mapped, of memory that is not readable: refused where pulls work or not, and nothing else.
    let address = [handle.region(), handle.key(), 0, 64, 8];
    assert!(lie.send_record(kind::RMA, &record(PULL, 0, 0, &address, &[])));
    polls(&mut server);
    assert!(server.is_open(lie.connection) && is_untouched(&memory));
    // A region that is not there is not mapped, and asking again and again costs nothing that is kept.
    for _ in 0..500 {
        let words: Vec<u8> = [7_u64, 8, 1].iter().flat_map(|word| word.to_ne_bytes()).collect();
        lie.send_record(kind::MAP, &words);
        lie.send_record(kind::TRY, &words);
        lie.send_record(kind::UNMAP, &words);
        lie.send_record(kind::TRIED, &words);
        server.progress();
        lie.hear();
    }
    polls(&mut server);
    assert!(server.is_open(lie.connection));
}

#[test]
fn grants_that_nobody_asked_for_end_the_link() {
    for bytes in [vec![0; super::super::rma::grant::GRANT_BYTES], vec![1; 3], vec![0xFF; 500]] {
        let (mut server, _, _, lie) = scene();
        lie.stream.send(&bytes, &[]).unwrap();
        until(&mut server, "the end of the link", |server, _| {
            (!server.is_open(lie.connection)).then_some(())
        });
    }
}

#[test]
fn no_record_of_chance_panics_or_writes() {
    let mut state = 20_261_121_u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    for _ in 0..60 {
        let (mut server, memory, handle, mut lie) = scene();
        for _ in 0..200 {
            let kind_of = (random() % 11) as u8;
            let words: Vec<u64> = (0..random() % 7)
                .map(|at| match (at, random() % 4) {
                    (0, 0..3) => handle.region(),
                    (_, 1) => u64::MAX - random() % 5000,
                    (_, 2) => random() % 5000,
                    _ => random(),
                })
                .collect();
            let tail = vec![0xEE; (random() % 3 * random() % 300) as usize];
            let bytes = record(kind_of, (random() % 3) as u8, (random() % 132) as u16, &words, &tail);
            let kind = if random() % 4 == 0 { kind::MAP + (random() % 6) as u8 } else { kind::RMA };
            lie.send_record(kind, &bytes);
            if random() % 8 == 0 {
                server.progress();
                lie.hear();
            }
            if !server.is_open(lie.connection) {
                break;
            }
        }
        polls(&mut server);
        assert!(is_untouched(&memory));
    }
}
