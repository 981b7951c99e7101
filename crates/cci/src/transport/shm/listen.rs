//! The server's side of a handshake.

use super::hand::{Guest, Half, Hand, Peer, Side, Stage};
use super::handshake::NotOffered;
use super::wire::{Accept, Offer, PeerConn, Request, Said};
use super::{
    HANDS_SILENT_MAX, HANDSHAKE_NS_MAX, LISTEN_AGAIN_NS, SILENCE_NS_MAX, SILENCE_NS_MIN, Shm, token,
};
use crate::connection::Connection;
use crate::device::TransportKind;
use crate::engine::core::Core;
use crate::engine::origin::{Fate, RequestBody, RequestInner};
use crate::transport::crowd::oldest_of_most;
use crate::{AcceptError, ConnectFailure, limits};
use cci_memory::slab::Key;
use cci_sys::clock;
use cci_sys::unix::{ReceivedFds, Stream};
use std::os::fd::AsFd;
use std::sync::Arc;

/// Clients let in at one go.
const ACCEPTS_PER_POLL_MAX: u32 = 32;

/// A request that the program holds: all that any shared-memory endpoint needs to accept it.
pub(super) struct Asker {
    stream: Stream,
    request: Request,
    pub(super) peer: Peer,
}

impl Shm {
    /// Clients knock.
    pub(super) fn let_in(&mut self, core: &mut Core) {
        for _ in 0..ACCEPTS_PER_POLL_MAX {
            if self.shown.total() >= limits::REQUESTS_MAX || !self.make_room_for_silent(core) {
                return self.pause_listening(core);
            }
            let Some(listener) = &self.listener else { return };
            match listener.accept() {
                Ok(Some(stream)) => self.knocked(core, stream),
                Ok(None) => return,
                Err(_) => {
                    // Out of descriptors, most likely: those who wait in the queue go on waiting.
                    self.common.connections.counts.system_errors += 1;
                    return self.pause_listening(core);
                }
            }
        }
    }

    /// Room for one more client that has said nothing: of too many the oldest has to go of the process that has the most, if
    /// it had its time.
    fn make_room_for_silent(&mut self, core: &mut Core) -> bool {
        if self.silent < HANDS_SILENT_MAX {
            return true;
        }
        let silent = self.common.hands.iter().filter_map(|(key, hand)| match hand.stage {
            Stage::Silent { peer, since_ns, .. } => Some(((peer.uid, peer.pid), since_ns, key)),
            _ => None,
        });
        let had_its_time =
            |since_ns: u64| since_ns.saturating_add(SILENCE_NS_MIN) <= self.common.connections.now_ns;
        let Some((key, _)) = oldest_of_most(silent).filter(|(_, since_ns)| had_its_time(*since_ns)) else {
            return false;
        };
        self.common.connections.counts.handshake_timed_out += 1;
        self.end_hand(core, key, ConnectFailure::Disconnected);
        true
    }

    /// Those who knock meanwhile wait in the kernel's queue.
    fn pause_listening(&mut self, core: &Core) {
        if let Some(listener) = self.listener.as_ref().filter(|_| self.listen_again_ns.is_none()) {
            core.poller.unwatch(listener.as_fd());
        }
        self.listen_again_ns = Some(self.common.connections.now_ns + LISTEN_AGAIN_NS);
    }

    pub(super) fn listen_again(&mut self, core: &mut Core) {
        let Some(listener) = &self.listener else { return };
        if core.poller.watch(listener.as_fd(), token::make(token::LISTENER, token::NOWHERE)).is_ok() {
            self.listen_again_ns = None;
            self.let_in(core);
        } else {
            self.listen_again_ns = Some(self.common.connections.now_ns + LISTEN_AGAIN_NS);
        }
    }

    fn knocked(&mut self, core: &mut Core, stream: Stream) {
        let peer = match stream.peer_credentials() {
            Ok(peer) if self.admission.admits_client(peer.uid) => peer,
            _ => {
                self.common.connections.counts.not_permitted += 1;
                let _ = stream.send(Said::Refuse(ConnectFailure::NotPermitted).bytes().as_slice(), &[]);
                return;
            }
        };
        stream.trust();
        let deadline_ns = self.common.connections.now_ns.saturating_add(SILENCE_NS_MAX);
        let stage = Stage::Silent { peer, since_ns: self.common.connections.now_ns, has_asked: false };
        let Ok(key) = self.common.hands.insert(Hand { stream: None, deadline_ns, stage }) else {
            return;
        };
        if core.poller.watch(stream.as_fd(), token::make(token::HAND, key)).is_err() {
            self.common.connections.counts.system_errors += 1;
            self.common.hands.remove(key);
            return;
        }
        self.silent += 1;
        if let Some(hand) = self.common.hands.get_mut(key) {
            hand.stream = Some(stream);
        }
        // The request is usually there already.
        self.hand_ready(core, key);
    }

