//! The client's side of handshakes: from the first hello to a link or a refusal.

use super::admission::Admission;
use super::common::Common;
use super::handshake::{Hello, Stage};
use super::handshakes::RETRY_NS;
use super::link::Link;
use super::name;
use super::out::Control;
use super::peer::{Peer, Side};
use super::proof::shown_in;
use super::step::Step;
use super::wire::{Accept, Message, NotUnderstood, Offer, PeerConn, Request, kind};
use crate::connection::Connection;
use crate::engine::core::Core;
use crate::security::NO_NAMES;
use crate::transport::Dial;
use crate::{ConnectError, ConnectFailure};
use cci_memory::slab::Key;
use cci_sys::unix::{Credentials, ReceivedFds, Stream};
use cci_sys::{SysError, clock};
use std::io;

/// EPROTOTYPE: the same number on every Linux but those for MIPS, SPARC and Alpha. A dependency for it is not worth it.
const ERRNO_PROTOTYPE: i32 = 91;

/// The client's side of an endpoint's handshakes.
pub(super) struct Client {
    /// Which processes this endpoint connects to.
    pub admission: Admission,
}

/// The result of an attempt to reach a server.
enum Reached {
    Yes(Stream, Credentials),
    /// The server's queue is full.
    Busy,
    /// The server's process belongs to a user whose servers are not trusted.
    Untrusted,
    No(ConnectFailure),
}

impl Client {
    /// Begins a connection.
    ///
    /// # Errors
    /// Mistakes of the caller and failures of the system. A later event reports what the server does.
    pub fn dial(
        &self,
        step: &mut Step<'_>,
        connection: Connection,
        to: &Dial<'_>,
    ) -> Result<Key, ConnectError> {
        if let Some(name) = to.expected {
            return Err(ConnectError::CannotExpect { name: name.to_owned(), reason: NO_NAMES.to_owned() });
        }
        let address = name::parse_uri(to.uri)?;
        let Step { links, common, core, budget } = step;
        let now_ns = clock::now_ns();
        common.connections.now_ns = now_ns;
        let Common { endpoint, connections, handshakes, .. } = &mut **common;
        let (endpoint, mss, attribute) = (*endpoint, connections.mss, to.attribute);
        let deadline_ns = to.timeout_ns.map_or(u64::MAX, |ns| now_ns.saturating_add(ns));
        let begin = |conn: Key| {
            let own = PeerConn { index: conn.index, generation: conn.generation };
            let request = Request { endpoint, conn: own, mss, attribute };
            let (name, payload) = (address.name, to.request.to_vec());
            let hello = Hello { name, proof: to.proof, request, payload, again_ns: 0 };
            handshakes.insert(deadline_ns, Stage::Hello { conn, hello: Box::new(hello) })
        };
        let (conn, key) = budget
            .insert_conn(links, connections, connection, attribute.is_reliable(), begin)
            .ok_or(ConnectError::NoMemory)?;
        if let Err(error) = self.hello(common, core, key) {
            common.handshakes.remove(&core.poller, key);
            common.connections.conns.remove(conn);
            return Err(error.into());
        }
        Ok(conn)
    }

    /// Tries to reach the server.
    ///
    /// # Errors
    /// Failures of the system. A later event reports what the server does.
    pub fn hello(&self, common: &mut Common, core: &mut Core, key: Key) -> Result<(), SysError> {
        let Some(handshake) = common.handshakes.get_mut(key) else { return Ok(()) };
        let Stage::Hello { hello, .. } = &mut handshake.stage else { return Ok(()) };
        let (stream, server) = match self.reach(hello)? {
            Reached::Yes(stream, server) => (stream, server),
            Reached::Busy => {
                hello.again_ns = clock::now_ns() + RETRY_NS;
                return Ok(());
            }
            Reached::Untrusted => {
                common.connections.counts.not_permitted += 1;
                self.end(common, core, key, ConnectFailure::NotPermitted);
                return Ok(());
            }
            Reached::No(why) => {
                self.end(common, core, key, why);
                return Ok(());
            }
        };
        stream.trust();
        // If sending fails, the server has closed the socket. It may have sent the reason before, which is read later.
        let message = if hello.proof.is_some() {
            Message::Who
        } else {
            Message::Request(hello.request, &hello.payload)
        };
        let _ = stream.send(message.bytes().as_slice(), &[]);
        common.handshakes.watch(&core.poller, key, stream).map_err(|(error, _)| error)?;
        let Some(handshake) = common.handshakes.get_mut(key) else { return Ok(()) };
        let Some(conn) = handshake.stage.conn() else { return Ok(()) };
        let was = std::mem::replace(&mut handshake.stage, Stage::Asked { conn, server });
        if let Stage::Hello { hello, .. } = was
            && hello.proof.is_some()
        {
            handshake.stage = Stage::Proving { conn, server, hello };
        }
        Ok(())
    }

