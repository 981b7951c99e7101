//! The network between machines: lengths and times, and what each machine's plug holds.

use super::scenario::{Scenario, Weather};
use crate::rng::Rng;
use crate::rng::mix;
use cci::simulated::{Network, TooLong};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const PORT: u16 = 4_791;
/// Datagrams that are remembered, to come again later.
const SEEN_MAX: usize = 4_096;
/// In the number of an interface: it is its machine's second one.
const SECOND_BIT: u32 = 24;
/// Headers around a datagram.
const OVERHEAD_BYTES: u64 = 66;

/// A datagram on its way.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub from: usize,
    pub to: usize,
    /// The numbers of the interfaces where it leaves and arrives.
    pub by: [u8; 2],
    pub bytes: Arc<[u8]>,
}

impl Packet {
    /// Where it leaves and where it arrives: machines, with their second interfaces as machines of their own.
    pub fn ends(&self) -> [usize; 2] {
        [self.from | usize::from(self.by[0]) << SECOND_BIT, self.to | usize::from(self.by[1]) << SECOND_BIT]
    }
}

/// Where a machine's endpoints are.
pub(super) fn address_of(machine: usize) -> SocketAddr {
    interface_of(machine, 0)
}

/// The address of one of a machine's interfaces.
pub(super) fn interface_of(machine: usize, by: u8) -> SocketAddr {
    let [_, _, high, low] = (machine as u32).to_be_bytes();
    SocketAddr::from(([10, by, high, low], PORT))
}

/// The machine at an address, and which of its interfaces that is.
pub(super) fn machine_at(address: SocketAddr) -> Option<(usize, u8)> {
    match address {
        SocketAddr::V4(v4) if v4.port() == PORT => Some((machine_at_ip(address.ip()), v4.ip().octets()[1])),
        _ => None,
    }
}

/// The machine, or the host of several, at an address of IPv4.
pub(super) fn machine_at_ip(address: IpAddr) -> usize {
    match address {
        IpAddr::V4(v4) => {
            let [_, _, high, low] = v4.octets();
            usize::from(u16::from_be_bytes([high, low]))
        }
        IpAddr::V6(_) => usize::MAX,
    }
}

/// What the machine's endpoint and the world share.
#[derive(Default)]
pub(super) struct Plug {
    /// What its clock shows.
    pub now_ns: u64,
    /// What has come: by which interface, and from where.
    pub inbox: VecDeque<(u8, SocketAddr, Arc<[u8]>)>,
    pub inbox_bytes: usize,
    /// What leaves: by which interface, and where to.
    pub out: Vec<(u8, SocketAddr, Box<[u8]>)>,
    /// Datagrams that may leave in this turn.
    pub capacity: usize,
    pub narrow: BTreeMap<SocketAddr, u16>,
    /// Datagrams that were too long for their way.
    pub too_long: u64,
}

/// The endpoint's end of it.
#[derive(Clone, Default)]
pub(super) struct Wire(Arc<Mutex<Plug>>);

impl Wire {
    pub fn plug(&self) -> MutexGuard<'_, Plug> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Network for Wire {
    fn now_ns(&self) -> u64 {
        self.plug().now_ns
    }

    fn has_space(&self) -> bool {
        let plug = self.plug();
        plug.out.len() < plug.capacity
    }

    fn send(&mut self, by: u8, to: SocketAddr, datagram: &[u8], fragment: bool) -> Result<(), TooLong> {
        let mut plug = self.plug();
        if let Some(bytes) = plug.narrow.get(&to).copied().filter(|_| !fragment)
            && datagram.len() > usize::from(bytes)
        {
            plug.too_long += 1;
            return Err(TooLong { datagram_bytes_max: bytes });
        }
        plug.out.push((by, to, datagram.into()));
        Ok(())
    }

    fn receive(&mut self) -> Option<(u8, SocketAddr, Box<[u8]>)> {
        let mut plug = self.plug();
        let (by, from, bytes) = plug.inbox.pop_front()?;
        plug.inbox_bytes -= bytes.len();
        Some((by, from, Box::from(&*bytes)))
    }
}

