//! What is written parses back to what it was, and no bytes make a parser panic.

use super::*;
use crate::limits::{HEADER_BYTES, PART_HEAD_BYTES, RECORDS_MAX, record_bytes};
use crate::{Attribute, Seq};
use proptest::prelude::*;

fn sizes() -> impl Strategy<Value = u16> {
    (144u16..=8188).prop_map(|eighths| eighths * 8)
}

fn attributes() -> impl Strategy<Value = Attribute> {
    prop_oneof![
        Just(Attribute::ReliableOrdered),
        Just(Attribute::ReliableUnordered),
        Just(Attribute::Unreliable)
    ]
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::Data), Just(Kind::Ack), Just(Kind::Ping), Just(Kind::Close), Just(Kind::CloseAck)]
}

fn heads() -> impl Strategy<Value = Head> {
    ((kinds(), 0..=flags::ALL, any::<[u32; 3]>(), any::<u64>()), (any::<[u32; 4]>(), any::<[u16; 3]>()))
        .prop_map(
            |(
                (kind, flags, [index, generation, source_index], nonce),
                (words, [window_kib, epoch, epoch_ack]),
            )| {
                let [seq, ack, timestamp, echo] = words;
                Head {
                    kind,
                    flags,
                    index,
                    generation,
                    source_index,
                    nonce,
                    seq: Seq(seq),
                    ack: Seq(ack),
                    timestamp,
                    echo,
                    window_kib,
                    epoch,
                    epoch_ack,
                }
            },
        )
}

fn body_of(messages: &[Vec<u8>]) -> Vec<u8> {
    let mut body = vec![0xaa; messages.iter().map(|message| record_bytes(message.len())).sum()];
    let mut at = 0;
    for message in messages {
        let (front, back) = message.split_at(message.len() / 3);
        at += write_record(&mut body[at..], &[front, back], message.len());
    }
    body
}

