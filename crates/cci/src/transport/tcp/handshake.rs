//! Streams that are no connection's yet: of clients that have not said what they want or not proved who they are, and second
//! streams being made.

use super::counts::Fault;
use super::pipe::{self, Pipe, Refusal, SHAKING_BYTES};
use super::preamble::{PREAMBLE_BYTES_MAX, Preamble};
use super::{CLIENTS_MAX, SILENCE_NS_MIN, Tcp};
use crate::DisconnectReason;
use crate::engine::core::Core;
use crate::options::Attribute;
use crate::transport::crowd::oldest_of_most;
use crate::transport::quota::Host;
use crate::transport::token;
use cci_memory::slab::{Key, Slab};
use cci_secure::{Challenge, NONCE_BYTES};
use cci_sys::event::Interest;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::AsFd;

/// Streams that are no connection's yet.
const HANDSHAKES_MAX: u32 = 64 << 10;

/// What a client wants.
#[derive(Copy, Clone, Debug)]
pub(super) struct Wanted {
    pub attribute: Attribute,
    pub mss: u32,
}

/// A stream whose peer has not said all that makes it a connection's.
pub(super) struct Handshake {
    pub stream: Pipe,
    /// Whom it comes from; None: this side has dialled it.
    pub peer: Option<SocketAddr>,
    /// When it began, and when it ends whatever the peer sends.
    pub since_ns: u64,
    pub until_ns: u64,
    /// What was read so far of the peer's preamble, or what of this side's is to be written.
    pub bytes: Vec<u8>,
    pub stage: Stage,
}

pub(super) enum Stage {
    /// A client that has not said HELLO, nor BULK.
    Silent,
    /// A client whose HELLO was heard, and whose request follows.
    Heard(Wanted),
    /// A client whose request waits until fewer of its host's are with the program.
    Waiting { wanted: Wanted, payload: Vec<u8>, was_heard: bool },
    /// A client that wants a second stream for this connection, and was asked to prove that it may.
    Challenged { conn: Key, challenge: Challenge },
    /// Our second stream, being connected.
    Dialled { conn: Key, nonce: [u8; NONCE_BYTES] },
    /// Our second stream is to be proved by the peer first.
    Named { conn: Key, nonce: [u8; NONCE_BYTES] },
}

impl Stage {
    /// A client has begun it; otherwise it is of a second stream that this side has dialled.
    pub fn is_client(&self) -> bool {
        match self {
            Stage::Silent | Stage::Heard(_) | Stage::Waiting { .. } | Stage::Challenged { .. } => true,
            Stage::Dialled { .. } | Stage::Named { .. } => false,
        }
    }

    /// It waits for the program to decide on others.
    pub fn is_waiting(&self) -> bool {
        matches!(self, Stage::Waiting { .. })
    }
}

/// All handshakes of an endpoint.
pub(super) struct Handshakes {
    table: Slab<Handshake>,
    /// Handshakes that clients have begun.
    clients: u32,
}

impl Handshakes {
    pub fn new() -> Handshakes {
        Handshakes { table: Slab::new(HANDSHAKES_MAX), clients: 0 }
    }

    /// `None`: there are too many, and the stream is closed.
    pub fn insert(&mut self, handshake: Handshake) -> Option<Key> {
        let is_client = handshake.stage.is_client();
        let key = self.table.insert(handshake).ok()?;
        self.clients += u32::from(is_client);
        Some(key)
    }

    pub fn remove(&mut self, key: Key) -> Option<Handshake> {
        let handshake = self.table.remove(key)?;
        self.clients -= u32::from(handshake.stage.is_client());
        Some(handshake)
    }

    pub fn get(&self, key: Key) -> Option<&Handshake> {
        self.table.get(key)
    }

    pub fn get_mut(&mut self, key: Key) -> Option<&mut Handshake> {
        self.table.get_mut(key)
    }

