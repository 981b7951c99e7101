//! The plainest code for the same transfers, in the same run on the same cores: what the library's speed is worth.

use super::super::work::Kind;
use crate::client::Client;
use crate::failure::{Failure, Outcome};
use crate::memory;
use crate::protocol::Lent;
use cci::{Device, TransportKind};
use cci_measure::baseline::{Mappings, Process, Stream, failed};
use cci_measure::cores::Cores;
use cci_measure::site::Site;
use cci_measure::transfer::{Direction, Slots};
use cci_sys::{clock, cpu};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

/// The plainest code that moves the same bytes between a memory here and one at the other side.
pub trait Baseline {
    /// What it is.
    fn name(&self) -> &'static str;

    /// Whether the system may forbid it.
    fn may_be_forbidden(&self) -> bool {
        false
    }

    /// The direction in which it moves what the library moves in this one.
    fn direction(&self, of_library: Direction) -> Direction {
        of_library
    }

    /// The memory here.
    fn mine(&mut self) -> &mut [u8];

    /// Makes the transfers: nanoseconds.
    fn transfer(&mut self, client: &mut Client, work: Work) -> Outcome<u64>;

    /// Fills the other side's memory with the pattern of a seed.
    fn fill_theirs(&mut self, client: &mut Client, seed: u64, len: usize) -> Outcome;

    /// Compares the other side's memory with the pattern of a seed: what is wrong, if anything.
    fn check_theirs(&mut self, client: &mut Client, seed: u64, len: usize) -> Outcome<Option<String>>;
}

/// Transfers one behind the other, each once.
#[derive(Clone, Copy)]
pub struct Work {
    direction: Direction,
    slots: Slots,
}

/// What is to be compared with for transfers of up to `len_bytes` in all; `None` where there is nothing.
pub fn open(
    device: &Device,
    kind: Kind,
    (cores, site): (&Cores, &Site),
    lent: &Lent,
    len_bytes: u64,
    server_is_ours: bool,
) -> Outcome<Option<Box<dyn Baseline>>> {
    let len = len_bytes as usize;
    Ok(match (device.transport(), kind) {
        (TransportKind::Shm, Kind::Library) => Some(Box::new(Mappings::create(len)?)),
        (TransportKind::Shm, Kind::Foreign) => match lent.own {
            Some((pid, address)) => {
                let process = Process::of(pid).map_err(failed("the server's process"))?;
                Some(Box::new(ByProcess { process, address, memory: vec![0; len] }))
            }
            None => None,
        },
        // Which path it takes is its own choice: no plain code does the same.
        (TransportKind::Any, _) => None,
        _ => match site.addresses(device.ip()).filter(|_| server_is_ours) {
            Some((_, ip)) => Some(Box::new(Streams::open(site, ip, cores.theirs, len)?)),
            None => None,
        },
    })
}

/// Makes the transfers that the library makes, warm; contents are written before and verified after. Nanoseconds; `None`
/// where this system does not allow it.
pub fn run(
    baseline: &mut dyn Baseline,
    client: &mut Client,
    direction: Direction,
    (size, count): (u64, u64),
    seed: u64,
) -> Outcome<Option<u64>> {
    let slots = Slots { len: u32::try_from(size).unwrap_or(u32::MAX), count };
    let direction = baseline.direction(direction);
    let (work, len) = (Work { direction, slots }, slots.bytes());
    let _warm_ns = match baseline.transfer(client, work) {
        Err(_) if baseline.may_be_forbidden() => return Ok(None),
        warm => warm?,
    };
    match direction {
        Direction::Write => memory::fill_slice(part(baseline.mine(), len), seed),
        Direction::Read => {
            baseline.fill_theirs(client, seed, len)?;
            memory::fill_slice(part(baseline.mine(), len), !seed);
        }
    }
    let took_ns = baseline.transfer(client, work)?;
    let wrong = match direction {
        Direction::Write => baseline.check_theirs(client, seed, len)?,
        Direction::Read => memory::check_slice(part(baseline.mine(), len), seed).err(),
    };
    match wrong {
        None => Ok(Some(took_ns)),
        Some(reason) => Err(Failure::new(format!("plain code, to compare with: {reason}"))),
    }
}

fn part(bytes: &mut [u8], len: usize) -> &mut [u8] {
    bytes.get_mut(..len).unwrap_or_default()
}

/// Nanoseconds of one transfer after the other, each at its offset.
fn timed(slots: &Slots, mut transfer: impl FnMut(u64) -> Outcome) -> Outcome<u64> {
    let begin_ns = clock::now_ns();
    for nth in 0..slots.count {
        transfer(slots.offset(nth))?;
    }
    Ok(clock::now_ns() - begin_ns)
}

