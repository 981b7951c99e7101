//! What all connections of an endpoint share: buffers, queues, timers, counters.

use std::collections::VecDeque;

use super::parts::Parts;
use crate::conn::path::Bond;
use crate::conn::{Active, ActiveConn, Conn, IdleRtt};
use crate::limits::{
    IDLE_NS, PARTS_SHARE, POOL_BUFFERS_MIN, POOL_BYTES_MAX, POOL_SHARE, RMA_SHARE, SEND_TIMEOUT_NS_DEFAULT,
};
use crate::pool::Pool;
use crate::reliable::rx::RxRing;
use crate::reliable::sends::{SendId, Sends};
use crate::reliable::tx::{TxRing, TxSlot, holds};
use crate::timers::Timers;
use crate::transfers::operations::Ops;
use crate::transfers::state::Rma;
use crate::{
    Blocked, Config, ConfigError, ConnKey, ConnState, Counters, Event, MemoryUse, Sink, Status, Time,
};

/// What all connections of an endpoint share.
pub(crate) struct Shared {
    pub config: Config,
    pub counters: Counters,
    pub pool: Pool,
    /// Bundles of which only parts have come.
    pub parts: Parts,
    /// Where a bundle is made that leaves in parts and has no packet buffer.
    pub scratch: Box<[u8]>,
    pub sends: Sends,
    pub ops: Ops,
    pub timers: Timers,
    /// Connections with something to send; each at most once while its `queued` mark is set.
    pub ready: VecDeque<u32>,
    /// Connections that hold messages for the program.
    pub holding: VecDeque<u32>,
    /// Not all who wait for receive buffers were looked at.
    pub is_feeding: bool,
    /// Connections whose peers were told receiver-not-ready.
    pub refused: VecDeque<u32>,
    #[expect(clippy::vec_box, reason = "the boxes move into connections and back")]
    spare_actives: Vec<Box<Active>>,
    spare_tx: Vec<TxRing>,
    spare_rx: Vec<RxRing>,
    pub spare_rma: Vec<Box<Rma>>,
    /// Made so far, spare ones included.
    actives: u64,
    tx_rings: u64,
    rx_rings: u64,
    pub rma_boxes: u64,
    pub bonds: u64,
    pub table_bytes: u64,
    pub handshakes_bytes: u64,
    /// Of the cap, what somebody else has for now.
    pub lent_bytes: u64,
}

/// What one more active connection costs beside its state: places in queues.
const QUEUES_BYTES_PER_ACTIVE: u64 = 4 * size_of::<u32>() as u64;

impl Shared {
    pub fn new(config: Config) -> Result<Shared, ConfigError> {
        let buffer_bytes = usize::from(config.datagram_bytes_max);
        let sends_bytes = u64::from(config.sends_max) * Sends::COST_BYTES;
        let buffers_bytes = (config.memory_bytes_max / POOL_SHARE).min(POOL_BYTES_MAX);
        let parts = Parts::new(config.datagram_bytes_max, buffers_bytes / PARTS_SHARE);
        let buffers = buffers_bytes.saturating_sub(parts.bytes_max()) / Pool::cost_bytes(buffer_bytes);
        // Half is for buffers, and a quarter at least must be left for connections.
        let pool_bytes_min = POOL_BUFFERS_MIN * Pool::cost_bytes(buffer_bytes) + parts.bytes_max();
        if buffers < POOL_BUFFERS_MIN || sends_bytes > config.memory_bytes_max / 4 {
            let bytes_min = (pool_bytes_min * POOL_SHARE).max(sends_bytes * 4) + 8;
            return Err(ConfigError::Memory { bytes_min });
        }
        let bytes = buffers * Pool::cost_bytes(buffer_bytes) + sends_bytes;
        let no_memory = ConfigError::OutOfMemory { bytes };
        let mut scratch = Vec::new();
        scratch.try_reserve_exact(buffer_bytes).map_err(|_| no_memory)?;
        scratch.resize(buffer_bytes, 0);
        Ok(Shared {
            counters: Counters::default(),
            pool: Pool::new(buffers as u32, buffer_bytes).ok_or(no_memory)?,
            parts,
            scratch: scratch.into(),
            sends: Sends::new(config.sends_max).ok_or(no_memory)?,
            ops: Ops::new(config.operations_max),
            timers: Timers::new(),
            ready: VecDeque::new(),
            holding: VecDeque::new(),
            is_feeding: false,
            refused: VecDeque::new(),
            spare_actives: Vec::new(),
            spare_tx: Vec::new(),
            spare_rx: Vec::new(),
            spare_rma: Vec::new(),
            actives: 0,
            tx_rings: 0,
            rx_rings: 0,
            rma_boxes: 0,
            bonds: 0,
            table_bytes: 0,
            handshakes_bytes: 0,
            lent_bytes: 0,
            config,
        })
    }

