//! A table of counters in a server's memory. Its clients find, make and raise them by atomics and reads alone: the
//! server's program lends the memory, takes clients, and has no part in what they do.
//!
//! `cargo run --release -p cci --example kv_table -- serve [DEVICE]` prints its URI and serves until killed;
//! `... add URI THREADS ADDS` raises counters from so many threads at once, and checks one of its own for each;
//! `... list URI` prints them all.

use cci::{
    Access, Atomic, AtomicKind, AtomicWidth, Attribute, Connection, Context, Device, Endpoint, Event, Memory,
    Options, RegionAddress, RegionHandle, Rma, RmaFlags, RmaKind, Segment, SendFlags, Status, TransportKind,
};
use std::error::Error;
use std::thread;
use std::time::Duration;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Slots of the table; each is a key, 0 while nobody has it, and its counter.
const SLOTS: u64 = 256;
const SLOT_BYTES: u64 = 16;
const TABLE_BYTES: usize = (SLOTS * SLOT_BYTES) as usize;
/// What all clients count.
const FRUIT: [&str; 8] = ["apple", "banana", "cherry", "damson", "elder", "fig", "grape", "hazel"];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["serve"] => serve(None),
        ["serve", device] => serve(Some(device)),
        ["add", uri, threads, adds] => add(uri, threads.parse()?, adds.parse()?),
        ["list", uri] => list(uri),
        _ => Err("usage: kv_table serve [DEVICE] | add URI THREADS ADDS | list URI".into()),
    }
}

fn serve(device: Option<&str>) -> Result<()> {
    let context = Context::new()?;
    let device = match device {
        Some(name) => context.device(name).ok_or_else(|| format!("no device {name}"))?,
        None => context.default_device(),
    };
    let mut endpoint = Endpoint::create(device, Options::default())?;
    let table = endpoint.allocate(TABLE_BYTES)?;
    // Nobody may write it but by atomics, so that no client can tear what another one counts.
    let handle = endpoint.register(&table, Access::READ | Access::ATOMIC)?;
    println!("{}", endpoint.uri());
    loop {
        match endpoint.wait(None)? {
            Some(Event::ConnectRequest(request)) => endpoint.accept(request, 0)?,
            // The handle is plain bytes: a message carries it.
            Some(Event::Accept { result: Ok(client), .. }) => {
                endpoint.send(client, &handle.to_bytes(), 0, SendFlags::SILENT)?;
            }
            // A word from a client is its last.
            Some(Event::Recv(message)) => endpoint.disconnect(message.connection()),
            _ => {}
        }
    }
}

fn add(uri: &str, threads: usize, adds: u64) -> Result<()> {
    let clients: Vec<_> = (0..threads)
        .map(|index| {
            let uri = uri.to_owned();
            thread::spawn(move || count(&uri, index, adds))
        })
        .collect();
    for client in clients {
        client.join().map_err(|_| "a client panicked")??;
    }
    println!("{} additions done", adds * threads as u64);
    Ok(())
}

/// Raises the common counters in turn, and as often one that nobody else knows, whose value can be checked.
fn count(uri: &str, index: usize, adds: u64) -> Result<()> {
    let mut table = Table::open(uri)?;
    let own = format!("{:x}.{index}", std::process::id());
    for number in 0..adds {
        table.add(FRUIT[(number % 8) as usize], 1)?;
        if table.add(&own, 1)? != number {
            return Err(format!("{own}: somebody else counted there").into());
        }
    }
    if table.get(&own)? != Some(adds) {
        return Err(format!("{own} is {:?} instead of {adds}", table.get(&own)?).into());
    }
    table.close()
}

fn list(uri: &str) -> Result<()> {
    let mut table = Table::open(uri)?;
    for (key, value) in table.all()? {
        println!(
            "{} {value}",
            String::from_utf8_lossy(key.to_le_bytes().trim_ascii_end()).trim_end_matches('\0')
        );
    }
    table.close()
}

/// A table in another process.
struct Table {
    endpoint: Endpoint,
    server: Connection,
    table: RegionHandle,
    /// Where results and slots come to.
    memory: Memory,
    local: RegionHandle,
}

