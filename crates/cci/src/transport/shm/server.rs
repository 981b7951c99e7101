//! The server's side of handshakes: from a client's first message to a link or a refusal.

use super::admission::Admission;
use super::budget::NoHalf;
use super::common::Common;
use super::handshake::{PendingPeer, Stage};
use super::link::Link;
use super::listening::Listening;
use super::peer::{Peer, Side};
use super::proof::Proof;
use super::quota::Requests;
use super::step::Step;
use super::wire::{self, Accept, Message, NotUnderstood, Offer, PeerConn, Request};
use crate::connection::Connection;
use crate::device::TransportKind;
use crate::engine::requests::{Decision, RequestBody, RequestInner};
use crate::transport::eviction::oldest_of_most;
use crate::{AcceptError, ConnectFailure, limits};
use cci_memory::slab::Key;
use cci_sys::clock;
use cci_sys::unix::{ReceivedFds, Stream};
use std::collections::HashMap;
use std::sync::Arc;

/// How long a client may wait with its first message after it has connected.
const SILENCE_NS_MAX: u64 = 1_000_000_000;
/// A client always has this time, however many others connect.
const SILENCE_NS_MIN: u64 = 200_000_000;
/// How long an accepted client may take to confirm. Its death would show at once, so this is for a client that hangs or polls
/// seldom.
const HANDSHAKE_NS_MAX: u64 = if cfg!(test) { 2_000_000_000 } else { 30_000_000_000 };
/// The most clients that may have connected and sent nothing yet. More of them wait in the kernel's queue.
pub(super) const SILENT_MAX: u32 = 256;

/// What any shared-memory endpoint needs to accept a request that the program holds.
pub(super) struct Asked {
    stream: Stream,
    request: Request,
    pub(super) peer: Peer,
}

/// The server's side of an endpoint's handshakes.
pub(super) struct Server {
    /// Whose processes may connect.
    pub admission: Admission,
    /// The secret for clients that ask who listens here; `None` if such clients are refused.
    pub proof: Option<Proof>,
    pub listening: Listening,
    /// How many admitted clients have sent nothing yet.
    silent: u32,
    /// Requests that the program holds.
    pub held: Requests,
    /// The handshakes in which a new link was offered and not yet confirmed.
    offers: HashMap<Peer, Key>,
}

impl Server {
    pub fn new(admission: Admission, proof: Option<Proof>, listening: Listening) -> Server {
        let (held, offers) = (Requests::default(), HashMap::new());
        Server { admission, proof, listening, silent: 0, held, offers }
    }

    /// Admits the next client that waits, and returns its handshake. `None`: no client waits, or there are too many.
    /// `Some(None)`: the client may not connect.
    pub fn let_in(&mut self, step: &mut Step<'_>) -> Option<Option<Key>> {
        let now_ns = step.common.connections.now_ns;
        if self.held.total() >= limits::REQUESTS_MAX || !self.make_space_for_silent(step) {
            self.listening.pause(&step.core.poller, now_ns);
            return None;
        }
        match self.listening.accept() {
            Ok(stream) => stream.map(|stream| self.client_came(step, stream)),
            Err(_) => {
                // Most likely no descriptors are left. Clients in the queue go on waiting.
                step.common.connections.counts.system_errors += 1;
                self.listening.pause(&step.core.poller, now_ns);
                None
            }
        }
    }

    /// Makes space for one more client that has sent nothing. If there are too many, the process with the most of them loses its
    /// oldest, unless that is still too young. Returns false if there is no space.
    fn make_space_for_silent(&mut self, step: &mut Step<'_>) -> bool {
        if self.silent < SILENT_MAX {
            return true;
        }
        let now_ns = step.common.connections.now_ns;
        let silent = step.common.handshakes.iter().filter_map(|(key, handshake)| match handshake.stage {
            Stage::Silent { peer, since_ns, .. } => Some(((peer.uid, peer.pid), since_ns, key)),
            _ => None,
        });
        let had_its_time = |since_ns: u64| since_ns.saturating_add(SILENCE_NS_MIN) <= now_ns;
        let Some((key, _)) = oldest_of_most(silent).filter(|(_, since_ns)| had_its_time(*since_ns)) else {
            return false;
        };
        step.common.connections.counts.handshake_timed_out += 1;
        self.end(step, key, ConnectFailure::Disconnected);
        true
    }