    pub fn memory(&self) -> MemoryUse {
        let buffer_bytes = usize::from(self.config.datagram_bytes_max);
        MemoryUse {
            pool_bytes: self.pool.buffers() as u64 * Pool::cost_bytes(buffer_bytes),
            pool_used_bytes: self.pool.used() as u64 * Pool::cost_bytes(buffer_bytes),
            sends_bytes: self.sends.bytes(),
            rma_bytes: self.ops.bytes() + self.rma_boxes * Rma::COST_BYTES,
            connections_bytes: self.table_bytes,
            actives_bytes: self.actives * size_of::<Active>() as u64
                + self.tx_rings * TxRing::COST_BYTES
                + self.rx_rings * RxRing::COST_BYTES
                + self.bonds * Bond::COST_BYTES
                + self.parts.bytes(),
            handshakes_bytes: self.handshakes_bytes,
            queues_bytes: self.actives * (QUEUES_BYTES_PER_ACTIVE + Timers::COST_BYTES)
                + self.scratch.len() as u64,
            cap_bytes: self.config.memory_bytes_max,
        }
    }

    /// What is left under the cap, but for what is kept for bundles that come in parts.
    pub fn left_bytes(&self) -> u64 {
        let kept_bytes = self.parts.bytes_max() - self.parts.bytes() + self.lent_bytes;
        self.config.memory_bytes_max.saturating_sub(self.memory().total_bytes() + kept_bytes)
    }

    /// True if `more_bytes` still fit under the cap.
    pub fn fits(&self, more_bytes: u64) -> bool {
        more_bytes <= self.left_bytes()
    }

    /// Makes sure that one more operation with `nodes` pieces and parts of a message can be remembered. `held`: what its connection
    /// holds already, if it is not the only one; then it gets no more than stay for all others.
    pub fn room_for_op(&mut self, nodes: usize, held: Option<(u32, usize)>) -> bool {
        // What is kept for operations must leave room for what carries them, on both sides of every connection.
        let share_bytes = (self.config.memory_bytes_max / RMA_SHARE).saturating_sub(self.ops.bytes());
        let room_bytes = self.left_bytes().min(share_bytes);
        if held.is_some_and(|(ops, held_nodes)| !self.ops.is_fair(ops, held_nodes, nodes, room_bytes)) {
            return false;
        }
        self.ops.make_room(nodes, room_bytes)
    }

