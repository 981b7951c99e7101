//! Ranks of a job with global memory (ACP): copies, atomics, channels and the map.

use super::dial::failed;
use super::ranks::launch;
use crate::args::{By, WorkArgs};
use crate::reading::Reading;
use crate::work::{CHANNEL_SLOTS, Work};
use crate::worker::exchange::{not_done, rate};
use crate::worker::partner;
use cci::{Atomic, AtomicKind, AtomicWidth, Context, Device, Memory, Options, TransportKind};
use cci_acp::{AcpError, ChannelRequest, GlobalAddress, GlobalMemory, Map, Order, Receiver, Sender, Slots};
use cci_job::Job;
use cci_measure::channel::{Channel, stamp};
use cci_measure::failure::{Failure, Outcome};
use cci_measure::half_trip;
use cci_sys::{clock, cpu};
use std::collections::VecDeque;

const STARTER_BYTES: usize = 4096;
const HEAP_BYTES: usize = 256 << 20;
/// Messages under way.
const UNDER_WAY: usize = 8;
/// Slots of a channel: for messages that fit in the shortest slot, and for longer ones. The receiver says after each half of them that they are free.
const SHORT_SLOT_COUNT: u32 = 64;
const LONG_SLOT_COUNT: u32 = 8;
const SLOT_BYTES_MIN: u32 = 4096;
const SLOT_BYTES_MAX: u32 = 1 << 20;
const SLOT_HEADER_BYTES: u32 = 16;
/// Of the map: keys that are there, and buckets of each rank.
const KEYS: u64 = 10_000;
const BUCKETS: u64 = 16_384;

/// Starts the ranks, each of which does this with a partner's arguments. The reading is rank 0's, which prints it.
pub fn run(args: &WorkArgs) -> Outcome<Option<Reading>> {
    if args.partner_of.is_none() {
        return launch(args).map(|()| None);
    }
    let mut job = Job::join().map_err(|error| failed("joining the job")(&error))?;
    let context = Context::new().map_err(|error| failed("context")(&error))?;
    let device = device(&context, args.by)?;
    let options = Options::default();
    let global = GlobalMemory::open_with_heap(&mut job, device, options, STARTER_BYTES, HEAP_BYTES);
    let mut global = global.map_err(acp)?;
    // Not before: an endpoint that may use one core alone never spins, since it would keep its peer from running.
    let cores = partner::cores()?;
    cpu::pin(if job.rank() % 2 == 0 { cores.first } else { cores.second })?;
    let count = args.count;
    let each = |took_ns: u64| Reading::of(took_ns as f64 / count.max(1) as f64);
    let reading = match args.work {
        Work::HalfTrip { .. } | Work::Rate { .. } | Work::Long { .. } => messages(global, args)?,
        Work::PutFence { len } => each(one_sided(global, count, |[own, other]| Done::Copy(other, own, len))?),
        Work::GetFence { len } => each(one_sided(global, count, |[own, other]| Done::Copy(own, other, len))?),
        Work::FetchAdd => {
            Reading::of_rate(count, one_sided(global, count, |[own, other]| Done::Add(own, other))?)
        }
        Work::ChannelLife { len } => each(lives(&mut global, len, count)?),
        Work::MapFind { .. } => found(global, count)?,
        Work::MapInsert { .. } => inserted(global, count)?,
        _ => return Err(not_done(args)),
    };
    Ok((job.rank() == 0).then_some(reading))
}

fn device(context: &Context, by: By) -> Outcome<&Device> {
    let found = match by {
        By::AcpUdp => context.devices().iter().find(|device| {
            device.transport() == TransportKind::Udp && device.ip().is_some_and(|ip| ip.is_loopback())
        }),
        _ => context.device("any"),
    };
    found.ok_or_else(|| Failure::new("no such device here"))
}

/// One end each way between two ranks, as a channel of the exchanges.
struct Ends {
    global: GlobalMemory,
    sender: Sender,
    receiver: Receiver,
    receiving: VecDeque<(ChannelRequest, Memory)>,
}

