//! The side of a handshake that dials.

use super::conn::State;
use super::counts::Fault;
use super::handshake::Unread;
use super::pipe::{self, Pipe, Refusal};
use super::preamble::Preamble;
use super::watched::Watched;
use super::wire::Kind;
use super::{SCHEME, Tcp};
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

/// Time after which a peer is tried again that the network does not reach, or that has too many clients.
pub(super) const AGAIN_NS: u64 = 100_000_000;
impl Tcp {
    pub(super) fn dial(
        &mut self,
        core: &mut Core,
        connection: Connection,
        to: &Dial<'_>,
    ) -> Result<Key, ConnectError> {
        let bad_uri = |reason| ConnectError::BadUri { uri: to.uri.to_owned(), reason };
        if matches!(to.attribute, Attribute::MulticastSend | Attribute::MulticastReceive) {
            return Err(ConnectError::Unsupported);
        }
        if let Some(name) = to.expected {
            match &self.security {
                Some(security) => security.sealing.can_expect(name)?,
                None => {
                    let (name, reason) = (name.to_owned(), NO_NAMES.to_owned());
                    return Err(ConnectError::CannotExpect { name, reason });
                }
            }
        }
        let peer = ip_uri::parse(SCHEME, to.uri)
            .and_then(|peer| ip_uri::from_here(peer, self.local))
            .map_err(bad_uri)?;
        if peer.ip().is_multicast() {
            return Err(bad_uri(
                "a multicast group has no streams; connect to it from a UDP device".to_owned(),
            ));
        }
        self.links.shared.now_ns = clock::now_ns();
        let stream = match Stream::connect(self.local, peer) {
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
        let hello = Preamble::Hello { attribute: to.attribute, mss: self.mss, payload }.bytes();
        if let Some(conn) = self.links.conns.get_mut(key) {
            (conn.hello, conn.request) = (hello, request);
            conn.expected = to.expected.map(Into::into);
            conn.peer = Some(peer);
            conn.until_ns = to.timeout_ns.map_or(u64::MAX, |ns| self.links.shared.now_ns.saturating_add(ns));
            self.links.deadlines.add(conn);
        }
        self.called(core, key, stream);
        Ok(key)
    }

    /// Tries to reach the peer.
    pub(super) fn call(&mut self, core: &mut Core, key: Key) {
        let Some(conn) = self.links.conns.get_mut(key) else { return };
        let Some(peer) = conn.peer else { return };
        conn.again_ns = u64::MAX;
        self.called(core, key, Stream::connect(self.local, peer));
    }

    /// Goes on with a stream that is being connected.
    fn called(&mut self, core: &mut Core, key: Key, stream: Result<Stream, SysError>) {
        let Some(conn) = self.links.conns.get_mut(key) else { return };
        conn.again_ns = u64::MAX;
        let (security, expected, host) = (self.security.as_ref(), conn.expected.as_deref(), conn.host());
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
                conn.watch(core);
                if is_connected {
                    self.connected(core, key);
                }
            }
            Err(error) => self.call_failed(core, key, &error),
        }
    }

    /// The stream of a connection that was dialled can be written, or has failed.
    pub(super) fn connected(&mut self, core: &mut Core, key: Key) {
        let Some(conn) = self.links.conns.get_mut(key) else { return };
        let Some(stream) = &mut conn.stream else { return };
        if let Err(error) = stream.take_error() {
            return self.call_failed(core, key, &error);
        }
        // A stream may meet itself, where nobody listens on the port that it was given.
        if stream.local_addr().is_ok() && stream.local_addr().ok() == stream.peer_addr().ok() {
            return self.links.fail(core, key, ConnectFailure::Refused);
        }
        if let Err(error) = conn.out.write(stream, &self.links.shared.sends) {
            return self.call_failed(core, key, &error);
        }
        let waits = conn.out.blocked && stream.waits_for_space();
        stream.watch(&core.poller, Some(if waits { Interest::Both } else { Interest::Read }));
    }

    /// The system, or the network, says why the peer was not reached.
    fn call_failed(&mut self, core: &mut Core, key: Key, error: &io::Error) {
        let now_ns = self.links.shared.now_ns;
        let Some(conn) = self.links.conns.get_mut(key) else { return };
        // Whoever has been called, and cuts the stream before the handshake is over, does not want this side.
        let is_cut = matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
            && conn.stream.as_ref().is_some_and(|stream| stream.is_shaking());
        let cut = Refusal { fault: Fault::Refused, why: ConnectFailure::NotPermitted };
        if let Some(refusal) = pipe::refusal(error).or(is_cut.then_some(cut)) {
            self.links.shared.counts.fault(refusal.fault);
            return self.links.fail(core, key, refusal.why);
        }
        if conn.is_heard {
            // What was asked for once is not asked for again.
            return self.links.fail(core, key, ConnectFailure::Disconnected);
        }
        match error.kind() {
            ErrorKind::ConnectionRefused => self.links.fail(core, key, ConnectFailure::Refused),
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                self.links.fail(core, key, ConnectFailure::Disconnected);
            }
            // The network may come back, ports and descriptors may become free: until the time is over.
            _ => {
                conn.unwatch(core);
                conn.stream = None;
                conn.again_ns = now_ns + AGAIN_NS;
                self.links.shared.counts.refused_system += 1;
                self.links.deadlines.add(conn);
            }
        }
    }

    /// The peer answers.
    pub(super) fn answered(&mut self, core: &mut Core, key: Key) {
        let Some(conn) = self.links.conns.get_mut(key) else { return };
        let Some(stream) = &mut conn.stream else { return };
        let (fault, why) = match super::handshake::read_preamble(stream, &mut conn.hello_answer) {
            Ok(None) => return,
            Ok(Some(said)) => return self.answered_with(core, key, said),
            Err(Unread::Gone) => (None, ConnectFailure::Disconnected),
            Err(Unread::Refused(refusal)) => (Some(refusal.fault), refusal.why),
            Err(Unread::Forged) => (Some(Fault::Forged), ConnectFailure::Disconnected),
            Err(Unread::Fault) => (Some(Fault::Handshake), ConnectFailure::Disconnected),
        };
        if let Some(fault) = fault {
            self.links.shared.counts.fault(fault);
        }
        self.links.fail(core, key, why);
    }

    fn answered_with(&mut self, core: &mut Core, key: Key, said: Preamble) {
        let Some(conn) = self.links.conns.get_mut(key) else { return };
        core.heard(conn.connection);
        match said {
            //= wire.md R-TCP-3
            Preamble::Heard if !conn.is_heard => {
                conn.is_heard = true;
                if !conn.request.is_empty() {
                    conn.out.send_first(&std::mem::take(&mut conn.request));
                    self.links.flush(core, key);
                }
                self.answered(core, key);
            }
            Preamble::Accept { mss, port, ticket } if conn.request.is_empty() => {
                conn.mss = mss.min(self.mss).min(MESSAGE_BYTES_MAX);
                conn.ticket = ticket;
                //= wire.md R-TCP-15
                conn.second_at = conn.peer.map(|mut peer| {
                    peer.set_port(port);
                    peer
                });
                (conn.hello, conn.hello_answer) = (Vec::new(), Vec::new());
                self.identify(core, key);
                self.links.open(core, key);
                //= wire.md R-TCP-3
                self.links.send_control(key, Kind::Confirm);
                self.links.flush(core, key);
            }
            Preamble::Reject { no_memory: true } => self.links.fail(core, key, ConnectFailure::NoMemory),
            Preamble::Reject { no_memory: false } => self.links.fail(core, key, ConnectFailure::Refused),
            Preamble::Version { theirs } => self.links.fail(core, key, ConnectFailure::Version { theirs }),
            Preamble::Hello { .. }
            | Preamble::Request { .. }
            | Preamble::Bulk { .. }
            | Preamble::Challenge { .. }
            | Preamble::Proof { .. }
            | Preamble::Accept { .. }
            | Preamble::OtherHello
            | Preamble::Heard => {
                self.links.shared.counts.fault(Fault::Handshake);
                self.links.fail(core, key, ConnectFailure::Disconnected);
            }
        }
    }
}
