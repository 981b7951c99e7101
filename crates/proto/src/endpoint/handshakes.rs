//! How connections begin, on both sides: with cookies, requests and acceptances. A server's program may accept by another of its
//! endpoints, but no server may choose where its client sends.

use super::replies::{Replies, Reply};
use super::requests::{Decision, Requests};
use super::shared::Shared;
use super::walk::Walk;
use crate::congestion::Window;
use crate::conn::state::Input;
use crate::conn::table::Table;
use crate::conn::{ActiveConn, Base, Conn, Dial, Unproved, want};
use crate::limits::{
    ACCEPT_TIMEOUT_NS, ACCEPT_TIMEOUT_NS_MIN, DIAL_RETRY_NS_MAX, DIAL_RETRY_NS_MIN, REQUEST_BYTES_MAX,
    VERSION,
};
use crate::reliable::rx::Rx;
use crate::secret::{Secret, bucket};
use crate::wire::{
    Accept, Connect, Head, Hello, Kind, PathBody, Reject, Reset, Retry, VersionNotice, flags, timestamp,
    timestamp_ns_between,
};
use crate::{
    AcceptError, Address, Attribute, Config, ConnKey, ConnState, ConnectError, ConnectFailure, Event,
    PeerFault, Request, RequestTicket, Seq, Sink, Time,
};

/// A new connection in the table, filled in by `fill` and awake; `None`: no memory.
fn new_entry<'a>(
    table: &'a mut Table,
    shared: &mut Shared,
    now: Time,
    more_bytes: u64,
    fill: impl FnOnce(&mut Base),
) -> Option<ActiveConn<'a>> {
    let growth_bytes = if table.must_grow() { Table::GROWTH_BYTES } else { 0 };
    if !shared.fits(growth_bytes + more_bytes) {
        return None;
    }
    let (index, conn) = table.add()?;
    fill(&mut conn.base);
    shared.send_timeouts.set(index, 0);
    let awake = shared.wake(conn, index, now).is_some();
    shared.table_bytes = table.bytes();
    if !awake {
        table.remove(index);
        return None;
    }
    table.at_mut(index)?.awake()
}

/// The connection that a server's answer is about, if the answer proves to be one.
fn asked_for(table: &mut Table, from: Address, key: ConnKey, nonce: u64) -> Result<&mut Conn, PeerFault> {
    let conn = table.get_mut(key).ok_or(PeerFault::Unknown)?;
    //= wire.md R-HS-5
    if conn.base.nonce != nonce {
        return Err(PeerFault::Nonce);
    }
    //= wire.md R-HS-10
    if conn.base.peer.is_secured() == from.is_secured() { Ok(conn) } else { Err(PeerFault::Source) }
}

/// Whether this is a question that is answered at once, and changes nothing: from a client that wants to know whether we are
/// where our acceptance came from, or to a connection that has one path only.
#[inline]
pub(super) fn is_plain_question(conn: &Conn, head: &Head, from: Address) -> bool {
    let is_bonded = || conn.active.as_deref().is_some_and(|active| active.paths.bond.is_some());
    head.kind == Kind::Path
        && conn.base.peer == from
        && (conn.base.state == ConnState::Accepting || !is_bonded())
}

/// What an endpoint has with peers that it has no connection with yet.
pub(crate) struct Handshakes {
    pub requests: Requests,
    pub replies: Replies,
    pub secret: Secret,
}

impl Handshakes {
    /// `None`: there is no memory.
    pub fn new(config: &Config) -> Option<Handshakes> {
        let mut secret = Secret::new(&config.secret);
        let requests = Requests::new(secret.table_hash(), config.requests_max, config.memory_bytes_max);
        Some(Handshakes { requests, replies: Replies::new()?, secret })
    }

