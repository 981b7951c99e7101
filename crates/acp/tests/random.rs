//! Random operations of all ranks among real processes, beside a plain model.
//!
//! All ranks draw the same plan from a seed, in rounds between barriers. In a round each of the blocks that the ranks have is the target of one operation at
//! most, and no other one reads such a target unless it is ordered behind it, so that the model knows every byte. Additions commute. Messages of channels
//! come in between, in the order of each channel, and so do segments, in the order of each segmented buffer.
#![allow(clippy::unwrap_used, reason = "a rank that can't go on fails")]

mod roles;

use cci::{Atomic, AtomicKind, AtomicWidth, Memory};
use cci_acp::{
    AcpError, ChannelRequest, GlobalAddress, GlobalMemory, Handle, Indices, Order, Receiver,
    SegmentDestination, SegmentSource, Segments, Sender, Slots,
};
use roles::draw::Draw;
use roles::{ROLE, heap, launch, role};
use std::env;

/// Blocks of each rank and colour, and their length.
const BLOCKS: usize = 24;
const BLOCK_BYTES: usize = 3_072;
/// Counters of each rank, behind the blocks, and results of atomic operations behind these.
const COUNTERS: usize = 4;
const RESULTS: usize = 64;
const COUNTERS_AT: usize = BLOCKS * BLOCK_BYTES;
const RESULTS_AT: usize = COUNTERS_AT + 8 * COUNTERS;
const LEN_BYTES: usize = RESULTS_AT + 8 * RESULTS;
const SLOTS: Slots = Slots { count: 4, bytes: 1_500 };
/// Segmented buffers are of one of these shapes, by the two ranks.
const SHAPES: [Segments; 4] = [
    Segments { count: 1, bytes: 700 },
    Segments { count: 3, bytes: 1 },
    Segments { count: 5, bytes: 5_000 },
    Segments { count: 8, bytes: 96 },
];
const ROUNDS: usize = 12;
/// Turns without a segment that comes or goes, after which a round is given up.
const IDLE_TURNS_MAX: usize = 100_000_000;

/// Which block of whose memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Block {
    rank: usize,
    color: usize,
    number: usize,
}

#[derive(Copy, Clone, Debug)]
enum Step {
    /// A part of a block to the same part of another one.
    Copy { to: Block, from: Block, at: usize, len: usize, order: Ordered },
    /// Adds to a counter, and finds what was there.
    Add { rank: usize, color: usize, counter: usize, value: u64 },
    /// Sends a message of these bytes.
    Send { to: usize, len: usize, first: u8 },
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Ordered {
    Now,
    /// Behind the operation before.
    Last,
    All,
    Continue,
}

fn message_bytes(draw: &mut Draw) -> usize {
    match draw.below(4) {
        0 => draw.below(20),
        1 => draw.below(1_100),
        2 => draw.below(3_000),
        _ => draw.below(30_000),
    }
}

/// What each rank does in one round, in its order.
fn plan(draw: &mut Draw, size: usize, colors: usize) -> Vec<Vec<Step>> {
    let mut blocks: Vec<Block> = (0..size * colors * BLOCKS)
        .map(|at| Block { rank: at / (colors * BLOCKS), color: at / BLOCKS % colors, number: at % BLOCKS })
        .collect();
    // Those that nobody writes to in this round.
    let sources: Vec<Block> = (0..blocks.len() / 3).filter_map(|_| draw.take(&mut blocks)).collect();
    let mut steps = vec![vec![]; size];
    for by in steps.iter_mut() {
        let mut last = None;
        for _ in 0..draw.below(3 * BLOCKS / 2) {
            match draw.below(8) {
                0 | 1 => by.push(Step::Add {
                    rank: draw.below(size),
                    color: draw.below(colors),
                    counter: draw.below(COUNTERS),
                    value: draw.below(1_000) as u64,
                }),
                _ => {
                    let Some(to) = draw.take(&mut blocks) else { continue };
                    let at = draw.below(BLOCK_BYTES);
                    let len = draw.below(BLOCK_BYTES - at) + 1;
                    let orders = [Ordered::Last, Ordered::All, Ordered::Continue];
                    // What was just written is read by an operation that is ordered behind it, from the same part.
                    let (from, (at, len), order) = match last {
                        Some((from, part)) if draw.below(3) == 0 => (from, part, orders[draw.below(2)]),
                        _ => {
                            let order = if draw.below(2) == 0 { Ordered::Now } else { orders[draw.below(3)] };
                            (sources[draw.below(sources.len())], (at, len), order)
                        }
                    };
                    by.push(Step::Copy { to, from, at, len, order });
                    last = Some((to, (at, len)));
                }
            }
        }
    }
    for (by, steps) in steps.iter_mut().enumerate() {
        for to in (0..size).filter(|&to| to != by) {
            for _ in 0..draw.below(4) {
                let send = Step::Send { to, len: message_bytes(draw), first: draw.below(256) as u8 };
                steps.insert(draw.below(steps.len() + 1), send);
            }
        }
    }
    steps
}

/// Segments of the buffer from one rank to another: how many are published and released by the end of a round, since the beginning.
#[derive(Copy, Clone, Debug, Default)]
struct Flow {
    published: u64,
    released: u64,
}

impl Flow {
    /// Draws how far it comes in the next round. Some segments may stay at the destination.
    fn go_on(&mut self, draw: &mut Draw, segments: Segments) {
        self.published += draw.below(3 * segments.count as usize + 1) as u64;
        let rest = draw.below(segments.count as usize + 1) as u64;
        self.released = self.published.saturating_sub(rest).max(self.released);
    }
}

fn shape(from: usize, to: usize) -> Segments {
    SHAPES[(from * 3 + to) % SHAPES.len()]
}

/// A segment of the buffer from a rank, by its number.
fn segment(from: usize, to: usize, number: u64) -> Vec<u8> {
    contents(shape(from, to).bytes as usize, (number * 7 + from as u64 * 31 + to as u64) as u8)
}

/// Where it is in the memory of either end.
fn place(from: usize, to: usize, number: u64) -> usize {
    let Segments { count, bytes } = shape(from, to);
    (number % count * bytes) as usize
}

/// A rank's ends of its buffers with another one.
struct Buffers {
    rank: usize,
    other: usize,
    source: (SegmentSource, Memory),
    destination: (SegmentDestination, Memory),
}

impl Buffers {
    fn create(global: &mut GlobalMemory, rank: usize, other: usize) -> Buffers {
        let (there, here) = (shape(rank, other), shape(other, rank));
        let [from, to] =
            [there, here].map(|segments| global.allocate(segments.len_bytes().unwrap()).unwrap());
        let source = SegmentSource::create(global, other as u32, &from, there).unwrap();
        let destination = SegmentDestination::create(global, other as u32, &to, here).unwrap();
        Buffers { rank, other, source: (source, from), destination: (destination, to) }
    }