proptest! {
    #[test]
    fn established_datagrams_parse_back(
        head in heads(),
        words in any::<[u64; 4]>(),
        len in 0u8..=4,
        messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..20),
    ) {
        let mut sack = Sack { words, len };
        sack.words[usize::from(len)..].fill(0);
        let head = Head { flags: head.flags & !flags::PART, ..head };
        let body = if head.kind == Kind::Data { body_of(&messages) } else { Vec::new() };
        let mut out = vec![0xaa; 4096];
        let at = head.emit(&sack, body.len(), &mut out);
        prop_assert_eq!(at, HEADER_BYTES + sack.bytes());
        out[at..at + body.len()].copy_from_slice(&body);
        // Whatever follows: the next datagram of a joined batch.
        prop_assert_eq!(first_datagram_bytes(&out), at + body.len());
        let parsed = Packet::parse(&out[..at + body.len()]);
        let lens = messages.iter().map(|message| message.len() as u16);
        let sum = Summary {
            messages: messages.len() as u16,
            bytes: lens.clone().sum(),
            len_bound: lens.fold(0, std::ops::BitOr::bitor),
        };
        let holds = Holds::Messages(if head.kind == Kind::Data { sum } else { Summary::default() });
        prop_assert_eq!(parsed, Ok(Packet::Established(head, sack, holds, &body[..])));
        if head.kind == Kind::Data {
            let alike = BundleMessages::of(&body).map(<[u8]>::to_vec).collect::<Vec<_>>();
            prop_assert_eq!(&alike, &messages);
            let got: Vec<Vec<u8>> = Records::from(&body, 0)
                .filter_map(|(content, _)| match content {
                    Content::Message(payload) => Some(payload.to_vec()),
                    _ => None,
                })
                .collect();
            prop_assert_eq!(got, messages);
        }
    }

    #[test]
    fn parts_parse_back_and_fit_together(whole in 1u16..=1_100, stride in 18u16..=1_100, fill in 0usize..=4) {
        let whole: Vec<u8> = (0..whole * 8).map(|at| (at / 3) as u8).collect();
        let stride_bytes = stride * 8;
        let (mut number, mut back) = (0, Vec::new());
        loop {
            let part = PartHead { number, stride_bytes, whole_bytes: whole.len() as u16 };
            if u32::from(number) == part.count() {
                break;
            }
            let data = stride_bytes.min(whole.len() as u16 - number * stride_bytes);
            let mut out = vec![0xaa; PART_HEAD_BYTES + usize::from(data) + 8 * fill];
            prop_assert_eq!(part.emit(&whole, &mut out), out.len());
            let (parsed, data) = PartHead::parse(&out).unwrap();
            prop_assert_eq!(parsed, part);
            back.extend_from_slice(data);
            number += 1;
        }
        prop_assert_eq!(back, whole);
    }

    #[test]
    fn no_part_panics(body in prop::collection::vec(any::<u8>(), 0..40)) {
        let _ = PartHead::parse(&body);
    }

    #[test]
    fn handshakes_parse_back(
        words in any::<[u32; 6]>(),
        nonces in any::<[u64; 3]>(),
        size in sizes(),
        window_kib: u16,
        attribute in attributes(),
        payload in prop::collection::vec(any::<u8>(), 0..=1024),
    ) {
        let [index, generation, source_index, source_generation, seq, timestamp] = words;
        let [nonce, source_nonce, cookie] = nonces;
        let mut out = vec![0xaa; 2048];
        let hello = Hello { version: VERSION, index, generation, nonce, timestamp };
        let len = hello.emit(&mut out);
        prop_assert_eq!(first_datagram_bytes(&out), len);
        prop_assert_eq!(len, Hello::BYTES);
        prop_assert_eq!(Packet::parse(&out[..len]), Ok(Packet::Hello(hello)));
        let retry = Retry { index, generation, bucket: source_index, nonce, cookie };
        let len = retry.emit(&mut out);
        prop_assert_eq!(first_datagram_bytes(&out), len);
        prop_assert_eq!(len, Retry::BYTES);
        prop_assert_eq!(Packet::parse(&out[..len]), Ok(Packet::Retry(retry)));
        let connect = Connect {
            index, generation, bucket: source_index, nonce, cookie, timestamp, first_seq: Seq(seq),
            datagram_bytes_max: size, window_kib, attribute, bond: nonce & 1 == 0, payload: &payload,
        };
        let len = connect.emit(&mut out);
        prop_assert_eq!(first_datagram_bytes(&out), len);
        prop_assert_eq!(Packet::parse(&out[..len]), Ok(Packet::Connect(connect)));
        let accept = Accept {
            index, generation, source_index, nonce, source_generation, first_seq: Seq(seq), source_nonce,
            timestamp, echo: !timestamp, datagram_bytes_max: size, window_kib, bond: nonce & 1 == 0,
        };
        let len = accept.emit(&mut out);
        prop_assert_eq!(first_datagram_bytes(&out), len);
        prop_assert_eq!(len, Accept::BYTES);
        prop_assert_eq!(Packet::parse(&out[..len]), Ok(Packet::Accept(accept)));
        let reject = Reject { index, generation, nonce };
        let len = reject.emit(&mut out);
        prop_assert_eq!(first_datagram_bytes(&out), len);
        prop_assert_eq!(len, Reject::BYTES);
        prop_assert_eq!(Packet::parse(&out[..len]), Ok(Packet::Reject(reject)));
        let notice = VersionNotice { index, generation, nonce, lowest: 1, highest: 9 };
        let len = notice.emit(&mut out);
        prop_assert_eq!(first_datagram_bytes(&out), len);
        prop_assert_eq!(len, VersionNotice::BYTES);
        prop_assert_eq!(Packet::parse(&out[..len]), Ok(Packet::Version(notice)));
        let reset = Reset { index, dead_index: source_index, dead_generation: generation, nonce, seq: Seq(seq) };
        let len = reset.emit(&mut out);
        prop_assert_eq!(first_datagram_bytes(&out), len);
        prop_assert_eq!(len, Reset::BYTES);
        prop_assert_eq!(Packet::parse(&out[..len]), Ok(Packet::Reset(reset)));
    }

    #[test]
    fn no_bytes_panic(first in 0u8..32, bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut datagram = bytes;
        if let Some(byte) = datagram.first_mut() {
            *byte = first;
        }
        let _ = Packet::parse(&datagram);
        prop_assert!(first_datagram_bytes(&datagram) <= datagram.len());
    }

    #[test]
    fn a_flipped_or_truncated_datagram_does_not_panic(
        head in heads(), at in 0usize..400, bit in 0u8..8, cut in 0usize..50,
    ) {
        let body = body_of(&[vec![1; 30], vec![], vec![2; 100]]);
        let mut out = vec![0; 1024];
        let start = head.emit(&Sack::default(), body.len(), &mut out);
        out[start..start + body.len()].copy_from_slice(&body);
        out.truncate(start + body.len());
        let address = at % out.len();
        out[address] ^= 1 << bit;
        out.truncate(out.len() - cut.min(out.len()));
        let _ = Packet::parse(&out);
    }
}

#[test]
fn a_voided_record_stays_in_its_place() {
    let mut body = body_of(&[vec![1; 5], vec![2; 9], vec![3; 1]]);
    set_void(&mut body, 1);
    assert_eq!(check(&body), Ok(Holds::Messages(Summary::default())));
    let contents: Vec<Content> = Records::from(&body, 0).map(|(content, _)| content).collect();
    assert_eq!(contents, [Content::Void, Content::Void, Content::Message(&[3])]);
}

#[test]
fn a_bundle_has_at_most_256_records() {
    let sum = Summary { messages: RECORDS_MAX, ..Summary::default() };
    assert_eq!(check(&body_of(&vec![Vec::new(); usize::from(RECORDS_MAX)])), Ok(Holds::Messages(sum)));
    assert_eq!(check(&body_of(&vec![Vec::new(); usize::from(RECORDS_MAX) + 1])), Err(PeerFault::Record));
}

#[test]
fn timestamps_wrap() {
    let before = timestamp(Time(274_877_906_000));
    let after = timestamp(Time(274_877_906_000 + 64_000));
    assert_eq!(timestamp_ns_between(before, after), 64_000);
    assert_eq!(timestamp_ns_between(after, before), 0);
}