    #[expect(clippy::too_many_arguments, reason = "one call or datagram, and what it touches")]
    pub fn connect_by(
        &mut self,
        (table, shared, walk): (&mut Table, &mut Shared, &mut Walk),
        (to, other): (Address, Option<Address>),
        now: Time,
        request: &[u8],
        attribute: Attribute,
        token: u64,
        timeout_ns: Option<u64>,
    ) -> Result<ConnKey, ConnectError> {
        if request.len() > REQUEST_BYTES_MAX {
            return Err(ConnectError::TooLong { max: REQUEST_BYTES_MAX });
        }
        if table.is_full() {
            return Err(ConnectError::TooMany);
        }
        let first_seq = self.first_seq(shared);
        let nonce = self.secret.draw();
        walk.start(table, &mut self.secret, now);
        let datagram_bytes = shared.config.datagram_bytes_max;
        let conn = new_entry(table, shared, now, request.len() as u64, |base| {
            (base.peer, base.nonce, base.token) = (to, nonce, token);
            (base.idle_tx, base.datagram_bytes, base.attribute) = (first_seq, datagram_bytes, attribute);
            base.bundle_bytes = datagram_bytes;
            base.enter(Input::Connect);
        })
        .ok_or(ConnectError::NoMemory)?;
        let key = conn.key();
        let active = conn.active;
        let give_up_at = timeout_ns.map_or(Time::FAR, |timeout_ns| now.plus(timeout_ns));
        active.dial =
            Some(Box::new(Dial { request: request.into(), cookie: None, give_up_at, other, unproved: None }));
        active.wants = want::DIAL;
        active.step_ns = DIAL_RETRY_NS_MIN;
        active.step_due = now.plus(active.step_ns).min(give_up_at);
        shared.handshakes_bytes += request.len() as u64;
        shared.enqueue(active);
        shared.arm(active);
        Ok(key)
    }

    /// A stranger asks: answer without keeping anything.
    //= wire.md R-HS-2
    pub fn on_hello(
        &mut self,
        shared: &mut Shared,
        now: Time,
        from: Address,
        hello: &Hello,
    ) -> Result<(), PeerFault> {
        //= wire.md R-HS-11
        if !shared.config.serves {
            return Err(PeerFault::Unexpected);
        }
        let (index, generation, nonce) = (hello.index, hello.generation, hello.nonce);
        let counters = &mut shared.counters;
        //= wire.md R-VER-3
        if hello.version != VERSION {
            let notice = VersionNotice { index, generation, nonce, lowest: VERSION, highest: VERSION };
            self.replies.push(from, Reply::Version(notice), counters);
            return Err(PeerFault::Version);
        }
        let bucket = bucket(now);
        let cookie = self.secret.cookie(from, nonce, bucket);
        self.replies.push(from, Reply::Retry(Retry { index, generation, bucket, nonce, cookie }), counters);
        Ok(())
    }

    pub fn on_retry(
        &mut self,
        table: &mut Table,
        shared: &mut Shared,
        now: Time,
        from: Address,
        retry: &Retry,
    ) -> Result<(), PeerFault> {
        let key = ConnKey { index: retry.index, generation: retry.generation };
        let conn = asked_for(table, from, key, retry.nonce)?;
        let Conn { base, active: Some(active) } = conn else { return Err(PeerFault::Unexpected) };
        let Some(dial) = active.dial.as_deref_mut() else { return Err(PeerFault::Unexpected) };
        if base.peer != from {
            //= wire.md R-HS-9
            // Of two addresses the first to answer is asked for the connection; the other is not, or there would be two.
            match dial.other.as_mut() {
                Some(other) if *other == from && dial.cookie.is_none() => {
                    std::mem::swap(other, &mut base.peer)
                }
                Some(other) if *other == from => return Ok(()),
                _ => return Err(PeerFault::Source),
            }
        }
        let fresh = dial.cookie != Some((retry.bucket, retry.cookie));
        dial.cookie = Some((retry.bucket, retry.cookie));
        if fresh {
            active.wants |= want::DIAL;
            active.step_ns = DIAL_RETRY_NS_MIN;
            active.step_due = now.plus(active.step_ns).min(dial.give_up_at);
            shared.enqueue(active);
            shared.arm(active);
        }
        Ok(())
    }

    /// Forgets the requests that can no longer be repeated.
    pub fn forget_requests(&mut self, table: &Table, shared: &mut Shared, now: Time) {
        let pending = |key| table.get(key).is_some_and(|conn| conn.base.state == crate::ConnState::Accepting);
        let forgotten = self.requests.expire(now, pending);
        shared.handshakes_bytes -= forgotten * Requests::COST_BYTES;
    }