    /// The connection with its active state, which it gets if it has none; `None`: there is no memory.
    #[inline]
    pub fn wake<'a>(&mut self, conn: &'a mut Conn, index: u32, now: Time) -> Option<ActiveConn<'a>> {
        if conn.active.is_none() && !self.wake_up(conn, index, now) {
            return None;
        }
        conn.awake()
    }

    #[cold]
    fn wake_up(&mut self, conn: &mut Conn, index: u32, now: Time) -> bool {
        let spare = self.spare_actives.pop();
        if spare.is_none() {
            let more_bytes = size_of::<Active>() as u64 + QUEUES_BYTES_PER_ACTIVE + Timers::COST_BYTES;
            if !self.fits(more_bytes) {
                return false;
            }
            if !self.room_for_active() {
                return false;
            }
            self.actives += 1;
        }
        let active = Active::wake(&conn.base, index, self.timers.add(index), now);
        conn.active = Some(match spare {
            Some(mut place) => {
                *place = active;
                place
            }
            None => Box::new(active),
        });
        true
    }

    /// Makes room for one more active connection: for all of them to be spare, as giving one back in the middle of a burst must
    /// not allocate, and in the queues. False: there is no memory.
    fn room_for_active(&mut self) -> bool {
        let all = self.actives + 1;
        let queues = [&mut self.ready, &mut self.holding, &mut self.refused];
        room_for(&mut self.spare_actives, all)
            && queues
                .into_iter()
                .all(|queue| queue.try_reserve((all as usize).saturating_sub(queue.len())).is_ok())
            && self.timers.room_for(all as usize)
    }

    /// Takes the active state back, leaving what an idle connection remembers.
    pub fn sleep(&mut self, conn: &mut Conn) {
        let Some(mut active) = conn.active.take() else { return };
        assert!(active.tx.is_empty() && active.rx.held == 0, "nothing may be forgotten");
        conn.base.idle_tx = active.tx.next;
        conn.base.idle_rx = active.rx.end;
        conn.base.idle_rtt = IdleRtt::new(active.path.rtt.smoothed_ns_or_zero());
        conn.base.idle_window.set_kib(active.path.window.kib());
        self.timers.remove(active.timer);
        if let Some(ring) = active.tx_ring.take() {
            self.spare_tx.push(ring);
        }
        if let Some(ring) = active.rx_ring.take() {
            self.spare_rx.push(ring);
        }
        self.spare_rma(active.rma.take());
        self.unbond(&mut active);
        active.dial = None;
        self.spare_actives.push(active);
    }

    /// Room for a send window; `None`: no memory.
    pub fn tx_ring(&mut self) -> Option<TxRing> {
        self.spare_tx.pop().or_else(|| {
            let fits = self.fits(TxRing::COST_BYTES) && room_for(&mut self.spare_tx, self.tx_rings + 1);
            self.tx_rings += u64::from(fits);
            fits.then(TxRing::new)
        })
    }

    /// Room for held bundles; `None`: no memory.
    pub fn rx_ring(&mut self) -> Option<RxRing> {
        self.spare_rx.pop().or_else(|| {
            let fits = self.fits(RxRing::COST_BYTES) && room_for(&mut self.spare_rx, self.rx_rings + 1);
            self.rx_rings += u64::from(fits);
            fits.then(RxRing::new)
        })
    }

    pub fn spare_tx_ring(&mut self, ring: Option<TxRing>) {
        self.spare_tx.extend(ring);
    }

    pub fn spare_rx_ring(&mut self, ring: Option<RxRing>) {
        self.spare_rx.extend(ring);
    }

    /// The connection has something to send.
    #[inline]
    pub fn enqueue(&mut self, active: &mut Active) {
        if !active.queued {
            active.queued = true;
            self.ready.push_back(active.index);
        }
    }

    /// How long a send may take on a connection whose own timeout is this (0: none of its own).
    pub fn send_timeout_ns(&self, own_ms: u32) -> u64 {
        match (own_ms, self.config.send_timeout_ns) {
            (0, 0) => SEND_TIMEOUT_NS_DEFAULT,
            (0, default_ns) => default_ns,
            (own_ms, _) => u64::from(own_ms) * 1_000_000,
        }
    }

    /// What all peers together may have in flight to us, divided by those that are active.
    pub fn window_kib(&self) -> u16 {
        if self.config.receive_buffer_bytes == 0 {
            return u16::MAX;
        }
        let awake = (self.actives - self.spare_actives.len() as u64).max(1);
        let least_bytes = 2 * u64::from(self.config.datagram_bytes_max) + 2048;
        let share_bytes = (self.config.receive_buffer_bytes / awake).max(least_bytes);
        (share_bytes >> 10).min(u64::from(u16::MAX)) as u16
    }

    /// Makes sure the connection is looked at in time for whatever falls due first.
    #[inline]
    pub fn arm(&mut self, active: &Active) {
        self.arm_after(active, Time(0));
    }

    /// The same, but not before `earliest`: whoever deals with what is due cannot be called for it again at once.
    #[inline]
    pub fn arm_after(&mut self, active: &Active, earliest: Time) {
        let mut due = active.step_due.min(active.rack_due).min(active.path.probe_due);
        due = due.min(active.send_due).min(active.keepalive_due);
        if active.ack_pending != 0 {
            due = due.min(active.ack_due);
        }
        if active.blocked == Some(Blocked::Pacing) {
            due = due.min(active.pace_due());
        }
        if let Some(bond) = active.bond.as_deref() {
            due = due.min(bond.due());
        }
        if let Some(rma) = active.rma.as_deref() {
            due = due.min(rma.retry_due);
        }
        if due == Time::FAR && active.is_quiet() {
            due = active.used_at.plus(IDLE_NS);
        } else {
            due = due.min(active.unended.due);
        }
        self.timers.at_most(active.timer, due.max(earliest));
    }

    /// Completes a list of sends, each exactly once; answers how many they were.
    #[inline]
    pub fn complete(
        &mut self,
        first: SendId,
        status: Status,
        conn: ConnKey,
        token: u64,
        sink: &mut impl Sink,
    ) -> u32 {
        let (mut id, before) = (first, self.sends.left());
        while let Some(done) = self.sends.take(id) {
            self.report(done.context, done.silent, status, conn, token, sink);
            id = done.next;
        }
        self.sends.left() - before
    }

    #[inline]
    pub fn report(
        &mut self,
        context: u64,
        silent: bool,
        status: Status,
        conn: ConnKey,
        token: u64,
        sink: &mut impl Sink,
    ) {
        if status != Status::Success {
            self.counters.sends_failed += 1;
        }
        if !silent {
            sink.event(Event::Sent { conn, token, context, status });
        }
    }

    /// Ends all sends and operations of a connection with `status`; nothing of them is sent any more.
    pub fn fail_sends(&mut self, conn: &mut ActiveConn<'_>, status: Status, sink: &mut impl Sink) {
        self.empty_window(conn, status, sink);
        self.fail_operations(conn, status, sink);
        let state = conn.base.state;
        let active = &mut *conn.active;
        active.stop_probing();
        active.send_due = Time::FAR;
        active.rnr = false;
        if matches!(state, ConnState::Up | ConnState::Lingering) {
            active.step_due = Time::FAR;
        }
    }

    fn empty_window(&mut self, conn: &mut ActiveConn<'_>, status: Status, sink: &mut impl Sink) {
        let (key, token) = (conn.key(), conn.base.token);
        let active = &mut *conn.active;
        let Some(mut ring) = active.tx_ring.take() else { return };
        while active.tx.unacked != active.tx.next {
            let seq = active.tx.unacked;
            let slot = std::mem::replace(ring.at(seq), TxSlot::EMPTY);
            if slot.buf.is_some() {
                self.pool.give_back(slot.buf);
            }
            if slot.holds & holds::BULK != 0
                && let Some(rma) = active.rma.as_deref_mut()
            {
                rma.release(&mut self.ops, seq);
            }
            self.complete(slot.first, status, key, token, sink);
            active.tx.unacked = seq.next();
        }
        active.tx = crate::reliable::tx::Tx::new(active.tx.next);
        for which in active.ways() {
            active.path_mut(which).in_flight_bytes = 0;
        }
        self.spare_tx.push(ring);
    }

    /// Throws away what the connection holds for the program. Records of remote memory access that are still to be
    /// dealt with stay while the connection has operations that wait for them.
    pub fn drop_held(&mut self, active: &mut Active) {
        let Some(mut ring) = active.rx_ring.take() else { return };
        let keep = active.operations() != 0 && active.rx.unpassed != 0;
        let mut seq = active.rx.deliver;
        while seq != active.rx.end {
            let buf = ring.get(seq);
            if buf.is_some() && !(keep && self.is_unpassed(buf)) {
                *ring.at(seq) = crate::pool::Buf::NONE;
                self.pool.give_back(buf);
                active.rx.held -= 1;
            }
            seq = seq.next();
        }
        // What has come stays acknowledged, and what has not stays unacknowledged.
        active.rx.deliver = active.rx.next;
        if active.rx.held == 0 {
            active.rx.unpassed = 0;
            self.spare_rx.push(ring);
        } else {
            active.rx_ring = Some(ring);
        }
    }
}

/// Makes room for `all` of a kind. Grows as vectors do: not with each. False: there is no memory.
fn room_for<T>(spare: &mut Vec<T>, all: u64) -> bool {
    spare.try_reserve((all as usize).saturating_sub(spare.len())).is_ok()
}
