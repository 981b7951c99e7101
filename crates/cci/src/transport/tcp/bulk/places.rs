//! Whose turn it is. What moves data on a connection takes memory: a flow, and a buffer each way. All connections share so much of
//! it, by host. A connection that finds none waits in a line, and its stream is left alone meanwhile. Those that have theirs
//! give way after a few turns while others wait: nothing more is read of them, what they asked for is served, and then what the
//! peer relies on is kept in a few bytes ([`Parked`](crate::transport::ordered_rma::Parked)).

use super::super::Tcp;
use super::super::conn::Conn;
use super::super::counts::Fault;
use super::super::second_stream::{Admitted, Bulk};
use super::Bulks;
use crate::connection::DisconnectReason;
use crate::engine::core::Core;
use crate::transport::ordered_rma::FLOW_BYTES;
use crate::transport::ordered_rma::stream::Intake;
use crate::transport::quota::{Host, Quota};
use crate::transport::token;
use cci_memory::slab::Key;
use cci_sys::event::Interest;

/// What a connection with something under way holds at most: what it writes from, what it reads into, its flow.
pub(super) const PLACE_BYTES: u64 = 160 << 10;
/// All of them together hold no more than this part of the cap; but some there always are.
const PLACES_SHARE: u64 = 4;
const PLACES_MIN: u64 = 4;
/// Of all, what peers ask for leaves this part to what this side's program begins, and that to peers.
const RESERVED_SHARE: u64 = 4;
/// Turns after which a connection gives way to those that wait.
const TURNS_BEFORE_YIELD: u32 = 4;
/// Those in line that are looked at in one poll: the first ones' hosts may have their share.
const LOOKS_MAX: usize = 64;
/// A connection whose peer has neither taken anything nor ended a record for so long makes room for those in line, if its
/// host holds the most.
const CROWDED_NS: u64 = 1_000_000_000;
/// So many make room at a time.
const ENDED_MAX: usize = 8;

const _: () = assert!(FLOW_BYTES as u64 + (128 << 10) <= PLACE_BYTES);

/// Memory of all connections that move something.
pub(super) struct Places {
    max: u64,
    /// What peers have asked for, by host.
    peers: Quota,
    peers_bytes: u64,
    /// What this side's program has begun.
    own_bytes: u64,
}

impl Places {
    pub fn new(memory_bytes_max: u64) -> Places {
        let max = (memory_bytes_max / PLACES_SHARE).max(PLACES_MIN * PLACE_BYTES);
        Places { max, peers: Quota::new(max - max / RESERVED_SHARE), peers_bytes: 0, own_bytes: 0 }
    }

    fn has_room_for(&mut self, host: Host, by: Admitted, bytes: u64) -> bool {
        let fits_all = self.peers_bytes + self.own_bytes + bytes <= self.max;
        fits_all
            && match by {
                Admitted::Peer => self.peers.has_room_for(host, bytes),
                Admitted::Own => self.own_bytes + bytes <= self.max - self.max / RESERVED_SHARE,
            }
    }

    /// Which host has to make room for a connection in line of this one; None: there is room.
    fn crowd(&mut self, host: Host) -> Option<Host> {
        if self.has_room_for(host, Admitted::Peer, PLACE_BYTES) { None } else { self.peers.most() }
    }

    /// A connection holds so much from now on, instead of what it is charged for.
    fn charge(&mut self, host: Host, bulk: &mut Bulk, bytes: u64) {
        let before = std::mem::replace(&mut bulk.charged_bytes, bytes);
        match bulk.admitted {
            Admitted::Peer => {
                self.peers.give_back(host, before);
                self.peers.take(host, bytes);
                self.peers_bytes = self.peers_bytes + bytes - before;
            }
            Admitted::Own => self.own_bytes = self.own_bytes + bytes - before,
        }
    }

    /// Gives a connection that was slim what it may need. False: there is no room.
    pub fn fill(&mut self, host: Host, bulk: &mut Bulk) -> bool {
        let missing = PLACE_BYTES.saturating_sub(bulk.charged_bytes);
        if bulk.is_slim && self.has_room_for(host, bulk.admitted, missing) {
            self.charge(host, bulk, PLACE_BYTES);
            bulk.is_slim = false;
        }
        !bulk.is_slim
    }

    /// A connection is over.
    pub fn release(&mut self, host: Host, bulk: &mut Bulk) {
        self.charge(host, bulk, 0);
    }

    /// Bytes held for counting.
    pub fn bytes(&self) -> u64 {
        self.peers.bytes()
    }
}

