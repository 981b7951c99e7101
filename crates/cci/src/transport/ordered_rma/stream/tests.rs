//! Two ends of a stream that is cut anywhere.

use super::*;
use crate::connection::{Connection, Status};
use crate::engine::core::Core;
use crate::engine::event::Event;
use crate::engine::operations::Operation;
use crate::engine::poller::Poller;
use crate::options::Options;
use crate::rma::{Access, Memory, RegionHandle};
use crate::transport::ordered_rma::flow::Flow;
use crate::transport::ordered_rma::operations::Ops;
use crate::transport::ordered_rma::{Channel, Flows, Pushed, Start, What};
use cci_memory::bytes::Foreign;
use cci_memory::slab::Key;
use cci_proto::{Atomic, AtomicKind, AtomicWidth, RemoteAddress, RmaKind, RmaSegment};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

const MESSAGE_BYTES_MAX: usize = 8 << 10;
const REGION_BYTES: usize = 1 << 20;

/// One direction of a pipe: bytes, and how many each call moves at most.
struct Pipe {
    bytes: VecDeque<u8>,
    space: usize,
    cuts: Vec<usize>,
    at: usize,
}

impl Pipe {
    fn cut(&mut self) -> usize {
        self.at += 1;
        self.cuts.get(self.at % self.cuts.len()).copied().unwrap()
    }
}

struct Ends {
    out: Rc<RefCell<Pipe>>,
    into: Rc<RefCell<Pipe>>,
}

impl ByteStream for Ends {
    fn write(&mut self, head: &[u8], data: Option<&Bytes>) -> Result<usize, Ended> {
        let mut pipe = self.out.borrow_mut();
        let mut all = head.to_vec();
        if let Some(data) = data {
            let mut of_data = vec![0; data.len()];
            assert!(data.read(0, &mut of_data));
            all.extend(of_data);
        }
        let taken = all.len().min(pipe.cut()).min(pipe.space - pipe.bytes.len());
        pipe.bytes.extend(&all[..taken]);
        Ok(taken)
    }

    fn read(&mut self, to: Option<&Bytes>, tail: &mut [u8]) -> Result<usize, Ended> {
        let mut pipe = self.into.borrow_mut();
        let space = to.map_or(0, Bytes::len) + tail.len();
        let now = space.min(pipe.cut()).min(pipe.bytes.len());
        let bytes: Vec<u8> = pipe.bytes.drain(..now).collect();
        let of_to = to.map_or(0, Bytes::len).min(now);
        if let Some(to) = to {
            assert!(to.write(0, &bytes[..of_to]));
        }
        tail[..now - of_to].copy_from_slice(&bytes[of_to..]);
        Ok(now)
    }
}

struct Side {
    core: Core,
    flows: Flows,
    flow: Key,
    writer: Writer,
    reader: Reader,
    ends: Ends,
    scratch: Vec<u8>,
    memory: Memory,
    handle: RegionHandle,
}

const CONNECTION: Connection = Connection { index: 0, generation: 0 };

impl Side {
    fn new(ends: Ends, fill: u8, buffers: u32) -> Side {
        let options = Options { recv_buffers: buffers, ..Options::default() };
        let poller = Arc::new(Poller::new(false).unwrap());
        let mut core = Core::new(options, MESSAGE_BYTES_MAX as u32, poller).unwrap();
        let bytes: Vec<u8> = (0..REGION_BYTES).map(|at| fill.wrapping_add((at / 7) as u8)).collect();
        let memory = Memory::foreign(Foreign::owned(bytes.into_boxed_slice()));
        let handle = core.regions.insert(&memory, 0..REGION_BYTES, Access::ALL, None).unwrap().unwrap();
        let mut flows = Flows::new(1_000);
        let flow = flows.lend(CONNECTION, 0).unwrap();
        let scratch = vec![0; scratch_bytes(MESSAGE_BYTES_MAX)];
        let (writer, reader) = (Writer::default(), Reader::default());
        Side { core, flows, flow, writer, reader, ends, scratch, memory, handle }
    }

