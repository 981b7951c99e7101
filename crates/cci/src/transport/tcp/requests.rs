//! Requests: what clients want, and who of them is with the program.

use super::Tcp;
use super::counts::Fault;
use super::handshake::{Handshake, Stage, Wanted};
use super::pipe::Pipe;
use super::preamble::Preamble;
use crate::device::TransportKind;
use crate::engine::core::Core;
use crate::engine::requests::{RequestBody, RequestInner};
use crate::transport::quota::{Host, Quota};
use cci_memory::slab::{Key, Slab};
use std::io::ErrorKind;
use std::net::SocketAddr;

/// How long a request waits to be shown to the program.
const WAITING_NS_MAX: u64 = 30_000_000_000;

/// A request that the program decides on: all that is needed to go on with it, on whatever endpoint.
pub(super) struct Request {
    pub stream: Pipe,
    pub peer: SocketAddr,
    pub mss: u32,
}

/// Requests that the program holds.
pub(super) struct Shown {
    /// Whom each came from.
    table: Slab<Host>,
    quota: Quota,
}

impl Shown {
    pub fn new(max: u32) -> Shown {
        Shown { table: Slab::new(max), quota: Quota::new(max.into()) }
    }

    /// None: as many of this host's as are left for all others are with the program.
    fn insert(&mut self, host: Host) -> Option<Key> {
        if !self.quota.has_room_for(host, 1) {
            return None;
        }
        let key = self.table.insert(host).ok()?;
        self.quota.take(host, 1);
        Some(key)
    }

    fn remove(&mut self, ticket: u64) {
        if let Some(host) = self.table.remove(Key::from_bits(ticket)) {
            self.quota.give_back(host, 1);
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.table.bytes() as u64 + self.quota.bytes()
    }
}

impl Tcp {
    /// A client says what it wants, and of its request all, or that it follows.
    pub(super) fn hello_came(&mut self, core: &mut Core, key: Key, wanted: Wanted, payload: Option<Vec<u8>>) {
        if let Some(payload) = payload {
            return self.ask_program(core, key, wanted, payload);
        }
        //= wire.md R-TCP-3
        if self.is_barred(core, key) || !self.send_heard(core, key) {
            return;
        }
        if let Some(handshake) = self.handshakes.get_mut(key) {
            handshake.stage = Stage::Heard(wanted);
        }
    }

    /// A client that may not connect is closed.
    fn is_barred(&mut self, core: &mut Core, key: Key) -> bool {
        let who = self.handshakes.get(key).and_then(|handshake| self.peer_on(&handshake.stream));
        let is_barred = who.is_some_and(|who| !who.rights.connect);
        if is_barred {
            self.end_handshake(core, key, Some(Fault::Refused));
        }
        is_barred
    }

    /// The client is told that its HELLO was understood. False: it is gone.
    fn send_heard(&mut self, core: &mut Core, key: Key) -> bool {
        let Some(handshake) = self.handshakes.get_mut(key) else { return false };
        let is_said = handshake.stream.send(&Preamble::Heard.bytes()).is_ok();
        if !is_said {
            self.end_handshake(core, key, None);
        }
        is_said
    }

    /// A request for the program, which decides at once or once others of its host have been decided on.
    pub(super) fn ask_program(&mut self, core: &mut Core, key: Key, wanted: Wanted, payload: Vec<u8>) {
        if self.is_barred(core, key) {
            return;
        }
        let Some(handshake) = self.handshakes.get_mut(key) else { return };
        let Some(peer) = handshake.peer else { return };
        let was_heard = matches!(handshake.stage, Stage::Heard(_));
        let Some(ticket) = self.shown.insert(Host::from(peer)) else {
            //= wire.md R-TCP-19
            handshake.until_ns = self.links.shared.now_ns.saturating_add(WAITING_NS_MAX);
            handshake.stage = Stage::Waiting { wanted, payload, was_heard };
            self.handshakes_due_ns = self.handshakes_due_ns.min(handshake.until_ns);
            self.waiting.push_back(key);
            return;
        };
        let is_there =
            !matches!(handshake.stream.peek(&mut [0]), Ok(0)) && (was_heard || self.send_heard(core, key));
        let handshake = self.take_handshake(core, key).filter(|_| is_there);
        let Some(Handshake { stream, .. }) = handshake else {
            // It has given up meanwhile: nobody is there to be accepted.
            return self.shown.remove(ticket.to_bits());
        };
        self.links.shared.counts.requests += 1;
        core.requested(RequestBody {
            payload,
            attribute: wanted.attribute,
            peer: peer.to_string(),
            via: TransportKind::Tcp,
            ticket: ticket.to_bits(),
            identity: self.peer_on(&stream),
            inner: Box::new(Request { stream, peer, mss: wanted.mss }),
            inbox: core.requests.clone(),
        });
    }

    /// A client whose request waits has nothing to say; what comes is its end.
    pub(super) fn waiting_speaks(&mut self, core: &mut Core, key: Key) {
        let Some(handshake) = self.handshakes.get(key) else { return };
        match handshake.stream.peek(&mut [0]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Ok(0) | Err(_) => self.end_handshake(core, key, None),
            Ok(_) => self.end_handshake(core, key, Some(Fault::Handshake)),
        }
    }

    /// Shows the program requests that waited, where others of their hosts have been decided on.
    pub(super) fn show_waiting(&mut self, core: &mut Core) {
        for _ in 0..self.waiting.len() {
            let Some(key) = self.waiting.pop_front() else { return };
            let Some(handshake) = self.handshakes.get_mut(key) else { continue };
            let until_ns = handshake.until_ns;
            let (wanted, payload, was_heard) = match &mut handshake.stage {
                Stage::Waiting { wanted, payload, was_heard } => {
                    (*wanted, std::mem::take(payload), *was_heard)
                }
                _ => continue,
            };
            handshake.stage = if was_heard { Stage::Heard(wanted) } else { Stage::Silent };
            self.ask_program(core, key, wanted, payload);
            if let Some(handshake) = self.handshakes.get_mut(key) {
                // It waits on, no longer than before.
                handshake.until_ns = until_ns;
            }
        }
    }

    /// The program has decided on a request.
    pub(super) fn request_decided(&mut self, ticket: u64) {
        self.shown.remove(ticket);
        if !self.waiting.is_empty() {
            self.handshakes_due_ns = 0;
        }
    }

    /// The program refused a request.
    pub(super) fn refuse(&mut self, ticket: u64, inner: RequestInner) {
        self.request_decided(ticket);
        if let Ok(mut request) = inner.downcast::<Request>() {
            // It is short, and the stream is new: there is room. If not, the client learns by its end.
            let _ = request.stream.send(&Preamble::Reject { no_memory: false }.bytes());
        }
    }
}