impl Table {
    fn open(uri: &str) -> Result<Table> {
        let context = Context::new()?;
        let mut endpoint = Endpoint::create(towards(&context, uri)?, Options::default())?;
        endpoint.connect(uri, b"", Attribute::ReliableOrdered, 0, Some(Duration::from_secs(10)))?;
        let (mut server, mut table) = (None, None);
        while table.is_none() {
            match endpoint.wait(Some(Duration::from_secs(10)))? {
                Some(Event::Connect { result, .. }) => server = Some(result?),
                Some(Event::Recv(message)) => table = RegionHandle::from_message(&message),
                Some(_) => {}
                None => return Err("the server lends no table".into()),
            }
        }
        let memory = endpoint.allocate(TABLE_BYTES)?;
        let local = endpoint.register(&memory, Access::LOCAL)?;
        let (server, table) = server.zip(table).ok_or("not connected")?;
        Ok(Table { endpoint, server, table, memory, local })
    }

    /// Raises the counter of a key, which is made if nobody has it yet. What it was before.
    fn add(&mut self, key: &str, by: u64) -> Result<u64> {
        let key = word(key)?;
        for slot in probe(key) {
            // Who comes first has the slot; the result says who that was.
            let owner = self.atomic(AtomicKind::CompareSwap, slot * SLOT_BYTES, key, 0)?;
            if owner == 0 || owner == key {
                return self.atomic(AtomicKind::FetchAdd, slot * SLOT_BYTES + 8, by, 0);
            }
        }
        Err("the table is full".into())
    }

    /// The counter of a key; None: nobody has made it.
    fn get(&mut self, key: &str) -> Result<Option<u64>> {
        let key = word(key)?;
        for slot in probe(key) {
            self.read(slot * SLOT_BYTES, SLOT_BYTES)?;
            match self.word(0) {
                0 => return Ok(None),
                owner if owner == key => return Ok(Some(self.word(8))),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Every key with its counter, in one read. Others may count meanwhile.
    fn all(&mut self) -> Result<Vec<(u64, u64)>> {
        self.read(0, TABLE_BYTES as u64)?;
        let slots = (0..TABLE_BYTES).step_by(SLOT_BYTES as usize);
        Ok(slots.map(|at| (self.word(at), self.word(at + 8))).filter(|&(key, _)| key != 0).collect())
    }

    fn atomic(&mut self, kind: AtomicKind, offset: u64, operand: u64, compare: u64) -> Result<u64> {
        let atomic = Atomic { kind, width: AtomicWidth::Eight, operand, compare };
        let (target, result) = (RegionAddress::new(self.table, offset), RegionAddress::new(self.local, 0));
        succeeded(self.endpoint.atomic_blocking(
            self.server,
            atomic,
            target,
            Some(result),
            RmaFlags::NONE,
        )?)?;
        Ok(self.word(0))
    }

    fn read(&mut self, offset: u64, len_bytes: u64) -> Result<()> {
        let read = Rma {
            kind: RmaKind::Read,
            local: &[Segment::new(self.local, 0, len_bytes)],
            remote: &[Segment::new(self.table, offset, len_bytes)],
            message: None,
            context: 0,
            flags: RmaFlags::NONE,
        };
        succeeded(self.endpoint.rma_blocking(self.server, &read)?)
    }

    /// A word of what came last.
    fn word(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        assert!(self.memory.read(at, &mut bytes), "within the memory");
        u64::from_le_bytes(bytes)
    }

    fn close(mut self) -> Result<()> {
        self.endpoint.send(self.server, b"bye", 0, SendFlags::SILENT)?;
        self.endpoint.close(Duration::from_secs(1));
        Ok(())
    }
}

fn succeeded(status: Status) -> Result<()> {
    if status == Status::Success { Ok(()) } else { Err(format!("an operation ended with: {status}").into()) }
}

/// A key of up to 8 bytes as a word, which is not 0.
fn word(key: &str) -> Result<u64> {
    let mut bytes = [0; 8];
    let into = bytes.get_mut(..key.len()).filter(|into| !into.is_empty());
    into.ok_or("a key has 1 to 8 bytes")?.copy_from_slice(key.as_bytes());
    Ok(u64::from_le_bytes(bytes))
}

/// The slots where a key may be, in the order in which they are tried.
fn probe(key: u64) -> impl Iterator<Item = u64> {
    let first = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    (0..SLOTS).map(move |step| (first + step) % SLOTS)
}

/// The device that leads to a URI.
fn towards<'a>(context: &'a Context, uri: &str) -> Result<&'a Device> {
    let kind = if uri.starts_with("shm:") { TransportKind::Shm } else { TransportKind::Udp };
    let leads = |device: &&Device| {
        let is_loopback = device.ip().is_some_and(|ip| ip.is_loopback());
        device.is_up() && device.transport() == kind && is_loopback == uri.starts_with("udp://127.")
    };
    Ok(context.devices().iter().find(leads).ok_or("no device leads there")?)
}
