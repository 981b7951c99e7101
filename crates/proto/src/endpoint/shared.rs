//! What all connections of an endpoint share: buffers, queues, timers, counters.

use std::collections::VecDeque;

use super::parts::Parts;
use crate::conn::path::Bond;
use crate::conn::send_timeouts::SendTimeouts;
use crate::conn::{Active, ActiveConn, Conn, IdleRtt, want};
use crate::limits::{
    ACK_BUNDLES, ACK_DELAY_NS_MAX, ACK_DELAY_NS_MIN, CLOSE_RETRY_NS_MIN, IDLE_NS, PARTS_SHARE,
    POOL_BUFFERS_MIN, POOL_BYTES_MAX, POOL_SHARE, SEND_TIMEOUT_NS_DEFAULT, UNENDED_NS_MIN,
};
use crate::pool::Pool;
use crate::reliable::rx::RxRing;
use crate::reliable::sends::Sends;
use crate::reliable::tx::TxRing;
use crate::timers::Timers;
use crate::wire::{Head, PathBody};
use crate::{Address, Blocked, Config, ConfigError, Counters, MemoryUse, PeerFault, Time, Transmit};

/// What all connections of an endpoint share.
pub(crate) struct Shared {
    pub config: Config,
    pub counters: Counters,
    /// The program takes all messages of the bundle that is being handled, once that is done.
    pub is_handed_over: bool,
    pub pool: Pool,
    pub timers: Timers,
    /// Connections with something to send; each at most once while its `queued` mark is set.
    pub ready: VecDeque<u32>,
    /// Connections that hold messages for the program.
    pub holding: VecDeque<u32>,
    /// Connections whose peers are refused: they were sent receiver-not-ready.
    pub refused: VecDeque<u32>,
    #[expect(clippy::vec_box, reason = "the boxes move into connections and back")]
    spare_actives: Vec<Box<Active>>,
    spare_tx: Vec<TxRing>,
    spare_rx: Vec<RxRing>,
    /// How many of each were made so far, spare ones included.
    actives: u64,
    tx_rings: u64,
    rx_rings: u64,
    /// Bytes that the table of sends takes, for good.
    sends_bytes: u64,
    /// Bytes that bundles of which parts have come take, and may take.
    pub parts_bytes: u64,
    parts_bytes_max: u64,
    /// Bytes that remote memory operations and their states take.
    pub rma_bytes: u64,
    pub bonds: u64,
    pub table_bytes: u64,
    pub send_timeouts: SendTimeouts,
    pub handshakes_bytes: u64,
    /// Bytes of the cap that are lent to somebody else.
    pub lent_bytes: u64,
}

/// What one more active connection costs beside its state: entries in queues.
const QUEUES_BYTES_PER_ACTIVE: u64 = 4 * size_of::<u32>() as u64;

impl Shared {
    /// Divides the memory under the cap; also makes the place where bundles are put together from their parts.
    pub fn new(config: Config) -> Result<(Shared, Parts), ConfigError> {
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
        let shared = Shared {
            counters: Counters::default(),
            is_handed_over: false,
            pool: Pool::new(buffers as u32, buffer_bytes).ok_or(no_memory)?,
            timers: Timers::new(),
            ready: VecDeque::new(),
            holding: VecDeque::new(),
            refused: VecDeque::new(),
            spare_actives: Vec::new(),
            spare_tx: Vec::new(),
            spare_rx: Vec::new(),
            actives: 0,
            tx_rings: 0,
            rx_rings: 0,
            sends_bytes,
            parts_bytes: 0,
            parts_bytes_max: parts.bytes_max(),
            rma_bytes: 0,
            bonds: 0,
            table_bytes: 0,
            send_timeouts: SendTimeouts::default(),
            handshakes_bytes: 0,
            lent_bytes: 0,
            config,
        };
        Ok((shared, parts))
    }

