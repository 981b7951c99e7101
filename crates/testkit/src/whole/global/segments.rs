//! A rank's segmented buffers to and from all others, beside its channels: each segment comes whole, once and in its order, whichever memory it has, and neither end touches memory
//! of the program's that is the program's own by then.

use crate::rng::{Rng, mix};
use cci::{Foreign, Memory};
use cci_acp::{AcpError, GlobalMemory, Indices, SegmentDestination, SegmentSource, Segments};

/// Segments of each buffer.
const SEGMENTS: u64 = 12;
const SHAPES: [(u64, u64); 5] = [(1, 8), (2, 700), (3, 1_500), (5, 64), (4, 9_000)];
/// Where the program has written over memory that is its own again.
const OVERWRITTEN: u8 = 0xee;

/// What a rank has with each other one.
pub(super) struct Buffers {
    rank: u32,
    rng: Rng,
    sources: Vec<Source>,
    destinations: Vec<Destination>,
    /// Memory that is the program's alone again, in which nothing may change.
    freed: Vec<Memory>,
    taken: u64,
}

/// What both ends know of a buffer: it follows from the seed.
#[derive(Clone, Copy)]
struct Plan {
    from: u32,
    to: u32,
    segments: Segments,
    /// The destination ends it after so many segments.
    stops_at: u64,
}

struct Source {
    plan: Plan,
    end: Option<SegmentSource>,
    memory: Memory,
    published: u64,
    head: u64,
}

struct Destination {
    plan: Plan,
    end: Option<SegmentDestination>,
    memory: Memory,
    released: u64,
}

impl Plan {
    fn draw(seed: u64, from: u32, to: u32) -> Plan {
        let mut rng = Rng::new(mix(mix(seed ^ 0x7365) ^ u64::from(from) << 32 ^ u64::from(to)));
        let (count, bytes) = rng.pick(&SHAPES);
        let stops_at = if rng.pct(25.0) { rng.below(SEGMENTS) } else { SEGMENTS };
        Plan { from, to, segments: Segments { count, bytes }, stops_at }
    }

    fn content(&self, number: u64) -> Vec<u8> {
        let seed = mix(u64::from(self.from) << 40 | u64::from(self.to) << 20 | number);
        (0..self.segments.bytes).map(|at| mix(seed ^ at) as u8).collect()
    }

    fn place(&self, number: u64) -> usize {
        (number % self.segments.count * self.segments.bytes) as usize
    }

    /// Memory of the library's, which others may have mapped, or of the program's own.
    fn memory(&self, global: &mut GlobalMemory, rng: &mut Rng) -> Result<Memory, String> {
        let len = self.segments.len_bytes().map_err(text)?;
        if rng.pct(50.0) {
            return global.allocate(len).map_err(text);
        }
        Ok(Memory::foreign(Foreign::owned(vec![0; len].into_boxed_slice())))
    }

    fn wrong(&self, what: &str) -> String {
        format!("a segmented buffer of rank {} to rank {}: {what}", self.from, self.to)
    }
}

fn text(error: AcpError) -> String {
    error.to_string()
}

fn put(memory: &Memory, at: usize, bytes: &[u8]) -> Result<(), String> {
    memory.write(at, bytes).then_some(()).ok_or_else(|| "memory is too short".into())
}

fn overwrite(memory: &Memory, at: usize, len: usize) -> Result<(), String> {
    put(memory, at, &vec![OVERWRITTEN; len])
}

impl Buffers {
    pub fn new(global: &mut GlobalMemory, seed: u64) -> Result<Buffers, String> {
        let rank = global.rank();
        let mut rng = Rng::new(mix(seed ^ 0x7367) ^ u64::from(rank));
        let (mut sources, mut destinations) = (Vec::new(), Vec::new());
        for other in (0..global.size()).filter(|&other| other != rank) {
            let plan = Plan::draw(seed, rank, other);
            let memory = plan.memory(global, &mut rng)?;
            let end = SegmentSource::create(global, other, &memory, plan.segments).map_err(text)?;
            sources.push(Source { plan, end: Some(end), memory, published: 0, head: 0 });
            let plan = Plan::draw(seed, other, rank);
            let memory = plan.memory(global, &mut rng)?;
            let end = SegmentDestination::create(global, other, &memory, plan.segments).map_err(text)?;
            destinations.push(Destination { plan, end: Some(end), memory, released: 0 });
        }
        Ok(Buffers { rank, rng, sources, destinations, freed: Vec::new(), taken: 0 })
    }

