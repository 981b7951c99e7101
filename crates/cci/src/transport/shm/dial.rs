//! The client's side of a handshake.

use super::hand::{Hand, Knock, Peer, Side, Stage};
use super::out::Control;
use super::wire::{Accept, Offer, PeerConn, Request, Said, kind};
use super::{RETRY_NS, Shm, name, token};
use crate::connection::Connection;
use crate::engine::core::Core;
use crate::security::NO_NAMES;
use crate::transport::Dial;
use crate::{ConnectError, ConnectFailure};
use cci_memory::slab::Key;
use cci_sys::clock;
use cci_sys::unix::{ReceivedFds, Stream};
use std::io;
use std::os::fd::AsFd;

impl Shm {
    pub(super) fn dial(
        &mut self,
        core: &mut Core,
        connection: Connection,
        to: &Dial<'_>,
    ) -> Result<Key, ConnectError> {
        if let Some(name) = to.expected {
            return Err(ConnectError::CannotExpect { name: name.to_owned(), reason: NO_NAMES.to_owned() });
        }
        let place = name::parse_uri(to.uri)?;
        self.common.connections.now_ns = clock::now_ns();
        let key =
            self.insert_conn(core, connection, to.attribute.is_reliable()).ok_or(ConnectError::NoMemory)?;
        let request = Request {
            endpoint: self.common.endpoint,
            conn: PeerConn { index: key.index, generation: key.generation },
            mss: self.common.connections.mss,
            attribute: to.attribute,
        };
        let knock =
            Knock { name: place.name, proof: to.proof, request, payload: to.request.to_vec(), again_ns: 0 };
        let deadline_ns =
            to.timeout_ns.map_or(u64::MAX, |ns| self.common.connections.now_ns.saturating_add(ns));
        let hand =
            Hand { stream: None, deadline_ns, stage: Stage::Knocking { conn: key, knock: Box::new(knock) } };
        let Ok(hand) = self.common.hands.insert(hand) else {
            self.common.connections.conns.remove(key);
            return Err(ConnectError::NoMemory);
        };
        if let Some(conn) = self.common.connections.conns.get_mut(key) {
            conn.at = hand;
        }
        if let Err(error) = self.knock(core, hand) {
            self.common.hands.remove(hand);
            self.common.connections.conns.remove(key);
            return Err(error.into());
        }
        Ok(key)
    }

    /// A new entry in the table of connections, if it fits under the cap.
    pub(super) fn insert_conn(
        &mut self,
        core: &Core,
        connection: Connection,
        is_reliable: bool,
    ) -> Option<Key> {
        let growth_bytes = self.common.connections.growth_bytes();
        if growth_bytes > 0 && self.held_bytes(core) + growth_bytes > core.options.memory_bytes_max {
            return None;
        }
        self.common.connections.insert(connection, is_reliable)
    }

    /// Tries to reach the server. Errors are the system's; whatever the server does ends in an event.
    pub(super) fn knock(&mut self, core: &mut Core, key: Key) -> Result<(), crate::SysError> {
        let Some(Hand { stage: Stage::Knocking { knock, conn }, .. }) = self.common.hands.get_mut(key) else {
            return Ok(());
        };
        let conn = *conn;
        let stream = match Stream::connect_warily(&knock.name) {
            Ok(stream) => stream,
            Err(error) => {
                let why = match error.kind() {
                    io::ErrorKind::WouldBlock => {
                        knock.again_ns = clock::now_ns() + RETRY_NS;
                        return Ok(());
                    }
                    io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => ConnectFailure::Refused,
                    io::ErrorKind::PermissionDenied => ConnectFailure::NotPermitted,
                    // A socket, but of another type: somebody else's.
                    _ if error.errno() == Some(ERRNO_PROTOTYPE) => ConnectFailure::Refused,
                    _ => return Err(error),
                };
                self.end_hand(core, key, why);
                return Ok(());
            }
        };
        let server = stream.peer_credentials()?;
        if !self.admission.trusts_server(server.uid, name::named_uid(&knock.name)) {
            self.common.connections.counts.not_permitted += 1;
            self.end_hand(core, key, ConnectFailure::NotPermitted);
            return Ok(());
        }
        stream.trust();
        // A server that has closed meanwhile may have said why: that is read, so a failure here is none.
        let said =
            if knock.proof.is_some() { Said::Who } else { Said::Request(knock.request, &knock.payload) };
        let _ = stream.send(said.bytes().as_slice(), &[]);
        core.poller.watch(stream.as_fd(), token::make(token::HAND, key))?;
        if let Some(hand) = self.common.hands.get_mut(key) {
            hand.stream = Some(stream);
            let was = std::mem::replace(&mut hand.stage, Stage::Asked { conn, server });
            if let Stage::Knocking { knock, .. } = was
                && knock.proof.is_some()
            {
                hand.stage = Stage::Proving { conn, server, knock };
            }
        }
        Ok(())
    }

