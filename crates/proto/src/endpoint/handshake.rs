//! Connections begin.

use super::Endpoint;
use super::handshakes::{Fate, Handshakes};
use super::replies::Reply;
use super::shared::Shared;
use crate::congestion::Window;
use crate::conn::state::Input;
use crate::conn::table::Table;
use crate::conn::{ActiveConn, Base, Conn, Dial, want};
use crate::limits::{
    ACCEPT_TIMEOUT_NS, ACCEPT_TIMEOUT_NS_MIN, DIAL_RETRY_NS_MIN, REQUEST_BYTES_MAX, VERSION,
};
use crate::reliable::rx::Rx;
use crate::secret::bucket;
use crate::wire::{Accept, Connect, Hello, Reject, Retry, VersionNotice, timestamp, timestamp_ns_between};
use crate::{
    AcceptError, Address, Attribute, ConnKey, ConnectError, ConnectFailure, Event, PeerFault, Request,
    RequestTicket, Seq, Sink, Time,
};

/// Writes the client's next datagram: asks for a cookie, or for the connection with it.
#[allow(clippy::too_many_arguments)] // the fields of one datagram
pub(super) fn dial_datagram(
    dial: &Dial,
    (index, generation): (u32, u32),
    nonce: u64,
    first_seq: Seq,
    (datagram_bytes_max, window_kib): (u16, u16),
    attribute: Attribute,
    now: Time,
    out: &mut [u8],
) -> usize {
    let timestamp = timestamp(now);
    match dial.cookie {
        None => Hello { version: VERSION, index, generation, nonce, timestamp }.emit(out),
        Some((bucket, cookie)) => Connect {
            index,
            generation,
            bucket,
            nonce,
            cookie,
            timestamp,
            first_seq,
            datagram_bytes_max,
            window_kib,
            attribute,
            bond: dial.other.is_some() && attribute.is_reliable(),
            payload: &dial.request,
        }
        .emit(out),
    }
}

/// A new connection in the table, filled in by `fill` and awake; `None`: no memory.
fn place<'a>(
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
    let awake = shared.wake(conn, index, now).is_some();
    shared.table_bytes = table.bytes();
    if !awake {
        table.remove(index);
        return None;
    }
    table.at_mut(index)?.awake()
}

/// The connection that a server's answer, from there, is about.
fn asked_for(table: &mut Table, from: Address, key: ConnKey, nonce: u64) -> Result<&mut Conn, PeerFault> {
    let conn = table.get_mut(key).ok_or(PeerFault::Unknown)?;
    //= wire.md R-HS-5
    if conn.base.nonce != nonce {
        return Err(PeerFault::Nonce);
    }
    //= wire.md R-HS-10
    if conn.base.peer.is_secured() == from.is_secured() { Ok(conn) } else { Err(PeerFault::Source) }
}

impl Endpoint {
    /// Starts a connection. Ends in exactly one `Event::Connected` or `Event::ConnectFailed` with `token`.
    /// `timeout_ns` `None`: asks for ever, ever more rarely.
    pub fn connect(
        &mut self,
        now: Time,
        to: Address,
        request: &[u8],
        attribute: Attribute,
        token: u64,
        timeout_ns: Option<u64>,
    ) -> Result<ConnKey, ConnectError> {
        self.connect_by((to, None), now, request, attribute, token, timeout_ns)
    }

    /// The same to a peer that can be reached in two ways, which differ in where they lead or in the `via` of that. Both
    /// are tried until one answers. A reliable connection is then *bonded*, if the peer agrees: it uses both ways, and
    /// lives as long as one of them does.
    //= wire.md R-PATH-1
    pub fn connect_bonded(
        &mut self,
        now: Time,
        to: [Address; 2],
        request: &[u8],
        attribute: Attribute,
        token: u64,
        timeout_ns: Option<u64>,
    ) -> Result<ConnKey, ConnectError> {
        let [first, second] = to;
        let second = (first != second).then_some(second);
        self.connect_by((first, second), now, request, attribute, token, timeout_ns)
    }