    fn flow(&mut self) -> (&mut Flow, &mut Ops) {
        self.flows.get_mut(self.flow).unwrap()
    }

    fn start(
        &mut self,
        context: u64,
        what: What,
        segments: &[RmaSegment],
        message: Option<&[u8]>,
        fence: bool,
    ) {
        let operation = Operation { connection: CONNECTION, context, silent: false, order_entry: None };
        let name = self.core.operations.insert(operation, true).unwrap();
        let (flow, ops) = self.flows.get_mut(self.flow).unwrap();
        assert!(flow.start(
            ops,
            &Start { name, what, segments, message, fence, position: 0, now_ns: 0, is_alone: true }
        ));
    }

    /// One poll: what came, then a turn. Returns whether anything moved.
    fn poll(&mut self) -> Result<bool, Over> {
        let (flow, ops) = self.flows.get_mut(self.flow).unwrap();
        let mut intake =
            Intake { flow, ops, core: &mut self.core, message_bytes_max: MESSAGE_BYTES_MAX, delivers: true };
        let came = self.reader.poll(&mut self.ends, &mut self.scratch, &mut intake, &mut 100_000)?;
        let before = self.writer.bytes;
        let _ = self.writer.may_try(150_000);
        let (flow, ops) = self.flows.get_mut(self.flow).unwrap();
        let mut channel = StreamChannel { stream: &mut self.ends, writer: &mut self.writer, taken: 0 };
        let turn = flow.turn(ops, &mut self.core, &mut channel, &mut 300_000);
        assert!(!turn.broken);
        self.writer.flush(&mut self.ends)?;
        Ok(came.bytes > 0 || turn.moved || self.writer.bytes > before)
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; REGION_BYTES];
        assert!(self.memory.read(0, &mut bytes));
        bytes
    }

    fn address(&self, offset: usize) -> RemoteAddress {
        RemoteAddress { region: self.handle.region(), key: self.handle.key(), offset: offset as u64 }
    }

    fn deregister(&mut self) {
        let region = self.core.regions.remove(&self.handle).unwrap();
        self.writer.memory_goes(&region.bytes);
        drop(region);
        // Nobody may look at it any more.
        self.memory = Memory::foreign(Foreign::owned(vec![0xEE; REGION_BYTES].into_boxed_slice()));
    }

    fn statuses(&mut self) -> Vec<(u64, Status)> {
        let mut all = Vec::new();
        while let Some(event) = self.core.pop_event() {
            match event {
                Event::Send { context, status, .. } => all.push((context, status)),
                other => panic!("{other:?}"),
            }
        }
        all
    }
}

fn pipe(cuts: &[usize], space: usize) -> Rc<RefCell<Pipe>> {
    Rc::new(RefCell::new(Pipe { bytes: VecDeque::new(), space, cuts: cuts.to_vec(), at: 0 }))
}

fn two(cuts: &[usize], space: usize, buffers: u32) -> (Side, Side) {
    let (peer, back) = (pipe(cuts, space), pipe(cuts, space));
    let one = Side::new(Ends { out: peer.clone(), into: back.clone() }, 1, 64);
    (one, Side::new(Ends { out: back, into: peer }, 101, buffers))
}

fn settle(one: &mut Side, other: &mut Side) {
    let mut quiet = 0;
    while quiet < 3 {
        let moved = one.poll().unwrap() | other.poll().unwrap();
        quiet = if moved { 0 } else { quiet + 1 };
    }
}

