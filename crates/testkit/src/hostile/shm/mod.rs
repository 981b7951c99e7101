//! A hostile peer that speaks shared memory: the UNIX socket with its descriptors, both rings, and grants.
//!
//! [`client`] is a script up to the open connection. It reads and writes the rings as files, so that it needs no mapping.

mod files;
mod ring;
mod wire;

pub use files::{Memfd, allocated_bytes};
pub use ring::{DIRECT_AT, Ring};
pub use wire::{Grant, Kind, Record, Shake, VERSION, rma};

use super::script::{Act, Script, Site, Wire, act};
use cci_sys::event::EventFd;
use cci_sys::unix::{Name, Received, Stream};
use rustix::process::{Gid, Uid};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Data of the ring that this peer reads.
const RING_BYTES: u32 = 32 << 10;
const BUFFER_BYTES: usize = 2_048;

/// The state of a hostile peer on shared memory.
pub struct Shm {
    /// Where the victim listens.
    name: Name,
    /// The socket, once it is connected.
    pub socket: Option<Stream>,
    /// What is known of the handshake.
    pub shake: Shake,
    /// Region and key of the victim's region.
    pub region: [u64; 2],
    /// The victim's connection: index and generation.
    pub theirs: [u32; 2],
    /// The ring that the victim reads, and what waits for space in it.
    pub write: Option<Ring>,
    waiting: VecDeque<Record>,
    /// The ring that this peer reads.
    pub read: Option<Ring>,
    bell: EventFd,
    peer_bell: Option<EventFd>,
    /// The record that came last.
    pub record: Record,
    /// The grants that came.
    pub grants: Vec<Grant>,
    /// What was handed over, so that a test can look at it.
    pub files: Vec<OwnedFd>,
    needs_bell: bool,
}

impl Wire for Shm {
    type Kind = Kind;

    fn open(site: &Site) -> io::Result<Shm> {
        // Behind `shm://`, or in the list of an endpoint with several transports.
        let index = ["shm://", "shm="].iter().find_map(|before| Some(site.uri.split_once(before)?.1));
        let index = index.unwrap_or_default().split(',').next().unwrap_or_default();
        let handle = site.region.to_bytes();
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| handle[at + byte]));
        let shake = Shake {
            version: VERSION,
            endpoint: site.number,
            conn: [7, 9],
            message_bytes_max: 4_096,
            attribute: 0,
            payload: site.request(),
            ring_bytes: RING_BYTES,
        };
        Ok(Shm {
            name: Name::Abstract(format!("cci/{index}").into_bytes()),
            socket: None,
            shake,
            region: [word(0), word(16)],
            theirs: [0; 2],
            write: None,
            waiting: VecDeque::new(),
            read: None,
            bell: EventFd::new().map_err(io::Error::from)?,
            peer_bell: None,
            record: Record::default(),
            grants: Vec::new(),
            files: Vec::new(),
            needs_bell: false,
        })
    }

    fn take(&mut self) -> Option<Kind> {
        if let Some(record) = self.read.as_mut().and_then(Ring::take) {
            if let Some(ring) = &self.read {
                ring.publish();
            }
            self.needs_bell = true;
            let kind = Kind::of_record(record.kind, &record.payload);
            self.record = record;
            return Some(kind);
        }
        self.take_message()
    }

    fn flush(&mut self) {
        let Some(ring) = &mut self.write else { return };
        while self.waiting.front().is_some_and(|record| ring.push(record)) {
            self.waiting.pop_front();
            self.needs_bell = true;
        }
        if self.needs_bell
            && ring.take_attention()
            && let Some(bell) = &self.peer_bell
        {
            let _ = bell.signal();
        }
        self.needs_bell = false;
    }
}

impl Shm {
    fn take_message(&mut self) -> Option<Kind> {
        let mut buffer = [0; BUFFER_BYTES];
        let Received { len, mut fds } = self.socket.as_ref()?.recv(&mut buffer, 2).ok()?;
        if len == 0 {
            self.socket = None;
            return Some(Kind::End);
        }
        let message = &buffer[..len];
        if let Some(grant) = Grant::read(message) {
            self.files.extend([0, 1].into_iter().filter_map(|index| fds.take(index)));
            self.grants.push(grant);
            return Some(Kind::Grant);
        }
        let kind = Kind::of_message(message.get(5).copied().unwrap_or(0));
        if kind == Kind::Accept {
            let word = |at: usize| message[at..].first_chunk().map_or(0, |word| u32::from_ne_bytes(*word));
            self.theirs = [word(24), word(28)];
            if let (Some(ring), Some(bell)) = (fds.take(0), fds.take(1)) {
                self.write = Some(Ring::new(ring, word(36)));
                self.peer_bell = EventFd::from_peer(bell).ok();
            }
        }
        Some(kind)
    }

    fn message(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
        if let Some(socket) = &self.socket {
            // A victim that has closed hears nothing.
            let _ = socket.send(bytes, fds);
        }
    }