    /// The server's program has accepted.
    pub(super) fn accepted(&mut self, core: &mut Core, key: Key, accept: Accept, fds: ReceivedFds) {
        let Some(hand) = self.common.hands.get(key) else { return };
        let Stage::Asked { conn, server } = hand.stage else { return };
        let peer = Peer { endpoint: accept.endpoint, pid: server.pid, uid: server.uid };
        match accept.offer {
            Offer::Join { server_made_it } => {
                let side = if server_made_it { Side::Client } else { Side::Server };
                self.join(core, key, conn, &accept, side, peer);
            }
            Offer::New { ring_bytes } => {
                if let Err(why) = self.answer_offer(core, key, conn, &accept, ring_bytes, peer, fds) {
                    self.end_hand(core, key, why);
                }
            }
        }
    }

    /// Rides on a link that is there already, if it is one with this server: who knows the number of another one gets no
    /// connection on that.
    fn join(&mut self, core: &mut Core, key: Key, conn: Key, accept: &Accept, side: Side, peer: Peer) {
        let link = self.links.with_id(accept.link_id, side).filter(|link| link.peer == peer);
        let Some(link) = link else {
            if !self.say_on(key, &Said::NoLink) {
                self.end_hand(core, key, ConnectFailure::Disconnected);
            }
            return;
        };
        let own = PeerConn { index: conn.index, generation: conn.generation };
        let said = link.send_control(Control::about(kind::CONFIRM, accept.conn, own));
        link.conns += 1;
        link.out.flush();
        let at = link.key;
        if let Some(hand) = self.common.hands.remove(key)
            && let Some(stream) = hand.stream
        {
            core.poller.unwatch(stream.as_fd());
        }
        self.common.connections.counts.links_joined += 1;
        self.common.open(core, conn, at, accept.conn, accept.mss);
        self.links.schedule(at);
        if said.is_err() {
            self.links.kill(&mut self.common, core, at);
        }
    }

    #[allow(clippy::too_many_arguments, reason = "one caller, and all of it was just parsed")]
    fn answer_offer(
        &mut self,
        core: &mut Core,
        key: Key,
        conn: Key,
        accept: &Accept,
        ring_bytes: u32,
        peer: Peer,
        fds: ReceivedFds,
    ) -> Result<(), ConnectFailure> {
        let half = self.make_half(core, &peer).map_err(|error| error.why())?;
        let own_ring_bytes = half.ring_bytes;
        let sent = match (self.common.hands.get(key), half.segment.fd()) {
            (Some(Hand { stream: Some(stream), .. }), Some(segment)) => {
                let confirm = Said::Confirm { ring_bytes: own_ring_bytes };
                stream.send(confirm.bytes().as_slice(), &[segment, half.bell.as_fd()]).is_ok()
            }
            _ => false,
        };
        if !sent {
            self.links.discharge_ring(own_ring_bytes);
            return Err(ConnectFailure::Disconnected);
        }
        let ends = self.join_halves(half, ring_bytes, fds)?;
        let Some(lifeline) = self.common.hands.get_mut(key).and_then(|hand| hand.stream.take()) else {
            return Err(ConnectFailure::Disconnected);
        };
        let link = self.insert_link(core, ends, lifeline, accept.link_id, Side::Client, peer)?;
        self.common.hands.remove(key);
        self.common.open(core, conn, link, accept.conn, accept.mss);
        Ok(())
    }
}

/// EPROTOTYPE, without a dependency for one number: so on every Linux but that of MIPS, SPARC and Alpha.
const ERRNO_PROTOTYPE: i32 = 91;