impl Bulks {
    /// Somebody has not what it takes to go on.
    fn others_wait(&self) -> bool {
        !self.waiting.is_empty() || self.short_turns > 0
    }

    /// Takes a connection out of the list; it was the last to have its turn, as a rule.
    pub(super) fn retire(&mut self, key: Key) {
        if self.active.last() == Some(&key) {
            self.active.pop();
        } else {
            self.active.retain(|active| *active != key);
        }
    }
}

/// What a turn is for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Everything.
    Whole,
    /// Nothing is read: it gives way to others.
    Serve,
    /// What has not left is written, and nothing else: there is no memory for more.
    Flush,
}

impl Tcp {
    /// Gives a connection what it takes to move data. False: there is no room.
    pub(super) fn admit(&mut self, key: Key, by: Admitted) -> bool {
        let now_ns = self.shared.now_ns;
        let Some(conn) = self.conns.get_mut(key) else { return false };
        let host = conn.host();
        let Some(bulk) = conn.bulk.as_mut() else { return false };
        if bulk.is_active {
            return true;
        }
        let Bulks { places, active, looked_ns, due_ns, .. } = &mut self.bulks;
        if !places.has_room_for(host, by, PLACE_BYTES - bulk.charged_bytes.min(PLACE_BYTES)) {
            return false;
        }
        if active.try_reserve(1).is_err() {
            return false;
        }
        places.release(host, bulk);
        bulk.admitted = by;
        places.charge(host, bulk, PLACE_BYTES);
        if std::mem::take(&mut bulk.is_waiting) {
            // This side has not read meanwhile: that is not the peer's fault.
            bulk.record_ns = bulk.record_ns.map(|since_ns| since_ns + now_ns.saturating_sub(bulk.waiting_ns));
        }
        (bulk.is_active, bulk.is_slim, bulk.turns, bulk.yields_ns) = (true, false, 0, None);
        bulk.moved_ns = now_ns;
        if active.is_empty() {
            *looked_ns = now_ns;
        }
        active.push(key);
        *due_ns = 0;
        true
    }

    /// There is no room for what has come on a second stream: it is left alone until its turn comes.
    pub(super) fn wait_in_line(&mut self, core: &Core, key: Key) {
        let now_ns = self.shared.now_ns;
        let Some(bulk) = self.conns.get_mut(key).and_then(|conn| conn.bulk.as_mut()) else { return };
        if bulk.is_waiting || self.bulks.waiting.try_reserve(1).is_err() {
            // Without memory for that, the kernel tells again.
            return;
        }
        bulk.watch(core, None);
        (bulk.is_waiting, bulk.waiting_ns) = (true, now_ns);
        self.bulks.waiting.push_back(key);
        self.bulks.counts.waited += 1;
    }

    /// Gives those in line what they wait for, as far as it is there.
    pub(super) fn admit_waiting(&mut self, core: &Core) {
        for _ in 0..self.bulks.waiting.len().min(LOOKS_MAX) {
            let Some(key) = self.bulks.waiting.pop_front() else { return };
            let waits = |conn: &Conn| conn.bulk.as_ref().is_some_and(|bulk| bulk.is_waiting);
            if !self.conns.get(key).is_some_and(waits) {
                continue;
            }
            if self.admit(key, Admitted::Peer) {
                if let Some(bulk) = self.conns.get_mut(key).and_then(|conn| conn.bulk.as_mut()) {
                    bulk.watch(core, Some(Interest::Read));
                }
                self.bulks.at_once = true;
            } else {
                self.bulks.waiting.push_back(key);
            }
        }
    }

    /// While somebody can't have its turn for want of room, connections make room that stand still: of the host that holds
    /// the most, the one that has done so for the longest time, and no more than must.
    pub(super) fn make_room_in_line(&mut self, core: &mut Core) {
        for _ in 0..ENDED_MAX {
            let first = self.bulks.waiting.iter().find_map(|key| self.conns.get(*key)).map(Conn::host);
            let short = self.bulks.short_host.filter(|_| self.bulks.short_turns > 0);
            let Some(crowd) = first.or(short).and_then(|host| self.bulks.places.crowd(host)) else { return };
            let stands_since_ns = |key: &Key| {
                let conn = self.conns.get(*key).filter(|conn| conn.host() == crowd)?;
                conn.bulk.as_ref()?.stands_since_ns(&self.bulks.flows)
            };
            let all = self.bulks.active.iter().chain(self.shared.streams.unfinished());
            let standing = all.filter_map(|key| Some((stands_since_ns(key)?, *key)));
            let Some((since_ns, key)) = standing.min_by_key(|(since_ns, _)| *since_ns) else { return };
            let until_ns = since_ns.saturating_add(CROWDED_NS);
            if self.shared.now_ns < until_ns {
                self.bulks.due_ns = self.bulks.due_ns.min(until_ns);
                return;
            }
            //= wire.md R-TCP-26
            self.bulks.counts.crowded += 1;
            self.bulks.retire(key);
            self.end(core, key, DisconnectReason::TimedOut);
        }
    }

