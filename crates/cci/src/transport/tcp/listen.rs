//! The side of a handshake that listens.

use super::conn::State;
use super::counts::Fault;
use super::handshake::{Handshake, Stage};
use super::pipe::Pipe;
use super::preamble::{Preamble, Ticket};
use super::requests::Request;
use super::watched::Watched;
use super::{SILENCE_NS_MAX, Tcp};
use crate::connection::Connection;
use crate::engine::core::Core;
use crate::engine::peer::Peer;
use crate::engine::requests::RequestBody;
use crate::error::AcceptError;
use crate::limits::MESSAGE_BYTES_MAX;
use crate::transport::token;
use cci_memory::slab::Key;
use cci_sys::event::Interest;
use cci_sys::{clock, random};
use std::io::ErrorKind;
use std::os::fd::AsFd;

/// Clients let in by one poll.
const LET_IN_MAX: usize = 32;
/// Time for which an endpoint does not listen when no more clients can be let in.
const LISTEN_AGAIN_NS: u64 = 5_000_000;
/// How long an accepted client may take to confirm, at least and at most.
const CONFIRM_NS_MIN: u64 = 1_000_000_000;
const CONFIRM_NS_MAX: u64 = 30_000_000_000;

impl Tcp {
    /// Clients have connected.
    pub(super) fn let_in(&mut self, core: &mut Core) {
        for _ in 0..LET_IN_MAX {
            if !self.make_place_for_client(core) {
                //= wire.md R-TCP-3
                return self.pause(core);
            }
            let Some(listener) = &self.listener else { return };
            let (stream, peer) = match listener.accept() {
                Ok(client) => client,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    // No descriptors, say: those who wait go on waiting.
                    self.links.shared.counts.refused_system += 1;
                    return self.pause(core);
                }
            };
            let since_ns = self.links.shared.now_ns;
            let until_ns = since_ns + SILENCE_NS_MAX;
            let stream = Pipe::accepted(stream, self.security.as_ref(), peer.into());
            let (peer, bytes, stage) = (Some(peer), Vec::new(), Stage::Silent);
            let handshake = Handshake { stream, peer, since_ns, until_ns, bytes, stage };
            let Some(key) = self.handshakes.insert(handshake) else { return self.pause(core) };
            self.handshakes_due_ns = self.handshakes_due_ns.min(until_ns);
            self.watch_handshake(core, key, Interest::Read);
            // What it wants has come with it as a rule.
            self.handshake_ready(core, key);
        }
    }

    /// Does not listen for a moment.
    fn pause(&mut self, core: &Core) {
        if let Some(listener) = self.listener.as_ref().filter(|_| self.listen_again_ns.is_none()) {
            core.poller.unwatch(listener.as_fd());
        }
        self.listen_again_ns = Some(self.links.shared.now_ns + LISTEN_AGAIN_NS);
    }

    /// Listens again, once it is time.
    pub(super) fn listen_again(&mut self, core: &mut Core) {
        if self.watch_listener(&core.poller).is_ok() {
            self.listen_again_ns = None;
            self.let_in(core);
        } else {
            self.listen_again_ns = Some(self.links.shared.now_ns + LISTEN_AGAIN_NS);
        }
    }

    /// The program accepts a request, which may have come to another endpoint.
    pub(super) fn accept_request(
        &mut self,
        core: &mut Core,
        connection: Connection,
        mut request: RequestBody,
    ) -> Result<Key, AcceptError> {
        let inner = match request.inner.downcast::<Request>() {
            Ok(inner) => inner,
            Err(other) => {
                request.inner = other;
                request.refuse();
                return Err(AcceptError::OtherDevice);
            }
        };
        if std::sync::Arc::ptr_eq(&request.inbox, &core.requests) {
            self.request_decided(request.ticket);
        }
        self.links.shared.now_ns = clock::now_ns();
        // A client that has given up has closed its end.
        let gone = match inner.stream.peek(&mut [0]) {
            Err(error) => error.kind() != ErrorKind::WouldBlock,
            // It has nothing to say before it is accepted.
            Ok(_) => true,
        };
        if gone {
            return Err(AcceptError::Gone);
        }
        let Request { mut stream, peer, mss } = *inner;
        let is_reliable = request.attribute.is_reliable();
        if is_reliable && stream.local_addr().is_ok_and(|at| at.ip() != self.local.ip()) {
            // The client dials the second stream where it has dialled the first.
            let _ = stream.send(&Preamble::Reject { no_memory: false }.bytes());
            return Err(AcceptError::OtherDevice);
        }
        let may_not = self.peer_on(&stream).is_some_and(|who| !who.rights.connect);
        if may_not || self.requires_security() && stream.peer().is_none() {
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
        let Some(key) = self.links.insert(connection, State::Accepting, is_reliable) else {
            return Err(refuse(&mut stream));
        };
        let Some(conn) = self.links.conns.get_mut(key) else { return Err(refuse(&mut stream)) };
        stream.want();
        conn.mss = mss.min(self.mss).min(MESSAGE_BYTES_MAX);
        conn.peer = Some(peer);
        conn.ticket = Ticket { key: key.to_bits(), secret };
        conn.until_ns = self.links.shared.now_ns
            + self.links.defaults.send_timeout_ns.clamp(CONFIRM_NS_MIN, CONFIRM_NS_MAX);
        //= wire.md R-TCP-3
        let accept = Preamble::Accept { mss: self.mss, port: self.local.port(), ticket: conn.ticket };
        conn.out.send_first(&accept.bytes());
        conn.stream = Some(Watched::new(stream, token::make(token::CONN, key)));
        self.identify(core, key);
        if let Some(conn) = self.links.conns.get_mut(key) {
            conn.watch(core);
            self.links.deadlines.add(conn);
        }
        self.links.flush(core, key);
        // If it has ended at once the event is there already, and the key names nothing any more.
        Ok(key)
    }

    /// Who is at the other end and what it may do here; `None` where nobody is told apart.
    pub(super) fn peer_on(&self, stream: &Pipe) -> Option<Peer> {
        let identity = stream.peer().and_then(|peer| peer.identity);
        let rights = match &self.security {
            Some(security) => security.sealing.rights(identity.as_ref()),
            // It came to another endpoint, which tells peers apart.
            None => stream.peer()?.rights,
        };
        Some(Peer { identity, rights })
    }

    fn requires_security(&self) -> bool {
        self.security.as_ref().is_some_and(|security| security.sealing.required)
    }

    /// Has the engine know who is at the other end, before that can ask for anything.
    pub(super) fn identify(&self, core: &mut Core, key: Key) {
        let Some(conn) = self.links.conns.get(key) else { return };
        if let Some(who) = conn.stream.as_ref().and_then(|stream| self.peer_on(stream)) {
            core.identify(conn.connection, &who);
        }
    }

    /// Clients that said nothing, and second streams that were not made.
    pub(super) fn time_out_handshakes(&mut self, core: &mut Core) {
        let now_ns = self.links.shared.now_ns;
        let over: Vec<Key> = self
            .handshakes
            .iter()
            .filter(|(_, handshake)| handshake.until_ns <= now_ns)
            .map(|(key, _)| key)
            .collect();
        for key in over {
            let stage = self.handshakes.get(key).map(|handshake| &handshake.stage);
            let is_silent = stage.is_some_and(|stage| stage.is_client() && !stage.is_waiting());
            self.end_handshake(core, key, is_silent.then_some(Fault::Silent));
        }
        self.show_waiting(core);
        self.handshakes_due_ns =
            self.handshakes.iter().map(|(_, handshake)| handshake.until_ns).min().unwrap_or(u64::MAX);
        self.dial_seconds_again(core);
    }
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

    /// The client goes between the last look at its stream and the answer to it.
    #[test]
    fn a_client_lost_in_the_moment_of_accepting_is_told_of() {
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
                        // What is written fails now, though the peer has not closed.
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
