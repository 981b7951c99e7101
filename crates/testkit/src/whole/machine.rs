//! A machine: a clock, a plug, an endpoint, and what its program holds.

use super::clock::Clock;
use super::held::Held;
use super::network::{Wire, address_of, interface_of};
use super::scenario::{Hold, Machine};
use super::shared::Stage;
use crate::rng::Rng;
use crate::rng::mix;
use cci::simulated::{self, SimulatedNode};
use cci::{Connection, Endpoint, Options, Security};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Everybody's key, where endpoints are sealed.
const KEY: &[u8] = b"all = 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n";

/// A machine.
pub(super) struct Host {
    pub spec: Machine,
    pub clock: Clock,
    pub wire: Wire,
    /// Where it lives, if machines share memory.
    pub stage: Option<Rc<Stage>>,
    /// Which of the machines it is.
    pub number: usize,
    /// It is stopped until then.
    pub stopped_until_ns: u64,
    pub endpoint: Option<Endpoint>,
    /// Where its endpoint is, or was last.
    pub uri: String,
    /// Whose connection that is.
    pub sides: BTreeMap<u64, usize>,
    /// Sides that live here, for as long as there is something to be done.
    pub active: Vec<usize>,
    pub held: Vec<Held>,
    /// How long messages are kept, and until when that is so.
    pub hold: Hold,
    pub hold_until_ns: u64,
    /// When the last message to be given back is given back.
    last_back_ns: u64,
    hold_rng: Rng,
    pub wake_ns: Option<u64>,
    pub next_poll_ns: u64,
    pub polls: u64,
    /// Polls in a row that did nothing, and since when.
    pub idle_polls: u32,
    pub idle_since_ns: u64,
    /// Endpoints it has had.
    pub incarnation: u64,
}

impl Host {
    pub fn new(spec: &Machine, seed: u64, number: usize, stage: Option<Rc<Stage>>) -> Host {
        let mut rng = Rng::new(seed ^ (spec.host as u64) << 20);
        Host {
            clock: Clock::new(spec.rate_ppm, 1_000_000_000 + rng.below(1 << 40)),
            spec: spec.clone(),
            wire: Wire::default(),
            stage,
            number,
            stopped_until_ns: 0,
            endpoint: None,
            uri: format!("udp://{}", address_of(number)),
            sides: BTreeMap::new(),
            active: Vec::new(),
            held: Vec::new(),
            hold: Hold::Each(0),
            hold_until_ns: 0,
            last_back_ns: 0,
            hold_rng: Rng::new(seed ^ mix(0x686f_6c64 + number as u64)),
            wake_ns: None,
            next_poll_ns: 0,
            polls: 0,
            idle_polls: 0,
            idle_since_ns: 0,
            incarnation: 0,
        }
    }

    /// Opens its endpoint.
    pub fn open(&mut self, now_ns: u64, seed: u64, sealed: bool) -> Result<(), String> {
        self.incarnation += 1;
        if let Some(stage) = &self.stage {
            stage.begin(self.number);
        }
        self.set_clock(now_ns);
        let (spec, number) = (&self.spec, self.number);
        let node = SimulatedNode {
            address: address_of(number),
            second_address: spec.is_bonded.then(|| interface_of(number, 1)),
            datagram_bytes_max: spec.datagram_bytes_max,
            receive_buffer_bytes: spec.socket_bytes as u64,
            batch: spec.batch,
            secret: Rng::new(seed ^ (number as u64) << 32 ^ self.incarnation).secret(),
            first_seq: spec.first_seq,
            connections_max: spec.connections_max,
            requests_max: spec.requests_max,
        };
        let security = sealed.then(|| Security::psk(KEY)).transpose().map_err(|error| error.to_string())?;
        let options = Options::default()
            .security(security)
            .recv_buffers(spec.recv_buffers)
            .send_buffers(spec.send_buffers)
            .rma_operations(spec.rma_operations)
            .send_timeout(Duration::from_nanos(spec.send_timeout_ns))
            .keepalive(spec.keepalive_ns.map(Duration::from_nanos))
            .memory_bytes_max(spec.memory_bytes_max);
        let opened = match &self.stage {
            None => simulated::open(&node, Box::new(self.wire.clone()), options),
            Some(stage) => stage.open(number, spec.host, options, mix(seed ^ number as u64)),
        };
        let endpoint = opened.map_err(|error| format!("machine {number}: {error}"))?;
        if self.stage.is_some() || spec.is_bonded {
            endpoint.uri().clone_into(&mut self.uri);
        }
        if spec.exported {
            let _ = endpoint.os_handle();
        }
        self.endpoint = Some(endpoint);
        Ok(())
    }

    /// The endpoint is gone without a word, and so is everything that was its.
    pub fn crash(&mut self, now_ns: u64) {
        self.set_clock(now_ns);
        if let Some(stage) = &self.stage {
            // What a processor has stored is seen, although its process is dead.
            stage.stop(self.number, false);
            stage.show(self.number);
        }
        self.held.clear();
        if let Some(endpoint) = self.endpoint.take() {
            simulated::abandon(endpoint);
        }
        self.sides.clear();
        self.active.clear();
        self.wake_ns = None;
        self.idle_polls = 0;
        let mut plug = self.wire.plug();
        plug.inbox.clear();
        plug.inbox_bytes = 0;
        plug.out.clear();
    }

    pub fn set_clock(&self, now_ns: u64) {
        let shows_ns = self.clock.shows_ns(now_ns);
        if let Some(stage) = &self.stage {
            stage.enter(self.number, shows_ns);
        }
        self.wire.plug().now_ns = shows_ns;
    }

    pub fn side_of(&self, connection: Connection) -> Option<usize> {
        self.sides.get(&connection.to_bits()).copied()
    }

    /// How long a message that comes now is kept.
    pub fn keeps_until_ns(&mut self, now_ns: u64) -> Option<u64> {
        if now_ns >= self.hold_until_ns {
            return None;
        }
        self.last_back_ns = match self.hold {
            Hold::Each(ns) => now_ns + ns,
            Hold::OneByOne(ns) => self.last_back_ns.max(now_ns) + ns,
            Hold::Together(period_ns) => (now_ns / period_ns + 1) * period_ns,
            Hold::Shuffled(ns_max) => now_ns + 1 + self.hold_rng.below(ns_max),
        };
        Some(self.last_back_ns)
    }

    /// Memory is under its cap; free buffers are what is not held.
    pub fn check(&mut self) -> Result<(), String> {
        let Some(endpoint) = &mut self.endpoint else { return Ok(()) };
        let memory = endpoint.counters().memory;
        if memory.total_bytes > memory.cap_bytes {
            return Err(format!("holds {memory:?}"));
        }
        let free = endpoint.recv_buffers_free();
        if free + self.held.len() as u32 > self.spec.recv_buffers {
            return Err(format!("{free} buffers are free and {} held", self.held.len()));
        }
        Ok(())
    }

    /// All is home: buffers, connections, operations, regions.
    pub fn check_home(&mut self) -> Result<(), String> {
        let Some(endpoint) = &mut self.endpoint else { return Ok(()) };
        let free = endpoint.recv_buffers_free();
        let counters = endpoint.counters();
        if free != self.spec.recv_buffers {
            return Err(format!("{free} of {} buffers are home", self.spec.recv_buffers));
        }
        if counters.connections_open != 0 || counters.regions != 0 {
            let (open, regions) = (counters.connections_open, counters.regions);
            return Err(format!("{open} connections are open, {regions} regions are left"));
        }
        Ok(())
    }
}