#[derive(Copy, Clone, Debug)]
struct Move {
    reads: bool,
    local: usize,
    remote: usize,
    len: usize,
    message: bool,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let len = prop_oneof![1..200_usize, 3_000..6_000_usize, 60_000..70_000_usize, 200_000..600_000_usize];
    let one = (any::<[bool; 2]>(), 0..400_000_usize, 0..400_000_usize, len)
        .prop_map(|([reads, message], local, remote, len)| Move { reads, local, remote, len, message });
    prop::collection::vec(one, 1..8)
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    let cut = prop_oneof![1..100_usize, 1_000..5_000_usize, 50_000..400_000_usize];
    prop::collection::vec(cut, 1..20)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_cut_of_the_stream_gives_the_same_memory(
        cuts in cuts(),
        space in 1_000..1_000_000_usize,
        moves in moves(),
    ) {
        let (mut one, mut other) = two(&cuts, space, 64);
        let (mut own, mut peer) = (one.bytes(), other.bytes());
        let mut messages = 0;
        for (at, step) in moves.iter().enumerate() {
            // One after the other by fences, so that what comes out is known; reads and writes of both kinds in the middle.
            let segment = RmaSegment {
                local: one.address(step.local),
                remote: other.address(step.remote),
                len_bytes: step.len as u64,
            };
            let kind = if step.reads { RmaKind::Read } else { RmaKind::Write };
            let message = step.message.then_some(&b"done"[..]);
            messages += usize::from(step.message);
            one.start(at as u64, What::Move(kind), &[segment], message, true);
            let (l, r) = (step.local..step.local + step.len, step.remote..step.remote + step.len);
            if step.reads {
                own[l].copy_from_slice(&peer[r]);
            } else {
                peer[r].copy_from_slice(&own[l]);
            }
        }
        settle(&mut one, &mut other);
        prop_assert!(one.bytes() == own && other.bytes() == peer);
        let expected: Vec<_> = (0..moves.len() as u64).map(|at| (at, Status::Success)).collect();
        prop_assert_eq!(one.statuses(), expected);
        let mut heard = 0;
        while let Some(event) = other.core.pop_event() {
            prop_assert!(matches!(event, Event::Recv(message) if &*message == b"done"));
            heard += 1;
        }
        prop_assert_eq!(heard, messages);
        prop_assert!(one.flow().0.is_idle() && other.flow().0.is_idle());
        prop_assert!(one.reader.is_between_records() && other.writer.is_empty());
    }

    #[test]
    fn operations_that_take_turns_all_arrive(cuts in cuts(), lens in prop::collection::vec(1..300_000_usize, 1..40)) {
        let (mut one, mut other) = two(&cuts, 300_000, 64);
        let (mut own, mut peer) = (one.bytes(), other.bytes());
        let each = REGION_BYTES / 40;
        let mut wanted = Vec::new();
        for (at, len) in lens.iter().enumerate() {
            let len = (*len).min(each);
            let range = at * each..at * each + len;
            let segment = RmaSegment {
                local: one.address(range.start),
                remote: other.address(range.start),
                len_bytes: len as u64,
            };
            let kind = if at % 3 == 0 { RmaKind::Read } else { RmaKind::Write };
            match kind {
                RmaKind::Read => own[range.clone()].copy_from_slice(&peer[range]),
                RmaKind::Write => peer[range.clone()].copy_from_slice(&own[range]),
            }
            one.start(at as u64, What::Move(kind), &[segment], (at % 2 == 0).then_some(b"m"), at % 11 == 10);
            wanted.push((at as u64, Status::Success));
        }
        settle(&mut one, &mut other);
        prop_assert!(one.bytes() == own && other.bytes() == peer);
        let mut statuses = one.statuses();
        statuses.sort_by_key(|(context, _)| *context);
        prop_assert_eq!(statuses, wanted);
    }

    #[test]
    fn a_region_that_goes_in_the_middle_is_left_alone(
        cuts in cuts(),
        space in 1_000..1_000_000_usize,
        polls in 0..40_usize,
        which in 0..4_u8,
    ) {
        let (mut one, mut other) = two(&cuts, space, 64);
        let kind = if which % 2 == 0 { RmaKind::Read } else { RmaKind::Write };
        let segment = RmaSegment { local: one.address(0), remote: other.address(0), len_bytes: REGION_BYTES as u64 };
        one.start(7, What::Move(kind), &[segment], None, false);
        for _ in 0..polls {
            let _ = one.poll().unwrap() | other.poll().unwrap();
        }
        if which < 2 { one.deregister() } else { other.deregister() }
        settle(&mut one, &mut other);
        let statuses = one.statuses();
        prop_assert!(
            statuses == [(7, Status::Success)] || statuses == [(7, Status::RmaHandle)], "{:?}", statuses);
        prop_assert!(one.flow().0.is_idle() && other.flow().0.is_idle());
        // The stream is as good as before.
        let (gone, remaining) = if which < 2 { (&mut one, &mut other) } else { (&mut other, &mut one) };
        let memory = gone.memory.clone();
        gone.handle = gone.core.regions.insert(&memory, 0..REGION_BYTES, Access::ALL, None).unwrap().unwrap();
        prop_assert!(gone.bytes().iter().all(|&byte| byte == 0xEE));
        let segment = RmaSegment { local: remaining.address(5), remote: gone.address(9), len_bytes: 100_000 };
        remaining.start(8, What::Move(RmaKind::Write), &[segment], None, false);
        settle(&mut one, &mut other);
        let (gone, remaining) = if which < 2 { (one, other) } else { (other, one) };
        prop_assert!(gone.bytes()[9..100_009] == remaining.bytes()[5..100_005]);
    }

