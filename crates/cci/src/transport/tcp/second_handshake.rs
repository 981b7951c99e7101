//! How the second stream of a connection comes about: the side that dialled the first dials it, and each side proves to the
//! other that it knows the secret that ACCEPT has told, before anything else is said. So nothing of a connection goes to
//! somebody else who listens where the second stream was dialled.

use super::Tcp;
use super::counts::Fault;
use super::dial::AGAIN_NS;
use super::handshake::{Handshake, Stage};
use super::pipe::{self, Pipe};
use super::preamble::Preamble;
use crate::DisconnectReason;
use crate::engine::core::Core;
use crate::transport::token;
use cci_memory::slab::Key;
use cci_secure::{Challenge, Identity, NONCE_BYTES, PROOF_BYTES, Prover};
use cci_sys::event::Interest;
use cci_sys::random;
use cci_sys::tcp::Stream;
use std::io::ErrorKind;
use std::os::fd::AsFd;

/// How long the second stream may take to be made.
const SECOND_NS_MAX: u64 = 30_000_000_000;

impl Tcp {
    /// Dials the second streams that are wanted.
    #[cold]
    pub(super) fn dial_seconds(&mut self, core: &mut Core) {
        while let Some(key) = self.links.seconds_wanted.pop() {
            self.dial_second(core, key);
        }
    }

    /// Tries those second streams again for which there was something too little.
    pub(super) fn dial_seconds_again(&mut self, core: &mut Core) {
        for key in std::mem::take(&mut self.seconds_again) {
            self.dial_second(core, key);
        }
    }

    fn dial_second(&mut self, core: &mut Core, key: Key) {
        let Some(conn) = self.links.conns.get(key) else { return };
        //= wire.md R-TCP-15
        let stream = conn.second_at.map(|at| Stream::connect(self.local, at));
        if let Some(Err(error)) = &stream
            && error.is_exhaustion()
        {
            // Descriptors may become free; who waits for the stream gives up at its own time.
            self.links.shared.counts.refused_system += 1;
            self.seconds_again.push(key);
            self.handshakes_due_ns =
                self.handshakes_due_ns.min(self.links.shared.now_ns.saturating_add(AGAIN_NS));
            return;
        }
        let stream = stream.and_then(Result::ok);
        // Whoever is at the end of the first stream must be at that of the second one; with keys, it is asked by the same.
        let peer = conn.stream.as_ref().and_then(|stream| stream.peer()).and_then(|peer| peer.identity);
        let expected = peer.as_ref().map(Identity::name);
        let (security, host) = (self.security.as_ref(), conn.host());
        let stream = stream.and_then(|stream| Pipe::dialled(stream, security, expected, host).ok());
        let mut nonce = [0; NONCE_BYTES];
        let stream = stream.filter(|_| random::fill(&mut nonce).is_ok());
        let bytes = Preamble::Bulk { key: conn.ticket.key, nonce }.bytes();
        let since_ns = self.links.shared.now_ns;
        let handshake = stream.and_then(|stream| {
            let until_ns = since_ns.saturating_add(SECOND_NS_MAX);
            let stage = Stage::Dialled { conn: key, nonce };
            self.handshakes.insert(Handshake { stream, peer: None, since_ns, until_ns, bytes, stage })
        });
        let Some(handshake) = handshake else { return self.links.end(core, key, DisconnectReason::Refused) };
        self.handshakes_due_ns = 0;
        self.watch_handshake(core, handshake, Interest::Write);
    }

