//! The pair of `cci_testkit::fuzz`, driven by operations that proptest draws and shrinks.

use super::try_steps;
use cci_testkit::fuzz::pair::{Op, connected, drive};
use proptest::prelude::*;

fn op() -> impl Strategy<Value = Op> {
    let node = 0..2usize;
    prop_oneof![
        2 => (node.clone(), 0..3u8, 0..1_025usize).prop_map(|(node, attribute, bytes)| Op::Connect { node, attribute, bytes }),
        2 => (node.clone(), any::<bool>()).prop_map(|(node, accept)| Op::Answer { node, accept }),
        8 => (node.clone(), 0..4usize, 0..1_500usize, 1..40usize, any::<bool>())
            .prop_map(|(node, which, len, count, silent)| Op::Send { node, which, len, count, silent }),
        6 => (node.clone(), 0..4usize, 0..4u8, 1..9_000u64, 0..1_500usize, prop::bool::weighted(0.2), 1..40usize)
            .prop_map(|(node, which, kind, bytes, message, fence, count)| Op::Operate {
                node, which, kind, bytes, message, fence, count
            }),
        1 => node.clone().prop_map(|node| Op::Deregister { node }),
        1 => (node.clone(), 0..4usize).prop_map(|(node, which)| Op::HangUp { node, which }),
        16 => (0..64usize, prop::bool::weighted(0.2)).prop_map(|(pick, keep)| Op::Deliver { pick, keep }),
        2 => (0..64usize).prop_map(|pick| Op::Drop { pick }),
        4 => (0..64usize, 0..12_000usize).prop_map(|(pick, bit)| Op::Damage { pick, bit }),
        1 => (node.clone(), prop::collection::vec(any::<u8>(), 0..200)).prop_map(|(node, bytes)| Op::Noise { node, bytes }),
        10 => (node.clone(), 1..64usize).prop_map(|(node, capacity)| Op::Flush { node, capacity }),
        6 => prop::sample::select(vec![100u64, 10_000, 1_000_000, 50_000_000, 3_000_000_000]).prop_map(|ns| Op::Pass { ns }),
        2 => (node.clone(), any::<bool>()).prop_map(|(node, refuse)| Op::Refuse { node, refuse }),
        1 => (node.clone(), 0..9_000u16).prop_map(|(node, bytes)| Op::Narrow { node, bytes }),
        1 => (node, 0..4usize, 0..2_000_000_000u64).prop_map(|(node, which, ns)| Op::SetTimeout { node, which, ns }),
    ]
}

#[test]
fn any_operations_and_any_network() {
    try_steps(3_000, op(), 300, drive);
}

#[test]
fn an_acknowledgement_half_the_numbers_away_acknowledges_nothing() {
    let ack_top_bit = 31 * 8 + 7;
    let mut pair = connected(0);
    pair.wire.under_way.clear();
    let send = Op::Send { node: 0, which: 0, len: 1_000, count: 20, silent: false };
    for op in [send.clone(), Op::Flush { node: 0, capacity: 64 }] {
        pair.apply(&op);
    }
    while !pair.wire.under_way.is_empty() {
        pair.apply(&Op::Deliver { pick: 0, keep: false });
    }
    pair.apply(&Op::Flush { node: 1, capacity: 64 });
    let open = pair.open_sends(0);
    pair.wire.under_way.truncate(1);
    let last = pair.wire.under_way[0].1.clone();
    // Everything is acknowledged, and more is queued but not sent, when the damaged one comes.
    pair.deliver(0, &last);
    pair.apply(&send);
    let queued = pair.open_sends(0);
    assert!(open == 20 && queued > 0);
    pair.apply(&Op::Damage { pick: 0, bit: ack_top_bit });
    assert_eq!(pair.open_sends(0), queued, "sends completed that had not been sent");
    pair.settle();
    pair.judge();
}
