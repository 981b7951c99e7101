//! Global memory in simulation: every rank copies between its own memory and others', between others, and changes words of all, under every
//! kind of order, sends and receives messages of all others, and has segmented buffers with all. At the end each rank's memory must be what a plain model of it says, byte for byte.

mod channels;
mod party;
mod segments;

use super::machine::Host;
use super::mail::Mail;
use super::scenario::{Fabric, Machine};
use super::shared::Stage;
use crate::rng::Rng;
use cci_job::Ranks;
use party::{Model, Party};
use std::rc::Rc;

/// Turns after which a run has failed.
const TURNS_MAX: u64 = 200_000;
/// After the last operation, so many turns for what is still under way, such as second copies of datagrams.
const TURNS_AFTER: u64 = 200;

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GlobalReport {
    /// Copies that ended.
    pub copies: u64,
    /// Atomic operations that ended.
    pub atomics: u64,
    /// Messages of channels that came.
    pub messages: u64,
    /// Segments of segmented buffers that came.
    pub segments: u64,
    /// Turns of all ranks.
    pub turns: u64,
}

/// Runs the ranks of a job with global memory. What they do follows from the seed.
///
/// # Errors
/// Which promise was broken, and when.
pub fn run_global(fabric: Fabric, seed: u64) -> Result<GlobalReport, String> {
    let mut world = World::new(fabric, seed)?;
    let done = world.run();
    // Also where it failed: dropping an endpoint would wait by the system's clock.
    for rank in 0..world.hosts.len() {
        world.abandon(rank);
    }
    done.map_err(|what| format!("{fabric:?}, seed {seed}, turn {}: {what}", world.report.turns))?;
    Ok(world.report)
}

struct World {
    rng: Rng,
    now_ns: u64,
    stage: Option<Rc<Stage>>,
    hosts: Vec<Host>,
    parties: Vec<Option<Party>>,
    model: Model,
    mail: Mail,
    report: GlobalReport,
}

impl World {
    fn new(fabric: Fabric, seed: u64) -> Result<World, String> {
        let mut rng = Rng::new(seed ^ 0x676c_6f62);
        let ranks = rng.range(2, 5) as usize;
        let stage = Stage::new(fabric, seed, ranks);
        let spec = Machine {
            recv_buffers: 64,
            send_buffers: rng.pick(&[16, 64]),
            rma_operations: rng.pick(&[4, 64]),
            memory_bytes_max: 32 << 20,
            ..Machine::default()
        };
        let mut hosts: Vec<Host> =
            (0..ranks).map(|rank| Host::new(&spec, seed, rank, stage.clone())).collect();
        let mut endpoints = Vec::new();
        for host in &mut hosts {
            host.open(0, seed, false)?;
            endpoints.push(host.endpoint.take().ok_or("no endpoint")?);
        }
        // What streams bring is stored by calls of the simulated system.
        let brings = stage.clone().filter(|_| matches!(fabric, Fabric::Streams { .. }));
        let mut parties = Vec::new();
        for (host, ranks) in hosts.iter().zip(Ranks::of_one_process(endpoints).map_err(|e| e.to_string())?) {
            host.set_clock(0);
            parties.push(Some(Party::new(ranks, seed, brings.clone())?));
        }
        let model = Model::new(ranks);
        let (mail, report) = (Mail::with_duplicates(), GlobalReport::default());
        Ok(World { rng, now_ns: 0, stage, hosts, parties, model, mail, report })
    }

    fn run(&mut self) -> Result<(), String> {
        let (mut quiet_turns, mut turns_after) = (0, 0);
        while turns_after < TURNS_AFTER {
            self.report.turns += 1;
            if self.report.turns > TURNS_MAX {
                let left: Vec<String> = self.parties.iter().flatten().map(Party::left).collect();
                return Err(format!("no end after {} ns: {left:?}", self.now_ns));
            }
            // Longer steps while nothing happens, so that time-outs come.
            self.now_ns += match quiet_turns {
                0..100 => self.rng.below(3_000),
                100..400 => 100_000,
                _ => 100_000_000,
            };
            let World { mail, rng, hosts, parties, .. } = self;
            let came = mail.arrive(self.now_ns, rng, hosts, |to| parties[to].is_some());
            let rank = self.rng.below(self.hosts.len() as u64) as usize;
            let happened = self.turn(rank)?;
            let left = self.end_turn(rank, happened);
            quiet_turns = if happened || came || left { 0 } else { quiet_turns + 1 };
            let is_done = self.parties.iter().flatten().all(Party::is_done);
            turns_after = if is_done { turns_after + 1 } else { 0 };
        }
        for rank in 0..self.hosts.len() {
            if let Some(stage) = &self.stage {
                stage.show(rank);
            }
        }
        for (rank, party) in self.parties.iter().enumerate() {
            let Some(party) = party else { continue };
            self.hosts[rank].set_clock(self.now_ns);
            party.check(&self.model)?;
            let [copies, atomics, messages, segments] = party.counts();
            self.report.copies += copies;
            self.report.atomics += atomics;
            self.report.messages += messages;
            self.report.segments += segments;
        }
        self.model.check_found()
    }

    fn turn(&mut self, rank: usize) -> Result<bool, String> {
        self.hosts[rank].set_clock(self.now_ns);
        self.hosts[rank].wire.plug().capacity = 2 * self.hosts[rank].spec.batch;
        let Some(party) = &mut self.parties[rank] else { return Ok(false) };
        party.turn(&mut self.model)
    }

    /// What the rank has stored and sent goes out. Returns whether anything did.
    fn end_turn(&mut self, rank: usize, happened: bool) -> bool {
        if let Some(stage) = &self.stage
            && (!happened || self.rng.pct(70.0))
        {
            stage.show(rank);
        }
        self.mail.depart(self.now_ns, &mut self.rng, &self.hosts, rank)
    }

    fn abandon(&mut self, rank: usize) {
        self.hosts[rank].set_clock(self.now_ns);
        if let Some(party) = self.parties[rank].take() {
            party.abandon();
        }
        self.hosts[rank].crash(self.now_ns);
    }
}
