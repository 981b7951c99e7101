//! Operations that end before their time: with their connection, or because nothing happens.

use crate::conn::state::Input;
use crate::conn::{Active, ActiveConn};
use crate::endpoint::shared::Shared;
use crate::reliable::tx::{TxSlot, holds};
use crate::rma::Record;
use crate::time::{ns_since, ticks};
use crate::transfers::deadline::Deadline;
use crate::transfers::desk::Desk;
use crate::transfers::state::{Rma, Use};
use crate::wire::{Content, Records, set_bare_at};
use crate::{ConnKey, ConnState, Seq, Sink, Status, Time};

/// The least time between two looks at operations that may be late.
const LOOK_NS_MIN: u64 = 1_000_000;

impl Shared {
    /// Ends all operations of a connection whose window is being emptied, and takes back what it borrowed for them.
    pub fn fail_operations(&mut self, conn: &mut ActiveConn<'_>, status: Status, sink: &mut impl Sink) {
        let (key, token) = (conn.key(), conn.base.token);
        let active = &mut *conn.active;
        let Some(mut rma) = active.rma.take() else { return };
        let Shared { ops, counters, .. } = &mut *self;
        Desk { ops, counters, rma: &mut rma, key, token, now_ticks: 0, serve: false }.end_all(status, sink);
        self.spare_rma(Some(rma));
    }

    /// Operations may be over now. If the program has disconnected, the peer is told when all are.
    //= wire.md R-RMA-10
    #[inline]
    pub fn settle_operations(&mut self, conn: &mut ActiveConn<'_>) {
        let active = &mut *conn.active;
        let Some(rma) = active.rma.as_deref_mut().filter(|rma| rma.ops == 0) else { return };
        if active.tx.is_empty() {
            active.send_due = Time::FAR;
        }
        if conn.base.state != ConnState::Lingering {
            return;
        }
        rma.drop_answers();
        self.drop_held(active);
        if active.tx.is_empty() {
            conn.base.enter(Input::Delivered);
            self.start_closing(conn);
        }
    }

    /// Ends the operations whose time is over. Returns when to look again.
    //= wire.md R-RMA-9
    pub fn end_late(
        &mut self,
        conn: &mut ActiveConn<'_>,
        deadline: Deadline,
        now: Time,
        sink: &mut impl Sink,
    ) -> Time {
        let (key, token) = (conn.key(), conn.base.token);
        let active = &mut *conn.active;
        let Some(mut rma) = active.rma.take() else { return Time::FAR };
        if rma.ops == 0 {
            active.rma = Some(rma);
            return Time::FAR;
        }
        let Shared { ops, counters, .. } = &mut *self;
        let now_ticks = ticks(now.0);
        let mut desk = Desk { ops, counters, rma: &mut rma, key, token, now_ticks, serve: true };
        let longest_ns = desk.end_late(deadline, sink);
        let has_work = rma.has_work();
        active.rma = Some(rma);
        if has_work {
            self.enqueue(active);
        }
        match longest_ns {
            Some(counted_ns) => now.plus(deadline.timeout_ns.saturating_sub(counted_ns).max(LOOK_NS_MIN)),
            None => Time::FAR,
        }
    }

    /// A bundle that was refused will be sent again: notifications in it that are too old deliver nothing any more,
    /// and their operations end.
    //= wire.md R-RNR-6
    pub fn give_up_notifications(
        &mut self,
        active: &mut Active,
        (key, token): (ConnKey, u64),
        slot: &TxSlot,
        timeout_ns: u64,
        now: Time,
        sink: &mut impl Sink,
    ) {
        if slot.holds & holds::RMA == 0 {
            return;
        }
        let Some(rma) = active.rma.as_deref_mut() else { return };
        let Shared { ops, counters, pool, .. } = &mut *self;
        let mut desk = Desk { ops, counters, rma, key, token, now_ticks: ticks(now.0), serve: true };
        let body = &mut pool.get_mut(slot.buf)[..usize::from(slot.body_bytes)];
        let mut at = 0;
        while let Some((content, end)) = Records::from(body, at).next() {
            if let Content::Rma(Record::Notify { slot, message: Some(_) }) = content
                && let Some(slot) = desk.rma.slots.get(usize::from(slot)).copied()
                && slot.waits == Use::Ended
                && ns_since(slot.issued_ticks, now.0) >= timeout_ns
            {
                desk.end(slot.op, Status::ReceiverNotReady, sink);
                set_bare_at(body, at);
            }
            at = end;
        }
    }
}

impl Active {
    /// Operations of ours that are not over.
    #[inline]
    pub fn operations(&self) -> u32 {
        self.rma.as_deref().map_or(0, |rma| rma.ops)
    }

    /// Records of remote memory access could be made.
    #[inline]
    pub fn has_rma_work(&self) -> bool {
        self.rma.as_deref().is_some_and(Rma::has_work)
    }

    /// How long ago the first record of remote memory access was put into bundle `seq`; `None`: it holds none.
    pub fn rma_age_ns(&self, seq: Seq, slot: &TxSlot, now: Time) -> Option<u64> {
        let rma = self.rma.as_deref().filter(|_| slot.holds & holds::RMA != 0)?;
        Some(ns_since(rma.since_ticks(seq), now.0))
    }
}