    pub fn memory(&self) -> MemoryUse {
        let buffer_bytes = usize::from(self.config.datagram_bytes_max);
        MemoryUse {
            pool_bytes: self.pool.buffers() as u64 * Pool::cost_bytes(buffer_bytes),
            pool_used_bytes: self.pool.used() as u64 * Pool::cost_bytes(buffer_bytes),
            sends_bytes: self.sends_bytes,
            rma_bytes: self.rma_bytes,
            connections_bytes: self.table_bytes,
            actives_bytes: self.actives * size_of::<Active>() as u64
                + self.tx_rings * TxRing::COST_BYTES
                + self.rx_rings * RxRing::COST_BYTES
                + self.bonds * Bond::COST_BYTES
                + self.parts_bytes,
            handshakes_bytes: self.handshakes_bytes,
            queues_bytes: self.actives * (QUEUES_BYTES_PER_ACTIVE + Timers::COST_BYTES)
                + u64::from(self.config.datagram_bytes_max),
            cap_bytes: self.config.memory_bytes_max,
        }
    }

    /// Bytes that are available under the cap, without those kept for bundles that come in parts.
    pub fn available_bytes(&self) -> u64 {
        let kept_bytes = self.parts_bytes_max - self.parts_bytes + self.lent_bytes;
        self.config.memory_bytes_max.saturating_sub(self.memory().total_bytes() + kept_bytes)
    }