    pub fn on_connect(
        &mut self,
        table: &mut Table,
        shared: &mut Shared,
        now: Time,
        from: Address,
        connect: &Connect<'_>,
        sink: &mut impl Sink,
    ) -> Result<(), PeerFault> {
        //= wire.md R-HS-11
        if !shared.config.serves {
            return Err(PeerFault::Unexpected);
        }
        let (index, generation, nonce) = (connect.index, connect.generation, connect.nonce);
        //= wire.md R-HS-3
        if !self.secret.cookie_is_good(from, nonce, connect.bucket, connect.cookie, now) {
            // An honest client's cookie has grown old: it gets another.
            let bucket = bucket(now);
            let cookie = self.secret.cookie(from, nonce, bucket);
            let retry = Retry { index, generation, bucket, nonce, cookie };
            self.replies.push(from, Reply::Retry(retry), &mut shared.counters);
            return Err(PeerFault::Cookie);
        }
        self.forget_requests(table, shared, now);
        let ticket = RequestTicket { peer: from, nonce };
        //= wire.md R-HS-4
        match self.requests.decision(ticket) {
            Some(Decision::Waiting { .. } | Decision::Taken { .. }) => return Ok(()),
            Some(Decision::Rejected) => {
                let reject = Reject { index, generation, nonce };
                self.replies.push(from, Reply::Reject(reject), &mut shared.counters);
                return Ok(());
            }
            Some(Decision::Accepted(key)) => {
                if let Some(active) = table.get_mut(key).and_then(|conn| conn.active.as_deref_mut())
                    && active.unconfirmed
                {
                    active.wants |= want::ACCEPT;
                    shared.enqueue(active);
                }
                return Ok(());
            }
            None => {}
        }
        //= wire.md R-HS-8
        let cost_bytes = Requests::COST_BYTES + connect.payload.len() as u64;
        if !self.requests.has_capacity_for(from) || !shared.fits(cost_bytes) {
            shared.counters.requests_dropped += 1;
            return Ok(());
        }
        self.requests.add(ticket, connect.payload.len() as u16);
        shared.handshakes_bytes += cost_bytes;
        shared.counters.requests_received += 1;
        sink.event(Event::Request(Request {
            ticket,
            attribute: connect.attribute,
            client_index: index,
            client_generation: generation,
            first_seq: connect.first_seq.0,
            datagram_bytes_max: connect.datagram_bytes_max,
            window_kib: connect.window_kib,
            bond: connect.bond,
            timestamp: connect.timestamp,
            came_at: now,
            payload: connect.payload.into(),
        }));
        Ok(())
    }

    /// Accepts a request, which may have come to another endpoint (then report it to that one by `request_taken`). Ends
    /// in exactly one `Event::Accepted` or `Event::AcceptFailed` with `token`.
    pub fn accept(
        &mut self,
        (table, shared, walk): (&mut Table, &mut Shared, &mut Walk),
        now: Time,
        request: Request,
        token: u64,
    ) -> Result<ConnKey, (AcceptError, Request)> {
        if table.is_full() {
            return Err((AcceptError::TooMany, request));
        }
        let first_seq = self.first_seq(shared);
        let nonce = self.secret.draw();
        walk.start(table, &mut self.secret, now);
        let datagram_bytes = shared.config.datagram_bytes_max.min(request.datagram_bytes_max);
        let placed = new_entry(table, shared, now, 0, |base| {
            (base.peer, base.nonce, base.peer_nonce) = (request.ticket.peer, nonce, request.ticket.nonce);
            (base.token, base.attribute, base.datagram_bytes) = (token, request.attribute, datagram_bytes);
            base.bundle_bytes = datagram_bytes;
            (base.peer_index, base.peer_generation) = (request.client_index, request.client_generation);
            (base.idle_tx, base.idle_rx) = (first_seq, Seq(request.first_seq));
            base.peer_window_kib = request.window_kib;
            base.enter(Input::Accept);
        });
        let Some(mut conn) = placed else { return Err((AcceptError::NoMemory, request)) };
        let key = conn.key();
        if request.bond && conn.base.attribute.is_reliable() {
            let challenges = [self.secret.draw(), self.secret.draw()];
            shared.bond(&mut conn, (None, false), challenges, now);
        }
        let active = conn.active;
        active.paths.first.came(request.timestamp, request.came_at);
        active.unconfirmed = true;
        active.wants = want::ACCEPT;
        active.step_ns = DIAL_RETRY_NS_MIN;
        active.step_due = now.plus(active.step_ns);
        active.send_due = now.plus(shared.send_timeout_ns(0).clamp(ACCEPT_TIMEOUT_NS_MIN, ACCEPT_TIMEOUT_NS));
        shared.enqueue(active);
        shared.arm(active);
        self.answered(shared, request.ticket, Decision::Accepted(key), now);
        Ok(key)
    }