    /// A client said what it wants; it becomes an event.
    pub(super) fn request_came(&mut self, core: &mut Core, key: Key, request: Request, payload: &[u8]) {
        let Some(hand) = self.common.hands.remove(key) else { return };
        self.silent = self.silent.saturating_sub(1);
        let (Some(stream), Stage::Silent { peer, .. }) = (hand.stream, hand.stage) else { return };
        core.poller.unwatch(stream.as_fd());
        let who = match peer.pid {
            Some(pid) => format!("process {pid} of user {}", peer.uid),
            None => format!("a process of user {} in another container", peer.uid),
        };
        let peer = Peer { endpoint: request.endpoint, pid: peer.pid, uid: peer.uid };
        let ticket = peer.process();
        if !self.shown.enter(ticket) {
            self.common.connections.counts.requests_over_quota += 1;
            let _ = stream.send(Said::Refuse(ConnectFailure::NoMemory).bytes().as_slice(), &[]);
            return;
        }
        core.requested(RequestBody {
            payload: payload.to_vec(),
            attribute: request.attribute,
            peer: who,
            via: TransportKind::Shm,
            ticket,
            inner: Box::new(Asker { stream, request, peer }),
            identity: None,
            origin: core.origin.clone(),
        });
    }

    pub(super) fn refuse(&mut self, ticket: u64, inner: RequestInner) {
        self.shown.leave(ticket);
        if let Ok(asker) = inner.downcast::<Asker>() {
            // If the client is gone already, there is nobody to tell.
            let _ = asker.stream.send(Said::Refuse(ConnectFailure::Refused).bytes().as_slice(), &[]);
        }
    }

    /// The program accepts, on this endpoint, a request that came to this one or to another.
    pub(super) fn accept_request(
        &mut self,
        core: &mut Core,
        connection: Connection,
        body: RequestBody,
    ) -> Result<Key, AcceptError> {
        let RequestBody { payload, attribute, peer, identity, via, ticket, inner, origin } = body;
        let asker = match inner.downcast::<Asker>() {
            Ok(asker) => *asker,
            Err(inner) => {
                RequestBody { payload, attribute, peer, identity, via, ticket, inner, origin }.refuse();
                return Err(AcceptError::OtherDevice);
            }
        };
        if Arc::ptr_eq(&origin, &core.origin) {
            self.shown.leave(ticket);
        }
        self.common.connections.now_ns = clock::now_ns();
        let result = self.accept_asker(core, connection, asker, attribute.is_reliable());
        if result.is_err() && !Arc::ptr_eq(&origin, &core.origin) {
            origin.tell(Fate::Taken { via, ticket });
        }
        result
    }

    fn accept_asker(
        &mut self,
        core: &mut Core,
        connection: Connection,
        asker: Asker,
        is_reliable: bool,
    ) -> Result<Key, AcceptError> {
        let Asker { stream, request, peer } = asker;
        // The request may have come to an endpoint that admits more.
        if !self.admission.admits_client(peer.uid) {
            self.common.connections.counts.not_permitted += 1;
            let _ = stream.send(Said::Refuse(ConnectFailure::NotPermitted).bytes().as_slice(), &[]);
            return Err(AcceptError::NotPermitted);
        }
        if stream.hung_up() {
            return Err(AcceptError::Gone);
        }
        let refuse = |stream: Stream| {
            let _ = stream.send(Said::Refuse(ConnectFailure::NoMemory).bytes().as_slice(), &[]);
            Err(AcceptError::NoMemory)
        };
        let Some(conn) = self.insert_conn(core, connection, is_reliable) else { return refuse(stream) };
        let guest = Guest { conn, theirs: request.conn, mss: request.mss, peer };
        let deadline_ns = self.common.connections.now_ns.saturating_add(HANDSHAKE_NS_MAX);
        let hand = Hand { stream: None, deadline_ns, stage: Stage::Waiting { guest } };
        let Ok(key) = self.common.hands.insert(hand) else {
            self.common.connections.conns.remove(conn);
            return refuse(stream);
        };
        if let Err(error) = core.poller.watch(stream.as_fd(), token::make(token::HAND, key)) {
            self.common.hands.remove(key);
            self.common.connections.conns.remove(conn);
            let _ = refuse(stream);
            return Err(error.into());
        }
        if let Some(hand) = self.common.hands.get_mut(key) {
            hand.stream = Some(stream);
        }
        if let Some(conn) = self.common.connections.conns.get_mut(conn) {
            conn.at = key;
        }
        match self.offer(core, key, guest, true) {
            Ok(()) => Ok(conn),
            Err(error) => {
                let why = error.why();
                self.say_on(key, &Said::Refuse(why));
                // Out of the table first: an accept that returns an error ends in no event.
                self.common.connections.conns.remove(conn);
                self.end_hand(core, key, why);
                Err(match error {
                    NotOffered::System(error) => AcceptError::System(error),
                    NotOffered::Why(ConnectFailure::NoMemory) => AcceptError::NoMemory,
                    NotOffered::Why(_) => AcceptError::Gone,
                })
            }
        }
    }