    #[test]
    fn no_bytes_panic_or_make_us_hold_much(
        cuts in cuts(),
        mut bytes in prop::collection::vec(any::<u8>(), 0..5_000),
        lengths in prop::collection::vec((0..3_000_usize, 0..70_000_u32, 0..14_u8, 0..4_u16), 0..20),
    ) {
        for (at, length, kind, slot) in lengths {
            if let Some(space) = bytes.get_mut(at..at + 12) {
                space[..4].copy_from_slice(&length.to_le_bytes());
                space[4..].copy_from_slice(&[kind, 0, slot as u8, 0, 0, 0, 0, 0]);
            }
        }
        let (one, mut other) = two(&cuts, usize::MAX, 4);
        let before = other.bytes();
        one.ends.out.borrow_mut().bytes.extend(&bytes);
        while other.poll() == Ok(true) {}
        prop_assert!(other.bytes() == before);
        prop_assert!(other.reader.held_bytes() <= 2 * scratch_bytes(MESSAGE_BYTES_MAX) as u64);
    }
}

#[test]
fn messages_without_a_buffer_are_held_in_order_and_said_again() {
    let (mut one, mut other) = two(&[1_000], 100_000, 2);
    for at in 0..10 {
        let segment = RmaSegment { local: one.address(at), remote: other.address(at), len_bytes: 1 };
        one.start(at as u64, What::Move(RmaKind::Write), &[segment], Some(&[at as u8]), false);
    }
    settle(&mut one, &mut other);
    assert_eq!(one.statuses(), [(0, Status::Success), (1, Status::Success)]);
    assert!(other.flow().0.waits_for_buffers());
    // What has no message is not held up by those.
    let segment = RmaSegment { local: one.address(0), remote: other.address(50), len_bytes: 500_000 };
    one.start(99, What::Move(RmaKind::Write), &[segment], None, false);
    settle(&mut one, &mut other);
    assert_eq!(one.statuses(), [(99, Status::Success)]);
    let mut heard = Vec::new();
    while heard.len() < 10 {
        let Some(Event::Recv(message)) = other.core.pop_event() else { panic!("{heard:?}") };
        heard.extend_from_slice(&message);
        drop(message);
        settle(&mut one, &mut other);
    }
    assert_eq!(heard, (0..10).collect::<Vec<u8>>());
    assert_eq!(one.statuses().len(), 8);
    assert!(one.flow().0.is_idle() && other.flow().0.is_idle());
}

#[test]
fn messages_whose_time_is_up_are_never_delivered() {
    let (mut one, mut other) = two(&[1_000], 100_000, 1);
    for at in 0..4 {
        let segment = RmaSegment { local: one.address(at), remote: other.address(at), len_bytes: 1 };
        one.start(at as u64, What::Move(RmaKind::Write), &[segment], Some(&[at as u8]), false);
    }
    settle(&mut one, &mut other);
    assert_eq!(one.statuses(), [(0, Status::Success)]);
    let (flow, ops) = one.flows.get_mut(one.flow).unwrap();
    assert_eq!(flow.end_held(ops, &mut one.core, 1_000, 500), Some(1_500));
    assert_eq!(flow.end_held(ops, &mut one.core, 1_499, 500), Some(1_500));
    assert!(other.core.pop_event().is_some());
    let (flow, ops) = one.flows.get_mut(one.flow).unwrap();
    assert_eq!(flow.end_held(ops, &mut one.core, 1_500, 500), None);
    let late: Vec<_> = (1..4).map(|at| (at, Status::ReceiverNotReady)).collect();
    assert_eq!(one.statuses(), late);
    settle(&mut one, &mut other);
    assert!(other.core.pop_event().is_none(), "the answer was that they were not delivered");
    assert!(one.flow().0.is_idle() && other.flow().0.is_idle());
}