    fn client_came(&mut self, step: &mut Step<'_>, stream: Stream) -> Option<Key> {
        let connections = &mut step.common.connections;
        let peer = match stream.peer_credentials() {
            Ok(peer) if self.admission.admits_client(peer.uid) => peer,
            _ => {
                connections.counts.not_permitted += 1;
                refuse(&stream, ConnectFailure::NotPermitted);
                return None;
            }
        };
        stream.trust();
        let since_ns = connections.now_ns;
        let stage = Stage::Silent { peer, since_ns, has_asked: false };
        let key = step.common.handshakes.insert(since_ns.saturating_add(SILENCE_NS_MAX), stage)?;
        if step.common.handshakes.watch(&step.core.poller, key, stream).is_err() {
            connections.counts.system_errors += 1;
            step.common.handshakes.remove(&step.core.poller, key);
            return None;
        }
        self.silent += 1;
        Some(key)
    }

    /// Handles a message that came from a client.
    pub fn heard(
        &mut self,
        step: &mut Step<'_>,
        key: Key,
        message: Result<Message<'_>, NotUnderstood>,
        fds: ReceivedFds,
    ) {
        let Some(handshake) = step.common.handshakes.get(key) else { return };
        match (&handshake.stage, message) {
            (Stage::Silent { .. }, Ok(Message::Request(request, payload))) => {
                self.request_came(step, key, request, payload);
            }
            // This works only once, since each answer gives the client more time.
            (Stage::Silent { has_asked: false, .. }, Ok(Message::Who)) => self.show_proof(step, key),
            (Stage::Offered { .. }, Ok(Message::Confirm { ring_bytes })) => {
                self.confirmed(step, key, ring_bytes, fds);
            }
            (Stage::Joining { .. }, Ok(Message::NoLink)) => self.offer_anew(step, key),
            (Stage::Silent { .. }, Err(NotUnderstood::Version(_))) => {
                // The head of our answer shows which version we use.
                step.common.connections.counts.bad_handshake += 1;
                handshake.send(&Message::Refuse(ConnectFailure::Version { theirs: wire::VERSION }));
                self.end(step, key, ConnectFailure::Refused);
            }
            (_, Err(NotUnderstood::Version(theirs))) => {
                self.end(step, key, ConnectFailure::Version { theirs });
            }
            (Stage::Silent { .. }, Ok(Message::Refuse(_))) => {
                self.end(step, key, ConnectFailure::Disconnected)
            }
            (_, Ok(Message::Refuse(why))) => self.end(step, key, why),
            _ => {
                step.common.connections.counts.bad_handshake += 1;
                handshake.send(&Message::Refuse(ConnectFailure::Refused));
                self.end(step, key, ConnectFailure::Disconnected);
            }
        }
    }

    /// Handles the hang-up of a client. A client that confirms through the ring, perhaps behind other records, needs its socket
    /// no more.
    pub fn hung_up(&mut self, step: &mut Step<'_>, key: Key) {
        let Some(handshake) = step.common.handshakes.get_mut(key) else { return };
        match handshake.stage {
            Stage::Joining { link, .. } if step.links.table.get(link).is_some() => {
                step.common.handshakes.release(&step.core.poller, key);
            }
            _ => self.end(step, key, ConnectFailure::Disconnected),
        }
    }

    /// Shows our secret to a client that asks who we are.
    fn show_proof(&mut self, step: &mut Step<'_>, key: Key) {
        let Some(handshake) = step.common.handshakes.get_mut(key) else { return };
        let is_shown = match (&self.proof, &handshake.stream) {
            (Some(proof), Some(stream)) => proof.show(stream),
            _ => false,
        };
        if is_shown {
            // The client's program must poll before its request comes.
            handshake.deadline_ns = clock::now_ns().saturating_add(HANDSHAKE_NS_MAX);
            if let Stage::Silent { has_asked, .. } = &mut handshake.stage {
                *has_asked = true;
            }
        } else {
            handshake.send(&Message::Refuse(ConnectFailure::Refused));
            self.end(step, key, ConnectFailure::Disconnected);
        }
    }

    /// Turns a client's request into an event for the program.
    fn request_came(&mut self, step: &mut Step<'_>, key: Key, request: Request, payload: &[u8]) {
        let Some(handshake) = step.common.handshakes.remove(&step.core.poller, key) else { return };
        self.silent = self.silent.saturating_sub(1);
        let (Some(stream), Stage::Silent { peer, .. }) = (handshake.stream, handshake.stage) else { return };
        let who = match peer.pid {
            Some(pid) => format!("process {pid} of user {}", peer.uid),
            None => format!("a process of user {} in another container", peer.uid),
        };
        let peer = Peer { endpoint: request.endpoint, pid: peer.pid, uid: peer.uid };
        let ticket = peer.process();
        if !self.held.enter(ticket) {
            step.common.connections.counts.requests_over_quota += 1;
            refuse(&stream, ConnectFailure::NoMemory);
            return;
        }
        let inbox = step.core.requests.clone();
        step.core.requested(RequestBody {
            payload: payload.to_vec(),
            attribute: request.attribute,
            peer: who,
            via: TransportKind::Shm,
            ticket,
            inner: Box::new(Asked { stream, request, peer }),
            identity: None,
            inbox,
        });
    }