impl Ends {
    fn over(mut global: GlobalMemory, len: u32) -> Outcome<Ends> {
        let other = 1 - global.rank().min(1);
        let bytes = (len + SLOT_HEADER_BYTES).clamp(SLOT_BYTES_MIN, SLOT_BYTES_MAX);
        let count = if bytes == SLOT_BYTES_MIN { SHORT_SLOT_COUNT } else { LONG_SLOT_COUNT };
        let slots = Slots { count, bytes };
        let sender = Sender::create(&mut global, other, slots).map_err(acp)?;
        let receiver = Receiver::create(&mut global, other, slots).map_err(acp)?;
        let mut ends = Ends { global, sender, receiver, receiving: VecDeque::new() };
        for _ in 0..UNDER_WAY {
            let memory = ends.global.allocate(len as usize).map_err(acp)?;
            ends.global.register(&memory, 0).map_err(acp)?;
            ends.start(memory)?;
        }
        Ok(ends)
    }

    fn start(&mut self, memory: Memory) -> Outcome {
        let request = self.receiver.start(&mut self.global, &memory).map_err(acp)?;
        self.receiving.push_back((request, memory));
        Ok(())
    }
}

impl Channel for Ends {
    #[inline]
    fn try_send(&mut self, message: &[u8]) -> Outcome<bool> {
        self.sender.send(&mut self.global, message).map(|()| true).map_err(acp)
    }

    fn flush(&mut self) {
        self.global.progress();
    }

    #[inline]
    fn try_receive(&mut self) -> Outcome<Option<u64>> {
        match self.receiving.front() {
            Some((request, _)) if request.has_ended(&mut self.global) => {}
            _ => return Ok(None),
        }
        let Some((request, memory)) = self.receiving.pop_front() else { return Ok(None) };
        request.wait(&mut self.global).map_err(acp)?;
        let mut first = [0; 8];
        let is_long = memory.len() >= first.len();
        let is_inside = !is_long || memory.read(0, &mut first);
        debug_assert!(is_inside, "it has so many bytes");
        self.start(memory)?;
        Ok(Some(stamp(&first)))
    }
}

fn messages(global: GlobalMemory, args: &WorkArgs) -> Outcome<Reading> {
    let (is_first, len) = (global.rank() == 0, args.work.message_bytes().unwrap_or_default());
    let mut ends = Ends::over(global, len)?;
    let mut reading = Reading::of(0.0);
    match args.work {
        Work::HalfTrip { .. } if is_first => {
            reading = half_trip::mean_ns(&mut ends, len, args.count).map(Reading::of)?;
        }
        Work::HalfTrip { .. } => half_trip::answer(&mut ends, len, args.count)?,
        Work::Long { .. } if is_first => {
            reading = rate::send(&mut ends, args.count, len)?.of_messages(len);
        }
        _ if is_first => reading = rate::send(&mut ends, args.count, len)?,
        _ => rate::take(&mut ends, args.count, len)?,
    }
    // Requests that are under way end with the ranks.
    ends.global.sync().map_err(acp)?;
    Ok(reading)
}

/// One operation of rank 0's.
#[derive(Clone, Copy)]
enum Done {
    /// Where to, whence, bytes.
    Copy(GlobalAddress, GlobalAddress, u32),
    /// Where the value from before goes, and the word.
    Add(GlobalAddress, GlobalAddress),
}

/// So many operations, each of which is waited for. `what` of the starter memory of both. Nanoseconds; 0 at the other rank.
fn one_sided(
    mut global: GlobalMemory,
    count: u64,
    what: impl Fn([GlobalAddress; 2]) -> Done,
) -> Outcome<u64> {
    const ADD: Atomic =
        Atomic { kind: AtomicKind::FetchAdd, width: AtomicWidth::Eight, operand: 1, compare: 0 };
    let starters = [global.starter(0).map_err(acp)?, global.starter(1).map_err(acp)?];
    let done = what(starters);
    global.sync().map_err(acp)?;
    let took_ns = if global.rank() == 0 {
        timed(count, |count| {
            for _ in 0..count {
                let handle = match done {
                    Done::Copy(dst, src, len) => global.copy(dst, src, len as usize, Order::Now),
                    Done::Add(own, other) => global.atomic(own, other, ADD, Order::Now),
                };
                let handle = handle.map_err(acp)?;
                global.complete(handle).map_err(acp)?;
            }
            Ok(())
        })?
    } else {
        0
    };
    global.close().map_err(acp)?;
    Ok(took_ns)
}