    /// Refuses a request; the client learns it.
    pub fn reject(&mut self, shared: &mut Shared, now: Time, request: Request) {
        let reject = Reject {
            index: request.client_index,
            generation: request.client_generation,
            nonce: request.ticket.nonce,
        };
        self.replies.push(request.ticket.peer, Reply::Reject(reject), &mut shared.counters);
        self.answered(shared, request.ticket, Decision::Rejected, now);
    }

    /// Another endpoint accepted this request: repeats of it are ignored from now on.
    pub fn request_taken(&mut self, shared: &mut Shared, ticket: RequestTicket, seen: Time) {
        self.answered(shared, ticket, Requests::TAKEN, seen);
    }

    fn answered(&mut self, shared: &mut Shared, ticket: RequestTicket, decision: Decision, now: Time) {
        if let Some(payload_bytes) = self.requests.answer(ticket, decision, now) {
            shared.handshakes_bytes -= u64::from(payload_bytes);
        }
    }

    pub fn on_accept(
        &mut self,
        table: &mut Table,
        shared: &mut Shared,
        now: Time,
        from: Address,
        accept: &Accept,
        sink: &mut impl Sink,
    ) -> Result<(), PeerFault> {
        let key = ConnKey { index: accept.index, generation: accept.generation };
        let conn = match asked_for(table, from, key, accept.nonce) {
            Ok(conn) => conn,
            Err(fault) => {
                if fault == PeerFault::Unknown {
                    self.reset_accept(shared, now, from, accept);
                }
                return Err(fault);
            }
        };
        if conn.base.state == crate::ConnState::Dialing {
            let dial = conn.active.as_deref().and_then(|active| active.dial.as_deref());
            if dial.and_then(|dial| dial.other) == Some(from) {
                //= wire.md R-HS-9
                // The server's other address was not asked for the connection, and its paths would be the wrong way round.
                return Err(PeerFault::Source);
            }
            if conn.base.peer != from {
                self.prove_source(table, shared, now, from, accept);
                return Ok(());
            }
            let rtt_ns = timestamp_ns_between(accept.echo, timestamp(now));
            self.accepted(table, shared, now, from, accept, rtt_ns, sink);
        } else if conn.base.peer_nonce != accept.source_nonce || !conn.base.is_established() {
            return Err(PeerFault::Unexpected);
        }
        self.confirm(table, shared, now, key, accept.timestamp);
        Ok(())
    }

    /// The server's acceptance has come from an address that is proved. `rtt_ns` 0: not measured.
    #[expect(clippy::too_many_arguments, reason = "one call or datagram, and what it touches")]
    pub fn accepted(
        &mut self,
        table: &mut Table,
        shared: &mut Shared,
        now: Time,
        from: Address,
        accept: &Accept,
        rtt_ns: u64,
        sink: &mut impl Sink,
    ) {
        let key = ConnKey { index: accept.index, generation: accept.generation };
        let Some(mut conn) = table.get_mut(key).and_then(|conn| conn.awake()) else { return };
        // Where the second path of another endpoint than the one asked would be, nobody knows.
        let asked = conn.base.peer == from;
        conn.base.peer = from;
        (conn.base.peer_nonce, conn.base.peer_index) = (accept.source_nonce, accept.source_index);
        conn.base.peer_generation = accept.source_generation;
        conn.base.peer_window_kib = accept.window_kib;
        //= wire.md R-MTU-1
        conn.base.datagram_bytes = conn.base.datagram_bytes.min(accept.datagram_bytes_max);
        conn.base.bundle_bytes = conn.base.datagram_bytes;
        conn.base.enter(Input::Accepted);
        let token = conn.base.token;
        let mut second = None;
        let active = &mut *conn.active;
        active.rx = Rx::new(accept.first_seq);
        active.paths.first.window = Window::new(conn.base.datagram_bytes);
        (active.heard_at, active.used_at, active.step_due) = (now, now, Time::FAR);
        active.wants = 0;
        if rtt_ns != 0 {
            active.paths.first.rtt.sample(now, rtt_ns);
        }
        if let Some(dial) = active.dial.take() {
            shared.handshakes_bytes -= dial.request.len() as u64;
            second = dial.other.filter(|_| asked && accept.bond);
        }
        let keepalive_ns = active.keepalive_or(shared.config.keepalive_ns);
        active.start_keepalive(now, keepalive_ns, crate::ConnState::Up);
        if second.is_some() && conn.base.attribute.is_reliable() {
            let challenges = [self.secret.draw(), self.secret.draw()];
            shared.bond(&mut conn, (second, true), challenges, now);
        }
        shared.counters.connections_opened += 1;
        sink.event(Event::Connected { conn: key, token });
    }

