//! The plainest code for the same transfers, in the same run on the same cores: what the library's speed is worth.

use super::super::client::Client;
use super::super::work::{Direction, Kind};
use crate::failure::{Failure, Outcome};
use crate::memory;
use crate::protocol::Lent;
use cci::{Device, TransportKind};
use cci_measure::baseline::{Mappings, Process};
use cci_measure::cores::Cores;
use cci_measure::site::Site;
use cci_sys::{clock, cpu};
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Neither side waits longer for the other.
const PATIENCE: Duration = Duration::from_secs(20);

/// The plainest code that moves the same bytes, to which remote memory is compared.
pub enum Baseline {
    /// Nothing to compare with: the server is elsewhere.
    None,
    /// Two mappings of that kind in this process.
    Memcpy(Mappings),
    /// The memory of the other process, by a system call for each transfer.
    Process {
        /// The server.
        process: Process,
        /// Where the memory is there.
        address: u64,
        /// Ours.
        memory: Vec<u8>,
    },
    /// One connection between the same addresses, a `write` for each transfer.
    Tcp(Tcp),
}

/// This end of the connection; the other one is a thread on the other core.
pub struct Tcp {
    stream: TcpStream,
    memory: Vec<u8>,
    other: Option<JoinHandle<io::Result<()>>>,
}

/// What the other end is to do, as it travels.
struct Task {
    direction: Direction,
    size: u64,
    count: u64,
    seed: u64,
}

impl Baseline {
    /// For transfers of up to `len_bytes` in all.
    pub fn open(
        device: &Device,
        kind: Kind,
        (cores, site): (&Cores, &Site),
        lent: &Lent,
        len_bytes: u64,
        server_is_ours: bool,
    ) -> Outcome<Baseline> {
        let len = len_bytes as usize;
        match (device.transport(), kind) {
            (TransportKind::Shm, Kind::Library) => {
                let mappings = Mappings::create(len)?;
                Ok(Baseline::Memcpy(mappings))
            }
            (TransportKind::Shm, Kind::Foreign) => {
                let Some((pid, address)) = lent.own else { return Ok(Baseline::None) };
                let process =
                    Process::of(pid).map_err(|error| Failure::new(format!("process {pid}: {error}")))?;
                Ok(Baseline::Process { process, address, memory: vec![0; len] })
            }
            // Which path it takes is its own choice: no plain code does the same.
            (TransportKind::Any, _) => Ok(Baseline::None),
            _ => match site.addresses(device.ip()).filter(|_| server_is_ours) {
                Some((_, ip)) => {
                    Tcp::open(site, ip, cores.theirs, len).map(Baseline::Tcp).map_err(tcp_failed)
                }
                None => Ok(Baseline::None),
            },
        }
    }

    /// What it is.
    pub fn name(&self) -> Option<&'static str> {
        match self {
            Baseline::None => None,
            Baseline::Memcpy(_) => Some("memcpy"),
            Baseline::Process { .. } => Some("process_vm_*v"),
            Baseline::Tcp(_) => Some("TCP stream"),
        }
    }

    /// Makes the transfers that the library makes; contents are written before and verified after. Nanoseconds; None where
    /// there is nothing to compare with.
    pub(super) fn run(
        &mut self,
        client: &mut Client,
        direction: Direction,
        size: u64,
        count: u64,
        seed: u64,
    ) -> Outcome<Option<u64>> {
        let len = (size * count) as usize;
        let (took_ns, reason) = match self {
            Baseline::None => return Ok(None),
            Baseline::Memcpy(mappings) => memcpy(mappings, size as usize, count as usize, seed),
            Baseline::Process { process, address, memory } => {
                let memory = memory.get_mut(..len).unwrap_or_default();
                match by_process(client, process, *address, memory, direction, size, seed)? {
                    Some(done) => done,
                    None => return Ok(None),
                }
            }
            Baseline::Tcp(tcp) => {
                // The other end of ours wants the core that the server polls on.
                client.poll(false)?;
                let done = tcp.run(&Task { direction, size, count, seed }).map_err(tcp_failed)?;
                client.poll(true)?;
                done
            }
        };
        match reason {
            None => Ok(Some(took_ns)),
            Some(reason) => Err(Failure::new(format!("plain code, to compare with: {reason}"))),
        }
    }
}

fn memcpy(mappings: &mut Mappings, size: usize, count: usize, seed: u64) -> (u64, Option<String>) {
    let copy = |mappings: &mut Mappings| {
        let begin_ns = clock::now_ns();
        let done = (0..count).all(|nth| mappings.copy(nth * size, size));
        (clock::now_ns() - begin_ns, done)
    };
    copy(mappings);
    memory::fill_slice(part(mappings.source(), size * count), seed);
    let (took_ns, done) = copy(mappings);
    let copied = mappings.target().get(..size * count).unwrap_or_default();
    let reason = if done { memory::check_slice(copied, seed).err() } else { Some("out of range".to_owned()) };
    (took_ns, reason)
}

/// None: this system does not allow it.
fn by_process(
    client: &mut Client,
    process: &Process,
    address: u64,
    memory: &mut [u8],
    direction: Direction,
    size: u64,
    seed: u64,
) -> Outcome<Option<(u64, Option<String>)>> {
    let len = memory.len() as u64;
    let transfer = |memory: &mut [u8]| -> io::Result<u64> {
        let begin_ns = clock::now_ns();
        for (chunk, at) in memory.chunks_mut(size as usize).zip((address..).step_by(size as usize)) {
            match direction {
                Direction::Write => process.write(at, chunk)?,
                Direction::Read => process.read(at, chunk)?,
            }
        }
        Ok(clock::now_ns() - begin_ns)
    };
    if transfer(memory).is_err() {
        return Ok(None);
    }
    match direction {
        Direction::Write => memory::fill_slice(memory, seed),
        Direction::Read => {
            client.fill_theirs(seed, len)?;
            memory::fill_slice(memory, !seed);
        }
    }
    let took_ns =
        transfer(memory).map_err(|error| Failure::new(format!("plain process_vm_writev: {error}")))?;
    let reason = match direction {
        Direction::Write => client.check_theirs(seed, len)?,
        Direction::Read => memory::check_slice(memory, seed).err(),
    };
    Ok(Some((took_ns, reason)))
}