/// Channels that are made, connect by one message, and are freed. Nanoseconds.
fn lives(global: &mut GlobalMemory, len: u32, count: u64) -> Outcome<u64> {
    let (is_first, other) = (global.rank() == 0, 1 - global.rank().min(1));
    let slots = Slots { count: CHANNEL_SLOTS, bytes: len };
    let life = |global: &mut GlobalMemory| {
        if is_first {
            let sender = Sender::create(global, other, slots)?;
            sender.send(global, &[7; 8])?;
            sender.free(global)?.wait(global)?;
        } else {
            let receiver = Receiver::create(global, other, slots)?;
            receiver.receive(global, &mut [0; 8])?;
            receiver.free(global)?.wait(global)?;
        }
        Ok(())
    };
    let took_ns = timed(count, |count| (0..count).try_for_each(|_| life(global).map_err(acp)))?;
    global.sync().map_err(acp)?;
    Ok(took_ns)
}

/// The map of all ranks, with its first keys.
fn map(global: &mut GlobalMemory) -> cci_acp::Result<Map> {
    let (rank, size) = (global.rank(), global.size());
    let owners: Vec<u32> = (0..size).collect();
    let handle = match rank {
        0 => Map::create(global, &owners, BUCKETS, 0)?.handle().to_bits(),
        _ => 0,
    };
    let handle = GlobalAddress::from_bits(global.broadcast(0, handle)?);
    let map = Map::open(global, handle.ok_or(AcpError::Argument("rank 0 has no map"))?)?;
    for key in (0..KEYS).filter(|key| key % u64::from(size) == u64::from(rank)) {
        map.insert(global, &key.to_le_bytes(), &[1; 8])?;
    }
    global.sync()?;
    Ok(map)
}

/// So many calls of each rank at the same time. The reading is that of all together.
fn at_once(
    mut global: GlobalMemory,
    count: u64,
    mut call: impl FnMut(&mut GlobalMemory, &Map, u64) -> cci_acp::Result<()>,
) -> Outcome<Reading> {
    let map = map(&mut global).map_err(acp)?;
    let all = count * u64::from(global.size());
    let begin_ns = clock::now_ns();
    for number in 0..count {
        call(&mut global, &map, number).map_err(acp)?;
    }
    global.sync().map_err(acp)?;
    let took_ns = clock::now_ns() - begin_ns;
    global.close().map_err(acp)?;
    Ok(Reading::of_rate(all, took_ns))
}

fn found(global: GlobalMemory, count: u64) -> Outcome<Reading> {
    let rank = u64::from(global.rank());
    at_once(global, count, |global, map, number| {
        // Keys in no order that a cache would know.
        let key = (number * 7_919 + rank * 104_729) % KEYS;
        let found = map.get(global, &key.to_le_bytes())?;
        found.map(drop).ok_or(AcpError::Argument("a key is missing"))
    })
}

fn inserted(global: GlobalMemory, count: u64) -> Outcome<Reading> {
    let rank = u64::from(global.rank());
    at_once(global, count, |global, map, number| {
        let key = (KEYS + number) << 8 | rank;
        map.insert(global, &key.to_le_bytes(), &[2; 8]).map(drop)
    })
}

/// Warms up, and measures. Nanoseconds.
fn timed(count: u64, mut some: impl FnMut(u64) -> Outcome) -> Outcome<u64> {
    some(count / 10 + 1)?;
    let begin_ns = clock::now_ns();
    some(count)?;
    Ok(clock::now_ns() - begin_ns)
}

fn acp(error: AcpError) -> Failure {
    Failure::new(error.to_string())
}
