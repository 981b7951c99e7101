//! The network: what happens to a datagram between two nodes. It knows lengths and times, never contents.

use std::collections::BTreeMap;

use crate::rng::Rng;

/// A node's second interface is called by the node's number and this; it has links, paths and cuts of its own.
pub const SECOND: usize = 1 << 10;

/// The node that has this interface.
pub(super) const fn node_of(interface: usize) -> usize {
    interface % SECOND
}

/// Where an interface's links are kept.
const fn position_of(interface: usize) -> usize {
    2 * node_of(interface) + interface / SECOND
}

/// How one direction between two nodes behaves. All of it independent per datagram.
#[derive(Clone, Debug)]
pub struct Path {
    /// Datagrams lost, of 100.
    pub loss_pct: f64,
    /// Datagrams that arrive twice, of 100; the copy has a delay of its own.
    pub duplicate_pct: f64,
    /// Every datagram is this long under way ...
    pub delay_ns: u64,
    /// ... plus a uniform part of this, which reorders whatever is closer together than it.
    pub jitter_ns: u64,
    /// Datagrams held up by a further `reorder_ns`, of 100: rare, long reordering.
    pub reorder_pct: f64,
    /// See `reorder_pct`.
    pub reorder_ns: u64,
    /// Longest datagram that passes without fragmentation.
    pub mtu_bytes: u16,
}

impl Default for Path {
    fn default() -> Path {
        Path {
            loss_pct: 0.0,
            duplicate_pct: 0.0,
            delay_ns: 5_000,
            jitter_ns: 0,
            reorder_pct: 0.0,
            reorder_ns: 0,
            mtu_bytes: 65_528,
        }
    }
}

/// A link with a rate and a finite first-in-first-out queue before it.
#[derive(Clone, Debug)]
pub struct Link {
    /// 0: infinitely fast.
    pub bits_per_s: u64,
    /// Bytes that may wait; a datagram that finds the queue full is lost.
    pub queue_bytes: u64,
    busy_until_ns: u64,
}

impl Link {
    /// A link that delays nothing.
    pub const UNLIMITED: Link = Link { bits_per_s: 0, queue_bytes: u64::MAX, busy_until_ns: 0 };

    /// A link of this rate and queue.
    pub const fn new(bits_per_s: u64, queue_bytes: u64) -> Link {
        Link { bits_per_s, queue_bytes, busy_until_ns: 0 }
    }

    fn wire_ns(&self, bytes: u64) -> u64 {
        if self.bits_per_s == 0 {
            0
        } else {
            ((bytes as u128 * 8_000_000_000) / self.bits_per_s as u128) as u64
        }
    }

    /// Bytes waiting now.
    pub fn queued_bytes(&self, now_ns: u64) -> u64 {
        let wait_ns = self.busy_until_ns.saturating_sub(now_ns);
        ((wait_ns as u128 * self.bits_per_s as u128) / 8_000_000_000) as u64
    }

    /// When a datagram offered now has passed; `None` when the queue is full.
    fn pass(&mut self, now_ns: u64, bytes: u64) -> Option<u64> {
        if self.bits_per_s == 0 {
            return Some(now_ns);
        }
        if self.queued_bytes(now_ns).saturating_add(bytes) > self.queue_bytes {
            return None;
        }
        self.busy_until_ns = self.busy_until_ns.max(now_ns) + self.wire_ns(bytes);
        Some(self.busy_until_ns)
    }
}

/// A time during which datagrams from one node (or any) to one node (or any) are lost. One way: two make a partition.
#[derive(Clone, Debug)]
pub struct Outage {
    /// First nanosecond of the cut.
    pub from_ns: u64,
    /// First nanosecond after it.
    pub until_ns: u64,
    /// `None`: whoever sent it.
    pub source: Option<usize>,
    /// `None`: wherever it goes.
    pub target: Option<usize>,
}