    /// Refuses a request, as the program wants it.
    pub fn refuse(&mut self, ticket: u64, inner: RequestInner) {
        self.held.leave(ticket);
        if let Ok(asked) = inner.downcast::<Asked>() {
            refuse(&asked.stream, ConnectFailure::Refused);
        }
    }

    /// Accepts a request that came to this endpoint or to another.
    pub fn accept(
        &mut self,
        step: &mut Step<'_>,
        connection: Connection,
        body: RequestBody,
    ) -> Result<Key, AcceptError> {
        let (asked, RequestBody { attribute, via, ticket, inbox, .. }) = body.claim::<Asked>()?;
        if Arc::ptr_eq(&inbox, &step.core.requests) {
            self.held.leave(ticket);
        }
        step.common.connections.now_ns = clock::now_ns();
        let result = self.accept_asked(step, connection, *asked, attribute.is_reliable());
        if result.is_err() && !Arc::ptr_eq(&inbox, &step.core.requests) {
            inbox.put(Decision::AcceptedElsewhere { via, ticket });
        }
        result
    }

    fn accept_asked(
        &mut self,
        step: &mut Step<'_>,
        connection: Connection,
        asked: Asked,
        is_reliable: bool,
    ) -> Result<Key, AcceptError> {
        let Asked { stream, request, peer } = asked;
        let Common { connections, handshakes, .. } = &mut *step.common;
        // The request may have come to an endpoint that admits processes of more users.
        if !self.admission.admits_client(peer.uid) {
            connections.counts.not_permitted += 1;
            refuse(&stream, ConnectFailure::NotPermitted);
            return Err(AcceptError::NotPermitted);
        }
        if stream.hung_up() {
            return Err(AcceptError::Gone);
        }
        let deadline_ns = connections.now_ns.saturating_add(HANDSHAKE_NS_MAX);
        let pending = |conn| PendingPeer { conn, theirs: request.conn, mss: request.mss, peer };
        let begin = |conn| handshakes.insert(deadline_ns, Stage::Waiting { pending: pending(conn) });
        let made = step.budget.insert_conn(step.links, connections, connection, is_reliable, begin);
        let Some((conn, key)) = made else {
            refuse(&stream, ConnectFailure::NoMemory);
            return Err(AcceptError::NoMemory);
        };
        if let Err((error, stream)) = handshakes.watch(&step.core.poller, key, stream) {
            handshakes.remove(&step.core.poller, key);
            connections.conns.remove(conn);
            refuse(&stream, ConnectFailure::NoMemory);
            return Err(error.into());
        }
        match self.offer(step, key, pending(conn), true) {
            Ok(()) => Ok(conn),
            Err(error) => {
                let why = error.why();
                if let Some(handshake) = step.common.handshakes.get(key) {
                    handshake.send(&Message::Refuse(why));
                }
                // The connection leaves the table first: an accept that returns an error must not also end in an event.
                step.common.connections.conns.remove(conn);
                self.end(step, key, why);
                Err(match error {
                    NoHalf::System(error) => AcceptError::System(error),
                    NoHalf::Why(ConnectFailure::NoMemory) => AcceptError::NoMemory,
                    NoHalf::Why(_) => AcceptError::Gone,
                })
            }
        }
    }