    /// A record as an honest peer fills it in: about the open connection, with the right acknowledgement.
    pub fn honest_record(&self, kind: Kind) -> Record {
        let [conn, generation] = self.theirs;
        let ack = self.read.as_ref().map_or(0, Ring::lines);
        Record { kind: kind.number(), flags: generation as u8, conn, ack, ..Record::default() }
    }
}

/// Connects to the victim's socket.
pub fn connect() -> Act<Shm> {
    act(|shm: &mut Shm| shm.socket = Stream::connect(&shm.name).ok())
}

/// Connects as another user of the host, which the kernel shows the victim.
pub fn connect_as(uid: u32) -> Act<Shm> {
    act(move |shm: &mut Shm| {
        let name = shm.name.clone();
        // Only this thread changes, and it ends.
        let thread = std::thread::spawn(move || {
            rustix::thread::set_thread_groups(&[]).ok()?;
            let (gid, uid) = (Gid::from_raw(uid), Uid::from_raw(uid));
            rustix::thread::set_thread_res_gid(gid, gid, gid).ok()?;
            rustix::thread::set_thread_res_uid(uid, uid, uid).ok()?;
            Stream::connect(&name).ok()
        });
        shm.socket = thread.join().ok().flatten();
    })
}

/// Sends a message of the handshake without descriptors.
pub fn shake(kind: Kind, falsify: impl Fn(&mut Shake) + 'static) -> Act<Shm> {
    act(move |shm: &mut Shm| {
        let mut shake = shm.shake.clone();
        falsify(&mut shake);
        shm.message(&shake.bytes(kind), &[]);
    })
}

/// Confirms a new link, with a ring in this file; an honest peer's is [`Memfd::honest`] of [`Ring::file_bytes`].
pub fn confirm(ring: Memfd) -> Act<Shm> {
    act(move |shm: &mut Shm| {
        let (file, bell) = (ring.make(), shm.bell.as_fd());
        shm.message(&shm.shake.bytes(Kind::ConfirmLink), &[file.as_fd(), bell]);
        shm.read = Some(Ring::new(file, shm.shake.ring_bytes));
    })
}

/// Sends a record through the ring.
pub fn send(kind: Kind, falsify: impl Fn(&mut Record) + 'static) -> Act<Shm> {
    act(move |shm: &mut Shm| {
        let mut record = shm.honest_record(kind);
        if let Kind::Rma(number) = kind {
            record.payload = vec![number, 0, 0, 0, 0, 0, 0, 0];
        }
        falsify(&mut record);
        shm.waiting.push_back(record);
        shm.flush();
    })
}

/// The file in which a peer of this kind grants a region.
#[derive(Copy, Clone, Debug)]
pub enum Granted {
    /// Memory of its own.
    Memory(Memfd),
    /// The control page itself, with the live words of all grants.
    ControlPage,
}

/// The number of the live word of a peer's grants.
pub const LIVE_WORD: u64 = 1;
const CONTROL_BYTES: u64 = 4_096;

/// Grants the region that the victim's last MAP names. An honest grant has `Memfd::honest` memory.
pub fn grant(what: Granted, falsify: impl Fn(&mut Grant) + 'static) -> Act<Shm> {
    act(move |shm: &mut Shm| {
        let word = |at: usize| {
            shm.record
                .payload
                .get(at..)
                .and_then(|rest| rest.first_chunk())
                .map_or(0, |word| u64::from_ne_bytes(*word))
        };
        let token = 77;
        let len_bytes = match what {
            Granted::Memory(memory) => memory.len_bytes,
            Granted::ControlPage => CONTROL_BYTES,
        };
        let mut grant = Grant {
            region: word(0),
            key: word(8),
            only: u64::MAX,
            access: 7,
            content: 0,
            memory: 5,
            memory_bytes: len_bytes,
            start: 0,
            len_bytes,
            word: LIVE_WORD,
            token,
            control_bytes: CONTROL_BYTES,
        };
        falsify(&mut grant);
        let control = Memfd::honest(CONTROL_BYTES).make();
        let _ = rustix::io::pwrite(&control, &token.to_ne_bytes(), 8 * LIVE_WORD);
        let file = match what {
            Granted::Memory(memory) => memory.make(),
            Granted::ControlPage => control.try_clone().expect("a descriptor"),
        };
        shm.message(&grant.bytes(), &[file.as_fd(), control.as_fd()]);
        shm.files.extend([file, control]);
    })
}

/// As the message or record says.
pub fn honestly<T>(_: &mut T) {}

/// A client up to the open connection.
pub fn client() -> Script<Shm> {
    client_by(connect())
}

/// A client up to the open connection, which connects by `connect`.
pub fn client_by(connect: Act<Shm>) -> Script<Shm> {
    let script = Script::new().now(connect).now(shake(Kind::Request, honestly)).expect(Kind::Accept);
    script.now(confirm(Memfd::honest(Ring::file_bytes(RING_BYTES))))
}