    fn connect_by(
        &mut self,
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
        if self.table.is_full() {
            return Err(ConnectError::TooMany);
        }
        let first_seq = self.first_seq();
        let nonce = self.secret.draw();
        let datagram_bytes = self.shared.config.datagram_bytes_max;
        self.start_walking(now);
        let conn = place(&mut self.table, &mut self.shared, now, request.len() as u64, |base| {
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
        self.shared.handshakes_bytes += request.len() as u64;
        self.shared.enqueue(active);
        self.shared.arm(active);
        Ok(key)
    }

    fn first_seq(&mut self) -> Seq {
        let drawn = self.secret.draw_seq();
        self.shared.config.first_seq.map_or(drawn, Seq)
    }

    /// A stranger asks: answer without keeping anything.
    //= wire.md R-HS-2
    pub(super) fn on_hello(&mut self, now: Time, from: Address, hello: &Hello) -> Result<(), PeerFault> {
        //= wire.md R-HS-11
        if !self.shared.config.serves {
            return Err(PeerFault::Unexpected);
        }
        let (index, generation, nonce) = (hello.index, hello.generation, hello.nonce);
        let counters = &mut self.shared.counters;
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

    pub(super) fn on_retry(&mut self, now: Time, from: Address, retry: &Retry) -> Result<(), PeerFault> {
        let key = ConnKey { index: retry.index, generation: retry.generation };
        let conn = asked_for(&mut self.table, from, key, retry.nonce)?;
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
            self.shared.enqueue(active);
            self.shared.arm(active);
        }
        Ok(())
    }

    pub(super) fn on_connect(
        &mut self,
        now: Time,
        from: Address,
        connect: &Connect<'_>,
        sink: &mut impl Sink,
    ) -> Result<(), PeerFault> {
        //= wire.md R-HS-11
        if !self.shared.config.serves {
            return Err(PeerFault::Unexpected);
        }
        let (index, generation, nonce) = (connect.index, connect.generation, connect.nonce);
        //= wire.md R-HS-3
        if !self.secret.cookie_is_good(from, nonce, connect.bucket, connect.cookie, now) {
            // An honest client's cookie has grown old: it gets another.
            let bucket = bucket(now);
            let cookie = self.secret.cookie(from, nonce, bucket);
            let retry = Retry { index, generation, bucket, nonce, cookie };
            self.replies.push(from, Reply::Retry(retry), &mut self.shared.counters);
            return Err(PeerFault::Cookie);
        }
        let table = &self.table;
        let pending = |key| table.get(key).is_some_and(|conn| conn.base.state == crate::ConnState::Accepting);
        let forgotten = self.handshakes.expire(now, pending);
        self.shared.handshakes_bytes -= forgotten * Handshakes::COST_BYTES;
        let ticket = RequestTicket { peer: from, nonce };
        //= wire.md R-HS-4
        match self.handshakes.fate(ticket) {
            Some(Fate::Waiting { .. } | Fate::Taken { .. }) => return Ok(()),
            Some(Fate::Rejected) => {
                let reject = Reject { index, generation, nonce };
                self.replies.push(from, Reply::Reject(reject), &mut self.shared.counters);
                return Ok(());
            }
            Some(Fate::Accepted(key)) => {
                if let Some(active) = self.table.get_mut(key).and_then(|conn| conn.active.as_deref_mut())
                    && active.unconfirmed
                {
                    active.wants |= want::ACCEPT;
                    self.shared.enqueue(active);
                }
                return Ok(());
            }
            None => {}
        }
        //= wire.md R-HS-8
        let cost_bytes = Handshakes::COST_BYTES + connect.payload.len() as u64;
        if !self.handshakes.has_room_for(from) || !self.shared.fits(cost_bytes) {
            self.shared.counters.requests_dropped += 1;
            return Ok(());
        }
        self.handshakes.add(ticket, connect.payload.len() as u16);
        self.shared.handshakes_bytes += cost_bytes;
        self.shared.counters.requests_received += 1;
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

    /// Accepts a request, which may have come to another endpoint (then tell that one by `request_taken`). Ends
    /// in exactly one `Event::Accepted` or `Event::AcceptFailed` with `token`.
    pub fn accept(
        &mut self,
        now: Time,
        request: Request,
        token: u64,
    ) -> Result<ConnKey, (AcceptError, Request)> {
        if self.table.is_full() {
            return Err((AcceptError::TooMany, request));
        }
        let first_seq = self.first_seq();
        let nonce = self.secret.draw();
        let datagram_bytes = self.shared.config.datagram_bytes_max.min(request.datagram_bytes_max);
        self.start_walking(now);
        let placed = place(&mut self.table, &mut self.shared, now, 0, |base| {
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
            self.shared.bond(&mut conn, (None, false), challenges, now);
        }
        let active = conn.active;
        active.path.came(request.timestamp, request.came_at);
        active.unconfirmed = true;
        active.wants = want::ACCEPT;
        active.step_ns = DIAL_RETRY_NS_MIN;
        active.step_due = now.plus(active.step_ns);
        active.send_due =
            now.plus(self.shared.send_timeout_ns(0).clamp(ACCEPT_TIMEOUT_NS_MIN, ACCEPT_TIMEOUT_NS));
        self.shared.enqueue(active);
        self.shared.arm(active);
        self.answered(request.ticket, Fate::Accepted(key), now);
        Ok(key)
    }

    /// Refuses a request; the client learns it.
    pub fn reject(&mut self, now: Time, request: Request) {
        let reject = Reject {
            index: request.client_index,
            generation: request.client_generation,
            nonce: request.ticket.nonce,
        };
        self.replies.push(request.ticket.peer, Reply::Reject(reject), &mut self.shared.counters);
        self.answered(request.ticket, Fate::Rejected, now);
    }

    /// Another endpoint accepted this request: repeats of it are ignored from now on.
    pub fn request_taken(&mut self, ticket: RequestTicket) {
        self.answered(ticket, Handshakes::TAKEN, self.seen);
    }

    fn answered(&mut self, ticket: RequestTicket, fate: Fate, now: Time) {
        if let Some(payload_bytes) = self.handshakes.answer(ticket, fate, now) {
            self.shared.handshakes_bytes -= u64::from(payload_bytes);
        }
    }

    pub(super) fn on_accept(
        &mut self,
        now: Time,
        from: Address,
        accept: &Accept,
        sink: &mut impl Sink,
    ) -> Result<(), PeerFault> {
        let key = ConnKey { index: accept.index, generation: accept.generation };
        let conn = match asked_for(&mut self.table, from, key, accept.nonce) {
            Ok(conn) => conn,
            Err(fault) => {
                if fault == PeerFault::Unknown {
                    self.reset_accept(now, from, accept);
                }
                return Err(fault);
            }
        };
        if conn.base.state == crate::ConnState::Dialing {
            let dial = conn.active.as_deref().and_then(|active| active.dial.as_deref());
            if dial.and_then(|dial| dial.other) == Some(from) {
                //= wire.md R-HS-9
                // The server's other address was not asked for the connection, and its ways would be the wrong way round.
                return Err(PeerFault::Source);
            }
            if conn.base.peer != from {
                self.prove_source(now, from, accept);
                return Ok(());
            }
            let rtt_ns = timestamp_ns_between(accept.echo, timestamp(now));
            self.accepted(now, from, accept, rtt_ns, sink);
        } else if conn.base.peer_nonce != accept.source_nonce || !conn.base.is_established() {
            return Err(PeerFault::Unexpected);
        }
        self.confirm(now, key, accept.timestamp);
        Ok(())
    }

    /// The server's acceptance has come, from where we know that it is. `rtt_ns` 0: not measured.
    pub(super) fn accepted(
        &mut self,
        now: Time,
        from: Address,
        accept: &Accept,
        rtt_ns: u64,
        sink: &mut impl Sink,
    ) {
        let key = ConnKey { index: accept.index, generation: accept.generation };
        let Some(mut conn) = self.table.get_mut(key).and_then(|conn| conn.awake()) else { return };
        // Where the second way of another endpoint than the one asked would be, nobody knows.
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
        active.path.window = Window::new(conn.base.datagram_bytes);
        (active.heard_at, active.used_at, active.step_due) = (now, now, Time::FAR);
        active.wants = 0;
        if rtt_ns != 0 {
            active.path.rtt.sample(now, rtt_ns);
        }
        if let Some(dial) = active.dial.take() {
            self.shared.handshakes_bytes -= dial.request.len() as u64;
            second = dial.other.filter(|_| asked && accept.bond);
        }
        let keepalive_ns = active.keepalive_or(self.shared.config.keepalive_ns);
        active.start_keepalive(now, keepalive_ns, crate::ConnState::Up);
        if second.is_some() && conn.base.attribute.is_reliable() {
            let challenges = [self.secret.draw(), self.secret.draw()];
            self.shared.bond(&mut conn, (second, true), challenges, now);
        }
        self.shared.counters.connections_opened += 1;
        sink.event(Event::Connected { conn: key, token });
    }

    /// Confirms an acceptance. Repeats are confirmed again: the confirmation was lost. A question, so that a server gone
    /// meanwhile says so.
    //= wire.md R-HS-7
    pub(super) fn confirm(&mut self, now: Time, key: ConnKey, timestamp: u32) {
        let Some(conn) = self.table.get_mut(key) else { return };
        let Some(ActiveConn { active, .. }) = self.shared.wake(conn, key.index, now) else { return };
        active.path.came(timestamp, now);
        active.wants |= want::PING;
        self.shared.enqueue(active);
        self.shared.arm(active);
    }

    /// The client that this acceptance is for has gone.
    fn reset_accept(&mut self, now: Time, from: Address, accept: &Accept) {
        let reset = crate::wire::Reset {
            index: accept.source_index,
            dead_index: accept.index,
            dead_generation: accept.generation,
            nonce: accept.nonce,
            seq: accept.first_seq,
        };
        self.replies.push_reset(now, from, reset, &mut self.shared.counters);
    }

    pub(super) fn on_reject(
        &mut self,
        now: Time,
        from: Address,
        reject: &Reject,
        sink: &mut impl Sink,
    ) -> Result<(), PeerFault> {
        let _ = now;
        let key = ConnKey { index: reject.index, generation: reject.generation };
        asked_for(&mut self.table, from, key, reject.nonce)?;
        self.dial_failed(key.index, ConnectFailure::Refused, sink);
        Ok(())
    }

    pub(super) fn on_version(
        &mut self,
        now: Time,
        from: Address,
        notice: &VersionNotice,
        sink: &mut impl Sink,
    ) -> Result<(), PeerFault> {
        let _ = now;
        let key = ConnKey { index: notice.index, generation: notice.generation };
        let conn = asked_for(&mut self.table, from, key, notice.nonce)?;
        let dial = conn.active.as_deref().and_then(|active| active.dial.as_deref());
        if conn.base.peer != from && dial.and_then(|dial| dial.other) != Some(from) {
            return Err(PeerFault::Source);
        }
        // One that speaks our version has no reason to say so.
        if (notice.lowest..=notice.highest).contains(&VERSION) {
            return Err(PeerFault::Field);
        }
        self.dial_failed(key.index, ConnectFailure::Version { theirs: notice.highest }, sink);
        Ok(())
    }
}