    pub fn is_done(&self) -> bool {
        let mut sources = self.sources.iter();
        sources.all(|source| source.end.is_none())
            && self.destinations.iter().all(|destination| destination.end.is_none())
    }

    /// Segments that came.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Publishes and takes segments, and frees the ends behind the last ones. Returns whether anything happened.
    pub fn turn(&mut self, global: &mut GlobalMemory) -> Result<bool, String> {
        let mut happened = false;
        for source in &mut self.sources {
            if self.rng.pct(40.0) {
                happened |= source.turn(global, &mut self.freed)?;
            }
        }
        for destination in &mut self.destinations {
            if self.rng.pct(40.0) {
                let taken = destination.turn(global, &mut self.freed)?;
                self.taken += u64::from(taken);
                happened |= taken;
            }
        }
        Ok(happened)
    }

    /// Nothing was written to memory after its buffer was freed.
    pub fn check(&self) -> Result<(), String> {
        for memory in &self.freed {
            let mut bytes = vec![0; memory.len()];
            if !memory.read(0, &mut bytes) || bytes.iter().any(|&byte| byte != OVERWRITTEN) {
                return Err(format!(
                    "rank {}: memory of a buffer was written to after that was freed",
                    self.rank
                ));
            }
        }
        Ok(())
    }
}

impl Source {
    fn turn(&mut self, global: &mut GlobalMemory, freed: &mut Vec<Memory>) -> Result<bool, String> {
        let (plan, Some(end)) = (self.plan, &self.end) else { return Ok(false) };
        let indices = end.indices(global).map_err(text)?;
        let Indices { head, tail, sent } = indices;
        let most = (self.head + plan.segments.count).min(plan.stops_at);
        if tail != self.published || sent > tail || head > sent || head < self.head || head > plan.stops_at {
            return Err(plan.wrong(&format!("{} are published, {most} may be, {indices:?}", self.published)));
        }
        self.head = head;
        if self.published == SEGMENTS && plan.stops_at == SEGMENTS && end.is_drained(global) {
            let Some(end) = self.end.take() else { return Ok(false) };
            end.free(global).map_err(text)?;
            return self.overwrite(freed);
        }
        match end.has_room(global) {
            // The other end was freed, and this end has seen that, perhaps with writes under way.
            Err(AcpError::Argument(_)) if plan.stops_at < SEGMENTS || self.published == SEGMENTS => {
                self.end = None;
                Ok(true)
            }
            Err(error) => Err(plan.wrong(&format!("the source: {error}"))),
            Ok(false) => Ok(false),
            Ok(true) if self.published == SEGMENTS => Ok(false),
            Ok(true) => {
                put(&self.memory, plan.place(self.published), &plan.content(self.published))?;
                end.publish(global).map_err(text)?;
                self.published += 1;
                Ok(true)
            }
        }
    }

    fn overwrite(&mut self, freed: &mut Vec<Memory>) -> Result<bool, String> {
        overwrite(&self.memory, 0, self.memory.len())?;
        freed.push(self.memory.clone());
        Ok(true)
    }
}

impl Destination {
    fn turn(&mut self, global: &mut GlobalMemory, freed: &mut Vec<Memory>) -> Result<bool, String> {
        let (plan, Some(end)) = (self.plan, &self.end) else { return Ok(false) };
        if self.released == plan.stops_at {
            let Some(end) = self.end.take() else { return Ok(false) };
            end.free(global).map_err(text)?;
            overwrite(&self.memory, 0, self.memory.len())?;
            freed.push(self.memory.clone());
            return Ok(true);
        }
        let indices = end.indices(global).map_err(text)?;
        let Indices { head, tail, .. } = indices;
        if head != self.released || tail < head || tail > SEGMENTS || tail - head > plan.segments.count {
            return Err(plan.wrong(&format!("{} are released, {indices:?}", self.released)));
        }
        match end.has_data(global) {
            Err(error) => return Err(plan.wrong(&format!("the destination, at {head}: {error}"))),
            Ok(false) => return Ok(false),
            Ok(true) => {}
        }
        let mut found = vec![0; plan.segments.bytes as usize];
        let at = plan.place(self.released);
        if !self.memory.read(at, &mut found) || found != plan.content(self.released) {
            return Err(plan.wrong(&format!("segment {} is another one", self.released)));
        }
        // What was written late, or twice, shows in the segment that comes here next.
        overwrite(&self.memory, at, found.len())?;
        end.release(global).map_err(text)?;
        self.released += 1;
        Ok(true)
    }
}