/// Two mappings of that kind in this process. A copy has no direction: the source is here.
impl Baseline for Mappings {
    fn name(&self) -> &'static str {
        "memcpy"
    }

    fn direction(&self, _of_library: Direction) -> Direction {
        Direction::Write
    }

    fn mine(&mut self) -> &mut [u8] {
        self.source()
    }

    fn transfer(&mut self, _: &mut Client, work: Work) -> Outcome<u64> {
        let len = work.slots.len as usize;
        timed(&work.slots, |offset| {
            let copied = self.copy(offset as usize, len);
            if copied { Ok(()) } else { Err(Failure::new("out of range")) }
        })
    }

    fn fill_theirs(&mut self, _: &mut Client, _: u64, _: usize) -> Outcome {
        Ok(())
    }

    fn check_theirs(&mut self, _: &mut Client, seed: u64, len: usize) -> Outcome<Option<String>> {
        Ok(memory::check_slice(self.target().get(..len).unwrap_or_default(), seed).err())
    }
}

/// The memory of the other process, by a system call for each transfer.
struct ByProcess {
    /// The server.
    process: Process,
    /// Where the memory is there.
    address: u64,
    /// Ours.
    memory: Vec<u8>,
}

impl Baseline for ByProcess {
    fn name(&self) -> &'static str {
        "process_vm_*v"
    }

    fn may_be_forbidden(&self) -> bool {
        true
    }

    fn mine(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    fn transfer(&mut self, _: &mut Client, Work { direction, slots }: Work) -> Outcome<u64> {
        let ByProcess { process, address, memory } = self;
        timed(&slots, |offset| {
            let at = offset as usize;
            let chunk = memory.get_mut(at..at + slots.len as usize).unwrap_or_default();
            process.transfer(direction, *address + offset, chunk).map_err(failed("process_vm_*v"))
        })
    }

    fn fill_theirs(&mut self, client: &mut Client, seed: u64, len: usize) -> Outcome {
        client.fill_theirs(seed, len as u64)
    }

    fn check_theirs(&mut self, client: &mut Client, seed: u64, len: usize) -> Outcome<Option<String>> {
        client.check_theirs(seed, len as u64)
    }
}

/// One connection between the same addresses, a `write` for each transfer. The other end is a thread on the other core.
struct Streams {
    mine: Stream,
    tasks: Sender<Task>,
    answers: Receiver<Outcome<Option<String>>>,
}

/// What the other end is to do.
enum Task {
    Serve(Work),
    Fill { seed: u64, len: usize },
    Check { seed: u64, len: usize },
}

impl Streams {
    fn open(site: &Site, at: IpAddr, core: Option<usize>, len: usize) -> Outcome<Streams> {
        let failed = failed("a plain TCP stream, to compare with");
        let listener = site.in_peer_namespace(|| TcpListener::bind((at, 0))).map_err(&failed)?;
        let mine = listener.local_addr().and_then(TcpStream::connect).map_err(&failed)?;
        let mut theirs = Stream::over(listener.accept().map_err(&failed)?.0, len)?;
        let (tasks, to_do) = mpsc::channel();
        let (answer, answers) = mpsc::channel();
        thread::spawn(move || {
            let pinned = core.map_or(Ok(()), cpu::pin).map_err(Failure::from);
            for task in to_do {
                // The first word says that this thread is awake: that takes no part in what is timed.
                let _ = answer.send(Ok(None));
                let done = pinned.clone().and_then(|()| do_task(&mut theirs, task));
                // Nobody waits for it any more where this side has ended.
                let _ = answer.send(done);
            }
        });
        Ok(Streams { mine: Stream::over(mine, len)?, tasks, answers })
    }

    /// Has the other end do something: it has begun.
    fn ask(&self, task: Task) -> Outcome {
        self.tasks.send(task).map_err(|_| Failure::new("the other end of the TCP stream is gone"))?;
        self.answer().map(drop)
    }

    /// Waits for the other end's next word.
    fn answer(&self) -> Outcome<Option<String>> {
        let answer = self.answers.recv();
        answer.map_err(|_| Failure::new("the other end of the TCP stream is gone"))?
    }
}

fn do_task(stream: &mut Stream, task: Task) -> Outcome<Option<String>> {
    match task {
        Task::Serve(Work { direction, slots }) => {
            stream.serve(direction, &slots, slots.count)?;
            Ok(None)
        }
        Task::Fill { seed, len } => {
            memory::fill_slice(part(&mut stream.memory, len), seed);
            Ok(None)
        }
        Task::Check { seed, len } => Ok(memory::check_slice(part(&mut stream.memory, len), seed).err()),
    }
}

impl Baseline for Streams {
    fn name(&self) -> &'static str {
        "TCP stream"
    }

    fn mine(&mut self) -> &mut [u8] {
        &mut self.mine.memory
    }

    fn transfer(&mut self, client: &mut Client, work: Work) -> Outcome<u64> {
        // The other end of ours wants the core that the server polls on.
        client.poll(false)?;
        self.ask(Task::Serve(work))?;
        let took_ns = self.mine.transfer(work.direction, &work.slots, work.slots.count)?;
        self.answer()?;
        client.poll(true)?;
        Ok(took_ns)
    }

    fn fill_theirs(&mut self, _: &mut Client, seed: u64, len: usize) -> Outcome {
        self.ask(Task::Fill { seed, len })?;
        self.answer().map(drop)
    }

    fn check_theirs(&mut self, _: &mut Client, seed: u64, len: usize) -> Outcome<Option<String>> {
        self.ask(Task::Check { seed, len })?;
        self.answer()
    }
}
