//! Datagrams that come to an endpoint with live connections: wild ones, and forgeries that begin as genuine ones do, as
//! somebody on the way could make them.

use super::pair::{Op, Pair, connected};

/// So many at most, or one input would take a second.
const STEPS_MAX: usize = 400;

/// Each step: how, how much of a genuine datagram it begins with, how many bytes of the input follow.
pub fn proto_datagrams(data: &[u8]) {
    let Some((&attribute, mut rest)) = data.split_first() else { return };
    let mut pair = connected(attribute % 3);
    let mut genuine = [Vec::new(), Vec::new()];
    for _ in 0..STEPS_MAX {
        let Some((&[how, keep, len], behind)) = rest.split_first_chunk::<3>() else { break };
        let (bytes, behind) = behind.split_at(usize::from(len).min(behind.len()));
        rest = behind;
        let node = usize::from(how & 1);
        match how >> 1 & 7 {
            0 => pair.deliver(node, bytes),
            // As if nothing were wrong: or the connection would soon be of no use.
            1 => honest(&mut pair, &mut genuine),
            2 => traffic(&mut pair, node, keep, bytes),
            3 => pair.apply(&Op::Pass { ns: 1 << (keep % 32) }),
            4 => changed(&mut pair, node, &genuine[node], usize::from(keep), bytes),
            _ => forged(&mut pair, node, &genuine[node], usize::from(keep), bytes),
        }
        pair.check();
    }
    pair.settle();
    pair.judge();
}

/// Both send what they have, and it arrives.
fn honest(pair: &mut Pair, genuine: &mut [Vec<u8>; 2]) {
    for node in 0..2 {
        pair.apply(&Op::Flush { node, capacity: 16 });
        pair.apply(&Op::Answer { node, accept: true });
    }
    for (target, bytes) in std::mem::take(&mut pair.wire.under_way) {
        pair.deliver(target, &bytes);
        genuine[target] = bytes;
    }
}

fn traffic(pair: &mut Pair, node: usize, which: u8, bytes: &[u8]) {
    let len = bytes.len() * 5;
    let count = 1 + usize::from(which >> 5);
    let fence = which & 16 != 0;
    match which % 5 {
        0 => pair.apply(&Op::Connect { node, attribute: which % 3, bytes: len % 1025 }),
        1 | 2 => pair.apply(&Op::Send { node, which: 0, len, count, silent: fence }),
        3 => {
            let (kind, bytes, message) = (which >> 3 & 3, 1 + 7 * len as u64, len % 1500);
            pair.apply(&Op::Operate { node, which: 0, kind, bytes, message, fence, count });
        }
        _ => pair.apply(&Op::Refuse { node, refuse: fence }),
    }
}

/// Begins as a genuine one does, and goes on as the input says.
fn forged(pair: &mut Pair, node: usize, genuine: &[u8], keep: usize, bytes: &[u8]) {
    let kept = genuine.get(..keep.min(genuine.len())).unwrap_or_default();
    pair.deliver(node, &[kept, bytes].concat());
}

/// A genuine one, changed from some place on.
fn changed(pair: &mut Pair, node: usize, genuine: &[u8], from: usize, bytes: &[u8]) {
    let mut datagram = genuine.to_vec();
    for (byte, mask) in datagram.iter_mut().skip(from).zip(bytes) {
        *byte ^= mask;
    }
    pair.deliver(node, &datagram);
}