    /// Publishes a segment, if the round goes so far and there is room. Returns whether it has.
    fn publish(&self, global: &mut GlobalMemory, flows: &[Vec<Flow>]) -> bool {
        let ((source, memory), published) = (&self.source, flows[self.rank][self.other].published);
        let tail = source.indices(global).unwrap().tail;
        let publishes = tail < published && source.has_room(global).unwrap();
        if publishes {
            let bytes = segment(self.rank, self.other, tail);
            assert!(memory.write(place(self.rank, self.other, tail), &bytes));
            source.publish(global).unwrap();
        }
        publishes
    }

    /// Releases a segment, if the round goes so far and there is data. Returns whether it has.
    fn release(&self, global: &mut GlobalMemory, flows: &[Vec<Flow>]) -> bool {
        let ((destination, memory), flow) = (&self.destination, flows[self.other][self.rank]);
        let Indices { head, tail, .. } = destination.indices(global).unwrap();
        assert!(tail <= flow.published && head <= flow.released, "{head}, {tail}: more than {flow:?}");
        let releases = head < flow.released && destination.has_data(global).unwrap();
        if releases {
            let expected = segment(self.other, self.rank, head);
            let mut found = vec![0; expected.len()];
            assert!(memory.read(place(self.other, self.rank, head), &mut found));
            assert!(found == expected, "segment {head} from rank {}", self.other);
            destination.release(global).unwrap();
        }
        releases
    }

    fn are_there(&self, global: &mut GlobalMemory, flows: &[Vec<Flow>]) -> bool {
        self.source.0.indices(global).unwrap().tail == flows[self.rank][self.other].published
            && self.destination.0.indices(global).unwrap().head == flows[self.other][self.rank].released
    }
}

/// Has all buffers of this rank come as far as the round goes.
fn flow(global: &mut GlobalMemory, buffers: &[Buffers], flows: &[Vec<Flow>]) {
    let mut idle_turns = 0;
    while !buffers.iter().all(|buffers| buffers.are_there(global, flows)) {
        for buffers in buffers {
            let did = buffers.publish(global, flows) | buffers.release(global, flows);
            idle_turns = if did { 0 } else { idle_turns + 1 };
        }
        assert!(idle_turns < IDLE_TURNS_MAX, "segments do not come: {flows:?}");
    }
}

/// The memory of all ranks, by rank and colour.
struct Model {
    memory: Vec<Vec<Vec<u8>>>,
    counters: Vec<Vec<[u64; COUNTERS]>>,
}

impl Model {
    fn new(size: usize, colors: usize) -> Model {
        let of = |rank: usize, color: usize| -> Vec<u8> {
            (0..COUNTERS_AT).map(|at| (at * 31 + rank * 7 + color * 3 + 1) as u8).collect()
        };
        Model {
            memory: (0..size).map(|rank| (0..colors).map(|color| of(rank, color)).collect()).collect(),
            counters: vec![vec![[0; COUNTERS]; colors]; size],
        }
    }

