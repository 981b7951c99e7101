//! Ranks of a job, over the device `any` with its defaults, as programs of CCS open it: active messages, one-sided memory and collectives.

use super::dial::failed;
use crate::args::WorkArgs;
use crate::reading::Reading;
use crate::work::Work;
use crate::worker::exchange::{not_done, rate};
use crate::worker::partner;
use cci::{Atomic, AtomicKind, AtomicWidth, Foreign, Memory, Options};
use cci_am::description::Description;
use cci_am::{AmError, Collective, Context, Elements, Message, Number, Part, Reduction, Runtime, Team};
use cci_job::coordinator::Coordinator;
use cci_job::server::RankServer;
use cci_job::{FromHost, Job, JobKey, ToHost};
use cci_measure::channel::{Channel, stamp};
use cci_measure::failure::{Failure, Outcome};
use cci_measure::half_trip;
use cci_sys::{clock, cpu};
use std::cell::Cell;
use std::process::{Child, Stdio};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// Nothing is waited for longer.
const LIMIT: Duration = Duration::from_secs(60);
/// The process that has started the ranks looks at them so often.
const LOOK: Duration = Duration::from_millis(10);
/// The handler of all messages.
const HANDLER: u16 = 0;
const WORD_BYTES: u32 = 8;

/// Starts the ranks, each of which does this with a partner's arguments. The reading is rank 0's, which prints it.
pub fn run(args: &WorkArgs) -> Outcome<Option<Reading>> {
    if args.partner_of.is_none() {
        return launch(args).map(|()| None);
    }
    let mut job = Job::join().map_err(|error| failed("joining the job")(&error))?;
    let runtime = Runtime::open(&mut job, Options::default()).map_err(|error| failed("ranks")(&error))?;
    // Not before: an endpoint that may use one core alone never spins, since it would keep its peer from running.
    let cores = partner::cores()?;
    cpu::pin(if job.rank() % 2 == 0 { cores.first } else { cores.second })?;
    let reading = match args.work {
        Work::HalfTrip { .. } | Work::Rate { .. } => messages(runtime, args)?,
        Work::Write { len } => {
            let took_ns = one_sided(&job, runtime, Kind::Library, len, args.count, puts)?;
            Reading::of_bytes(len, args.count, took_ns)
        }
        Work::WriteStrided { blocks, len } => {
            let puts = |runtime: &mut Runtime, sides: &Sides, count| {
                strided_puts(runtime, sides, (blocks, len), count)
            };
            let took_ns = one_sided(&job, runtime, Kind::Library, 4 * blocks * len, args.count, puts)?;
            Reading::of_bytes(blocks * len, args.count, took_ns)
        }
        Work::PutFence { len } => {
            each(one_sided(&job, runtime, Kind::Library, len, args.count, puts_and_fences)?, args.count)
        }
        Work::PutFenceHeap { len } => {
            each(one_sided(&job, runtime, Kind::Heap, len, args.count, puts_and_fences)?, args.count)
        }
        Work::FetchAdd => {
            let took_ns = one_sided(&job, runtime, Kind::Library, WORD_BYTES, args.count, additions)?;
            Reading::of_rate(args.count, took_ns)
        }
        Work::FetchAddAll { ranks } => {
            Reading::of_rate(u64::from(ranks) * args.count, additions_of_all(runtime, args.count)?)
        }
        Work::Barrier { .. } => each(collectives(runtime, args.count, barrier)?, args.count),
        Work::Allreduce { len, .. } => {
            // As the peers' programs do, it works on the same memory again and again.
            let mut data = vec![0; len as usize];
            each(collectives(runtime, args.count, |runtime| allreduce(runtime, &mut data))?, args.count)
        }
        _ => return Err(not_done(args)),
    };
    Ok((job.rank() == 0).then_some(reading))
}

fn each(took_ns: u64, count: u64) -> Reading {
    Reading::of(took_ns as f64 / count.max(1) as f64)
}

/// Starts the ranks as `cci run` does, and waits for their end.
pub fn launch(args: &WorkArgs) -> Outcome {
    let failed_to_start = |error: cci_job::JobError| failed("starting a job")(&error);
    let size = args.work.ranks();
    let key = JobKey::random().map_err(failed_to_start)?;
    let server: Arc<OnceLock<RankServer>> = Arc::default();
    let answering = server.clone();
    let answer = move |said: ToHost| {
        if let Some(server) = answering.get() {
            server.answer(&said);
        }
    };
    let coordinator = Arc::new(Coordinator::new(vec![(size, Box::new(answer))], |_| {}));
    let heard = move |said: FromHost| coordinator.received(said);
    let made = RankServer::listen(0..size, size, key.clone(), heard).map_err(failed_to_start)?;
    let made = server.get_or_init(|| made);
    let mut ranks = Ranks(Vec::new());
    for rank in 0..size {
        let mut command = partner::command(args, "rank")?;
        command.env("CCI_JOB_SOCKET", made.socket_name()).env("CCI_JOB_RANK", rank.to_string());
        command.env("CCI_JOB_KEY", key.to_hex()).stdin(Stdio::null());
        let child =
            command.spawn().map_err(|error| Failure::new(format!("starting rank {rank}: {error}")))?;
        ranks.0.push(child);
    }
    ranks.end()
}