    pub fn key_at(&self, index: u32) -> Option<Key> {
        self.table.key_at(index)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Key, &Handshake)> {
        self.table.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Clients whose streams shake hands.
    fn shaking(&self) -> impl Iterator<Item = (Key, &Handshake)> {
        self.table
            .iter()
            .filter(|(_, handshake)| handshake.stage.is_client() && handshake.stream.is_shaking())
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        let said: usize = self.table.iter().map(|(_, handshake)| handshake.bytes.capacity()).sum();
        (self.table.bytes() + said) as u64 + self.shaking().count() as u64 * SHAKING_BYTES
    }
}

/// Why nothing was read.
pub(super) enum Unread {
    /// The peer has closed, or died.
    Gone,
    /// One side did not prove to be somebody whom the other wants.
    Refused(Refusal),
    /// Something came that the peer has not sealed.
    Forged,
    Fault,
}

impl Unread {
    /// What is counted of it.
    fn fault(&self) -> Option<Fault> {
        match self {
            Unread::Gone => None,
            Unread::Refused(refusal) => Some(refusal.fault),
            Unread::Forged => Some(Fault::Forged),
            Unread::Fault => Some(Fault::Handshake),
        }
    }
}

/// Reads one preamble record, and no byte behind it. `None`: it has not come whole.
pub(super) fn read_preamble(stream: &mut Pipe, bytes: &mut Vec<u8>) -> Result<Option<Preamble>, Unread> {
    loop {
        //= wire.md R-TCP-2
        let needed = match Preamble::parse(bytes) {
            Ok(said) => {
                bytes.clear();
                return Ok(Some(said));
            }
            Err(Some(needed)) => needed.min(PREAMBLE_BYTES_MAX),
            Err(None) => return Err(Unread::Fault),
        };
        let have = bytes.len();
        bytes.resize(needed, 0);
        let got = stream.recv(bytes.get_mut(have..).unwrap_or_default());
        bytes.truncate(have + got.as_ref().map_or(0, |len| *len));
        match got {
            Ok(0) => return Err(Unread::Gone),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) if pipe::is_forgery(&error) => return Err(Unread::Forged),
            Err(error) => return Err(pipe::refusal(&error).map_or(Unread::Gone, Unread::Refused)),
        }
    }
}

/// The oldest of the host that has the most, and when it came.
fn oldest_by_host<'a>(handshakes: impl Iterator<Item = (Key, &'a Handshake)>) -> Option<(Key, u64)> {
    oldest_of_most(
        handshakes.map(|(key, handshake)| (handshake.peer.map(Host::from), handshake.since_ns, key)),
    )
}

impl Tcp {
    pub(super) fn watch_handshake(&mut self, core: &mut Core, key: Key, interest: Interest) {
        let Some(handshake) = self.handshakes.get(key) else { return };
        let token = token::make(token::HAND, key);
        if core.poller.watch(handshake.stream.as_fd(), token).is_err() {
            return self.end_handshake(core, key, None);
        }
        if interest != Interest::Read {
            core.poller.rewatch(handshake.stream.as_fd(), token, interest);
        }
    }

    /// The kernel reports the stream of a handshake.
    pub(super) fn handshake_ready(&mut self, core: &mut Core, key: Key) {
        let shakes = |handshake: &Handshake| handshake.stage.is_client() && handshake.stream.is_shaking();
        if self.handshakes.get(key).is_some_and(shakes) {
            // Where too many go on at once, the kernel tells of the others again.
            let Some(left) = self.shakes_left.checked_sub(1) else { return };
            self.shakes_left = left;
        }
        match self.handshakes.get(key).map(|handshake| &handshake.stage) {
            Some(Stage::Dialled { .. }) => self.second_connected(core, key),
            Some(Stage::Waiting { .. }) => self.waiting_speaks(core, key),
            Some(_) => self.hear(core, key),
            None => {}
        }
    }

