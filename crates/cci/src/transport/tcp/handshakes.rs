//! The work on streams that are to become a connection's: those of clients that the endpoint admits, and second streams, which
//! either side has dialled.
//!
//! The side that dialled the first stream of a connection dials the second one. Before anything else is sent, each side proves to
//! the other that it knows the secret that came with ACCEPT. So a stranger who listens at the address of the second stream gets
//! nothing of the connection.

use super::base::Base;
use super::conn::Conn;
use super::counts::Fault;
use super::dial::AGAIN_NS;
use super::established::{Established, Side, Stage as ConnStage};
use super::handshake::{Handshake, Stage, Table, Wanted, read_preamble};
use super::links::Links;
use super::local::Local;
use super::out::Out;
use super::pipe::{self, Pipe, Security};
use super::preamble::{PREAMBLE_BYTES_MAX, Preamble, Ticket};
use super::requests::{Request, Shown};
use super::watched::Watched;
use crate::connection::{Connection, DisconnectReason};
use crate::device::TransportKind;
use crate::engine::core::Core;
use crate::engine::poller::Poller;
use crate::engine::requests::{RequestBody, RequestInner};
use crate::error::AcceptError;
use crate::limits::MESSAGE_BYTES_MAX;
use crate::transport::eviction::oldest_of_most;
use crate::transport::quota::Host;
use crate::transport::token;
use cci_memory::slab::Key;
use cci_secure::{Challenge, Identity, NONCE_BYTES, PROOF_BYTES, Prover};
use cci_sys::event::Interest;
use cci_sys::tcp::{Listener, Stream};
use cci_sys::{SysError, clock, random};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::fd::AsFd;
/// The most clients that one poll accepts.
const LET_IN_MAX: usize = 32;
/// How long an endpoint stops listening when it can't accept more clients.
const LISTEN_AGAIN_NS: u64 = 5_000_000;
/// How long an accepted client may take to confirm, at least and at most.
const CONFIRM_NS_MIN: u64 = 1_000_000_000;
const CONFIRM_NS_MAX: u64 = 30_000_000_000;
/// How long the second stream may take to be made.
const SECOND_NS_MAX: u64 = 30_000_000_000;

/// The most clients whose request is not known yet, or waits to be shown to the program.
pub(super) const CLIENTS_MAX: u32 = 256;
/// How long a client may take to send its request after it connected.
const SILENCE_NS_MAX: u64 = 5_000_000_000;
/// A client has at least this time, however many others come.
const SILENCE_NS_MIN: u64 = 200_000_000;
/// How long a request waits to be shown to the program.
const WAITING_NS_MAX: u64 = 30_000_000_000;

/// All handshakes of an endpoint: its listener, clients, requests and second streams.
pub(super) struct Handshakes {
    pub local: Local,
    /// `None` if the endpoint only dials.
    listener: Option<Listener>,
    /// The endpoint does not listen before this time, since it has too many clients or no descriptors.
    listen_again_ns: Option<u64>,
    /// The most clients whose sealed handshakes may be in progress at a time.
    client_handshakes_max: usize,
    /// How many steps of clients' sealed handshakes may still be made before the next poll.
    handshakes_budget: u32,
    table: Table,
    due_ns: u64,
    /// Requests that the program holds.
    shown: Shown,
    /// Clients whose requests wait for the program to decide on others.
    waiting: VecDeque<Key>,
    /// Connections whose second stream is to be dialled again.
    seconds_again: Vec<Key>,
}

impl Handshakes {
    pub fn new(local: Local, listener: Option<Listener>, requests_max: u32) -> Handshakes {
        Handshakes {
            client_handshakes_max: local.security.as_ref().map_or(usize::MAX, Security::handshakes_max),
            local,
            listener,
            listen_again_ns: None,
            handshakes_budget: 0,
            table: Table::new(),
            due_ns: u64::MAX,
            shown: Shown::new(requests_max),
            waiting: VecDeque::new(),
            seconds_again: Vec::new(),
        }
    }

