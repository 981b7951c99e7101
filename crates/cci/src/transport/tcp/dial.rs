//! The side of a handshake that dials.

use super::SCHEME;
use super::base::Base;
use super::conn::{Attempt, Conn, Dialling};
use super::counts::Fault;
use super::established::{Established, Side, Stage};
use super::handshake::{Unread, read_preamble};
use super::links::Links;
use super::local::Local;
use super::out::Out;
use super::pipe::{self, Pipe, Refusal};
use super::preamble::Preamble;
use super::watched::Watched;
use super::wire::Kind;
use crate::connection::Connection;
use crate::engine::core::Core;
use crate::limits::MESSAGE_BYTES_MAX;
use crate::security::NO_NAMES;
use crate::transport::token;
use crate::transport::{Dial, ip_uri};
use crate::{Attribute, ConnectError, ConnectFailure};
use cci_memory::slab::Key;
use cci_sys::event::Interest;
use cci_sys::tcp::Stream;
use cci_sys::{SysError, clock};
use std::io::{self, ErrorKind};

/// Time between attempts while the network does not reach the peer, or the peer has too many clients.
pub(super) const AGAIN_NS: u64 = 100_000_000;

/// What dialling needs during one call.
pub(super) struct Dialler<'a> {
    pub local: &'a Local,
    pub links: &'a mut Links,
    pub core: &'a mut Core,
}