    /// Offers a client a link: one that is there, or a new one; or waits for the one being made.
    fn offer(&mut self, core: &mut Core, key: Key, guest: Guest, may_join: bool) -> Result<(), NotOffered> {
        if let Some(link) = self.links.with_peer(&guest.peer).filter(|_| may_join) {
            let offer = Offer::Join { server_made_it: link.side == Side::Server };
            link.conns += 1;
            let (id, link) = (link.id, link.key);
            self.set_stage(key, Stage::Joining { guest, link });
            return Ok(self.say_accept(key, guest, id, offer, None)?);
        }
        if may_join && self.offers.contains_key(&guest.peer) {
            self.set_stage(key, Stage::Waiting { guest });
            return Ok(());
        }
        self.offers.try_reserve(1).map_err(|_| ConnectFailure::NoMemory)?;
        let half = self.make_half(core, &guest.peer)?;
        let offer = Offer::New { ring_bytes: half.ring_bytes };
        self.say_accept(key, guest, half.link_id, offer, Some(&half)).inspect_err(|_| {
            self.links.discharge_ring(half.ring_bytes);
        })?;
        self.set_stage(key, Stage::Offered { guest, half: Box::new(half) });
        self.offers.insert(guest.peer, key);
        Ok(())
    }

    fn set_stage(&mut self, key: Key, stage: Stage) {
        // Its deadline stays what it was when the program accepted: what others of the same process do prolongs nothing.
        if let Some(hand) = self.common.hands.get_mut(key) {
            hand.stage = stage;
        }
    }

    fn say_accept(
        &self,
        key: Key,
        guest: Guest,
        link_id: u64,
        offer: Offer,
        half: Option<&Half>,
    ) -> Result<(), ConnectFailure> {
        let conn = PeerConn { index: guest.conn.index, generation: guest.conn.generation };
        let accept =
            Accept { endpoint: self.common.endpoint, link_id, conn, mss: self.common.connections.mss, offer };
        let Some(Hand { stream: Some(stream), .. }) = self.common.hands.get(key) else {
            return Err(ConnectFailure::Disconnected);
        };
        let message = Said::Accept(accept).bytes();
        let sent = match half.and_then(|half| half.segment.fd().map(|segment| (segment, half.bell.as_fd()))) {
            Some((segment, bell)) => stream.send(message.as_slice(), &[segment, bell]),
            None => stream.send(message.as_slice(), &[]),
        };
        sent.map_err(|_| ConnectFailure::Disconnected)
    }

    /// The client has let go of the link that it was to join: make a new one.
    pub(super) fn offer_anew(&mut self, core: &mut Core, key: Key) {
        let Some(Hand { stage: Stage::Joining { guest, link }, .. }) = self.common.hands.get(key) else {
            return;
        };
        let (guest, link) = (*guest, *link);
        self.set_stage(key, Stage::Waiting { guest });
        self.links.leave(link);
        self.offer_or_end(core, key, guest, false);
    }

    fn offer_or_end(&mut self, core: &mut Core, key: Key, guest: Guest, may_join: bool) {
        if let Err(error) = self.offer(core, key, guest, may_join) {
            let why = error.why();
            self.say_on(key, &Said::Refuse(why));
            self.end_hand(core, key, why);
        }
    }

    /// The client has taken the offer: the link is made.
    pub(super) fn confirmed(&mut self, core: &mut Core, key: Key, ring_bytes: u32, fds: ReceivedFds) {
        let Some(hand) = self.common.hands.remove(key) else { return };
        let (Some(stream), Stage::Offered { guest, half }) = (hand.stream, hand.stage) else { return };
        core.poller.unwatch(stream.as_fd());
        let id = half.link_id;
        let made = self
            .join_halves(*half, ring_bytes, fds)
            .and_then(|ends| self.insert_link(core, ends, stream, id, Side::Server, guest.peer));
        match made {
            Ok(link) => self.common.open(core, guest.conn, link, guest.theirs, guest.mss),
            Err(why) => self.common.connections.fail(core, guest.conn, why),
        }
        self.offer_ended(core, guest.peer);
    }

    /// A link was made, or was not: those who waited for it have their turn.
    pub(super) fn offer_ended(&mut self, core: &mut Core, peer: Peer) {
        self.offers.remove(&peer);
        let waiting: Vec<(Key, Guest)> = self
            .common
            .hands
            .iter()
            .filter_map(|(key, hand)| match hand.stage {
                Stage::Waiting { guest } if guest.peer == peer => Some((key, guest)),
                _ => None,
            })
            .collect();
        for (key, guest) in waiting {
            self.offer_or_end(core, key, guest, true);
        }
    }
}