    /// Confirms an acceptance. Repeats are confirmed again: the confirmation was lost. It is sent as a question, so that a server
    /// that is gone meanwhile answers with a reset.
    //= wire.md R-HS-7
    pub fn confirm(
        &mut self,
        table: &mut Table,
        shared: &mut Shared,
        now: Time,
        key: ConnKey,
        timestamp: u32,
    ) {
        let Some(conn) = table.get_mut(key) else { return };
        let Some(ActiveConn { active, .. }) = shared.wake(conn, key.index, now) else { return };
        active.paths.first.came(timestamp, now);
        active.wants |= want::PING;
        shared.enqueue(active);
        shared.arm(active);
    }

    /// The client that this acceptance is for has gone.
    fn reset_accept(&mut self, shared: &mut Shared, now: Time, from: Address, accept: &Accept) {
        let reset = crate::wire::Reset {
            index: accept.source_index,
            dead_index: accept.index,
            dead_generation: accept.generation,
            nonce: accept.nonce,
            seq: accept.first_seq,
        };
        self.replies.push_reset(now, from, reset, &mut shared.counters);
    }

    pub fn on_reject(
        &mut self,
        table: &mut Table,
        from: Address,
        reject: &Reject,
    ) -> Result<(u32, ConnectFailure), PeerFault> {
        let key = ConnKey { index: reject.index, generation: reject.generation };
        asked_for(table, from, key, reject.nonce)?;
        Ok((key.index, ConnectFailure::Refused))
    }

    pub fn on_version(
        &mut self,
        table: &mut Table,
        from: Address,
        notice: &VersionNotice,
    ) -> Result<(u32, ConnectFailure), PeerFault> {
        let key = ConnKey { index: notice.index, generation: notice.generation };
        let conn = asked_for(table, from, key, notice.nonce)?;
        let dial = conn.active.as_deref().and_then(|active| active.dial.as_deref());
        if conn.base.peer != from && dial.and_then(|dial| dial.other) != Some(from) {
            return Err(PeerFault::Source);
        }
        // A server that speaks our version has no reason to send this.
        if (notice.lowest..=notice.highest).contains(&VERSION) {
            return Err(PeerFault::Field);
        }
        Ok((key.index, ConnectFailure::Version { theirs: notice.highest }))
    }

    /// An acceptance has come from where nothing was asked: whoever is there must show that it has our question. There is no
    /// timer for it: the server repeats its acceptance. One question in a while goes out, however many come.
    //= wire.md R-HS-6
    pub fn prove_source(
        &mut self,
        table: &mut Table,
        shared: &mut Shared,
        now: Time,
        from: Address,
        accept: &Accept,
    ) {
        let key = ConnKey { index: accept.index, generation: accept.generation };
        let fresh = self.secret.draw() | 1;
        let window_kib = shared.window_kib();
        let Some(active) = table.get_mut(key).and_then(|conn| conn.active.as_deref_mut()) else {
            return;
        };
        let seq = active.tx.next;
        let Some(dial) = active.dial.as_deref_mut() else { return };
        let before = dial.unproved.filter(|before| before.from == from);
        let ask_ns = match dial.unproved {
            Some(unproved) if unproved.ask_due > now => return,
            Some(unproved) => (2 * unproved.ask_ns).min(DIAL_RETRY_NS_MAX),
            // A little less than it takes the server to repeat itself.
            None => DIAL_RETRY_NS_MIN / 2,
        };
        let challenge = before.map_or(fresh, |before| before.challenge);
        dial.unproved =
            Some(Unproved { from, accept: *accept, challenge, ask_due: now.plus(ask_ns), ask_ns });
        let head = Head {
            kind: Kind::Path,
            flags: 0,
            index: accept.source_index,
            generation: accept.source_generation,
            source_index: key.index,
            nonce: accept.source_nonce,
            seq,
            ack: accept.first_seq,
            timestamp: timestamp(now),
            echo: accept.timestamp,
            window_kib,
            epoch: 0,
            epoch_ack: 0,
        };
        let body = PathBody { challenge, answer: 0 };
        self.replies.push(from, Reply::Path(head, body), &mut shared.counters);
    }