    /// Whether no handshake is in progress.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// The handshake that the kernel's token names.
    pub fn named(&self, name: u64) -> Option<Key> {
        self.table.key_at(token::index(name)).filter(|key| token::names(name, *key))
    }

    /// Begins a poll in which at most this many steps of clients' sealed handshakes are made.
    pub fn begin_round(&mut self, handshakes: u32) {
        self.handshakes_budget = handshakes;
    }

    /// The latest time at which something must be done.
    #[inline]
    pub fn due_ns(&self) -> u64 {
        self.due_ns.min(self.listen_again_ns.unwrap_or(u64::MAX))
    }

    /// Does what is due.
    pub fn time_out(&mut self, core: &mut Core, links: &mut Links) {
        let now_ns = links.shared.now_ns;
        if self.listen_again_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.listen_again(core, links);
        }
        if self.due_ns <= now_ns {
            self.time_out_handshakes(core, links);
        }
    }

    /// Has the kernel report clients.
    pub fn watch_listener(&self, poller: &Poller) -> Result<(), SysError> {
        let Some(listener) = &self.listener else { return Ok(()) };
        poller.watch(listener.as_fd(), token::make(token::LISTENER, token::NOWHERE))
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.table.bytes() + self.shown.bytes() + (self.waiting.capacity() * size_of::<Key>()) as u64
    }

    /// Accepts clients that have connected.
    pub fn let_in(&mut self, core: &mut Core, links: &mut Links) {
        for _ in 0..LET_IN_MAX {
            if !self.make_space_for_client(core, links) {
                //= wire.md R-TCP-3
                return self.pause(core, links);
            }
            let Some(listener) = &self.listener else { return };
            let (stream, peer) = match listener.accept() {
                Ok(client) => client,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    // Descriptors may be lacking, for example. Clients in the backlog go on waiting.
                    links.shared.counts.refused_system += 1;
                    return self.pause(core, links);
                }
            };
            let since_ns = links.shared.now_ns;
            let until_ns = since_ns + SILENCE_NS_MAX;
            let stream = Pipe::accepted(stream, self.local.security.as_ref(), peer.into());
            let (peer, bytes, stage) = (Some(peer), Vec::new(), Stage::Silent);
            let handshake = Handshake { stream, peer, since_ns, until_ns, bytes, stage };
            let Some(key) = self.table.insert(handshake) else { return self.pause(core, links) };
            self.due_ns = self.due_ns.min(until_ns);
            self.watch_handshake(core, links, key, Interest::Read);
            // Usually its request has come already.
            self.handshake_ready(core, links, key);
        }
    }

    /// Stops listening for a moment.
    fn pause(&mut self, core: &Core, links: &mut Links) {
        if let Some(listener) = self.listener.as_ref().filter(|_| self.listen_again_ns.is_none()) {
            core.poller.unwatch(listener.as_fd());
        }
        self.listen_again_ns = Some(links.shared.now_ns + LISTEN_AGAIN_NS);
    }

    /// Listens again, once it is time.
    pub fn listen_again(&mut self, core: &mut Core, links: &mut Links) {
        if self.watch_listener(&core.poller).is_ok() {
            self.listen_again_ns = None;
            self.let_in(core, links);
        } else {
            self.listen_again_ns = Some(links.shared.now_ns + LISTEN_AGAIN_NS);
        }
    }

    /// Accepts a request for the program. It may have come to another endpoint.
    pub fn accept_request(
        &mut self,
        core: &mut Core,
        links: &mut Links,
        connection: Connection,
        request: RequestBody,
    ) -> Result<Key, AcceptError> {
        let (inner, request) = request.claim::<Request>()?;
        if std::sync::Arc::ptr_eq(&request.inbox, &core.requests) {
            self.request_decided(request.ticket);
        }
        links.shared.now_ns = clock::now_ns();
        // A client that has given up has closed its end of the stream.
        let gone = match inner.stream.peek(&mut [0]) {
            Err(error) => error.kind() != ErrorKind::WouldBlock,
            // A client sends nothing before it is accepted.
            Ok(_) => true,
        };
        if gone {
            return Err(AcceptError::Gone);
        }
        let Request { mut stream, peer, mss } = *inner;
        let is_reliable = request.attribute.is_reliable();
        if is_reliable && stream.local_addr().is_ok_and(|at| at.ip() != self.local.address.ip()) {
            // The client dials the second stream at the address at which it has dialled the first.
            let _ = stream.send(&Preamble::Reject { no_memory: false }.bytes());
            return Err(AcceptError::OtherDevice);
        }
        let may_not = self.local.peer_on(&stream).is_some_and(|who| !who.rights.connect);
        if may_not || self.local.requires_security() && stream.peer().is_none() {
            let _ = stream.send(&Preamble::Reject { no_memory: false }.bytes());
            return Err(AcceptError::NotPermitted);
        }
        let refuse = |stream: &mut Pipe| {
            let _ = stream.send(&Preamble::Reject { no_memory: true }.bytes());
            AcceptError::NoMemory
        };
        let mut secret = [0; 16];
        if random::fill(&mut secret).is_err() {
            return Err(refuse(&mut stream));
        }
        let mss = mss.min(self.local.mss).min(MESSAGE_BYTES_MAX);
        let send_timeout_ns = links.conns.defaults.send_timeout_ns;
        let until_ns = links.shared.now_ns + send_timeout_ns.clamp(CONFIRM_NS_MIN, CONFIRM_NS_MAX);
        let inserted = links.conns.insert(stream, |stream, key| {
            let mut base = Base::new(connection, peer, is_reliable);
            base.mss = mss;
            let ticket = Ticket { key: key.to_bits(), secret };
            //= wire.md R-TCP-3
            let accept = Preamble::Accept { mss: self.local.mss, port: self.local.address.port(), ticket };
            let mut out = Out::new();
            out.send_first(&accept.bytes());
            let stream = Watched::new(stream, token::make(token::CONN, key));
            let (stage, side) = (ConnStage::Accepting { until_ns }, Side::Accepted);
            Conn::Established(Established::new(base, (stream, out), stage, side, ticket))
        });
        let key = inserted.map_err(|mut stream| refuse(&mut stream))?;
        if let Some(conn) = links.conns.established_mut(key) {
            conn.stream.want();
            self.local.identify(core, conn);
            conn.watch(core);
            links.deadlines.add(&mut conn.base, until_ns);
        }
        links.flush(core, key);
        // If the connection has ended at once, its event is queued already, and the key is no longer valid.
        Ok(key)
    }

    /// Ends handshakes that took too long: those of silent clients, and those of second streams that were not made.
    pub fn time_out_handshakes(&mut self, core: &mut Core, links: &mut Links) {
        let now_ns = links.shared.now_ns;
        let over: Vec<Key> = self
            .table
            .iter()
            .filter(|(_, handshake)| handshake.until_ns <= now_ns)
            .map(|(key, _)| key)
            .collect();
        for key in over {
            let stage = self.table.get(key).map(|handshake| &handshake.stage);
            let is_silent = stage.is_some_and(|stage| stage.is_client() && !stage.is_waiting());
            self.end_handshake(core, links, key, is_silent.then_some(Fault::Silent));
        }
        self.show_waiting(core, links);
        self.due_ns = self.table.iter().map(|(_, handshake)| handshake.until_ns).min().unwrap_or(u64::MAX);
        self.dial_seconds_again(core, links);
    }

    pub fn watch_handshake(&mut self, core: &mut Core, links: &mut Links, key: Key, interest: Interest) {
        let Some(handshake) = self.table.get(key) else { return };
        let token = token::make(token::HANDSHAKE, key);
        if core.poller.watch(handshake.stream.as_fd(), token).is_err() {
            return self.end_handshake(core, links, key, None);
        }
        if interest != Interest::Read {
            core.poller.rewatch(handshake.stream.as_fd(), token, interest);
        }
    }

    /// Continues a handshake whose stream the kernel reports.
    pub fn handshake_ready(&mut self, core: &mut Core, links: &mut Links, key: Key) {
        let in_handshake =
            |handshake: &Handshake| handshake.stage.is_client() && handshake.stream.is_in_handshake();
        if self.table.get(key).is_some_and(in_handshake) {
            // If too many are ready at once, the kernel reports the others again in the next poll.
            let Some(budget) = self.handshakes_budget.checked_sub(1) else { return };
            self.handshakes_budget = budget;
        }
        match self.table.get(key).map(|handshake| &handshake.stage) {
            Some(Stage::Dialled { .. }) => self.second_connected(core, links, key),
            Some(Stage::Waiting { .. }) => self.waiting_readable(core, links, key),
            Some(_) => self.hear(core, links, key),
            None => {}
        }
    }

    /// Handles the preamble records that have come.
    fn hear(&mut self, core: &mut Core, links: &mut Links, key: Key) {
        loop {
            let Some(handshake) = self.table.get_mut(key).filter(|handshake| !handshake.stage.is_waiting())
            else {
                return;
            };
            let record = match read_preamble(&mut handshake.stream, &mut handshake.bytes) {
                Ok(None) => return,
                Ok(Some(record)) => record,
                Err(unread) => return self.end_handshake(core, links, key, unread.fault()),
            };
            match (&handshake.stage, record) {
                (Stage::Silent, Preamble::Hello { attribute, mss, payload }) => {
                    self.hello_came(core, links, key, Wanted { attribute, mss }, payload);
                }
                (Stage::Heard(wanted), Preamble::Request { payload }) => {
                    let wanted = *wanted;
                    return self.ask_program(core, links, key, wanted, payload);
                }
                (Stage::Silent, Preamble::Bulk { key: named, nonce }) => {
                    self.second_named(core, links, key, named, nonce);
                }
                (Stage::Challenged { .. }, Preamble::Proof { proof }) => {
                    return self.second_came(core, links, key, &proof);
                }
                (Stage::Named { .. }, Preamble::Challenge { nonce, proof }) => {
                    return self.second_proved(core, links, key, nonce, &proof);
                }
                (Stage::Silent, Preamble::OtherHello) => {
                    //= wire.md R-TCP-4
                    if let Some(mut handshake) = self.take_handshake(core, key) {
                        // If input is left unread, the kernel resets the stream, and the answer may be lost.
                        let _ = handshake.stream.recv(&mut [0; PREAMBLE_BYTES_MAX]);
                        // A new stream has space for such a short record. If it has not, the client sees the end of the stream.
                        let _ = handshake.stream.send(&Preamble::OtherHello.bytes());
                    }
                    return;
                }
                _ => return self.end_handshake(core, links, key, Some(Fault::Handshake)),
            }
        }
    }

    /// Takes a handshake out of the tables; its stream goes on.
    pub fn take_handshake(&mut self, core: &Core, key: Key) -> Option<Handshake> {
        let handshake = self.table.remove(key)?;
        core.poller.unwatch(handshake.stream.as_fd());
        Some(handshake)
    }

    /// Ends a handshake, and its stream with it.
    pub fn end_handshake(&mut self, core: &mut Core, links: &mut Links, key: Key, fault: Option<Fault>) {
        let reason = if fault.is_some() { DisconnectReason::Refused } else { DisconnectReason::Died };
        if let Some(fault) = fault {
            links.shared.counts.fault(fault);
        }
        let Some(mut handshake) = self.take_handshake(core, key) else { return };
        match handshake.stage {
            Stage::Dialled { conn, .. } | Stage::Named { conn, .. } => {
                links.end(core, conn, reason);
            }
            Stage::Waiting { .. } => {
                // If the stream has no space for the record, the client sees the end of the stream.
                let _ = handshake.stream.send(&Preamble::Reject { no_memory: true }.bytes());
            }
            Stage::Silent | Stage::Heard(_) | Stage::Challenged { .. } => {}
        }
    }

    /// Makes space for one more client. If there are too many, the host with the most clients loses its oldest one, unless that
    /// one has just come. Returns false if there is no space.
    pub fn make_space_for_client(&mut self, core: &mut Core, links: &mut Links) -> bool {
        let handshakes_max = self.client_handshakes_max;
        let may_be_full = self.table.clients as usize >= handshakes_max;
        let oldest = if may_be_full && self.table.in_handshake().count() >= handshakes_max {
            // Clients that have finished their sealed handshake no longer hold the memory that it takes.
            oldest_by_host(self.table.in_handshake())
        } else if self.table.clients >= CLIENTS_MAX {
            oldest_by_host(self.table.iter().filter(|(_, handshake)| handshake.stage.is_client()))
        } else {
            return true;
        };
        let had_its_time_ns = links.shared.now_ns.saturating_sub(SILENCE_NS_MIN);
        let Some((key, _)) = oldest.filter(|(_, since_ns)| *since_ns <= had_its_time_ns) else {
            return false;
        };
        self.end_handshake(core, links, key, Some(Fault::Silent));
        true
    }

    /// Handles a client's HELLO, which carries the whole request or says that the request follows.
    pub fn hello_came(
        &mut self,
        core: &mut Core,
        links: &mut Links,
        key: Key,
        wanted: Wanted,
        payload: Option<Vec<u8>>,
    ) {
        if let Some(payload) = payload {
            return self.ask_program(core, links, key, wanted, payload);
        }
        //= wire.md R-TCP-3
        if self.is_barred(core, links, key) || !self.send_heard(core, links, key) {
            return;
        }
        if let Some(handshake) = self.table.get_mut(key) {
            handshake.stage = Stage::Heard(wanted);
        }
    }

    /// Ends the handshake of a client that may not connect, and returns true if it did.
    fn is_barred(&mut self, core: &mut Core, links: &mut Links, key: Key) -> bool {
        let who = self.table.get(key).and_then(|handshake| self.local.peer_on(&handshake.stream));
        let is_barred = who.is_some_and(|who| !who.rights.connect);
        if is_barred {
            self.end_handshake(core, links, key, Some(Fault::Refused));
        }
        is_barred
    }

    /// Answers a client that its HELLO was understood. Returns false if the client is gone.
    fn send_heard(&mut self, core: &mut Core, links: &mut Links, key: Key) -> bool {
        let Some(handshake) = self.table.get_mut(key) else { return false };
        let is_sent = handshake.stream.send(&Preamble::Heard.bytes()).is_ok();
        if !is_sent {
            self.end_handshake(core, links, key, None);
        }
        is_sent
    }

    /// Shows a request to the program, or lets it wait until the program has decided on others of the same host.
    pub fn ask_program(
        &mut self,
        core: &mut Core,
        links: &mut Links,
        key: Key,
        wanted: Wanted,
        payload: Vec<u8>,
    ) {
        if self.is_barred(core, links, key) {
            return;
        }
        let Some(handshake) = self.table.get_mut(key) else { return };
        let Some(peer) = handshake.peer else { return };
        let was_heard = matches!(handshake.stage, Stage::Heard(_));
        let Some(ticket) = self.shown.insert(Host::from(peer)) else {
            //= wire.md R-TCP-19
            handshake.until_ns = links.shared.now_ns.saturating_add(WAITING_NS_MAX);
            handshake.stage = Stage::Waiting { wanted, payload, was_heard };
            self.due_ns = self.due_ns.min(handshake.until_ns);
            self.waiting.push_back(key);
            return;
        };
        let is_connected = !matches!(handshake.stream.peek(&mut [0]), Ok(0))
            && (was_heard || self.send_heard(core, links, key));
        let handshake = self.take_handshake(core, key).filter(|_| is_connected);
        let Some(Handshake { stream, .. }) = handshake else {
            // The client has given up meanwhile, and can't be accepted any more.
            return self.shown.remove(ticket.to_bits());
        };
        links.shared.counts.requests += 1;
        core.requested(RequestBody {
            payload,
            attribute: wanted.attribute,
            peer: peer.to_string(),
            via: TransportKind::Tcp,
            ticket: ticket.to_bits(),
            identity: self.local.peer_on(&stream),
            inner: Box::new(Request { stream, peer, mss: wanted.mss }),
            inbox: core.requests.clone(),
        });
    }

    /// A client whose request waits sends nothing. So its stream is readable only when it has ended, or when the client breaks
    /// the protocol.
    pub fn waiting_readable(&mut self, core: &mut Core, links: &mut Links, key: Key) {
        let Some(handshake) = self.table.get(key) else { return };
        match handshake.stream.peek(&mut [0]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Ok(0) | Err(_) => self.end_handshake(core, links, key, None),
            Ok(_) => self.end_handshake(core, links, key, Some(Fault::Handshake)),
        }
    }

    /// Shows the program requests that waited, if it has decided on others of their hosts.
    pub fn show_waiting(&mut self, core: &mut Core, links: &mut Links) {
        for _ in 0..self.waiting.len() {
            let Some(key) = self.waiting.pop_front() else { return };
            let Some(handshake) = self.table.get_mut(key) else { continue };
            let until_ns = handshake.until_ns;
            let (wanted, payload, was_heard) = match &mut handshake.stage {
                Stage::Waiting { wanted, payload, was_heard } => {
                    (*wanted, std::mem::take(payload), *was_heard)
                }
                _ => continue,
            };
            handshake.stage = if was_heard { Stage::Heard(wanted) } else { Stage::Silent };
            self.ask_program(core, links, key, wanted, payload);
            if let Some(handshake) = self.table.get_mut(key) {
                // If the request must wait again, its deadline does not change.
                handshake.until_ns = until_ns;
            }
        }
    }

    /// Notes that the program has decided on a request.
    pub fn request_decided(&mut self, ticket: u64) {
        self.shown.remove(ticket);
        if !self.waiting.is_empty() {
            self.due_ns = 0;
        }
    }

    /// Rejects a request for the program.
    pub fn refuse(&mut self, ticket: u64, inner: RequestInner) {
        self.request_decided(ticket);
        if let Ok(mut request) = inner.downcast::<Request>() {
            // A new stream has space for such a short record. If it has not, the client sees the end of the stream.
            let _ = request.stream.send(&Preamble::Reject { no_memory: false }.bytes());
        }
    }

    /// Dials the second streams that are wanted.
    #[cold]
    pub fn dial_seconds(&mut self, core: &mut Core, links: &mut Links) {
        while let Some(key) = links.seconds_wanted.pop() {
            self.dial_second(core, links, key);
        }
    }

    /// Dials second streams again for which descriptors were lacking.
    pub fn dial_seconds_again(&mut self, core: &mut Core, links: &mut Links) {
        for key in std::mem::take(&mut self.seconds_again) {
            self.dial_second(core, links, key);
        }
    }

    fn dial_second(&mut self, core: &mut Core, links: &mut Links, key: Key) {
        let Some(conn) = links.conns.established(key) else { return };
        //= wire.md R-TCP-15
        let Side::Dialled { second_at } = conn.side else { return };
        let stream = Stream::connect(self.local.address, second_at);
        if let Err(error) = &stream
            && error.is_exhaustion()
        {
            // Descriptors may become free. The connection that waits for the stream has its own deadline.
            links.shared.counts.refused_system += 1;
            self.seconds_again.push(key);
            self.due_ns = self.due_ns.min(links.shared.now_ns.saturating_add(AGAIN_NS));
            return;
        }
        // The second stream must lead to the same peer as the first, with the same key if there is one.
        let peer = conn.stream.peer().and_then(|peer| peer.identity);
        let expected = peer.as_ref().map(Identity::name);
        let (security, host) = (self.local.security.as_ref(), conn.base.host());
        let stream = stream.ok().and_then(|stream| Pipe::dialled(stream, security, expected, host).ok());
        let mut nonce = [0; NONCE_BYTES];
        let stream = stream.filter(|_| random::fill(&mut nonce).is_ok());
        let bytes = Preamble::Bulk { key: conn.ticket.key, nonce }.bytes();
        let since_ns = links.shared.now_ns;
        let handshake = stream.and_then(|stream| {
            let until_ns = since_ns.saturating_add(SECOND_NS_MAX);
            let stage = Stage::Dialled { conn: key, nonce };
            self.table.insert(Handshake { stream, peer: None, since_ns, until_ns, bytes, stage })
        });
        let Some(handshake) = handshake else { return links.end(core, key, DisconnectReason::Refused) };
        self.due_ns = 0;
        self.watch_handshake(core, links, handshake, Interest::Write);
    }

    /// Continues a second stream that this side has dialled: it is connected, has failed, or its handshake goes on.
    pub fn second_connected(&mut self, core: &mut Core, links: &mut Links, key: Key) {
        let Some(handshake) = self.table.get_mut(key) else { return };
        let Stage::Dialled { conn, nonce } = handshake.stage else { return };
        let sent = handshake.stream.take_error().and_then(|()| handshake.stream.send(&handshake.bytes));
        let token = token::make(token::HANDSHAKE, key);
        if sent.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
            // A stream that is not connected, or has no space, becomes writable later. A stream that waits for the peer's part of
            // the handshake is always writable.
            let interest = if handshake.stream.waits_for_space() { Interest::Write } else { Interest::Read };
            core.poller.rewatch(handshake.stream.as_fd(), token, interest);
            return;
        }
        let is_whole = sent.as_ref().is_ok_and(|len| *len == handshake.bytes.len());
        let first = links.conns.established(conn).map(|conn| &conn.stream);
        if !is_whole || first.is_none_or(|first| !first.has_peer_of(&handshake.stream)) {
            let fault = sent.as_ref().err().and_then(pipe::refusal).map(|refusal| refusal.fault);
            return self.end_handshake(core, links, key, fault);
        }
        handshake.bytes.clear();
        handshake.stage = Stage::Named { conn, nonce };
        core.poller.rewatch(handshake.stream.as_fd(), token, Interest::Read);
    }

    /// Answers a stream whose dialler says that it is the second one of a connection: proves that this side knows the secret, and
    /// asks for the same proof.
    pub fn second_named(
        &mut self,
        core: &mut Core,
        links: &mut Links,
        key: Key,
        named: u64,
        dialler: [u8; NONCE_BYTES],
    ) {
        //= wire.md R-TCP-15
        let conn = Key::from_bits(named);
        let mut acceptor = [0; NONCE_BYTES];
        let Some(handshake) = self.table.get_mut(key) else { return };
        let known = links.conns.established(conn).filter(|conn| {
            !conn.has_dialled()
                && conn.second_may_come()
                && conn.stream.has_peer_of(&handshake.stream)
                && conn.stream.has_endpoint_of(&handshake.stream)
        });
        let Some(known) = known.filter(|_| random::fill(&mut acceptor).is_ok()) else {
            return self.end_handshake(core, links, key, Some(Fault::Ticket));
        };
        //= wire.md R-TCP-18
        let challenge = Challenge { key: named, dialler, acceptor };
        let proof = challenge.prove(&known.ticket.secret, Prover::Acceptor);
        handshake.stage = Stage::Challenged { conn, challenge };
        let record = Preamble::Challenge { nonce: acceptor, proof }.bytes();
        // A new stream has space for such a short record. If it has not, the handshake ends.
        if handshake.stream.send(&record).ok() != Some(record.len()) {
            self.end_handshake(core, links, key, None);
        }
    }

    /// Checks the proof of the side that accepted our second stream, and sends our own.
    pub fn second_proved(
        &mut self,
        core: &mut Core,
        links: &mut Links,
        key: Key,
        acceptor: [u8; NONCE_BYTES],
        proof: &[u8; PROOF_BYTES],
    ) {
        let Some(handshake) = self.table.get_mut(key) else { return };
        let Stage::Named { conn, nonce } = handshake.stage else { return };
        let Some(ticket) = links.conns.established(conn).map(|conn| conn.ticket) else {
            return self.end_handshake(core, links, key, None);
        };
        //= wire.md R-TCP-18
        let challenge = Challenge { key: ticket.key, dialler: nonce, acceptor };
        if !challenge.is_proved(&ticket.secret, Prover::Acceptor, proof) {
            return self.end_handshake(core, links, key, Some(Fault::Ticket));
        }
        let record = Preamble::Proof { proof: challenge.prove(&ticket.secret, Prover::Dialler) }.bytes();
        if handshake.stream.send(&record).ok() != Some(record.len()) {
            return self.end_handshake(core, links, key, None);
        }
        if let Some(handshake) = self.take_handshake(core, key) {
            links.second_came(core, conn, handshake.stream);
        }
    }

    /// Checks the proof of the side that dialled the second stream. If it is right, the stream becomes the connection's second
    /// one.
    pub fn second_came(&mut self, core: &mut Core, links: &mut Links, key: Key, proof: &[u8; PROOF_BYTES]) {
        let Some(handshake) = self.table.get(key) else { return };
        let Stage::Challenged { conn, challenge } = &handshake.stage else { return };
        let named = *conn;
        let is_peer = links.conns.established(named).is_some_and(|conn| {
            !conn.has_dialled()
                && conn.second_may_come()
                && challenge.is_proved(&conn.ticket.secret, Prover::Dialler, proof)
        });
        if !is_peer {
            return self.end_handshake(core, links, key, Some(Fault::Ticket));
        }
        if let Some(handshake) = self.take_handshake(core, key) {
            links.second_came(core, named, handshake.stream);
        }
    }
}