/// They end with this value.
struct Ranks(Vec<Child>);

impl Ranks {
    fn end(&mut self) -> Outcome {
        let begun = Instant::now();
        let mut left = self.0.len();
        while left > 0 {
            thread::sleep(LOOK);
            if begun.elapsed() > LIMIT {
                return Err(Failure::new("the ranks do not end"));
            }
            left = 0;
            for (rank, child) in self.0.iter_mut().enumerate() {
                match child.try_wait() {
                    Ok(None) => left += 1,
                    Ok(Some(status)) if status.success() => {}
                    Ok(Some(status)) => return Err(Failure::new(format!("rank {rank}: {status}"))),
                    Err(error) => return Err(Failure::new(format!("rank {rank}: {error}"))),
                }
            }
        }
        Ok(())
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for child in &mut self.0 {
            if matches!(child.try_wait(), Ok(None)) {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// Active messages between two ranks, as a channel.
struct Messages {
    runtime: Runtime,
    context: Context,
    other: u32,
    /// How many messages have come, and what the last one began with.
    arrived: Rc<Cell<(u64, u64)>>,
    taken: u64,
}

impl Messages {
    fn over(mut runtime: Runtime) -> Outcome<Messages> {
        let context = runtime.context().map_err(am)?;
        let arrived = Rc::new(Cell::new((0, 0)));
        let place = arrived.clone();
        let take = move |_: &mut Runtime, message: &Message<'_>| {
            place.set((place.get().0 + 1, stamp(message.data())))
        };
        runtime.register(context, HANDLER, take).map_err(am)?;
        let other = 1 - runtime.rank().min(1);
        Ok(Messages { runtime, context, other, arrived, taken: 0 })
    }
}

impl Channel for Messages {
    #[inline]
    fn try_send(&mut self, message: &[u8]) -> Outcome<bool> {
        match self.runtime.try_request(self.context, self.other, HANDLER, &[], message) {
            Ok(()) => Ok(true),
            Err(AmError::WouldBlock) => Ok(false),
            Err(error) => Err(am(error)),
        }
    }

    fn flush(&mut self) {
        self.runtime.poll();
    }

    #[inline]
    fn try_receive(&mut self) -> Outcome<Option<u64>> {
        if self.arrived.get().0 == self.taken {
            self.runtime.poll();
        }
        let (arrived, stamp) = self.arrived.get();
        if arrived == self.taken {
            return Ok(None);
        }
        self.taken += 1;
        Ok(Some(stamp))
    }
}

fn messages(runtime: Runtime, args: &WorkArgs) -> Outcome<Reading> {
    let is_first = runtime.rank() == 0;
    let mut channel = Messages::over(runtime)?;
    let mut reading = Reading::of(0.0);
    match args.work {
        Work::HalfTrip { len } if is_first => {
            reading = half_trip::mean_ns(&mut channel, len, args.count).map(Reading::of)?;
        }
        Work::HalfTrip { len } => half_trip::answer(&mut channel, len, args.count)?,
        Work::Rate { len } if is_first => reading = rate::send(&mut channel, args.count, len)?,
        Work::Rate { len } => rate::take(&mut channel, args.count, len)?,
        _ => return Err(not_done(args)),
    }
    channel.runtime.finish().map_err(am)?;
    Ok(reading)
}

/// Whose memory is written to.
#[derive(Clone, Copy)]
enum Kind {
    /// The library has allocated it.
    Library,
    /// The program's own.
    Heap,
}

/// Memory of rank 0, and an address of rank 1's.
struct Sides {
    local: Part,
    remote: u64,
}

impl Sides {
    fn put(&self, runtime: &mut Runtime) -> Outcome {
        // If one fails, the fence after it reports that, as all it did is missing: the turn ends.
        runtime
            .put(1, self.remote, &self.local, |_, result| assert!(result.is_ok(), "a put failed"))
            .map_err(am)
    }
}

/// What rank 0 does so many times on memory of rank 1's. Nanoseconds; 0 at the other rank.
fn one_sided(
    job: &Job,
    mut runtime: Runtime,
    kind: Kind,
    len: u32,
    count: u64,
    mut some: impl FnMut(&mut Runtime, &Sides, u64) -> Outcome,
) -> Outcome<u64> {
    let len = len as usize;
    let memory = match kind {
        Kind::Library => runtime.allocate(len).map_err(am)?,
        Kind::Heap => Memory::foreign(Foreign::owned(vec![0; len].into())),
    };
    // Written once, so that there are pages.
    let is_written = memory.write(0, &vec![1; len]);
    debug_assert!(is_written, "it has so many bytes");
    runtime.register_memory(&memory).map_err(am)?;
    let mine = memory.as_ptr().addr() as u64;
    let world = Collective::Allgather { data: mine.to_le_bytes().to_vec() };
    let all = runtime.collective(Team::WORLD, world).map_err(am)?;
    let remote = all.get(8..).and_then(|bytes| bytes.first_chunk()).map(|bytes| u64::from_le_bytes(*bytes));
    let remote = remote.ok_or_else(|| Failure::new("two ranks are needed"))?;
    let sides = Sides { local: Part { memory, offset: 0, len_bytes: len }, remote };
    let took_ns = if job.rank() == 0 { timed(count, |count| some(&mut runtime, &sides, count))? } else { 0 };
    runtime.finish().map_err(am)?;
    Ok(took_ns)
}

/// Warms up, and measures. Nanoseconds.
fn timed(count: u64, mut some: impl FnMut(u64) -> Outcome) -> Outcome<u64> {
    some(count / 10 + 1)?;
    let begin_ns = clock::now_ns();
    some(count)?;
    Ok(clock::now_ns() - begin_ns)
}

fn puts(runtime: &mut Runtime, sides: &Sides, count: u64) -> Outcome {
    for _ in 0..count {
        sides.put(runtime)?;
    }
    runtime.fence(1).map_err(am)
}

/// Blocks of this length, each with a gap of three times that behind it.
fn strided_puts(runtime: &mut Runtime, sides: &Sides, (blocks, len): (u32, u32), count: u64) -> Outcome {
    let (blocks, len) = (blocks as usize, len as usize);
    let described = Description::strided(&[len, blocks], &[4 * len as isize]);
    let elements = Elements { count: 1, description: described.map_err(|error| failed("a stride")(&error))? };
    for _ in 0..count {
        let (remote, local) = ((sides.remote, elements.clone()), (&sides.local.memory, 0, elements.clone()));
        let done = |_: &mut Runtime, result: cci_am::Result<()>| assert!(result.is_ok(), "a put failed");
        runtime.put_described(1, remote, local, done).map_err(am)?;
    }
    runtime.fence(1).map_err(am)
}

fn puts_and_fences(runtime: &mut Runtime, sides: &Sides, count: u64) -> Outcome {
    for _ in 0..count {
        sides.put(runtime)?;
        runtime.fence(1).map_err(am)?;
    }
    Ok(())
}

fn additions(runtime: &mut Runtime, sides: &Sides, count: u64) -> Outcome {
    add(runtime, 1, sides.remote, count)
}

/// All ranks add to a word of rank 0's at once: they begin and end together. Nanoseconds.
fn additions_of_all(mut runtime: Runtime, count: u64) -> Outcome<u64> {
    let memory = runtime.allocate_symmetric(WORD_BYTES as usize).map_err(am)?;
    let word = memory.as_ptr().addr() as u64;
    let took_ns = timed(count, |count| {
        add(&mut runtime, 0, word, count)?;
        barrier(&mut runtime)
    })?;
    runtime.finish().map_err(am)?;
    Ok(took_ns)
}

/// Adds to a rank's word. Each addition has its value before the next one starts.
fn add(runtime: &mut Runtime, rank: u32, word: u64, count: u64) -> Outcome {
    let add = Atomic { kind: AtomicKind::FetchAdd, width: AtomicWidth::Eight, operand: 1, compare: 0 };
    for _ in 0..count {
        let done =
            |_: &mut Runtime, result: cci_am::Result<u64>| assert!(result.is_ok(), "an addition failed");
        runtime.atomic(rank, word, add, done).map_err(am)?;
        runtime.fence(rank).map_err(am)?;
    }
    Ok(())
}

/// What all ranks do together so many times. Nanoseconds.
fn collectives(
    mut runtime: Runtime,
    count: u64,
    mut one: impl FnMut(&mut Runtime) -> Outcome,
) -> Outcome<u64> {
    let took_ns = timed(count, |count| (0..count).try_for_each(|_| one(&mut runtime)))?;
    runtime.finish().map_err(am)?;
    Ok(took_ns)
}

fn barrier(runtime: &mut Runtime) -> Outcome {
    runtime.barrier().map_err(am)
}

fn allreduce(runtime: &mut Runtime, data: &mut Vec<u8>) -> Outcome {
    let with = (Number::F64, Reduction::Add);
    let sum = Collective::Allreduce { data: std::mem::take(data), with };
    *data = runtime.collective(Team::WORLD, sum).map_err(am)?;
    Ok(())
}

fn am(error: AmError) -> Failure {
    Failure::new(error.to_string())
}