/// Headers of Ethernet, IPv4 and UDP, preamble and gap: what the rate of a link is spent on besides the datagram.
pub const OVERHEAD_BYTES: u64 = 66;

/// What became of datagrams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetCounts {
    /// Handed to the network by nodes.
    pub sent: u64,
    /// Of their bytes.
    pub sent_bytes: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Lost in a cut.
    pub outage: u64,
    /// Lost at a full queue.
    pub overflowed: u64,
    /// Too long for the path and not to be fragmented.
    pub too_long: u64,
    /// Second copies made.
    pub duplicated: u64,
    /// Handed to a node.
    pub arrived: u64,
}

/// What the network does with one datagram.
#[derive(Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Gone.
    Lost,
    /// Refused: longer than this and not to be fragmented.
    TooLong(u16),
    /// Reaches the target's link at this time, and once more at the other.
    Arrives(u64, Option<u64>),
}

/// A network of datagrams. Build it, then hand it to [`super::World`].
#[derive(Clone, Debug)]
pub struct Net {
    pub(super) rng: Rng,
    path: Path,
    paths: BTreeMap<(usize, usize), Path>,
    egress: Link,
    ingress: Link,
    links: Vec<(Link, Link)>,
    outages: Vec<Outage>,
    pub(super) counts: NetCounts,
}

impl Net {
    /// A network that loses nothing, with 5 µs between any two nodes, until told otherwise.
    pub fn new(seed: u64) -> Net {
        Net {
            rng: Rng::new(seed),
            path: Path::default(),
            paths: BTreeMap::new(),
            egress: Link::UNLIMITED,
            ingress: Link::UNLIMITED,
            links: Vec::new(),
            outages: Vec::new(),
            counts: NetCounts::default(),
        }
    }

    /// Share of datagrams lost on every path.
    pub fn loss_pct(mut self, pct: f64) -> Net {
        self.path.loss_pct = pct;
        self
    }

    /// Share of datagrams that arrive twice.
    pub fn duplicate_pct(mut self, pct: f64) -> Net {
        self.path.duplicate_pct = pct;
        self
    }

    /// One-way delay, `delay_ns..=delay_ns + jitter_ns`.
    pub fn delay_ns(mut self, delay_ns: u64, jitter_ns: u64) -> Net {
        self.path.delay_ns = delay_ns;
        self.path.jitter_ns = jitter_ns;
        self
    }

    /// `pct` of 100 datagrams come `reorder_ns` later than the rest.
    pub fn reorder(mut self, pct: f64, reorder_ns: u64) -> Net {
        self.path.reorder_pct = pct;
        self.path.reorder_ns = reorder_ns;
        self
    }

    /// Longest datagram of every path.
    pub fn mtu_bytes(mut self, mtu_bytes: u16) -> Net {
        self.path.mtu_bytes = mtu_bytes;
        self
    }

    /// Every node's outgoing and incoming link.
    pub fn links(mut self, egress: Link, ingress: Link) -> Net {
        self.egress = egress;
        self.ingress = ingress;
        self
    }

    /// Another behaviour for one direction between two nodes.
    pub fn path(mut self, source: usize, target: usize, change: impl FnOnce(&mut Path)) -> Net {
        let mut path = self.paths.get(&(source, target)).unwrap_or(&self.path).clone();
        change(&mut path);
        self.paths.insert((source, target), path);
        self
    }

    /// Whether large transfers would take very long.
    pub(super) fn is_slow(&self) -> bool {
        self.path.loss_pct > 5.0 || self.path.delay_ns > 10_000_000 || self.path.reorder_ns > 10_000_000
    }

    /// Loses everything one way for a time.
    pub fn outage(mut self, outage: Outage) -> Net {
        self.outages.push(outage);
        self
    }

    /// Loses everything between two nodes, both ways, for a time.
    pub fn partition(self, a: usize, b: usize, from_ns: u64, until_ns: u64) -> Net {
        self.outage(Outage { from_ns, until_ns, source: Some(a), target: Some(b) }).outage(Outage {
            from_ns,
            until_ns,
            source: Some(b),
            target: Some(a),
        })
    }