    fn reach(&self, hello: &Hello) -> Result<Reached, SysError> {
        let stream = match Stream::connect_warily(&hello.name) {
            Ok(stream) => stream,
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::WouldBlock => Ok(Reached::Busy),
                    io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
                        Ok(Reached::No(ConnectFailure::Refused))
                    }
                    io::ErrorKind::PermissionDenied => Ok(Reached::No(ConnectFailure::NotPermitted)),
                    // The socket has another type, so another program listens there.
                    _ if error.errno() == Some(ERRNO_PROTOTYPE) => Ok(Reached::No(ConnectFailure::Refused)),
                    _ => Err(error),
                };
            }
        };
        let server = stream.peer_credentials()?;
        if self.admission.trusts_server(server.uid, name::named_uid(&hello.name)) {
            Ok(Reached::Yes(stream, server))
        } else {
            Ok(Reached::Untrusted)
        }
    }

    /// Handles a message that came from the server.
    pub fn heard(
        &self,
        step: &mut Step<'_>,
        key: Key,
        message: Result<Message<'_>, NotUnderstood>,
        fds: ReceivedFds,
    ) {
        let Step { common, core, .. } = &mut *step;
        let Some(handshake) = common.handshakes.get(key) else { return };
        match (&handshake.stage, message) {
            (Stage::Proving { .. }, Ok(Message::Shown)) => self.proof_came(common, core, key, fds),
            (Stage::Asked { conn, server }, Ok(Message::Accept(accept))) => {
                let (conn, server) = (*conn, *server);
                self.accepted(step, (key, conn, server), &accept, fds);
            }
            // A server without a secret is not the one that is wanted.
            (Stage::Proving { .. }, Ok(Message::Refuse(ConnectFailure::Refused))) => {
                self.proof_came(common, core, key, ReceivedFds::default());
            }
            (_, Err(NotUnderstood::Version(theirs))) => {
                self.end(common, core, key, ConnectFailure::Version { theirs });
            }
            (_, Ok(Message::Refuse(why))) => self.end(common, core, key, why),
            _ => {
                common.connections.counts.bad_handshake += 1;
                handshake.send(&Message::Refuse(ConnectFailure::Refused));
                self.end(common, core, key, ConnectFailure::Disconnected);
            }
        }
    }

    /// Checks the page of memory that the server has sent. The server gets the request only if the page has the secret of the
    /// wanted endpoint.
    fn proof_came(&self, common: &mut Common, core: &mut Core, key: Key, fds: ReceivedFds) {
        let Some(handshake) = common.handshakes.get_mut(key) else { return };
        let (conn, server, is_it) = match &handshake.stage {
            Stage::Proving { conn, server, hello } => (*conn, *server, hello.proof == shown_in(fds)),
            _ => return,
        };
        let Some(connection) = common.connections.conns.get(conn).map(|conn| conn.base.connection) else {
            return;
        };
        if !is_it {
            common.connections.counts.not_proven += 1;
            core.disproved(connection);
            return self.end(common, core, key, ConnectFailure::NotPermitted);
        }
        core.heard(connection);
        let was = std::mem::replace(&mut handshake.stage, Stage::Asked { conn, server });
        if let Stage::Proving { hello, .. } = was {
            // If sending fails, the server has closed the socket, and the hang-up will show it.
            handshake.send(&Message::Request(hello.request, &hello.payload));
        }
    }

    /// Handles the server's acceptance of the request.
    fn accepted(
        &self,
        step: &mut Step<'_>,
        (key, conn, server): (Key, Key, Credentials),
        accept: &Accept,
        fds: ReceivedFds,
    ) {
        let peer = Peer { endpoint: accept.endpoint, pid: server.pid, uid: server.uid };
        match accept.offer {
            Offer::Join { server_made_it } => {
                let side = if server_made_it { Side::Client } else { Side::Server };
                self.join(step, (key, conn), accept, side, peer);
            }
            Offer::New { ring_bytes } => match take_offer(step, key, accept, (ring_bytes, fds), peer) {
                Ok(link) => {
                    step.common.handshakes.remove(&step.core.poller, key);
                    step.common.connections.establish(step.core, conn, link, accept.conn, accept.mss);
                }
                Err(why) => self.end(step.common, step.core, key, why),
            },
        }
    }

    /// Joins a link that exists already, if it leads to this server. A server gains nothing if it knows the number of another's
    /// link.
    fn join(&self, step: &mut Step<'_>, (key, conn): (Key, Key), accept: &Accept, side: Side, peer: Peer) {
        let Step { links, common, core, .. } = step;
        let Some(link) = links.table.with_id(accept.link_id, side).filter(|link| link.peer == peer) else {
            let sent = common.handshakes.get(key).is_some_and(|handshake| handshake.send(&Message::NoLink));
            if !sent {
                self.end(common, core, key, ConnectFailure::Disconnected);
            }
            return;
        };
        let own = PeerConn { index: conn.index, generation: conn.generation };
        let sent = link.send_control(Control::about(kind::CONFIRM, accept.conn, own));
        link.conns += 1;
        link.out.flush();
        let at = link.key;
        common.handshakes.remove(&core.poller, key);
        common.connections.counts.links_joined += 1;
        common.connections.establish(core, conn, at, accept.conn, accept.mss);
        links.make_busy(at);
        if sent.is_err() {
            links.kill(common, core, at);
        }
    }

    /// Ends an attempt to connect that has failed.
    pub fn end(&self, common: &mut Common, core: &mut Core, key: Key, why: ConnectFailure) {
        let Some(handshake) = common.handshakes.remove(&core.poller, key) else { return };
        if let Some(conn) = handshake.stage.conn() {
            common.connections.fail(core, conn, why);
        }
        if let Stage::Asked { .. } = handshake.stage {
            // The server may just have accepted. Without this message it would wait for a confirmation through the ring.
            handshake.send(&Message::Refuse(why));
        }
    }
}

/// Makes our half of a new link, and joins it with the server's half.
fn take_offer(
    step: &mut Step<'_>,
    key: Key,
    accept: &Accept,
    (ring_bytes, fds): (u32, ReceivedFds),
    peer: Peer,
) -> Result<Key, ConnectFailure> {
    let Step { links, common, core, budget } = step;
    let Common { connections, handshakes, .. } = &mut **common;
    let half = budget.make_half(links, handshakes, connections, &peer).map_err(|error| error.why())?;
    let confirm = Message::Confirm { ring_bytes: half.ring_bytes };
    let Some(handshake) = handshakes.get_mut(key).filter(|it| it.send_half(&confirm, &half)) else {
        return Err(ConnectFailure::Disconnected);
    };
    let Some(ends) = half.join(ring_bytes, fds) else {
        connections.counts.bad_handshake += 1;
        return Err(ConnectFailure::Disconnected);
    };
    let Some(lifeline) = handshake.stream.take() else { return Err(ConnectFailure::Disconnected) };
    let link = Link::new(ends, lifeline, accept.link_id, Side::Client, peer, connections.now_ns);
    links.make(connections, core, link).ok_or(ConnectFailure::NoMemory)
}
