//! See [`crate::fuzzing`].
#![allow(clippy::unwrap_used, clippy::type_complexity, reason = "only tests and fuzzing have it")]

use super::{ByteStream, Bytes, Ended, Intake, Reader, StreamChannel, Writer, scratch_bytes};
use crate::connection::Connection;
use crate::engine::core::Core;
use crate::engine::operations::Operation;
use crate::engine::poller::Poller;
use crate::fuzzing::Script;
use crate::options::Options;
use crate::rma::{Access, Memory, RegionHandle};
use crate::transport::ordered_rma::{Flows, Start, What};
use cci_memory::bytes::Foreign;
use cci_proto::{Atomic, AtomicKind, AtomicWidth, RemoteAddress, RmaKind, RmaSegment};
use std::sync::Arc;

const MESSAGE_BYTES_MAX: usize = 8 << 10;
const REGION_BYTES: usize = 64 << 10;
/// Around the region, in the same memory: nobody may touch it.
const MARGIN_BYTES: usize = 4 << 10;
const CONNECTION: Connection = Connection { index: 0, generation: 0 };
/// In an input these stand for the region's number and key, which no input can guess.
const REGION_HERE: &[u8; 8] = b"<REGION>";
const KEY_HERE: &[u8; 8] = b"<KEYKEY>";

/// A stream whose bytes come from the input, cut as that says; what goes out is forgotten.
struct Feed<'a> {
    bytes: &'a [u8],
    cut: usize,
}

impl ByteStream for Feed<'_> {
    fn write(&mut self, head: &[u8], data: Option<&Bytes>) -> Result<usize, Ended> {
        let all = head.len() + data.map_or(0, Bytes::len);
        if let Some(data) = data {
            let mut first = [0; 64];
            let len = first.len().min(data.len());
            assert!(data.read(0, &mut first[..len]));
        }
        Ok(all)
    }

    fn read(&mut self, to: Option<&Bytes>, tail: &mut [u8]) -> Result<usize, Ended> {
        let space = to.map_or(0, Bytes::len) + tail.len();
        let (now, later) = self.bytes.split_at(space.min(self.cut).min(self.bytes.len()));
        self.bytes = later;
        let (of_to, of_tail) = now.split_at(to.map_or(0, Bytes::len).min(now.len()));
        if let Some(to) = to {
            assert!(to.write(0, of_to));
        }
        tail[..of_tail.len()].copy_from_slice(of_tail);
        Ok(now.len())
    }
}

/// The input with the handle's words in place of their names.
pub(crate) fn with_handle(input: &[u8], handle: &RegionHandle) -> Vec<u8> {
    let mut bytes = input.to_vec();
    let mut at = 0;
    while let Some(word) = bytes.get_mut(at..at + 8) {
        let found = [(REGION_HERE, handle.region()), (KEY_HERE, handle.key())]
            .into_iter()
            .find(|(name, _)| *word == name[..]);
        match found {
            Some((_, value)) => {
                word.copy_from_slice(&value.to_le_bytes());
                at += 8;
            }
            None => at += 1,
        }
    }
    bytes
}

/// The stream of remote memory access of a peer that says anything, while operations of our own go on over it.
pub fn rma_stream(data: &[u8]) {
    let mut script = Script(data);
    let (cut, started, buffers) = (1 + usize::from(script.u16()), script.byte(), 1 + script.byte() % 8);
    let options = Options { recv_buffers: u32::from(buffers), ..Options::default() };
    let poller = Arc::new(Poller::new(false).unwrap());
    let mut core = Core::new(options, MESSAGE_BYTES_MAX as u32, poller).unwrap();
    let whole = REGION_BYTES + 2 * MARGIN_BYTES;
    let memory = Memory::foreign(Foreign::owned(vec![0x11; whole].into_boxed_slice()));
    let range = MARGIN_BYTES..MARGIN_BYTES + REGION_BYTES;
    let handle = core.regions.insert(&memory, range, Access::ALL, None).unwrap().unwrap();
    let mut flows = Flows::new(64);
    let key = flows.lend(CONNECTION, 0).unwrap();
    start(&mut core, &mut flows, key, &handle, started);
    let bytes = with_handle(script.0, &handle);
    let mut feed = Feed { bytes: &bytes, cut };
    let (mut reader, mut writer) = (Reader::default(), Writer::default());
    let mut scratch = vec![0; scratch_bytes(MESSAGE_BYTES_MAX)];
    let mut polls = 0;
    loop {
        let remaining = feed.bytes.len();
        let (flow, ops) = flows.get_mut(key).unwrap();
        let mut intake =
            Intake { flow, ops, core: &mut core, message_bytes_max: MESSAGE_BYTES_MAX, delivers: true };
        let came = reader.poll(&mut feed, &mut scratch, &mut intake, &mut 100_000);
        assert!(reader.held_bytes() <= 2 * scratch_bytes(MESSAGE_BYTES_MAX) as u64);
        let _ = writer.may_try(150_000);
        let (flow, ops) = flows.get_mut(key).unwrap();
        let mut channel = StreamChannel { stream: &mut feed, writer: &mut writer, taken: 0 };
        let turn = flow.turn(ops, &mut core, &mut channel, &mut 300_000);
        let flushed = writer.flush(&mut feed);
        // Messages are looked at and their buffers returned, or nothing would move any more.
        while core.pop_event().is_some() {}
        polls += 1;
        assert!(polls < 10_000 + 10 * bytes.len(), "it does not come to an end");
        let moved = turn.moved || feed.bytes.len() < remaining;
        if came.is_err() || turn.broken || flushed.is_err() || !moved {
            break;
        }
    }
    let (mut before, mut behind) = ([0; MARGIN_BYTES], [0; MARGIN_BYTES]);
    assert!(memory.read(0, &mut before) && memory.read(MARGIN_BYTES + REGION_BYTES, &mut behind));
    assert!(before.iter().chain(&behind).all(|byte| *byte == 0x11), "written beside the region");
}

/// Operations of ours, so that answers have something to answer: which ones is said by the bits.
fn start(core: &mut Core, flows: &mut Flows, key: cci_memory::slab::Key, handle: &RegionHandle, which: u8) {
    let address = |offset| RemoteAddress { region: handle.region(), key: handle.key(), offset };
    let segment = RmaSegment { local: address(64), remote: address(8), len_bytes: 20_000 };
    let add = Atomic { kind: AtomicKind::FetchAdd, width: AtomicWidth::Eight, operand: 1, compare: 0 };
    let atomic = What::Atomic { atomic: add, target: address(0), result: Some(address(32)) };
    let all: [(What, &[RmaSegment], Option<&[u8]>); 4] = [
        (What::Move(RmaKind::Read), &[segment], None),
        (What::Move(RmaKind::Write), &[segment], Some(b"told")),
        (atomic, &[], None),
        (What::Move(RmaKind::Read), &[segment, segment], Some(b"told")),
    ];
    for (bit, (what, segments, message)) in
        all.into_iter().enumerate().filter(|(bit, _)| which & 1 << bit != 0)
    {
        let operation =
            Operation { connection: CONNECTION, context: bit as u64, silent: false, order_entry: None };
        let name = core.operations.insert(operation, true).unwrap();
        let (flow, ops) = flows.get_mut(key).unwrap();
        let fence = which & 0x80 != 0;
        assert!(flow.start(
            ops,
            &Start { name, what, segments, message, fence, position: 0, now_ns: 0, is_alone: true }
        ));
    }
}
