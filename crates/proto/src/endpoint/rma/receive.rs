//! Bundles with records of remote memory access come in.
//!
//! A piece of data that has a bundle of its own goes where it says at once. All other records are dealt with strictly in
//! the order of the bundles, on unordered connections too: "passed" is a bundle whose records have been. Messages in
//! such bundles are another matter: they wait for the program if need be, as all messages do, and nothing of remote
//! memory access waits for them.

use crate::conn::{Active, ActiveConn};
use crate::endpoint::shared::Shared;
use crate::pool::Buf;
use crate::rma::Record;
use crate::time::ticks;
use crate::transfers::desk::Desk;
use crate::transfers::state::Rma;
use crate::wire::{Content, Head, Holds, Records, set_message_at, set_void_at};
use crate::{ConnState, Seq, Sink, Time};

/// How far a bundle could be dealt with.
enum Taken {
    All,
    /// Up to this byte: the program has no buffer for the message there.
    UpTo(usize),
}

impl Shared {
    //= wire.md R-RMA-6
    /// Deals with a new bundle of that sort or stores it; false: neither, it has not come as far as the sender is
    /// concerned.
    #[expect(clippy::too_many_arguments, reason = "a bundle and where it belongs")]
    pub fn take_in_rma(
        &mut self,
        conn: &mut ActiveConn<'_>,
        head: &Head,
        all: Holds,
        body: &[u8],
        offset: u32,
        now: Time,
        sink: &mut impl Sink,
    ) -> bool {
        let ordered = conn.base.is_ordered();
        let active = &mut *conn.active;
        // Whoever cannot remember a refusal must not take the record.
        if !self.has_rma(active) {
            self.counters.no_buffer_drops += 1;
            return false;
        }
        let ready = offset == 0;
        let messages = all == Holds::Rma { messages: true };
        if all == Holds::Bulk || (ready && !messages) {
            self.process(conn, body, now, sink);
            return true;
        }
        let deliverable = ready && !active.holding && (!ordered || active.rx.deliver == active.rx.next);
        let mut at = 0;
        // A message for which there is no buffer must be kept, once what is before it is done.
        let single = Records::from(body, 0).nth(1).is_none();
        if deliverable && (single || (self.pool.any() && self.has_rx_ring(active))) {
            match self.process(conn, body, now, sink) {
                Taken::All => return true,
                Taken::UpTo(part) => at = part,
            }
        }
        let active = &mut *conn.active;
        let gap = active.has_gap(ordered) && ready;
        if (at != 0 || gap || self.pool.fair(active.rx.held))
            && self.has_rx_ring(active)
            && let Some(buf) = self.pool.take_reserved()
        {
            self.pool.store(buf, body, at);
            if let Some(ring) = active.rx_ring.as_mut() {
                *ring.at(head.seq) = buf;
            }
            active.rx.held += 1;
            if ready {
                self.hold(active);
                self.pass(conn, buf, now, sink);
            } else {
                active.rx.unpassed += 1;
            }
            return true;
        }
        self.counters.no_buffer_drops += 1;
        if ready && !gap {
            self.refuse(conn);
        }
        false
    }

    /// Deals with the records of a body in order, as far as the program takes the messages among them.
    fn process(&mut self, conn: &mut ActiveConn<'_>, body: &[u8], now: Time, sink: &mut impl Sink) -> Taken {
        let (key, token, serve) = (conn.key(), conn.base.token, conn.base.serves());
        // A program that has disconnected takes no messages; they are as good as delivered.
        let discard = conn.base.state == ConnState::Lingering;
        let active = &mut *conn.active;
        let Some(mut rma) = active.rma.take() else { return Taken::All };
        let Shared { ops, counters, .. } = &mut *self;
        let now_ticks = ticks(now.0);
        let mut desk = Desk { ops, counters, rma: &mut rma, key, token, now_ticks, serve };
        let (mut messages, mut bytes, mut done) = (0, 0, 0);
        let mut taken = Taken::All;
        for (content, end) in Records::from(body, 0) {
            let message = match content {
                Content::Void => None,
                Content::Message(payload) => Some(payload),
                Content::Rma(Record::Notify { slot, message }) => message.filter(|_| desk.may_notify(slot)),
                Content::Rma(record) => {
                    desk.take(&record, sink);
                    None
                }
            };
            if let Some(payload) = message.filter(|_| !discard) {
                if !sink.message(key, token, payload) {
                    taken = Taken::UpTo(done);
                    break;
                }
                messages += 1;
                bytes += payload.len() as u64;
            }
            if let Content::Rma(Record::Notify { slot, .. }) = content {
                desk.notified(slot);
            }
            done = end;
        }
        self.after_records(active, rma);
        self.count_messages(active, messages, bytes);
        taken
    }