    /// Our second stream is connected, or is not, or its handshake goes on.
    pub(super) fn second_connected(&mut self, core: &mut Core, key: Key) {
        let Some(handshake) = self.handshakes.get_mut(key) else { return };
        let Stage::Dialled { conn, nonce } = handshake.stage else { return };
        let sent = handshake.stream.take_error().and_then(|()| handshake.stream.send(&handshake.bytes));
        let token = token::make(token::HAND, key);
        if sent.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
            // A stream that is not connected, or has no room, can be written later; one that waits for the peer's part of
            // the handshake always can.
            let interest = if handshake.stream.waits_for_space() { Interest::Write } else { Interest::Read };
            core.poller.rewatch(handshake.stream.as_fd(), token, interest);
            return;
        }
        let is_whole = sent.as_ref().is_ok_and(|len| *len == handshake.bytes.len());
        let first = self.links.conns.get(conn).and_then(|conn| conn.stream.as_ref());
        if !is_whole || first.is_none_or(|first| !first.has_peer_of(&handshake.stream)) {
            let fault = sent.as_ref().err().and_then(pipe::refusal).map(|refusal| refusal.fault);
            return self.end_handshake(core, key, fault);
        }
        handshake.bytes.clear();
        handshake.stage = Stage::Named { conn, nonce };
        core.poller.rewatch(handshake.stream.as_fd(), token, Interest::Read);
    }

    /// Somebody names a connection whose second stream this is to be: proves to know its secret, and asks for the same.
    pub(super) fn second_named(&mut self, core: &mut Core, key: Key, named: u64, dialler: [u8; NONCE_BYTES]) {
        //= wire.md R-TCP-15
        let conn = Key::from_bits(named);
        let mut acceptor = [0; NONCE_BYTES];
        let Some(handshake) = self.handshakes.get_mut(key) else { return };
        let known = self.links.conns.get(conn).filter(|conn| {
            let first = conn.stream.as_ref();
            let is_peers = first.is_some_and(|first| {
                first.has_peer_of(&handshake.stream) && first.has_endpoint_of(&handshake.stream)
            });
            is_peers && !conn.dialled && conn.second_may_come()
        });
        let Some(known) = known.filter(|_| random::fill(&mut acceptor).is_ok()) else {
            return self.end_handshake(core, key, Some(Fault::Ticket));
        };
        //= wire.md R-TCP-18
        let challenge = Challenge { key: named, dialler, acceptor };
        let proof = challenge.prove(&known.ticket.secret, Prover::Acceptor);
        handshake.stage = Stage::Challenged { conn, challenge };
        let said = Preamble::Challenge { nonce: acceptor, proof }.bytes();
        // It is short, and the stream is new: there is room. If not, it is over.
        if handshake.stream.send(&said).ok() != Some(said.len()) {
            self.end_handshake(core, key, None);
        }
    }

    /// The peer has proved that it knows the secret of our connection, or somebody has not.
    pub(super) fn second_proved(
        &mut self,
        core: &mut Core,
        key: Key,
        acceptor: [u8; NONCE_BYTES],
        proof: &[u8; PROOF_BYTES],
    ) {
        let Some(handshake) = self.handshakes.get_mut(key) else { return };
        let Stage::Named { conn, nonce } = handshake.stage else { return };
        let Some(ticket) = self.links.conns.get(conn).map(|conn| conn.ticket) else {
            return self.end_handshake(core, key, None);
        };
        //= wire.md R-TCP-18
        let challenge = Challenge { key: ticket.key, dialler: nonce, acceptor };
        if !challenge.is_proved(&ticket.secret, Prover::Acceptor, proof) {
            return self.end_handshake(core, key, Some(Fault::Ticket));
        }
        let said = Preamble::Proof { proof: challenge.prove(&ticket.secret, Prover::Dialler) }.bytes();
        if handshake.stream.send(&said).ok() != Some(said.len()) {
            return self.end_handshake(core, key, None);
        }
        if let Some(handshake) = self.take_handshake(core, key) {
            self.links.second_came(core, conn, handshake.stream);
        }
    }

    /// Somebody proves to be the peer of a connection, or does not.
    pub(super) fn second_came(&mut self, core: &mut Core, key: Key, proof: &[u8; PROOF_BYTES]) {
        let Some(handshake) = self.handshakes.get(key) else { return };
        let Stage::Challenged { conn, challenge } = &handshake.stage else { return };
        let named = *conn;
        let is_peer = self.links.conns.get(named).is_some_and(|conn| {
            !conn.dialled
                && conn.second_may_come()
                && challenge.is_proved(&conn.ticket.secret, Prover::Dialler, proof)
        });
        if !is_peer {
            return self.end_handshake(core, key, Some(Fault::Ticket));
        }
        if let Some(handshake) = self.take_handshake(core, key) {
            self.links.second_came(core, named, handshake.stream);
        }
    }
}