/// The oldest handshake of the host that has the most of them, and when it began.
fn oldest_by_host<'a>(handshakes: impl Iterator<Item = (Key, &'a Handshake)>) -> Option<(Key, u64)> {
    oldest_of_most(
        handshakes.map(|(key, handshake)| (handshake.peer.map(Host::from), handshake.since_ns, key)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Attribute;
    use crate::transport::tcp::preamble::Preamble;
    use crate::{ConnectFailure, Endpoint, Event, Options};
    use std::io::Write;
    use std::path::Path;
    use std::time::{Duration, Instant};

    /// A client goes away between the last check of its stream and the answer to it.
    #[test]
    fn a_client_lost_in_the_moment_of_accepting_is_reported() {
        for transport in ["tcp", "any"] {
            let text = format!("[t]\ntransport = {transport}\nip = 127.0.0.1\n");
            let device = crate::config::ini::devices(&text, Path::new("test.ini")).unwrap().remove(0);
            let mut server = Endpoint::create(&device, Options::default()).unwrap();
            let at =
                server.uri().rsplit_once("tcp").unwrap().1.trim_start_matches(['=', ':', '/']).to_owned();
            let mut client = std::net::TcpStream::connect(at).unwrap();
            let attribute = Attribute::ReliableOrdered;
            client
                .write_all(&Preamble::Hello { attribute, mss: 8192, payload: Some(Vec::new()) }.bytes())
                .unwrap();
            let (start, mut results) = (Instant::now(), Vec::new());
            while results.is_empty() || start.elapsed() < Duration::from_millis(50) {
                assert!(start.elapsed() < Duration::from_secs(10));
                match server.next_event() {
                    Some(Event::ConnectRequest(request)) => {
                        let inner = &request.body.as_ref().unwrap().inner;
                        // Writing fails now, though the peer has not closed.
                        inner.downcast_ref::<Request>().unwrap().stream.shutdown_write().unwrap();
                        server.accept(request, 5).unwrap();
                    }
                    Some(Event::Accept { context: 5, result }) => results.push(result),
                    _ => {}
                }
            }
            assert_eq!(results, [Err(ConnectFailure::Disconnected)], "{transport}");
        }
    }
}
