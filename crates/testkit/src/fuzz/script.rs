//! The pair, driven by operations that are read from any bytes.

use super::pair::{Op, drive};
use arbitrary::{Arbitrary, Result, Unstructured};

/// So many at most, or one input would take a second.
const OPS_MAX: usize = 300;

impl<'a> Arbitrary<'a> for Op {
    fn arbitrary(from: &mut Unstructured<'a>) -> Result<Op> {
        let kind: u8 = from.arbitrary()?;
        let node = usize::from(kind & 1);
        let which = usize::from(kind >> 1 & 3);
        Ok(match kind >> 3 {
            0 => Op::Connect {
                node,
                attribute: from.int_in_range(0..=2)?,
                bytes: from.int_in_range(0..=1024)?,
            },
            1 | 2 => Op::Answer { node, accept: which != 0 },
            3..=6 => {
                let (len, count) = (from.int_in_range(0..=1500)?, from.int_in_range(1..=40)?);
                Op::Send { node, which, len, count, silent: from.arbitrary()? }
            }
            7..=9 => {
                let (kind, bytes) = (from.int_in_range(0..=3)?, from.int_in_range(1..=9_000)?);
                let (message, count) = (from.int_in_range(0..=1500)?, from.int_in_range(1..=40)?);
                Op::Operate { node, which, kind, bytes, message, fence: from.ratio(1, 5)?, count }
            }
            10 => Op::Deregister { node },
            11 => Op::HangUp { node, which },
            12..=17 => Op::Deliver { pick: from.int_in_range(0..=63)?, keep: from.ratio(1, 5)? },
            18 => Op::Drop { pick: from.int_in_range(0..=63)? },
            19 | 20 => Op::Damage { pick: from.int_in_range(0..=63)?, bit: from.int_in_range(0..=11_999)? },
            21 => {
                let len = from.int_in_range(0..=200)?.min(from.len());
                Op::Noise { node, bytes: from.bytes(len)?.to_vec() }
            }
            22..=25 => Op::Flush { node, capacity: from.int_in_range(1..=63)? },
            26..=28 => Op::Pass { ns: 100 << from.int_in_range(0..=25)? },
            29 => Op::Refuse { node, refuse: which != 0 },
            30 => Op::Narrow { node, bytes: from.int_in_range(0..=9_000)? },
            _ => Op::SetTimeout { node, which, ns: from.int_in_range(0..=2_000_000_000)? },
        })
    }
}

/// Operations, and a network that delivers, repeats, drops and damages.
pub fn proto_script(data: &[u8]) {
    let mut from = Unstructured::new(data);
    let mut ops = Vec::new();
    while ops.len() < OPS_MAX && !from.is_empty() {
        match Op::arbitrary(&mut from) {
            Ok(op) => ops.push(op),
            Err(_) => break,
        }
    }
    drive(&ops);
}