#[test]
fn a_short_one_waits_for_little_behind_a_long_one() {
    let (mut one, mut other) = two(&[64 << 10], 64 << 10, 4);
    let long = RmaSegment { local: one.address(0), remote: other.address(0), len_bytes: REGION_BYTES as u64 };
    one.start(1, What::Move(RmaKind::Write), &[long], None, false);
    let short = RmaSegment { local: one.address(0), remote: other.address(0), len_bytes: 8 };
    one.start(2, What::Move(RmaKind::Write), &[short], None, false);
    let add = Atomic { kind: AtomicKind::FetchAdd, width: AtomicWidth::Eight, operand: 1, compare: 0 };
    one.start(3, What::Atomic { atomic: add, target: other.address(0), result: None }, &[], None, false);
    settle(&mut one, &mut other);
    let order: Vec<_> = one.statuses().into_iter().map(|(context, _)| context).collect();
    assert_eq!(order, [2, 3, 1]);
}

#[test]
fn what_no_honest_peer_says_is_a_fault() {
    let address = [1_u64, 2, 3];
    let record = |kind: u8, slot: u16, words: &[u64], tail: usize| {
        let [s0, s1] = slot.to_le_bytes();
        let words = words.iter().flat_map(|word| word.to_le_bytes());
        let mut bytes: Vec<u8> = [kind, 0, s0, s1, 0, 0, 0, 0].into_iter().chain(words).collect();
        bytes.resize(bytes.len() + tail, 9);
        [&(bytes.len() as u32).to_le_bytes()[..], &bytes].concat()
    };
    let with = |more: &[u64]| [&address[..], more].concat();
    let lies = [
        ("a length beyond all", vec![0xff; 4]),
        ("nothing at all", vec![0; 4]),
        ("an address is asked for", record(9, 0, &with(&[8]), 0)),
        ("a fetch", record(8, 0, &with(&[8, 4096]), 0)),
        ("an address for nothing", record(10, 5, &[4096], 0)),
        ("data for nothing", record(3, 5, &[0], 100_000)),
        ("more data than the segment", record(1, 0, &with(&[2]), 100_000)),
        ("a message that is too long", record(6, 0, &[], MESSAGE_BYTES_MAX + 1)),
        ("a hold for nothing", record(11, 5, &[], 0)),
        ("an invitation for nothing", record(12, 5, &[], 0)),
    ];
    for (what, bytes) in lies {
        let (one, mut other) = two(&[70_000, 3], usize::MAX, 4);
        one.ends.out.borrow_mut().bytes.extend(&bytes);
        let mut end = Ok(true);
        while end == Ok(true) {
            end = other.poll();
        }
        assert_eq!(end, Err(Over::Fault), "{what}");
    }
}

/// A stream that takes next to nothing from its first write on counts as full: its owner sleeps until there is space.
#[test]
fn a_stream_may_be_full_from_the_first_write_on() {
    let pipe = |space| Rc::new(RefCell::new(Pipe { bytes: VecDeque::new(), space, cuts: vec![100], at: 0 }));
    let mut ends = Ends { out: pipe(100), into: pipe(0) };
    let mut writer = Writer::default();
    assert!(writer.may_try(1_000));
    let mut channel = StreamChannel { stream: &mut ends, writer: &mut writer, taken: 0 };
    assert!(matches!(channel.push(&[1; 200], &[]), Pushed::Yes));
    assert!(matches!(writer.flush(&mut ends), Ok(false)));
    assert!(writer.is_full());
}