    /// Deals with the records of a stored body whose turn has come, and leaves the messages. A notification becomes a
    /// message like any other. False: it has no messages.
    fn pass(&mut self, conn: &mut ActiveConn<'_>, buf: Buf, now: Time, sink: &mut impl Sink) -> bool {
        let (key, token, serve) = (conn.key(), conn.base.token, conn.base.serves());
        let active = &mut *conn.active;
        let Some(mut rma) = active.rma.take() else { return true };
        let Shared { ops, counters, pool, .. } = &mut *self;
        let now_ticks = ticks(now.0);
        let mut desk = Desk { ops, counters, rma: &mut rma, key, token, now_ticks, serve };
        let (body, mut at) = pool.stored_mut(buf);
        let mut messages = false;
        while let Some((content, end)) = Records::from(body, at).next() {
            match content {
                Content::Void => {}
                Content::Message(_) => messages = true,
                Content::Rma(Record::Notify { slot, message }) => {
                    let deliver = message.is_some() && desk.may_notify(slot);
                    desk.notified(slot);
                    messages |= deliver;
                    if deliver { set_message_at(body, at) } else { set_void_at(body, at) }
                }
                Content::Rma(record) => {
                    desk.take(&record, sink);
                    set_void_at(body, at);
                }
            }
            at = end;
        }
        self.after_records(active, rma);
        messages
    }

    /// What came may have to be answered, or may have made room for more.
    fn after_records(&mut self, active: &mut Active, rma: Box<Rma>) {
        if rma.has_work() {
            self.enqueue(active);
        }
        active.rma = Some(rma);
    }

    /// Passes the stored bundles from `from` on up to the first gap. True if any were.
    #[cold]
    pub fn pass_stored(
        &mut self,
        conn: &mut ActiveConn<'_>,
        from: Seq,
        now: Time,
        sink: &mut impl Sink,
    ) -> bool {
        let discard = conn.base.state == ConnState::Lingering;
        let mut any = false;
        let mut seq = from;
        loop {
            let active = &mut *conn.active;
            if seq == active.rx.next || active.rx.unpassed == 0 {
                return any;
            }
            let buf = active.rx_ring.as_ref().map_or(Buf::NONE, |ring| ring.get(seq));
            if buf.is_some() && self.is_unpassed(buf) {
                any = true;
                let messages = self.pass(conn, buf, now, sink);
                let active = &mut *conn.active;
                active.rx.unpassed -= 1;
                if discard || !messages {
                    if let Some(ring) = active.rx_ring.as_mut() {
                        *ring.at(seq) = Buf::NONE;
                    }
                    self.pool.give_back(buf);
                    active.rx.held -= 1;
                }
            }
            seq = seq.next();
        }
    }

    /// True if a stored body has records of remote memory access that are still to be dealt with.
    pub fn is_unpassed(&self, buf: Buf) -> bool {
        let (body, at) = self.pool.stored(buf);
        Records::from(body, at).any(|(content, _)| matches!(content, Content::Rma(_)))
    }

    /// Takes the records of remote memory access out of a stored body: they will never be dealt with.
    pub fn strip(&mut self, buf: Buf) {
        let (body, mut at) = self.pool.stored_mut(buf);
        while let Some((content, end)) = Records::from(body, at).next() {
            if let Content::Rma(_) = content {
                set_void_at(body, at);
            }
            at = end;
        }
    }
}

impl Active {
    /// True if what is stored behind a missing bundle needs that bundle: then it must not be refused.
    //= wire.md R-RNR-7
    #[inline]
    pub fn has_gap(&self, ordered: bool) -> bool {
        (ordered || self.rx.unpassed != 0) && self.rx.end != self.rx.next
    }
}