fn part(bytes: &mut [u8], len: usize) -> &mut [u8] {
    bytes.get_mut(..len).unwrap_or_default()
}

fn tcp_failed(error: io::Error) -> Failure {
    Failure::new(format!("a plain TCP stream, to compare with: {error}"))
}

impl Tcp {
    fn open(site: &Site, at: IpAddr, core: Option<usize>, len: usize) -> io::Result<Tcp> {
        let listener = site.in_peer_namespace(|| TcpListener::bind((at, 0)))?;
        let stream = TcpStream::connect(listener.local_addr()?)?;
        let (theirs, _) = listener.accept()?;
        for stream in [&stream, &theirs] {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
        }
        // It waits for its tasks as long as it takes.
        theirs.set_read_timeout(None)?;
        let other = thread::spawn(move || {
            if let Some(core) = core {
                cpu::pin(core).map_err(io::Error::other)?;
            }
            other_end(theirs, vec![0; len])
        });
        Ok(Tcp { stream, memory: vec![0; len], other: Some(other) })
    }

    /// Warm, and then timed: from the first byte to the word that all has come.
    fn run(&mut self, task: &Task) -> io::Result<(u64, Option<String>)> {
        self.once(&Task { seed: !task.seed, ..*task })?;
        self.once(task)
    }

    fn once(&mut self, task: &Task) -> io::Result<(u64, Option<String>)> {
        let memory = part(&mut self.memory, (task.size * task.count) as usize);
        let mut word = [0];
        match task.direction {
            Direction::Write => memory::fill_slice(memory, task.seed),
            Direction::Read => memory::fill_slice(memory, !task.seed),
        }
        self.stream.write_all(&task.encode())?;
        self.stream.read_exact(&mut word)?;
        let begin_ns = clock::now_ns();
        match task.direction {
            Direction::Write => {
                for chunk in memory.chunks(task.size as usize) {
                    self.stream.write_all(chunk)?;
                }
                self.stream.read_exact(&mut word)?;
            }
            Direction::Read => {
                self.stream.write_all(&word)?;
                self.stream.read_exact(memory)?;
            }
        }
        let took_ns = clock::now_ns() - begin_ns;
        let reason = match task.direction {
            Direction::Read => memory::check_slice(memory, task.seed).err(),
            Direction::Write => {
                self.stream.read_exact(&mut word)?;
                (word != [1]).then(|| "what came is not what was sent".to_owned())
            }
        };
        Ok((took_ns, reason))
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        // The other end sees the end of the stream, and ends.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        if let Some(other) = self.other.take() {
            let _ = other.join();
        }
    }
}

/// Does one task after the other, until this end closes.
fn other_end(mut stream: TcpStream, mut memory: Vec<u8>) -> io::Result<()> {
    let mut text = [0; Task::BYTES];
    while stream.read_exact(&mut text).is_ok() {
        let task = Task::decode(text);
        let memory = part(&mut memory, (task.size * task.count) as usize);
        match task.direction {
            Direction::Write => {
                stream.write_all(&[0])?;
                stream.read_exact(memory)?;
                stream.write_all(&[0])?;
                stream.write_all(&[u8::from(memory::check_slice(memory, task.seed).is_ok())])?;
            }
            Direction::Read => {
                memory::fill_slice(memory, task.seed);
                stream.write_all(&[0])?;
                stream.read_exact(&mut [0])?;
                for chunk in memory.chunks(task.size as usize) {
                    stream.write_all(chunk)?;
                }
            }
        }
    }
    Ok(())
}

impl Task {
    const BYTES: usize = 32;

    fn encode(&self) -> [u8; Task::BYTES] {
        let mut text = [0; Task::BYTES];
        let direction = u64::from(self.direction == Direction::Read);
        for (to, word) in text.chunks_exact_mut(8).zip([direction, self.size, self.count, self.seed]) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        text
    }

    fn decode(text: [u8; Task::BYTES]) -> Task {
        let word = |at: usize| text[at * 8..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let direction = if word(0) == 0 { Direction::Write } else { Direction::Read };
        Task { direction, size: word(1), count: word(2), seed: word(3) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_carries_tasks_both_ways() {
        let mut tcp = Tcp::open(&Site::same_host(), [127, 0, 0, 1].into(), None, 1 << 20).unwrap();
        for (direction, size, count) in [
            (Direction::Write, 8, 10),
            (Direction::Read, 8, 10),
            (Direction::Write, 1 << 20, 1),
            (Direction::Read, 1000, 99),
        ] {
            let (took_ns, reason) = tcp.run(&Task { direction, size, count, seed: 5 }).unwrap();
            assert_eq!((reason, took_ns > 0), (None, true), "{direction:?} {size}");
        }
    }

    #[test]
    fn copies_are_timed_and_right() {
        let mut mappings = Mappings::create(1 << 16).unwrap();
        let (took_ns, reason) = memcpy(&mut mappings, 1 << 12, 16, 3);
        assert_eq!((reason, took_ns > 0), (None, true));
        assert!(memcpy(&mut mappings, 1 << 16, 2, 3).1.is_some());
    }
}