    /// Called once per node by the world.
    pub(super) fn add_node(&mut self) {
        self.links.push((self.egress.clone(), self.ingress.clone()));
        self.links.push((self.egress.clone(), self.ingress.clone()));
    }

    /// Another pair of links for one node already added.
    pub(super) fn set_links(&mut self, node: usize, egress: Link, ingress: Link) {
        self.links[position_of(node)] = (egress, ingress);
    }

    /// Whether a node's own link can take a datagram of this length now: a socket's send buffer has room.
    pub(super) fn egress_has_room(&self, now_ns: u64, node: usize, bytes: u64) -> bool {
        let link = &self.links[position_of(node)].0;
        link.bits_per_s == 0 || link.queued_bytes(now_ns) + bytes + OVERHEAD_BYTES <= link.queue_bytes
    }

    /// When half of what waits at a node's own link has left.
    pub(super) fn egress_half_empty_ns(&self, now_ns: u64, node: usize) -> u64 {
        let busy_ns = self.links[position_of(node)].0.busy_until_ns.saturating_sub(now_ns);
        now_ns + (busy_ns / 2).max(1)
    }

    /// Sends a datagram of `bytes` from one node to another.
    pub(super) fn launch(
        &mut self,
        now_ns: u64,
        source: usize,
        target: usize,
        bytes: usize,
        fragment: bool,
    ) -> Delivery {
        self.counts.sent += 1;
        self.counts.sent_bytes += bytes as u64;
        let path = self.paths.get(&(source, target)).unwrap_or(&self.path);
        if bytes > usize::from(path.mtu_bytes) && !fragment {
            self.counts.too_long += 1;
            return Delivery::TooLong(path.mtu_bytes);
        }
        let Some(left_ns) = self.links[position_of(source)].0.pass(now_ns, bytes as u64 + OVERHEAD_BYTES)
        else {
            self.counts.overflowed += 1;
            return Delivery::Lost;
        };
        let hit = |outage: &Outage| {
            (outage.from_ns..outage.until_ns).contains(&now_ns)
                && outage.source.is_none_or(|node| node == source)
                && outage.target.is_none_or(|node| node == target)
        };
        if self.outages.iter().any(hit) {
            self.counts.outage += 1;
            return Delivery::Lost;
        }
        // What is drawn does not depend on what happens, so that a change of one percentage leaves the rest of a run comparable.
        let lost = self.rng.pct(path.loss_pct);
        let twice = self.rng.pct(path.duplicate_pct);
        let first_ns = left_ns + Net::under_way_ns(&mut self.rng, path);
        let second_ns = left_ns + Net::under_way_ns(&mut self.rng, path);
        if lost {
            self.counts.lost += 1;
            return Delivery::Lost;
        }
        self.counts.duplicated += u64::from(twice);
        Delivery::Arrives(first_ns, twice.then_some(second_ns))
    }

    fn under_way_ns(rng: &mut Rng, path: &Path) -> u64 {
        let held_ns = if rng.pct(path.reorder_pct) { path.reorder_ns } else { 0 };
        path.delay_ns + rng.below(path.jitter_ns + 1) + held_ns
    }

    /// A datagram has come to the target's own link: when it gets to the node, or `None` when the queue there is full.
    pub(super) fn ingress(&mut self, now_ns: u64, node: usize, bytes: usize) -> Option<u64> {
        let passed = self.links[position_of(node)].1.pass(now_ns, bytes as u64 + OVERHEAD_BYTES);
        match passed {
            Some(_) => self.counts.arrived += 1,
            None => self.counts.overflowed += 1,
        }
        passed
    }

    /// What became of datagrams so far.
    pub fn counts(&self) -> &NetCounts {
        &self.counts
    }
}