    fn follow(&mut self, step: Step) {
        match step {
            Step::Copy { to, from, at, len, .. } => {
                let start = from.number * BLOCK_BYTES + at;
                let part = self.memory[from.rank][from.color][start..start + len].to_vec();
                let start = to.number * BLOCK_BYTES + at;
                self.memory[to.rank][to.color][start..start + len].copy_from_slice(&part);
            }
            Step::Add { rank, color, counter, value } => self.counters[rank][color][counter] += value,
            Step::Send { .. } => {}
        }
    }
}

fn contents(len: usize, first: u8) -> Vec<u8> {
    (0..len).map(|at| (at * 13) as u8 ^ first).collect()
}

/// Not a test where nothing has started it: one rank of many.
#[test]
fn as_a_rank() {
    let Ok(seed) = env::var(ROLE) else { return };
    let seed: u64 = seed.parse().unwrap();
    let (_job, mut global) = roles::open(64, 0);
    let (rank, size, colors) = (global.rank() as usize, global.size() as usize, global.colors() as usize);
    let mut draw = Draw(seed);
    let mut model = Model::new(size, colors);
    let memory: Vec<Memory> = (0..colors).map(|_| global.allocate(LEN_BYTES).unwrap()).collect();
    let mut starts = vec![vec![]; colors];
    for color in 0..colors {
        assert!(memory[color].write(0, &model.memory[rank][color]));
        let key = global.register(&memory[color], color as u32).unwrap();
        let own = global.address(key, 0).unwrap().to_bits();
        for root in 0..size as u32 {
            let bits = global.broadcast(root, own).unwrap();
            starts[color].push(GlobalAddress::from_bits(bits).unwrap());
        }
    }
    let others: Vec<usize> = (0..size).filter(|&other| other != rank).collect();
    let senders: Vec<Sender> =
        others.iter().map(|&other| Sender::create(&mut global, other as u32, SLOTS).unwrap()).collect();
    let receivers: Vec<Receiver> =
        others.iter().map(|&other| Receiver::create(&mut global, other as u32, SLOTS).unwrap()).collect();
    let buffers: Vec<Buffers> =
        others.iter().map(|&other| Buffers::create(&mut global, rank, other)).collect();
    let mut flows = vec![vec![Flow::default(); size]; size];
    for round in 0..ROUNDS {
        let steps = plan(&mut draw, size, colors);
        for (from, flows) in flows.iter_mut().enumerate() {
            flows.iter_mut().enumerate().for_each(|(to, flow)| flow.go_on(&mut draw, shape(from, to)));
        }
        // Some receives begin before anything is sent, the others when all else was done: those of one channel in their order.
        let mut incoming = vec![];
        for (from, receiver) in others.iter().zip(&receivers) {
            let sends = steps[*from].iter().filter_map(|step| match *step {
                Step::Send { to, len, first } if to == rank => Some((len, first)),
                _ => None,
            });
            for (at, (len, first)) in sends.enumerate() {
                let space = heap(vec![0; if (len + at) % 5 == 0 { len / 2 + 1 } else { len + 7 }]);
                let request = (at < (round + from) % 4).then(|| receiver.start(&mut global, &space).unwrap());
                incoming.push((receiver, request, space, contents(len, first)));
            }
        }
        let requests = act(&mut global, (&starts, rank), (&others, &senders), &steps[rank]);
        flow(&mut global, &buffers, &flows);
        for (receiver, request, space, message) in incoming {
            let request = request.unwrap_or_else(|| receiver.start(&mut global, &space).unwrap());
            let result = request.wait(&mut global);
            let len = message.len().min(space.len());
            match result {
                Ok(found) => assert_eq!(found, message.len(), "round {round}"),
                Err(AcpError::Truncated { len_bytes, space_bytes }) => {
                    assert_eq!((len_bytes as usize, space_bytes), (message.len(), space.len()));
                    assert!(message.len() > space.len());
                }
                Err(error) => panic!("round {round}: {error}"),
            }
            let mut found = vec![0; len];
            assert!(space.read(0, &mut found) && found == message[..len], "round {round}: {len} bytes");
        }
        requests.into_iter().for_each(|request| assert_eq!(request.wait(&mut global).unwrap(), 0));
        global.complete_all().unwrap();
        global.sync().unwrap();
        steps.into_iter().flatten().for_each(|step| model.follow(step));
        for (color, memory) in memory.iter().enumerate() {
            let mut found = vec![0; COUNTERS_AT];
            assert!(memory.read(0, &mut found));
            let wrong = (0..COUNTERS_AT).find(|&at| found[at] != model.memory[rank][color][at]);
            assert_eq!(
                wrong, None,
                "seed {seed}, round {round}, colour {color}: the first byte that is wrong"
            );
            for (counter, value) in model.counters[rank][color].iter().enumerate() {
                let mut word = [0; 8];
                assert!(memory.read(COUNTERS_AT + 8 * counter, &mut word));
                assert_eq!(u64::from_ne_bytes(word), *value, "seed {seed}, round {round}: counter {counter}");
            }
        }
        // Nobody changes memory that another one still looks at.
        global.sync().unwrap();
    }
    for Buffers { source, destination, .. } in buffers {
        source.0.free(&mut global).unwrap();
        destination.0.free(&mut global).unwrap();
    }
    let mut freed: Vec<ChannelRequest> =
        senders.into_iter().map(|sender| sender.free(&mut global).unwrap()).collect();
    freed.extend(receivers.into_iter().map(|receiver| receiver.free(&mut global).unwrap()));
    freed.into_iter().for_each(|request| assert_eq!(request.wait(&mut global).unwrap(), 0));
    global.sync().unwrap();
    assert_eq!(global.faults(), 0);
    global.close().unwrap();
}

/// Starts all steps of this rank. Returns the requests of its messages.
fn act(
    global: &mut GlobalMemory,
    (starts, rank): (&[Vec<GlobalAddress>], usize),
    (others, senders): (&[usize], &[Sender]),
    steps: &[Step],
) -> Vec<ChannelRequest> {
    let (mut requests, mut last, mut results): (_, Option<Handle>, _) = (vec![], None, 0);
    for &step in steps {
        match step {
            Step::Copy { to, from, at, len, order } => {
                let place = |block: Block| {
                    let offset = (block.number * BLOCK_BYTES + at) as u64;
                    starts[block.color][block.rank].checked_add(offset).unwrap()
                };
                let order = match (order, last) {
                    (Ordered::Last, Some(last)) => Order::After(last),
                    (Ordered::Last | Ordered::Now, _) => Order::Now,
                    (Ordered::All, _) => Order::All,
                    (Ordered::Continue, _) => Order::Continue,
                };
                last = Some(global.copy(place(to), place(from), len, order).unwrap());
            }
            Step::Add { rank: target, color, counter, value } => {
                let result = (RESULTS_AT + 8 * (results % RESULTS)) as u64;
                results += 1;
                let counter = starts[color][target].checked_add((COUNTERS_AT + 8 * counter) as u64);
                let own = starts[color][rank].checked_add(result).unwrap();
                let (kind, width) = (AtomicKind::FetchAdd, AtomicWidth::Eight);
                let add = Atomic { kind, width, operand: value, compare: 0 };
                last = Some(global.atomic(own, counter.unwrap(), add, Order::Now).unwrap());
            }
            Step::Send { to, len, first } => {
                let at = others.iter().position(|&other| other == to).unwrap();
                requests.push(senders[at].start(global, &heap(contents(len, first))).unwrap());
            }
        }
    }
    requests
}

/// With `CCI_ACP_SEEDS`, so many seeds for each device and number of ranks.
#[test]
fn random_operations_of_all_ranks_come_to_what_the_model_says() {
    const SEEDS: [&str; 8] = ["1", "2", "3", "4", "5", "6", "7", "8"];
    let seeds = env::var("CCI_ACP_SEEDS").map_or(1, |seeds| seeds.parse::<usize>().unwrap());
    for (size, device) in (2..=8).zip(["shm", "udp-lo", "any", "tcp-lo"].into_iter().cycle()) {
        for seed in SEEDS.iter().cycle().skip(size as usize).take(seeds) {
            for (rank, ended) in launch(size, role(seed, device)).into_iter().enumerate() {
                assert!(ended.status.success(), "{device}, seed {seed}, rank {rank} of {size}: {ended:?}");
            }
        }
    }
}