    /// What the next turn of a connection is for.
    pub(super) fn next_turn(&mut self, key: Key) -> Turn {
        let (now_ns, others_wait) = (self.shared.now_ns, self.bulks.others_wait());
        self.bulks.short_turns = self.bulks.short_turns.saturating_sub(1);
        let Some(conn) = self.conns.get_mut(key) else { return Turn::Whole };
        let host = conn.host();
        let Some(bulk) = conn.bulk.as_mut() else { return Turn::Whole };
        let Bulks { places, flows, short_turns, short_host, active, .. } = &mut self.bulks;
        if others_wait && !bulk.has_own(flows) {
            bulk.turns = bulk.turns.saturating_add(1);
            if bulk.turns > TURNS_BEFORE_YIELD {
                bulk.yields_ns.get_or_insert(now_ns);
            }
        } else {
            (bulk.turns, bulk.yields_ns) = (0, None);
        }
        if bulk.writer.is_empty() && !places.fill(host, bulk) {
            // It waits as those in line do, until all have had their turn.
            *short_turns = active.len() + 1;
            *short_host = Some(host);
        }
        match (bulk.is_slim, bulk.yields_ns) {
            (true, _) => Turn::Flush,
            (false, Some(_)) => Turn::Serve,
            (false, None) => Turn::Whole,
        }
    }

    /// Behind a turn, while others wait: who gives way, or on which nothing has moved, keeps no more than it must.
    pub(super) fn give_way(&mut self, core: &mut Core, key: Key) {
        if !self.bulks.others_wait() {
            return;
        }
        let Some(bulk) = self.conns.get(key).and_then(|conn| conn.bulk.as_ref()) else { return };
        let goes_on = bulk.has_moved && bulk.yields_ns.is_none() || bulk.has_own(&self.bulks.flows);
        if goes_on || bulk.stream.is_none() {
            return;
        }
        match self.park(core, key) {
            Ok(true) => self.bulks.retire(key),
            Ok(false) => self.slim(key),
            Err(fault) => return self.fault(core, key, fault),
        }
        // Whoever waits for that has its turn in the next poll.
        self.bulks.at_once |= self.bulks.short_turns > 0;
    }

    /// Takes a connection's memory back, if nothing is under way on it that needs any. Who calls takes it out of the list.
    pub(super) fn park(&mut self, core: &mut Core, key: Key) -> Result<bool, Fault> {
        let Some(conn) = self.conns.get_mut(key) else { return Ok(false) };
        let (host, delivers) = (conn.host(), conn.takes_messages());
        let Some(bulk) = conn.bulk.as_mut() else { return Ok(false) };
        let Bulks { flows, places, message_bytes_max, .. } = &mut self.bulks;
        // What the kernel does not know of it does not tell of.
        let is_still =
            bulk.stream.as_ref().is_some_and(|stream| !stream.has_unsent() && !stream.has_content());
        if !is_still || !bulk.writer.is_empty() {
            return Ok(false);
        }
        if let Some((flow, ops)) = flows.get_mut(bulk.flow) {
            let Some(parked) = flow.parked() else { return Ok(false) };
            let message_bytes_max = *message_bytes_max;
            let mut intake = Intake { flow, ops, core, message_bytes_max, delivers };
            bulk.reader.slim(&mut intake).map_err(|_| Fault::Record)?;
            bulk.parked = parked;
            flows.give_back(bulk.flow);
        }
        bulk.writer.rest();
        let held = bulk.reader.held_bytes();
        places.charge(host, bulk, held);
        (bulk.flow, bulk.is_active, bulk.yields_ns) = (token::NOWHERE, false, None);
        bulk.watch(core, Some(Interest::Read));
        Ok(true)
    }

    /// Has a connection that waits for its peer hold no more than what is on its way.
    fn slim(&mut self, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let host = conn.host();
        let Some(bulk) = conn.bulk.as_mut() else { return };
        bulk.writer.slim();
        let held = FLOW_BYTES as u64 + bulk.writer.held_bytes() + bulk.reader.held_bytes();
        if held < bulk.charged_bytes {
            self.bulks.places.charge(host, bulk, held);
            bulk.is_slim = true;
        }
    }
}
