//! Copies files from one process to another by remote memory: the receiver lends a few slots, the sender writes chunks
//! of the file into them, and the message that comes with each chunk says what it is. Both check the same checksum.
//!
//! `cargo run --release -p cci --example rma_copy -- receive DIRECTORY [DEVICE]` prints its URI and receives until
//! killed; `... send FILE URI` sends a file. A file that is there already is not touched.

use cci::{
    Access, Attribute, Connection, Context, Device, Endpoint, Event, Memory, Options, RegionHandle,
    Registration, Rma, RmaFlags, RmaKind, Segment, SendFlags, Status, TransportKind,
};
use crc32fast::Hasher;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Chunks under way at once, and bytes in each.
const SLOTS: usize = 8;
const CHUNK_BYTES: usize = 1 << 20;
/// Begins what the receiver says when it will not go on.
const REFUSED: &str = "refused: ";
const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["receive", directory] => receive(Path::new(directory), None),
        ["receive", directory, device] => receive(Path::new(directory), Some(device)),
        ["send", file, uri] => send(Path::new(file), uri),
        _ => Err("usage: rma_copy receive DIRECTORY [DEVICE] | send FILE URI".into()),
    }
}

/// What the sender says behind the data of each chunk, and of the whole file at the end. Nothing orders the messages of
/// different operations, so each says where its chunk belongs.
struct ChunkHead {
    /// Where it is; [`ChunkHead::END`]: the file is complete.
    slot: u64,
    /// Where it belongs in the file; of the end: the file's length.
    offset: u64,
    len_bytes: u64,
    /// Of these bytes; of the end: of all.
    checksum: u64,
}

impl ChunkHead {
    const END: u64 = u64::MAX;