    /// Takes in a datagram for a connection that is still being asked for: the answer to our question, or one that came too soon.
    #[expect(clippy::too_many_arguments, reason = "one call or datagram, and what it touches")]
    pub fn on_unproved(
        &mut self,
        table: &mut Table,
        shared: &mut Shared,
        now: Time,
        from: Address,
        head: &Head,
        body: &[u8],
        sink: &mut impl Sink,
    ) -> Result<(), PeerFault> {
        let key = ConnKey { index: head.index, generation: head.generation };
        let conn = table.get_mut(key).ok_or(PeerFault::Unknown)?;
        if conn.base.nonce != head.nonce {
            return Err(PeerFault::Nonce);
        }
        let dial = conn.active.as_deref().and_then(|active| active.dial.as_deref());
        let unproved = dial.and_then(|dial| dial.unproved).filter(|unproved| unproved.from == from);
        let unproved = unproved.filter(|_| head.kind == Kind::Path).ok_or(PeerFault::Unexpected)?;
        let body = PathBody::parse(body)?;
        if body.answer != unproved.challenge || unproved.accept.source_index != head.source_index {
            return Err(PeerFault::Nonce);
        }
        let rtt_ns = timestamp_ns_between(head.echo, timestamp(now));
        self.accepted(table, shared, now, from, &unproved.accept, rtt_ns, sink);
        self.confirm(table, shared, now, key, head.timestamp);
        Ok(())
    }

    /// Answers a plain question.
    //= wire.md R-PATH-2
    pub fn answer_plainly(
        &mut self,
        table: &mut Table,
        shared: &mut Shared,
        now: Time,
        from: Address,
        head: &Head,
        body: &[u8],
    ) -> Result<(), PeerFault> {
        let body = PathBody::parse(body)?;
        let Some(conn) = table.at_mut(head.index).filter(|_| body.challenge != 0) else { return Ok(()) };
        let answer = Head {
            kind: Kind::Path,
            flags: 0,
            index: conn.base.peer_index,
            generation: conn.base.peer_generation,
            source_index: head.index,
            nonce: conn.base.peer_nonce,
            seq: head.ack,
            // What the peer has sent before need not have come.
            ack: conn.active.as_deref().map_or(conn.base.idle_rx, |active| active.rx.next),
            timestamp: timestamp(now),
            echo: head.timestamp,
            window_kib: shared.window_kib(),
            epoch: conn.base.tx_epoch,
            epoch_ack: conn.base.rx_epoch,
        };
        let body = PathBody { challenge: 0, answer: body.challenge };
        self.replies.push(from, Reply::Path(answer, body), &mut shared.counters);
        Ok(())
    }

    /// A datagram for a connection that is not there, or not yet.
    #[expect(clippy::too_many_arguments, reason = "one call or datagram, and what it touches")]
    pub fn on_unestablished(
        &mut self,
        table: &mut Table,
        shared: &mut Shared,
        now: Time,
        from: Address,
        head: &Head,
        body: &[u8],
        sink: &mut impl Sink,
    ) -> Result<(), PeerFault> {
        let key = ConnKey { index: head.index, generation: head.generation };
        if table.get(key).is_some_and(|conn| conn.base.state == ConnState::Dialing) {
            return self.on_unproved(table, shared, now, from, head, body, sink);
        }
        self.on_unknown(shared, now, from, head)
    }

    /// A datagram for a connection that is not there: its sender gets a reset, unless resets could answer each other for ever.
    //= wire.md R-RST-1
    fn on_unknown(
        &mut self,
        shared: &mut Shared,
        now: Time,
        from: Address,
        head: &Head,
    ) -> Result<(), PeerFault> {
        let answer = match head.kind {
            Kind::Data | Kind::Ping | Kind::Close => true,
            Kind::Ack => head.flags & flags::PROBE != 0,
            //= wire.md R-PATH-8
            Kind::Path => false,
            Kind::CloseAck => false,
        };
        if answer {
            let reset = Reset {
                index: head.source_index,
                dead_index: head.index,
                dead_generation: head.generation,
                nonce: head.nonce,
                seq: head.seq,
            };
            self.replies.push_reset(now, from, reset, &mut shared.counters);
        }
        Err(PeerFault::Unknown)
    }

    fn first_seq(&mut self, shared: &Shared) -> Seq {
        let drawn = self.secret.draw_seq();
        shared.config.first_seq.map_or(drawn, Seq)
    }
}
