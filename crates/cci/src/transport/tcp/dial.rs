//! The side of a handshake that dials.

use super::SCHEME;
use super::conn::State;
use super::counts::Fault;
use super::handshake::Unread;
use super::links::Links;
use super::local::Local;
use super::pipe::{self, Pipe, Refusal};
use super::preamble::Preamble;
use super::watched::Watched;
use super::wire::Kind;
use crate::connection::Connection;
use crate::connection::DisconnectReason;
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

/// Time after which a peer is tried again that the network does not reach, or that has too many clients.
pub(super) const AGAIN_NS: u64 = 100_000_000;

/// What dialling takes, as long as a call lasts.
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
            // What this process lacks now it is told of now. What is lacking later is waited for.
            Err(error) if error.is_exhaustion() => return Err(ConnectError::System(error)),
            stream => stream,
        };
        let key = self.links.insert(connection, State::Dialing, to.attribute.is_reliable());
        let key = key.ok_or(ConnectError::NoMemory)?;
        let payload = to.request.to_vec();
        // Where there are other ways to the peer, its program hears of this one only once it is settled on (ADR 11).
        let (payload, request) = if to.is_one_of_several {
            (None, Preamble::Request { payload }.bytes())
        } else {
            (Some(payload), Vec::new())
        };
        let hello = Preamble::Hello { attribute: to.attribute, mss: self.local.mss, payload }.bytes();
        if let Some(conn) = self.links.conns.get_mut(key) {
            (conn.hello, conn.request) = (hello, request);
            conn.expected = to.expected.map(Into::into);
            conn.peer = Some(peer);
            conn.until_ns = to.timeout_ns.map_or(u64::MAX, |ns| self.links.shared.now_ns.saturating_add(ns));
            self.links.deadlines.add(conn);
        }
        self.called(key, stream);
        Ok(key)
    }

    /// Tries to reach the peer.
    pub fn call(&mut self, key: Key) {
        let Some(conn) = self.links.conns.get_mut(key) else { return };
        let Some(peer) = conn.peer else { return };
        conn.again_ns = u64::MAX;
        self.called(key, Stream::connect(self.local.address, peer));
    }

    /// Goes on with a stream that is being connected.
    fn called(&mut self, key: Key, stream: Result<Stream, SysError>) {
        let Some(conn) = self.links.conns.get_mut(key) else { return };
        conn.again_ns = u64::MAX;
        let (security, expected, host) =
            (self.local.security.as_ref(), conn.expected.as_deref(), conn.host());
        let dialled = stream
            .map_err(io::Error::from)
            .and_then(|stream| Pipe::dialled(stream, security, expected, host).map_err(io::Error::other));
        match dialled {
            Ok(stream) => {
                conn.out = super::out::Out::new();
                conn.out.send_first(&conn.hello);
                // A stream that is not connected yet has no room; the kernel tells when it has.
                conn.out.blocked = true;
                let is_connected = stream.peer_addr().is_ok();
                conn.stream = Some(Watched::new(stream, token::make(token::CONN, key)));
                conn.watch(self.core);
                if is_connected {
                    self.connected(key);
                }
            }
            Err(error) => self.call_failed(key, &error),
        }
    }

    /// The stream of a connection that was dialled can be written, or has failed.
    pub fn connected(&mut self, key: Key) {
        let Some(conn) = self.links.conns.get_mut(key) else { return };
        let Some(stream) = &mut conn.stream else { return };
        if let Err(error) = stream.take_error() {
            return self.call_failed(key, &error);
        }
        // A stream may meet itself, where nobody listens on the port that it was given.
        if stream.local_addr().is_ok() && stream.local_addr().ok() == stream.peer_addr().ok() {
            return self.links.fail(self.core, key, ConnectFailure::Refused);
        }
        if let Err(error) = conn.out.write(stream, &self.links.shared.sends) {
            return self.call_failed(key, &error);
        }
        let waits = conn.out.blocked && stream.waits_for_space();
        stream.watch(&self.core.poller, Some(if waits { Interest::Both } else { Interest::Read }));
    }

    /// The system, or the network, says why the peer was not reached.
    fn call_failed(&mut self, key: Key, error: &io::Error) {
        let now_ns = self.links.shared.now_ns;
        let Some(conn) = self.links.conns.get_mut(key) else { return };
        // Whoever has been called, and cuts the stream before the handshake is over, does not want this side.
        let is_cut = matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
            && conn.stream.as_ref().is_some_and(|stream| stream.is_in_handshake());
        let cut = Refusal { fault: Fault::Refused, why: ConnectFailure::NotPermitted };
        if let Some(refusal) = pipe::refusal(error).or(is_cut.then_some(cut)) {
            self.links.shared.counts.fault(refusal.fault);
            return self.links.fail(self.core, key, refusal.why);
        }
        if conn.is_heard {
            // What was asked for once is not asked for again.
            return self.links.fail(self.core, key, ConnectFailure::Disconnected);
        }
        match error.kind() {
            ErrorKind::ConnectionRefused => self.links.fail(self.core, key, ConnectFailure::Refused),
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                self.links.fail(self.core, key, ConnectFailure::Disconnected);
            }
            // The network may come back, ports and descriptors may become free: until the time is over.
            _ => {
                conn.unwatch(self.core);
                conn.stream = None;
                conn.again_ns = now_ns + AGAIN_NS;
                self.links.shared.counts.refused_system += 1;
                self.links.deadlines.add(conn);
            }
        }
    }

    /// The peer answers.
    pub fn answered(&mut self, key: Key) {
        let Some(conn) = self.links.conns.get_mut(key) else { return };
        let Some(stream) = &mut conn.stream else { return };
        let (fault, why) = match super::handshake::read_preamble(stream, &mut conn.hello_answer) {
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
        self.core.heard(conn.connection);
        match record {
            //= wire.md R-TCP-3
            Preamble::Heard if !conn.is_heard => {
                conn.is_heard = true;
                if !conn.request.is_empty() {
                    conn.out.send_first(&std::mem::take(&mut conn.request));
                    self.links.flush(self.core, key);
                }
                self.answered(key);
            }
            Preamble::Accept { mss, port, ticket } if conn.request.is_empty() => {
                conn.mss = mss.min(self.local.mss).min(MESSAGE_BYTES_MAX);
                conn.ticket = ticket;
                //= wire.md R-TCP-15
                conn.second_at = conn.peer.map(|mut peer| {
                    peer.set_port(port);
                    peer
                });
                (conn.hello, conn.hello_answer) = (Vec::new(), Vec::new());
                self.local.identify(self.core, self.links, key);
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

    /// Ends or goes on with connections whose own deadline is over: those being made, and those being left.
    pub fn time_out(&mut self) {
        let now_ns = self.links.shared.now_ns;
        let (mut at, mut due_ns) = (0, u64::MAX);
        while let Some(key) = self.links.deadlines.get(at) {
            let state = self.links.conns.get(key).map(|conn| (conn.state, conn.until_ns, conn.again_ns));
            match state {
                Some((State::Dialing, until_ns, _)) if until_ns <= now_ns => {
                    // The answer may have come in this very moment.
                    self.answered(key);
                    if self.links.conns.get(key).is_some_and(|conn| conn.state == State::Dialing) {
                        self.links.shared.counts.handshake_timed_out += 1;
                        self.links.fail(self.core, key, ConnectFailure::TimedOut);
                    }
                }
                Some((State::Dialing, _, again_ns)) if again_ns <= now_ns => {
                    self.call(key);
                }
                Some((State::Accepting, until_ns, _)) if until_ns <= now_ns => {
                    self.links.shared.counts.handshake_timed_out += 1;
                    self.links.fail(self.core, key, ConnectFailure::TimedOut);
                }
                //= wire.md R-TCP-17
                Some((State::Closing, until_ns, _)) if until_ns <= now_ns => {
                    self.links.end(self.core, key, DisconnectReason::TimedOut);
                }
                Some((State::PeerClosed, until_ns, _)) if until_ns <= now_ns => {
                    self.links.end(self.core, key, DisconnectReason::Closed);
                }
                Some((State::Lingering, until_ns, _)) if until_ns <= now_ns => {
                    self.links.remove(self.core, key)
                }
                _ => {}
            }
            match self.links.conns.get_mut(key) {
                Some(conn) if conn.state.has_deadline() => {
                    due_ns = due_ns.min(conn.until_ns).min(conn.again_ns);
                    at += 1;
                }
                remaining => {
                    if let Some(conn) = remaining {
                        conn.has_deadline = false;
                    }
                    self.links.deadlines.take(at);
                }
            }
        }
        self.links.deadlines.due_ns = due_ns;
    }
}
