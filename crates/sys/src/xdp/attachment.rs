//! An endpoint's entries in the program's maps.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use super::bpf::{ANY, NO_EXIST};
use super::kinds::{Check, Mode, SteerCounters};
use super::program::{EndpointValue, Program};
use super::refusal::Refusal;
use super::socket::Socket;
use crate::error::SysError;
use crate::ethernet::{EndpointLock, Looker, Mac};
use crate::process::fork;

/// Sizes of the maps, as in `steer.c`.
const SLOTS: u32 = 256;
const ENDPOINTS: usize = 1_024;
const CONNECTIONS: usize = 262_144;

const NO_SLOT: u32 = u32::MAX;

/// An endpoint's slot in the program on its interface. Given up when dropped.
#[derive(Debug)]
pub struct Attachment {
    program: Program,
    endpoint: u32,
    value: EndpointValue,
    check: Check,
    /// How many connections were announced and not taken back.
    connections: usize,
    made_by: fork::Token,
}

impl Attachment {
    /// Takes the slot of the endpoint that `lock` holds, on the interface with that address. With a `socket`, frames
    /// that arrive on its queue go to its ring; all others pass, to the endpoint's packet socket. Clears away what
    /// processes have left that were killed.
    pub fn create(
        program: Program,
        lock: &EndpointLock,
        mac: Mac,
        socket: Option<&Socket>,
    ) -> Result<Attachment, Refusal> {
        clear(&program, lock.endpoint());
        let (slot, queue) = match socket {
            Some(socket) => (slot_for(&program, socket)?, socket.queue()),
            None => (NO_SLOT, 0),
        };
        let [low, high] = words_of(mac);
        let value = [slot, queue, low, high];
        let (endpoint, made_by) = (lock.endpoint(), fork::token());
        let attachment =
            Attachment { program, endpoint, value, check: Check::Nothing, connections: 0, made_by };
        attachment.write().map_err(|error| {
            Refusal::System(SysError::new("enter an endpoint in the map of an XDP program", error))
        })?;
        Ok(attachment)
    }

    fn write(&self) -> io::Result<()> {
        let [slot, queue, low, high] = self.value;
        let check = match self.check {
            Check::Nothing => 0,
            Check::Nonce => 1,
            Check::NonceAndId => 2,
        };
        self.program.endpoints.set(&self.endpoint, &[slot, queue, low, high | check << 16], ANY)
    }

    /// Chooses what is checked from now on. A system call.
    pub fn set_check(&mut self, check: Check) -> io::Result<()> {
        let before = std::mem::replace(&mut self.check, check);
        self.write().inspect_err(|_| self.check = before)
    }

    /// What is checked.
    pub fn check(&self) -> Check {
        self.check
    }

    /// Tells of a connection: index and generation by which the peer calls it, and the nonce that its frames must carry. A
    /// system call. If that fails (the map is full), ids are not checked any more: better some frames too many than a
    /// connection without frames.
    //= wire.md R-ETH-5
    pub fn connected(&mut self, index: u32, generation: u32, nonce: u64) -> io::Result<()> {
        let value = [nonce as u32, (nonce >> 32) as u32, generation, 0];
        match self.program.connections.set(&[self.endpoint, index], &value, ANY) {
            Ok(()) => {
                self.connections += 1;
                Ok(())
            }
            Err(error) => {
                // An older connection's nonce under this index would do the same harm.
                let _ = self.program.connections.remove(&[self.endpoint, index]);
                if self.check == Check::NonceAndId {
                    self.set_check(Check::Nonce)?;
                }
                Err(error)
            }
        }
    }

    /// Takes back what [`connected`](Attachment::connected) announced. A system call.
    pub fn disconnected(&mut self, index: u32) {
        if self.program.connections.remove(&[self.endpoint, index]).is_ok() {
            self.connections = self.connections.saturating_sub(1);
        }
    }

    /// Where the program runs.
    pub fn mode(&self) -> Mode {
        self.program.mode()
    }

    /// What the program has counted on this interface, for all endpoints.
    pub fn counters(&self) -> io::Result<SteerCounters> {
        self.program.counters()
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // A fork child drops a copy: the slot is its parent's, and the maps are everybody's.
        if !fork::same_process(self.made_by) {
            return;
        }
        let _ = self.program.endpoints.remove(&self.endpoint);
        // The socket's slot is emptied by the kernel when the socket is closed.
        if self.connections > 0 {
            remove_connections(&self.program, &[self.endpoint]);
        }
    }
}

/// A free slot with `socket` in it.
fn slot_for(program: &Program, socket: &Socket) -> Result<u32, Refusal> {
    let raw = socket.as_fd().as_raw_fd() as u32;
    for slot in 0..SLOTS {
        match program.sockets.set(&slot, &raw, NO_EXIST) {
            Ok(()) => return Ok(slot),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(Refusal::System(SysError::new(
                    "enter a socket in the map of an XDP program",
                    error,
                )));
            }
        }
    }
    Err(Refusal::NoQueue { queues: SLOTS })
}

/// Removes what belongs to nobody: endpoints without an owner, whatever was known under our number, and their
/// connections.
fn clear(program: &Program, ours: u32) {
    let mut looker = Looker::default();
    let mut is_stale = |endpoint: &u32| {
        // Its address is that of the interface when it took its slot.
        let held_by = program.endpoints.get(endpoint).map(mac_of);
        *endpoint == ours || held_by.is_ok_and(|mac| !looker.is_held(mac, *endpoint))
    };
    let stale: Vec<u32> = program.endpoints.keys(ENDPOINTS).into_iter().filter(&mut is_stale).collect();
    for endpoint in &stale {
        let _ = program.endpoints.remove(endpoint);
    }
    if !stale.is_empty() {
        remove_connections(program, &stale);
    }
}

/// An address as it stands in the value of an endpoint, below what is checked.
fn words_of([m0, m1, m2, m3, m4, m5]: Mac) -> [u32; 2] {
    [u32::from_le_bytes([m0, m1, m2, m3]), u32::from_le_bytes([m4, m5, 0, 0])]
}

fn mac_of([_, _, low, high]: EndpointValue) -> Mac {
    let ([m0, m1, m2, m3], [m4, m5, ..]) = (low.to_le_bytes(), high.to_le_bytes());
    [m0, m1, m2, m3, m4, m5]
}

fn remove_connections(program: &Program, of: &[u32]) {
    for key in program.connections.keys(CONNECTIONS) {
        let [endpoint, _] = key;
        if of.contains(&endpoint) {
            let _ = program.connections.remove(&key);
        }
    }
}