    /// Offers a client a link: an existing one with its endpoint, or a new one. If one is being made, waits for that.
    fn offer(
        &mut self,
        step: &mut Step<'_>,
        key: Key,
        pending: PendingPeer,
        may_join: bool,
    ) -> Result<(), NoHalf> {
        let Common { endpoint, connections, handshakes, .. } = &mut *step.common;
        let conn = PeerConn { index: pending.conn.index, generation: pending.conn.generation };
        let (endpoint, mss) = (*endpoint, connections.mss);
        let accept = |link_id, offer| Message::Accept(Accept { endpoint, link_id, conn, mss, offer });
        if let Some(link) = step.links.table.with_peer(&pending.peer).filter(|_| may_join) {
            let message = accept(link.id, Offer::Join { server_made_it: link.side == Side::Server });
            link.conns += 1;
            handshakes.set_stage(key, Stage::Joining { pending, link: link.key });
            let is_sent = handshakes.get(key).is_some_and(|handshake| handshake.send(&message));
            return if is_sent { Ok(()) } else { Err(ConnectFailure::Disconnected.into()) };
        }
        if may_join && self.offers.contains_key(&pending.peer) {
            handshakes.set_stage(key, Stage::Waiting { pending });
            return Ok(());
        }
        self.offers.try_reserve(1).map_err(|_| ConnectFailure::NoMemory)?;
        let half = step.budget.make_half(step.links, handshakes, connections, &pending.peer)?;
        let message = accept(half.link_id, Offer::New { ring_bytes: half.ring_bytes });
        if !handshakes.get(key).is_some_and(|handshake| handshake.send_half(&message, &half)) {
            return Err(ConnectFailure::Disconnected.into());
        }
        handshakes.set_stage(key, Stage::Offered { pending, half: Box::new(half) });
        self.offers.insert(pending.peer, key);
        Ok(())
    }

    /// Offers a new link to a client that has given up the link that it was to join.
    fn offer_anew(&mut self, step: &mut Step<'_>, key: Key) {
        let Some(handshake) = step.common.handshakes.get_mut(key) else { return };
        let Stage::Joining { pending, link } = handshake.stage else { return };
        handshake.stage = Stage::Waiting { pending };
        step.links.leave(link);
        self.offer_or_end(step, key, pending, false);
    }

    fn offer_or_end(&mut self, step: &mut Step<'_>, key: Key, pending: PendingPeer, may_join: bool) {
        if let Err(error) = self.offer(step, key, pending, may_join) {
            let why = error.why();
            if let Some(handshake) = step.common.handshakes.get(key) {
                handshake.send(&Message::Refuse(why));
            }
            self.end(step, key, why);
        }
    }

    /// Makes the link, since the client has taken the offer.
    fn confirmed(&mut self, step: &mut Step<'_>, key: Key, ring_bytes: u32, fds: ReceivedFds) {
        let Some(handshake) = step.common.handshakes.remove(&step.core.poller, key) else { return };
        let (Some(stream), Stage::Offered { pending, half }) = (handshake.stream, handshake.stage) else {
            return;
        };
        let connections = &mut step.common.connections;
        let id = half.link_id;
        let made = match half.join(ring_bytes, fds) {
            Some(ends) => {
                let link = Link::new(ends, stream, id, Side::Server, pending.peer, connections.now_ns);
                step.links.make(connections, step.core, link).ok_or(ConnectFailure::NoMemory)
            }
            None => {
                connections.counts.bad_handshake += 1;
                Err(ConnectFailure::Disconnected)
            }
        };
        match made {
            Ok(link) => connections.establish(step.core, pending.conn, link, pending.theirs, pending.mss),
            Err(why) => connections.fail(step.core, pending.conn, why),
        }
        self.offer_ended(step, pending.peer);
    }

    /// Lets the clients continue that waited for a link to be made, whether it was made or not.
    fn offer_ended(&mut self, step: &mut Step<'_>, peer: Peer) {
        self.offers.remove(&peer);
        let handshakes = step.common.handshakes.iter();
        let waiting: Vec<(Key, PendingPeer)> = handshakes
            .filter_map(|(key, handshake)| match handshake.stage {
                Stage::Waiting { pending } if pending.peer == peer => Some((key, pending)),
                _ => None,
            })
            .collect();
        for (key, pending) in waiting {
            self.offer_or_end(step, key, pending, true);
        }
    }

    /// Ends a client's attempt to connect that has failed.
    pub fn end(&mut self, step: &mut Step<'_>, key: Key, why: ConnectFailure) {
        let Some(handshake) = step.common.handshakes.remove(&step.core.poller, key) else { return };
        if let Some(conn) = handshake.stage.conn() {
            step.common.connections.fail(step.core, conn, why);
        }
        match handshake.stage {
            Stage::Silent { .. } => self.silent = self.silent.saturating_sub(1),
            Stage::Offered { pending, half } => {
                drop(half);
                self.offer_ended(step, pending.peer);
            }
            Stage::Joining { link, .. } => step.links.leave(link),
            _ => {}
        }
    }
}

/// Informs a client, unless it is gone, why it gets no connection.
fn refuse(stream: &Stream, why: ConnectFailure) {
    let _ = stream.send(Message::Refuse(why).bytes().as_slice(), &[]);
}