    /// True if `more_bytes` still fit under the cap.
    pub fn fits(&self, more_bytes: u64) -> bool {
        more_bytes <= self.available_bytes()
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
            if !self.reserve_active() {
                return false;
            }
            self.actives += 1;
        }
        let mut active = Active::wake(&conn.base, index, self.timers.add(index), now);
        active.send_timeout_ms = self.send_timeouts.get(index);
        conn.active = Some(match spare {
            Some(mut slot) => {
                *slot = active;
                slot
            }
            None => Box::new(active),
        });
        true
    }

    /// Reserves memory for one more active connection: for all of them to be spare, as giving one back in the middle of a burst must
    /// not allocate, and in the queues. False: there is no memory.
    fn reserve_active(&mut self) -> bool {
        let all = self.actives + 1;
        let queues = [&mut self.ready, &mut self.holding, &mut self.refused];
        reserve(&mut self.spare_actives, all)
            && queues
                .into_iter()
                .all(|queue| queue.try_reserve((all as usize).saturating_sub(queue.len())).is_ok())
            && self.timers.reserve(all as usize)
    }

    /// Takes the active state back, leaving what an idle connection remembers.
    pub fn sleep(&mut self, conn: &mut Conn) {
        let Some(mut active) = conn.active.take() else { return };
        assert!(active.tx.is_empty() && active.rx.held == 0, "nothing may be forgotten");
        conn.base.idle_tx = active.tx.next;
        conn.base.idle_rx = active.rx.end;
        conn.base.idle_rtt = IdleRtt::new(active.paths.first.rtt.smoothed_ns_or_zero());
        conn.base.idle_window.set_kib(active.paths.first.window.kib());
        self.timers.remove(active.timer);
        if let Some(ring) = active.tx_ring.take() {
            self.spare_tx.push(ring);
        }
        if let Some(ring) = active.rx_ring.take() {
            self.spare_rx.push(ring);
        }
        debug_assert!(active.rma.is_none(), "given back before");
        self.unbond(&mut active);
        active.dial = None;
        self.spare_actives.push(active);
    }

    /// A ring for a send window; `None`: there is no memory.
    #[inline]
    pub fn tx_ring(&mut self) -> Option<TxRing> {
        self.spare_tx.pop().or_else(|| self.new_tx_ring())
    }

    #[cold]
    fn new_tx_ring(&mut self) -> Option<TxRing> {
        let fits = self.fits(TxRing::COST_BYTES) && reserve(&mut self.spare_tx, self.tx_rings + 1);
        self.tx_rings += u64::from(fits);
        fits.then(TxRing::new)
    }

    /// A ring for held bundles; `None`: there is no memory.
    pub fn rx_ring(&mut self) -> Option<RxRing> {
        self.spare_rx.pop().or_else(|| {
            let fits = self.fits(RxRing::COST_BYTES) && reserve(&mut self.spare_rx, self.rx_rings + 1);
            self.rx_rings += u64::from(fits);
            fits.then(RxRing::new)
        })
    }

    #[inline]
    pub fn spare_tx_ring(&mut self, ring: Option<TxRing>) {
        if let Some(ring) = ring {
            self.spare_tx.push(ring);
        }
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

    /// Makes sure the connection is looked at for whatever falls due first, but not before `earliest`: whoever handles what is
    /// due cannot be called for it again at once.
    #[inline]
    pub fn arm_after(&mut self, active: &Active, earliest: Time) {
        let mut due = active.step_due.min(active.rack_due).min(active.paths.first.probe_due);
        due = due.min(active.send_due).min(active.keepalive_due);
        if active.ack_pending != 0 {
            due = due.min(active.ack_due);
        }
        let is_plain = active.blocked.is_none() && active.paths.bond.is_none() && active.rma.is_none();
        // If nothing else is due, the connection may be about to go to sleep.
        if !is_plain || due == Time::FAR {
            due = due_seldom(active, due);
        } else {
            due = due.min(active.unended.due);
        }
        self.timers.at_most(active.timer, due.max(earliest));
    }

    //= wire.md R-CLOSE-1
    /// Everything is delivered or given up: announces the close to the peer until it answers.
    pub fn start_closing(&mut self, conn: &mut ActiveConn<'_>) {
        let active = &mut *conn.active;
        active.wants |= want::CLOSE;
        active.steps = 0;
        active.step_ns = active.paths.first.rtt.probe_ns(0).max(CLOSE_RETRY_NS_MIN);
        active.step_due = active.used_at.plus(active.step_ns);
        (active.keepalive_ns, active.asks) = (0, 0);
        active.keepalive_due = Time::FAR;
        self.enqueue(active);
    }

    pub fn unended_ns(&self, active: &Active) -> u64 {
        self.send_timeout_ns(active.send_timeout_ms).max(UNENDED_NS_MIN)
    }

    /// The peer has begun something that it must end: it is looked at after a while.
    #[inline]
    pub fn watch(&mut self, conn: &mut ActiveConn<'_>, now: Time) {
        if conn.active.unended.due == Time::FAR {
            conn.active.unended.due = now.plus(self.unended_ns(conn.active));
        }
    }

    /// Makes the connection a bonded one, if there is memory for it.
    pub fn bond(
        &mut self,
        conn: &mut ActiveConn<'_>,
        second: (Option<Address>, bool),
        challenges: [u64; 2],
        now: Time,
    ) {
        let fits = self.fits(Bond::COST_BYTES);
        if !fits {
            return;
        }
        let active = &mut *conn.active;
        self.bonds += 1;
        let newest = active.rx.next;
        active.paths.bond =
            Some(Box::new(Bond::new(second, challenges, newest, conn.base.datagram_bytes, now)));
        if second.1 {
            active.wants |= want::PATH;
        }
    }

    /// Makes the connection one with a single path again; nothing is under way on the second.
    pub fn unbond(&mut self, active: &mut Active) {
        self.bonds -= u64::from(active.paths.bond.take().is_some());
        active.wants &= !want::PATH;
    }

    /// Takes in a PATH: a question about the path that it came by, an answer to ours, or both.
    pub fn on_path(
        &mut self,
        conn: &mut ActiveConn<'_>,
        head: &Head,
        which: u8,
        body: &[u8],
        now: Time,
    ) -> Result<(), PeerFault> {
        let body = PathBody::parse(body)?;
        let active = &mut *conn.active;
        let Some(bond) = active.paths.bond.as_deref_mut() else { return Err(PeerFault::Unexpected) };
        let bonded = bond.path(which);
        //= wire.md R-PATH-5
        if body.answer != 0 && !bonded.is_answer(body.answer) {
            return Err(if bonded.asks() { PeerFault::Nonce } else { PeerFault::Unexpected });
        }
        active.paths.get_mut(which).came(head.timestamp, now);
        if body.answer != 0 {
            active.path_proved(which, head, body.challenge == 0, conn.base.datagram_bytes, now);
        }
        let Some(bond) = active.paths.bond.as_deref_mut() else { return Ok(()) };
        //= wire.md R-PATH-2
        if body.challenge != 0 {
            let bonded = bond.path(which);
            bonded.answer = body.challenge;
            bonded.wanted = true;
            active.wants |= want::PATH;
        }
        self.enqueue(active);
        Ok(())
    }

    /// Sends the questions about paths whose time has come.
    pub fn ask_due(&mut self, active: &mut Active, now: Time) {
        active.give_up_silent(now, &mut self.counters);
        let Some(bond) = active.paths.bond.as_deref_mut() else { return };
        for bonded in bond.paths.iter_mut().filter(|bonded| bonded.step_due <= now) {
            bonded.ask_again(now);
            active.wants |= want::PATH;
        }
        if active.wants & want::PATH != 0 {
            self.enqueue(active);
        }
    }

    /// A bundle outside the window, or one that has come before.
    pub fn on_odd_bundle(&mut self, active: &mut Active, offset: u32) -> Result<(), PeerFault> {
        self.ack_now(active);
        if offset < active.rx.window() || offset > u32::MAX / 2 {
            //= wire.md R-ACK-3
            // A repeat is acknowledged too: the peer repeats because our acknowledgement was lost.
            self.counters.duplicates_received += 1;
            return Ok(());
        }
        Err(PeerFault::OutsideWindow)
    }

    pub fn has_rx_ring(&mut self, active: &mut Active) -> bool {
        if active.rx_ring.is_none() {
            active.rx_ring = self.rx_ring();
        }
        active.rx_ring.is_some()
    }

    #[inline]
    pub fn ack_now(&mut self, active: &mut Active) {
        active.wants |= want::ACK;
        if active.paths.bond.is_none() {
            active.ack_due = Time::FAR;
        }
        self.enqueue(active);
    }

    /// Acknowledges what has waited for it long enough.
    pub fn ack_if_due(&mut self, active: &mut Active, now: Time) {
        if active.ack_pending != 0 && active.ack_due <= now {
            if let Some(bond) = active.paths.bond.as_deref_mut() {
                bond.ack_all_pending();
            }
            self.ack_now(active);
        }
    }

    /// Acknowledges bundles that come in order: with every second one, or when the delay is over.
    //= wire.md R-ACK-5
    #[inline]
    pub fn ack_soon(&mut self, active: &mut Active, by: u8, now: Time) {
        let waited = active.ack_pending != 0;
        active.ack_pending += 1;
        let pending = match active.paths.bond.as_deref_mut() {
            None => active.ack_pending,
            Some(bond) => bond.one_pending(by),
        };
        if pending >= ACK_BUNDLES {
            self.ack_now(active);
        } else {
            let delay_ns =
                (active.paths.get(by).rtt.smoothed_ns() / 4).clamp(ACK_DELAY_NS_MIN, ACK_DELAY_NS_MAX);
            let due = now.plus(delay_ns);
            // One that waits to be acknowledged by the other path must not wait longer for this one.
            active.ack_due = if waited { active.ack_due.min(due) } else { due };
        }
    }

    #[inline]
    pub fn committed(&mut self, len: usize, out: &mut impl Transmit) {
        out.commit(len);
        self.counters.datagrams_sent += 1;
        self.counters.datagram_bytes_sent += len as u64;
    }

    pub fn count_messages(&mut self, active: &mut Active, messages: u64, bytes: u64) {
        active.counters.messages_received += messages;
        active.counters.message_bytes_received += bytes;
        self.counters.messages_received += messages;
        self.counters.message_bytes_received += bytes;
    }

    pub fn hold(&mut self, active: &mut Active) {
        if !active.holding {
            active.holding = true;
            self.holding.push_back(active.index);
        }
    }
}

/// When a connection must be looked at of which more is under way than plain messages, or nothing: `due`, or sooner.
#[inline(never)]
fn due_seldom(active: &Active, mut due: Time) -> Time {
    if active.blocked == Some(Blocked::Pacing) {
        due = due.min(active.paths.pace_due());
    }
    if let Some(bond) = active.paths.bond.as_deref() {
        due = due.min(bond.due());
    }
    if let Some(rma) = active.rma.as_deref() {
        due = due.min(rma.retry_due);
    }
    if due == Time::FAR && active.is_quiet() {
        active.used_at.plus(IDLE_NS)
    } else {
        due.min(active.unended.due)
    }
}

/// Reserves memory for `all` of a kind to be spare; grows as vectors do, not with each. False: there is no memory.
fn reserve<T>(spare: &mut Vec<T>, all: u64) -> bool {
    spare.try_reserve((all as usize).saturating_sub(spare.len())).is_ok()
}