/// A time during which some datagrams are lost.
struct Outage {
    until_ns: u64,
    hits: Hits,
}

enum Hits {
    Path(Option<usize>, Option<usize>),
    Between(u64),
    /// One interface, by its number.
    Interface {
        end: usize,
        both_ways: bool,
    },
}

impl Outage {
    fn hits(&self, [from_end, to_end]: [usize; 2]) -> bool {
        let [from, to] = [from_end, to_end].map(|end| end & !(1 << SECOND_BIT));
        match self.hits {
            Hits::Interface { end, both_ways } => from_end == end || both_ways && to_end == end,
            Hits::Path(source, target) => {
                source.is_none_or(|source| source == from) && target.is_none_or(|target| target == to)
            }
            Hits::Between(group) => (mix(group ^ from as u64) ^ mix(group ^ to as u64)) & 1 == 1,
        }
    }
}

/// The network.
pub(super) struct Net {
    seed: u64,
    weather: Weather,
    fair: Weather,
    /// The weather of second interfaces, and theirs when it is fair.
    second: [Weather; 2],
    storm: Option<(Weather, u64)>,
    calm_ns: u64,
    outages: Vec<Outage>,
    /// By interface: until when its link is busy outwards and inwards.
    busy_ns: BTreeMap<usize, [u64; 2]>,
    /// Datagrams so far from one machine to another: chance follows from that, so that leaving out a step does not
    /// change what becomes of everything else.
    counts: BTreeMap<(usize, usize), u64>,
    seen: VecDeque<Packet>,
    pub sent: u64,
    pub lost: u64,
    /// Of them, those that found the queue of a link full.
    pub overflowed: u64,
}

impl Net {
    pub fn new(scenario: &Scenario) -> Net {
        Net {
            seed: mix(scenario.seed ^ 0x6e65_7400),
            weather: scenario.weather.clone(),
            fair: scenario.weather.fair(),
            second: [scenario.second_weather.clone(), scenario.second_weather.fair()],
            storm: None,
            calm_ns: scenario.calm_ns(),
            outages: Vec::new(),
            busy_ns: BTreeMap::new(),
            counts: BTreeMap::new(),
            seen: VecDeque::new(),
            sent: 0,
            lost: 0,
            overflowed: 0,
        }
    }

    pub fn outage(&mut self, from: Option<usize>, to: Option<usize>, until_ns: u64) {
        self.outages.push(Outage { until_ns, hits: Hits::Path(from, to) });
    }

    pub fn unplug(&mut self, machine: usize, by: u8, both_ways: bool, until_ns: u64) {
        let end = machine | usize::from(by) << SECOND_BIT;
        self.outages.push(Outage { until_ns, hits: Hits::Interface { end, both_ways } });
    }

    pub fn split(&mut self, group: u64, until_ns: u64) {
        self.outages.push(Outage { until_ns, hits: Hits::Between(group) });
    }

    pub fn storm(&mut self, weather: &Weather, until_ns: u64) {
        self.storm = Some((weather.clone(), until_ns));
    }

    /// Datagrams seen before, in an order that follows from `draw`.
    pub fn seen(&self, draw: u64, count: u32) -> Vec<Packet> {
        let mut rng = Rng::new(draw);
        let pick = |_| self.seen.get(rng.below(self.seen.len() as u64) as usize).cloned();
        (0..count).filter_map(pick).collect()
    }