    /// Deals with the preamble records that have come.
    fn hear(&mut self, core: &mut Core, key: Key) {
        loop {
            let Some(handshake) =
                self.handshakes.get_mut(key).filter(|handshake| !handshake.stage.is_waiting())
            else {
                return;
            };
            let said = match read_preamble(&mut handshake.stream, &mut handshake.bytes) {
                Ok(None) => return,
                Ok(Some(said)) => said,
                Err(unread) => return self.end_handshake(core, key, unread.fault()),
            };
            match (&handshake.stage, said) {
                (Stage::Silent, Preamble::Hello { attribute, mss, payload }) => {
                    self.hello_came(core, key, Wanted { attribute, mss }, payload);
                }
                (Stage::Heard(wanted), Preamble::Request { payload }) => {
                    let wanted = *wanted;
                    return self.ask_program(core, key, wanted, payload);
                }
                (Stage::Silent, Preamble::Bulk { key: named, nonce }) => {
                    self.second_named(core, key, named, nonce);
                }
                (Stage::Challenged { .. }, Preamble::Proof { proof }) => {
                    return self.second_came(core, key, &proof);
                }
                (Stage::Named { .. }, Preamble::Challenge { nonce, proof }) => {
                    return self.second_proved(core, key, nonce, &proof);
                }
                (Stage::Silent, Preamble::OtherHello) => {
                    //= wire.md R-TCP-4
                    if let Some(mut handshake) = self.take_handshake(core, key) {
                        // What is not read would have the kernel reset the stream, and the answer might be lost.
                        let _ = handshake.stream.recv(&mut [0; PREAMBLE_BYTES_MAX]);
                        // It is short, and the stream is new: there is room. If not, the client learns by its end.
                        let _ = handshake.stream.send(&Preamble::OtherHello.bytes());
                    }
                    return;
                }
                _ => return self.end_handshake(core, key, Some(Fault::Handshake)),
            }
        }
    }

    /// Takes a handshake out of the tables; its stream goes on.
    pub(super) fn take_handshake(&mut self, core: &mut Core, key: Key) -> Option<Handshake> {
        let handshake = self.handshakes.remove(key)?;
        core.poller.unwatch(handshake.stream.as_fd());
        Some(handshake)
    }

    /// Ends a handshake, and its stream with it.
    pub(super) fn end_handshake(&mut self, core: &mut Core, key: Key, fault: Option<Fault>) {
        let reason = if fault.is_some() { DisconnectReason::Refused } else { DisconnectReason::Died };
        if let Some(fault) = fault {
            self.links.shared.counts.fault(fault);
        }
        let Some(mut handshake) = self.take_handshake(core, key) else { return };
        match handshake.stage {
            Stage::Dialled { conn, .. } | Stage::Named { conn, .. } => {
                self.links.end(core, conn, reason);
            }
            Stage::Waiting { .. } => {
                // If there is no room for it, the client learns by the end of the stream.
                let _ = handshake.stream.send(&Preamble::Reject { no_memory: true }.bytes());
            }
            Stage::Silent | Stage::Heard(_) | Stage::Challenged { .. } => {}
        }
    }

    /// Room for one more client: of too many the oldest has to go of the host that has the most, if it had its time.
    pub(super) fn make_place_for_client(&mut self, core: &mut Core) -> bool {
        let shaking_max = self.clients_shaking_max;
        let may_be_full = self.handshakes.clients as usize >= shaking_max;
        let oldest = if may_be_full && self.handshakes.shaking().count() >= shaking_max {
            // Those that have shown who they are have given back what that takes.
            oldest_by_host(self.handshakes.shaking())
        } else if self.handshakes.clients >= CLIENTS_MAX {
            oldest_by_host(self.handshakes.iter().filter(|(_, handshake)| handshake.stage.is_client()))
        } else {
            return true;
        };
        let had_its_time_ns = self.links.shared.now_ns.saturating_sub(SILENCE_NS_MIN);
        let Some((key, _)) = oldest.filter(|(_, since_ns)| *since_ns <= had_its_time_ns) else {
            return false;
        };
        self.end_handshake(core, key, Some(Fault::Silent));
        true
    }
}