impl Dialler<'_> {
    pub fn dial(&mut self, connection: Connection, to: &Dial<'_>) -> Result<Key, ConnectError> {
        let bad_uri = |reason| ConnectError::BadUri { uri: to.uri.to_owned(), reason };
        if matches!(to.attribute, Attribute::MulticastSend | Attribute::MulticastReceive) {
            return Err(ConnectError::Unsupported);
        }
        if let Some(name) = to.expected {
            match &self.local.security {
                Some(security) => security.sealing.can_expect(name)?,
                None => {
                    let (name, reason) = (name.to_owned(), NO_NAMES.to_owned());
                    return Err(ConnectError::CannotExpect { name, reason });
                }
            }
        }
        let peer = ip_uri::parse(SCHEME, to.uri)
            .and_then(|peer| ip_uri::with_local_zone(peer, self.local.address))
            .map_err(bad_uri)?;
        if peer.ip().is_multicast() {
            return Err(bad_uri(
                "a multicast group has no streams; connect to it from a UDP device".to_owned(),
            ));
        }
        self.links.shared.now_ns = clock::now_ns();
        let stream = match Stream::connect(self.local.address, peer) {
            // If this process lacks something now, the call fails. If it lacks something later, the attempt waits for it.
            Err(error) if error.is_exhaustion() => return Err(ConnectError::System(error)),
            stream => stream,
        };
        let payload = to.request.to_vec();
        // Where several paths lead to the peer, its program gets the request only when this path is chosen (ADR 11).
        let (payload, request) = if to.is_one_of_several {
            (None, Preamble::Request { payload }.bytes())
        } else {
            (Some(payload), Vec::new())
        };
        let hello = Preamble::Hello { attribute: to.attribute, mss: self.local.mss, payload }.bytes();
        let until_ns = to.timeout_ns.map_or(u64::MAX, |ns| self.links.shared.now_ns.saturating_add(ns));
        let dialling = Dialling {
            base: Base::new(connection, peer, to.attribute.is_reliable()),
            attempt: Attempt::Later { at_ns: u64::MAX },
            hello,
            request,
            answer: Vec::new(),
            is_heard: false,
            expected: to.expected.map(Into::into),
            until_ns,
        };
        let key = self.links.conns.insert(dialling, |dialling, _| Conn::Dialling(dialling));
        let key = key.map_err(|_| ConnectError::NoMemory)?;
        if let Some(conn) = self.links.conns.get_mut(key) {
            self.links.deadlines.add(conn.base_mut(), until_ns);
        }
        self.called(key, stream);
        Ok(key)
    }

    fn dialling(&mut self, key: Key) -> Option<&mut Dialling> {
        self.links.conns.get_mut(key)?.dialling_mut()
    }

    /// Tries to reach the peer.
    pub fn call(&mut self, key: Key) {
        let Some(peer) = self.dialling(key).map(|dialling| dialling.base.peer) else { return };
        self.called(key, Stream::connect(self.local.address, peer));
    }

    /// Handles a stream that is being connected.
    fn called(&mut self, key: Key, stream: Result<Stream, SysError>) {
        let security = self.local.security.as_ref();
        let Some(dialling) = self.links.conns.get_mut(key).and_then(Conn::dialling_mut) else { return };
        let (expected, host) = (dialling.expected.as_deref(), dialling.base.host());
        let dialled = stream
            .map_err(io::Error::from)
            .and_then(|stream| Pipe::dialled(stream, security, expected, host).map_err(io::Error::other));
        match dialled {
            Ok(stream) => {
                let mut out = Out::new();
                out.send_first(&dialling.hello);
                // A stream that is not connected has no space yet. The kernel reports when it has.
                out.blocked = true;
                let is_connected = stream.peer_addr().is_ok();
                let mut stream = Watched::new(stream, token::make(token::CONN, key));
                stream.watch(&self.core.poller, Some(Interest::Both));
                dialling.attempt = Attempt::Made { stream, out };
                if is_connected {
                    self.connected(key);
                }
            }
            Err(error) => self.call_failed(key, &error),
        }
    }

    /// Handles the kernel's report of a stream that was dialled.
    pub fn ready(&mut self, key: Key, is_input: bool) {
        let Some(Dialling { attempt: Attempt::Made { stream, out }, .. }) = self.dialling(key) else {
            return;
        };
        if stream.is_watched_for_space() || out.blocked {
            self.connected(key);
        }
        // During a sealed handshake only `connected` reads. HELLO waits for the end of the handshake, which the kernel does not
        // report.
        if is_input && !self.is_in_handshake(key) {
            self.answered(key);
        }
    }

    fn is_in_handshake(&mut self, key: Key) -> bool {
        let attempt = self.dialling(key).map(|dialling| &dialling.attempt);
        matches!(attempt, Some(Attempt::Made { stream, .. }) if stream.is_in_handshake())
    }

    /// Handles a stream that has become writable or has failed.
    fn connected(&mut self, key: Key) {
        let Some(dialling) = self.links.conns.get_mut(key).and_then(Conn::dialling_mut) else { return };
        let Attempt::Made { stream, out } = &mut dialling.attempt else { return };
        if let Err(error) = stream.take_error() {
            return self.call_failed(key, &error);
        }
        // If nobody listens on a port, a stream that was given the same port connects to itself.
        if stream.local_addr().is_ok() && stream.local_addr().ok() == stream.peer_addr().ok() {
            return self.links.fail(self.core, key, ConnectFailure::Refused);
        }
        if let Err(error) = out.write(stream, &self.links.shared.sends) {
            return self.call_failed(key, &error);
        }
        let waits = out.blocked && stream.waits_for_space();
        stream.watch(&self.core.poller, Some(if waits { Interest::Both } else { Interest::Read }));
    }

    /// Handles an error of an attempt to connect.
    fn call_failed(&mut self, key: Key, error: &io::Error) {
        let now_ns = self.links.shared.now_ns;
        let Some(dialling) = self.links.conns.get_mut(key).and_then(Conn::dialling_mut) else { return };
        // A peer that was reached, and cuts the stream before the handshake ends, refuses this side.
        let is_cut = matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
            && matches!(&dialling.attempt, Attempt::Made { stream, .. } if stream.is_in_handshake());
        let cut = Refusal { fault: Fault::Refused, why: ConnectFailure::NotPermitted };
        if let Some(refusal) = pipe::refusal(error).or(is_cut.then_some(cut)) {
            self.links.shared.counts.fault(refusal.fault);
            return self.links.fail(self.core, key, refusal.why);
        }
        if dialling.is_heard {
            // The peer has the request already, and must not get it twice.
            return self.links.fail(self.core, key, ConnectFailure::Disconnected);
        }
        match error.kind() {
            ErrorKind::ConnectionRefused => self.links.fail(self.core, key, ConnectFailure::Refused),
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                self.links.fail(self.core, key, ConnectFailure::Disconnected);
            }
            // The network may come back, and ports and descriptors may become free. So the peer is tried until the attempt times
            // out.
            _ => {
                let at_ns = now_ns + AGAIN_NS;
                dialling.give_up_until(self.core, at_ns);
                self.links.shared.counts.refused_system += 1;
                self.links.deadlines.add(&mut dialling.base, at_ns);
            }
        }
    }

    /// Reads what the peer has answered.
    fn answered(&mut self, key: Key) {
        let Some(dialling) = self.dialling(key) else { return };
        let Attempt::Made { stream, .. } = &mut dialling.attempt else { return };
        let (fault, why) = match read_preamble(stream, &mut dialling.answer) {
            Ok(None) => return,
            Ok(Some(record)) => return self.answered_with(key, record),
            Err(Unread::Gone) => (None, ConnectFailure::Disconnected),
            Err(Unread::Refused(refusal)) => (Some(refusal.fault), refusal.why),
            Err(Unread::Forged) => (Some(Fault::Forged), ConnectFailure::Disconnected),
            Err(Unread::Fault) => (Some(Fault::Handshake), ConnectFailure::Disconnected),
        };
        if let Some(fault) = fault {
            self.links.shared.counts.fault(fault);
        }
        self.links.fail(self.core, key, why);
    }

    fn answered_with(&mut self, key: Key, record: Preamble) {
        let Some(conn) = self.links.conns.get_mut(key) else { return };
        let Conn::Dialling(dialling) = conn else { return };
        self.core.heard(dialling.base.connection);
        match record {
            //= wire.md R-TCP-3
            Preamble::Heard if !dialling.is_heard => {
                dialling.is_heard = true;
                self.send_request(key);
                self.answered(key);
            }
            Preamble::Accept { mss, port, ticket } if dialling.request.is_empty() => {
                let mut base = dialling.base.clone();
                base.mss = mss.min(self.local.mss).min(MESSAGE_BYTES_MAX);
                //= wire.md R-TCP-15
                let mut second_at = base.peer;
                second_at.set_port(port);
                let Attempt::Made { stream, out } = dialling.take_attempt() else { return };
                let side = Side::Dialled { second_at };
                let established = Established::new(base, (stream, out), Stage::Open, side, ticket);
                self.local.identify(self.core, &established);
                *conn = Conn::Established(established);
                self.links.open(self.core, key);
                //= wire.md R-TCP-3
                self.links.send_control(key, Kind::Confirm);
                self.links.flush(self.core, key);
            }
            Preamble::Reject { no_memory: true } => self.links.fail(self.core, key, ConnectFailure::NoMemory),
            Preamble::Reject { no_memory: false } => self.links.fail(self.core, key, ConnectFailure::Refused),
            Preamble::Version { theirs } => {
                self.links.fail(self.core, key, ConnectFailure::Version { theirs })
            }
            Preamble::Hello { .. }
            | Preamble::Request { .. }
            | Preamble::Bulk { .. }
            | Preamble::Challenge { .. }
            | Preamble::Proof { .. }
            | Preamble::Accept { .. }
            | Preamble::OtherHello
            | Preamble::Heard => {
                self.links.shared.counts.fault(Fault::Handshake);
                self.links.fail(self.core, key, ConnectFailure::Disconnected);
            }
        }
    }

    /// Sends the request, if HELLO did not have it.
    fn send_request(&mut self, key: Key) {
        let Some(Dialling { attempt: Attempt::Made { out, .. }, request, .. }) = self.dialling(key) else {
            return;
        };
        if !request.is_empty() {
            out.send_first(&std::mem::take(request));
            self.connected(key);
        }
    }

    /// Handles connections whose own deadline has passed: attempts to connect, and connections that close.
    pub fn time_out(&mut self) {
        let now_ns = self.links.shared.now_ns;
        let (mut at, mut first_ns) = (0, u64::MAX);
        while let Some(key) = self.links.deadlines.get(at) {
            match self.links.conns.get(key) {
                Some(Conn::Dialling(dialling)) if dialling.until_ns <= now_ns => self.give_up(key),
                Some(Conn::Dialling(dialling)) if dialling.due_ns() <= now_ns => self.call(key),
                Some(Conn::Established(conn))
                    if conn.stage.until_ns().is_some_and(|at_ns| at_ns <= now_ns) =>
                {
                    self.links.stage_timed_out(self.core, key);
                }
                _ => {}
            }
            let conn = self.links.conns.get_mut(key);
            if let Some(due_ns) = conn.as_deref().and_then(Conn::due_ns) {
                first_ns = first_ns.min(due_ns);
                at += 1;
                continue;
            }
            if let Some(conn) = conn {
                conn.base_mut().has_deadline = false;
            }
            self.links.deadlines.take(at);
        }
        self.links.deadlines.due_ns = first_ns;
    }

    /// Fails an attempt to connect that has taken too long.
    fn give_up(&mut self, key: Key) {
        // The answer may just have come.
        self.answered(key);
        if self.dialling(key).is_some() {
            self.links.shared.counts.handshake_timed_out += 1;
            self.links.fail(self.core, key, ConnectFailure::TimedOut);
        }
    }
}