    /// When a datagram offered now gets there, each copy of it.
    pub fn launch(&mut self, now_ns: u64, packet: &Packet) -> Vec<u64> {
        self.sent += 1;
        if self.seen.len() >= SEEN_MAX {
            self.seen.pop_front();
        }
        self.seen.push_back(packet.clone());
        let [from, to] = packet.ends();
        let mut rng = self.chance(from, to);
        if self.is_out(now_ns, from, to) {
            self.lost += 1;
            return Vec::new();
        }
        let weather = self.weather_by(packet.by[0], now_ns);
        let lost = rng.pct(weather.loss_pct);
        let copies = 1 + usize::from(rng.pct(weather.duplicate_pct));
        let under_way: Vec<u64> = (0..copies)
            .map(|_| {
                let held_ns = if rng.pct(weather.reorder_pct) { weather.reorder_ns } else { 0 };
                weather.delay_ns + rng.below(weather.jitter_ns + 1) + held_ns
            })
            .collect();
        let (bits_per_s, queue_bytes) = (weather.link_bits_per_s, weather.link_queue_bytes);
        let Some(left_ns) = self.pass(now_ns, from, 0, packet.bytes.len(), bits_per_s, queue_bytes) else {
            return Vec::new();
        };
        if lost {
            self.lost += 1;
            return Vec::new();
        }
        under_way.into_iter().map(|ns| left_ns + ns).collect()
    }

    /// What happens next on the way from one machine to another.
    pub fn chance(&mut self, from: usize, to: usize) -> Rng {
        let count = self.counts.entry((from, to)).or_default();
        *count += 1;
        Rng::new(self.seed ^ mix((from as u64) << 32 | to as u64) ^ mix(*count))
    }

    fn is_out(&mut self, now_ns: u64, from: usize, to: usize) -> bool {
        self.outages.retain(|outage| outage.until_ns > now_ns);
        self.outages.iter().any(|outage| outage.hits([from, to]))
    }

    fn weather_by(&self, by: u8, now_ns: u64) -> &Weather {
        match by {
            0 => self.weather(now_ns),
            _ => &self.second[usize::from(now_ns >= self.calm_ns)],
        }
    }

    fn weather(&self, now_ns: u64) -> &Weather {
        match &self.storm {
            Some((storm, until_ns)) if now_ns < *until_ns => storm,
            _ if now_ns >= self.calm_ns => &self.fair,
            _ => &self.weather,
        }
    }

    /// How long a part of a stream is under way.
    pub fn under_way_ns(&mut self, now_ns: u64, from: usize, to: usize) -> u64 {
        let mut rng = self.chance(from, to);
        let weather = self.weather(now_ns);
        weather.delay_ns + rng.below(weather.jitter_ns + 1)
    }

    /// Whether a part of a stream, or the answer to it, is lost.
    pub fn loses(&mut self, now_ns: u64, from: usize, to: usize) -> bool {
        let is_out = self.is_out(now_ns, from, to) || self.is_out(now_ns, to, from);
        self.sent += 1;
        let is_lost = self.chance(from, to).pct(self.weather(now_ns).loss_pct) || is_out;
        self.lost += u64::from(is_lost);
        is_lost
    }

    /// A datagram comes to its machine's link: when it is through; None: the queue is full.
    pub fn arrive(&mut self, now_ns: u64, packet: &Packet) -> Option<u64> {
        let weather = if packet.by[1] == 0 { &self.weather } else { &self.second[0] };
        let (bits_per_s, queue_bytes) = (weather.inward_bits_per_s, weather.link_queue_bytes);
        self.pass(now_ns, packet.ends()[1], 1, packet.bytes.len(), bits_per_s, queue_bytes)
    }

    fn pass(
        &mut self,
        now_ns: u64,
        machine: usize,
        direction: usize,
        bytes: usize,
        bits_per_s: u64,
        queue_bytes: u64,
    ) -> Option<u64> {
        if bits_per_s == 0 {
            return Some(now_ns);
        }
        let busy_ns = &mut self.busy_ns.entry(machine).or_default()[direction];
        let wait_ns = busy_ns.saturating_sub(now_ns);
        let bytes = bytes as u64 + OVERHEAD_BYTES;
        let queued_bytes = (u128::from(wait_ns) * u128::from(bits_per_s) / 8_000_000_000) as u64;
        if queued_bytes + bytes > queue_bytes {
            self.lost += 1;
            self.overflowed += 1;
            return None;
        }
        *busy_ns = now_ns.max(*busy_ns) + bytes * 8_000_000_000 / bits_per_s;
        Some(*busy_ns)
    }
}