    fn encode(&self) -> Vec<u8> {
        let words = [self.slot, self.offset, self.len_bytes, self.checksum];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn decode(message: &[u8]) -> Option<ChunkHead> {
        let word = |nth: usize| message.get(nth * 8..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        Some(ChunkHead { slot: word(0)?, offset: word(1)?, len_bytes: word(2)?, checksum: word(3)? })
    }
}

// ---- the receiver

/// A file on its way.
struct Incoming {
    file: File,
    /// Its name until it is complete.
    part: PathBuf,
    name: PathBuf,
    slots: Memory,
    handle: RegionHandle,
    /// By the offset of each chunk.
    checksums: BTreeMap<u64, Hasher>,
}

fn receive(directory: &Path, device: Option<&str>) -> Result<()> {
    let context = Context::new()?;
    let device = match device {
        Some(name) => context.device(name).ok_or_else(|| format!("no device {name}"))?,
        None => context.default_device(),
    };
    let mut endpoint = Endpoint::create(device, Options::default())?;
    println!("{}", endpoint.uri());
    let mut names = HashMap::new();
    let mut incoming: HashMap<Connection, Incoming> = HashMap::new();
    for number in 0.. {
        match endpoint.wait(Some(Duration::from_secs(1)))? {
            Some(Event::ConnectRequest(request)) => {
                names.insert(number, String::from_utf8_lossy(request.data()).into_owned());
                endpoint.accept(request, number)?;
            }
            Some(Event::Accept { context, result }) => {
                let name = names.remove(&context).unwrap_or_default();
                let Ok(from) = result else { continue };
                match begin(&mut endpoint, directory, &name, from) {
                    Ok(file) => {
                        endpoint.send(from, &file.handle.to_bytes(), 0, SendFlags::SILENT)?;
                        incoming.insert(from, file);
                    }
                    Err(why) => refuse(&mut endpoint, from, &format!("{name}: {why}")),
                }
            }
            Some(Event::Recv(message)) => {
                let from = message.connection();
                let Some(file) = incoming.get_mut(&from) else { continue };
                match take(file, &message) {
                    // The slot is free again; at the end, the sender is told that all is well.
                    Ok(_) => drop(endpoint.send(from, &message, 0, SendFlags::SILENT)),
                    Err(why) => refuse(&mut endpoint, from, &why.to_string()),
                }
            }
            // A sender that is done, or gone: exactly once for each.
            Some(Event::Disconnected { connection, .. }) => {
                if let Some(file) = incoming.remove(&connection) {
                    endpoint.deregister(&file.handle)?;
                    // There is none where the file was completed.
                    let _ = std::fs::remove_file(&file.part);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn begin(endpoint: &mut Endpoint, directory: &Path, name: &str, from: Connection) -> Result<Incoming> {
    // A name alone: nothing leads out of the directory.
    let plain = Path::new(name).file_name().filter(|plain| *plain == name).ok_or("not a file's name")?;
    let name = directory.join(plain);
    if name.exists() {
        return Err("there already".into());
    }
    let part = directory.join(format!("{}.part", plain.to_string_lossy()));
    let file = File::create_new(&part)?;
    let slots = endpoint.allocate(SLOTS * CHUNK_BYTES)?;
    // For this sender alone, whoever learns the handle.
    let what = Registration { range: None, access: Access::WRITE, only: Some(from) };
    let handle = endpoint.register(&slots, what)?;
    Ok(Incoming { file, part, name, slots, handle, checksums: BTreeMap::new() })
}

/// Takes a chunk, whose data is there since its message is. At the end, gives the file its name.
fn take(incoming: &mut Incoming, message: &[u8]) -> Result<()> {
    let chunk = ChunkHead::decode(message).ok_or("a message that makes no sense")?;
    if chunk.slot == ChunkHead::END {
        return end(incoming, &chunk);
    }
    let at = usize::try_from(chunk.slot)?.checked_mul(CHUNK_BYTES).ok_or("no such slot")?;
    let mut bytes = vec![0; usize::try_from(chunk.len_bytes)?.min(CHUNK_BYTES)];
    if !incoming.slots.read(at, &mut bytes) {
        return Err("no such slot".into());
    }
    let mut hasher = Hasher::new();
    hasher.update(&bytes);
    if u64::from(hasher.clone().finalize()) != chunk.checksum {
        return Err("the checksums of a chunk differ".into());
    }
    incoming.checksums.insert(chunk.offset, hasher);
    Ok(incoming.file.write_all_at(&bytes, chunk.offset)?)
}

fn end(incoming: &mut Incoming, end: &ChunkHead) -> Result<()> {
    let mut all = Hasher::new();
    incoming.checksums.values().for_each(|chunk| all.combine(chunk));
    if u64::from(all.finalize()) != end.checksum || incoming.file.metadata()?.len() != end.offset {
        return Err("the file is not what was sent".into());
    }
    incoming.file.sync_all()?;
    Ok(std::fs::rename(&incoming.part, &incoming.name)?)
}

fn refuse(endpoint: &mut Endpoint, to: Connection, why: &str) {
    // One that is gone needs no answer.
    let _ = endpoint.send(to, format!("{REFUSED}{why}").as_bytes(), 0, SendFlags::SILENT);
}

/// What the receiver says, unless it is bad news.
fn good_news(message: &[u8]) -> Result<&[u8]> {
    match message.strip_prefix(REFUSED.as_bytes()) {
        Some(why) => Err(String::from_utf8_lossy(why).into()),
        None => Ok(message),
    }
}

// ---- the sender

fn send(path: &Path, uri: &str) -> Result<()> {
    let mut file = File::open(path)?;
    let name = path.file_name().ok_or("not a file")?.to_string_lossy().into_owned();
    let bar = ProgressBar::new(file.metadata()?.len());
    bar.set_style(ProgressStyle::with_template(
        "{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left",
    )?);

    let context = Context::new()?;
    let mut endpoint = Endpoint::create(towards(&context, uri)?, Options::default())?;
    endpoint.connect(uri, name.as_bytes(), Attribute::ReliableOrdered, 0, PATIENCE)?;
    let (to, slots) = lent(&mut endpoint)?;
    let memory = endpoint.allocate(SLOTS * CHUNK_BYTES)?;
    let local = endpoint.register(&memory, Access::LOCAL)?;

    let (mut hasher, mut sent_bytes) = (Hasher::new(), 0);
    let mut slots = Slots { lent: slots, pending: [0; SLOTS] };
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let bytes = read_chunk(&mut file, &mut buffer)?;
        if bytes.is_empty() {
            break;
        }
        let slot = slots.take(&mut endpoint)?;
        let mut own = Hasher::new();
        own.update(bytes);
        hasher.combine(&own);
        let (offset, len_bytes) = (slot * CHUNK_BYTES as u64, bytes.len() as u64);
        assert!(memory.write(offset as usize, bytes), "a slot is as long as a chunk");
        let checksum = own.finalize().into();
        let message = ChunkHead { slot, offset: sent_bytes, len_bytes, checksum }.encode();
        let write = Rma {
            kind: RmaKind::Write,
            local: &[Segment::new(local, offset, len_bytes)],
            remote: &[Segment::new(slots.lent, offset, len_bytes)],
            message: Some(&message),
            context: slot,
            flags: RmaFlags::NONE,
        };
        start(&mut endpoint, to, &write)?;
        sent_bytes += len_bytes;
        bar.inc(len_bytes);
    }
    // A message by itself would overtake the chunks.
    while slots.pending != [0; SLOTS] {
        slots.settle(&mut endpoint)?;
    }
    let checksum = hasher.clone().finalize().into();
    let end = ChunkHead { slot: ChunkHead::END, offset: sent_bytes, len_bytes: 0, checksum };
    endpoint.send(to, &end.encode(), 0, SendFlags::SILENT)?;
    while slots.settle(&mut endpoint)? != ChunkHead::END {}
    bar.finish_and_clear();
    println!("{name}: {sent_bytes} bytes, crc32 {:08x}", hasher.finalize());
    endpoint.close(Duration::from_secs(1));
    Ok(())
}

/// The receiver's slots, and ours beside them.
struct Slots {
    lent: RegionHandle,
    /// What each waits for before it is used again: the completion, until which its bytes here must stay, and the word
    /// of the receiver that it has written them away.
    pending: [u8; SLOTS],
}

impl Slots {
    /// A free one, taken.
    fn take(&mut self, endpoint: &mut Endpoint) -> Result<u64> {
        loop {
            if let Some(free) = self.pending.iter().position(|&pending| pending == 0) {
                self.pending[free] = 2;
                return Ok(free as u64);
            }
            self.settle(endpoint)?;
        }
    }

    /// Waits until something happens to one; which, or [`ChunkHead::END`].
    fn settle(&mut self, endpoint: &mut Endpoint) -> Result<u64> {
        let slot = loop {
            match endpoint.wait(PATIENCE)? {
                Some(Event::Recv(message)) => {
                    let chunk = ChunkHead::decode(good_news(&message)?);
                    break chunk.ok_or("an answer that makes no sense")?.slot;
                }
                Some(Event::Send { status: Status::Success, context, .. }) => break context,
                Some(Event::Send { status, .. }) => {
                    return Err(format!("a chunk was not written: {status}").into());
                }
                Some(_) => {}
                None => return Err("the receiver does not answer".into()),
            }
        };
        if let Some(pending) = self.pending.get_mut(slot as usize) {
            *pending = pending.saturating_sub(1);
        }
        Ok(slot)
    }
}

/// Starts an operation when there is room. With so few under way there always is, unless others share the endpoint.
fn start(endpoint: &mut Endpoint, to: Connection, rma: &Rma<'_>) -> Result<()> {
    loop {
        match endpoint.rma(to, rma) {
            Err(cci::RmaError::WouldBlock) => endpoint.progress(),
            other => return Ok(other?),
        }
    }
}

/// The connection, and the slots that the receiver lends.
fn lent(endpoint: &mut Endpoint) -> Result<(Connection, RegionHandle)> {
    let mut to = None;
    loop {
        match endpoint.wait(PATIENCE)? {
            Some(Event::Connect { result, .. }) => to = Some(result?),
            Some(Event::Recv(message)) => {
                let handle = RegionHandle::from_message(good_news(&message)?);
                return Ok((to.ok_or("not connected")?, handle.ok_or("no handle")?));
            }
            Some(_) => {}
            None => return Err("the receiver does not answer".into()),
        }
    }
}

/// As much as there is, up to a chunk.
fn read_chunk<'a>(file: &mut File, buffer: &'a mut [u8]) -> Result<&'a [u8]> {
    let mut len = 0;
    while len < buffer.len() {
        match file.read(&mut buffer[len..])? {
            0 => break,
            more => len += more,
        }
    }
    Ok(&buffer[..len])
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
