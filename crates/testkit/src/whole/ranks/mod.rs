//! Ranks of a job in simulation: active messages with handlers that come late and answers to answers, operations on memory that the target
//! makes, collectives of several teams, barriers, and a rank that dies at any step. [`RankPlan`] says what they do.

mod model;
mod party;
mod plan;

pub use plan::RankPlan;

use super::machine::Host;
use super::mail::Mail;
use super::scenario::{Fabric, Machine};
use super::shared::Stage;
use crate::rng::Rng;
use cci_job::Ranks;
use model::Model;
use party::Party;
use std::rc::Rc;

/// Turns after which a run has failed.
const TURNS_MAX: u64 = 400_000;
/// How long nothing happens to any program before everything has come to its end, virtual nanoseconds: a dead rank beyond a network is
/// noticed after an hour.
const QUIET_NS: u64 = 2 * 3_600 * 1_000_000_000;

/// So long after anything has happened to a program, time goes in short steps while anything is under way.
const BUSY_NS: u64 = 10_000_000_000;

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankReport {
    /// Messages whose handlers ran.
    pub messages: u64,
    /// Operations on memory that ended well.
    pub operations: u64,
    /// Collectives that ended, each member counted.
    pub collectives: u64,
    /// Ranks that died.
    pub crashes: u64,
    /// Turns of all ranks.
    pub turns: u64,
}

/// Runs the ranks of a job by a plan.
///
/// # Errors
/// Which promise was broken, and when.
pub fn run_ranks(plan: &RankPlan) -> Result<RankReport, String> {
    let mut world = World::new(plan)?;
    let done = world.run();
    // Also where it failed: dropping an endpoint would wait by the system's clock.
    for rank in 0..plan.ranks {
        world.abandon(rank);
    }
    done.map_err(|what| {
        format!("{:?}, seed {}, turn {}: {what}", plan.fabric, plan.seed, world.report.turns)
    })?;
    let [messages, operations, collectives] = world.model.counts();
    Ok(RankReport { messages, operations, collectives, ..world.report })
}

struct World<'a> {
    plan: &'a RankPlan,
    rng: Rng,
    now_ns: u64,
    stage: Option<Rc<Stage>>,
    hosts: Vec<Host>,
    parties: Vec<Option<Party>>,
    model: Model,
    mail: Mail,
    report: RankReport,
}

impl World<'_> {
    fn new(plan: &RankPlan) -> Result<World<'_>, String> {
        let mut rng = Rng::new(plan.seed ^ 0x776f_726c);
        let stage = Stage::new(plan.fabric, plan.seed, plan.ranks);
        let spec = Machine {
            recv_buffers: 64,
            send_buffers: rng.pick(&[16, 64]),
            rma_operations: rng.pick(&[4, 64]),
            memory_bytes_max: 32 << 20,
            ..Machine::default()
        };
        let mut world = World {
            now_ns: 0,
            hosts: (0..plan.ranks).map(|rank| Host::new(&spec, plan.seed, rank, stage.clone())).collect(),
            stage,
            parties: Vec::new(),
            model: Model::new(plan.ranks),
            mail: Mail::default(),
            report: RankReport::default(),
            rng,
            plan,
        };
        let mut endpoints = Vec::new();
        for host in &mut world.hosts {
            host.open(0, plan.seed, false)?;
            endpoints.push(host.endpoint.take().ok_or("no endpoint")?);
        }
        let brings = world.stage.clone().filter(|_| matches!(plan.fabric, Fabric::Streams { .. }));
        let ranks = Ranks::of_one_process(endpoints).map_err(|error| error.to_string())?;
        for (host, ranks) in world.hosts.iter().zip(ranks) {
            host.set_clock(0);
            world.parties.push(Some(Party::new(ranks, brings.clone())?));
        }
        let places: Vec<u64> = world.parties.iter().flatten().map(Party::place).collect();
        world.parties.iter_mut().flatten().for_each(|party| party.meet(&places));
        Ok(world)
    }

    fn run(&mut self) -> Result<(), String> {
        let (mut has_teams, mut quiet_turns) = (vec![false; self.plan.ranks], 0);
        while has_teams.contains(&false) {
            let (rank, came) = self.next_turn(quiet_turns)?;
            has_teams[rank] = self.with(rank, |party, model, _| party.gather(model))?.unwrap_or(true);
            quiet_turns = if self.end_turn(rank, false) || came { 0 } else { quiet_turns + 1 };
        }
        let begin = self.report.turns;
        let (mut quiet_turns, mut quiet_since_ns, mut is_settling) = (0, self.now_ns, false);
        loop {
            let (rank, came) = self.next_turn(quiet_turns)?;
            let (happened, left) = match self.plan.death {
                Some((turn, rank)) if begin + turn + 1 == self.report.turns => {
                    self.kill(rank)?;
                    (true, self.end_turn(rank, true))
                }
                _ => {
                    let happened = self.turn(rank)?;
                    (happened, self.end_turn(rank, happened))
                }
            };
            if happened {
                quiet_since_ns = self.now_ns;
            }
            // Endpoints speak to each other now and then, also when no program has anything to say.
            let is_busy = happened || (came || left) && self.now_ns - quiet_since_ns < BUSY_NS;
            quiet_turns = if is_busy { 0 } else { quiet_turns + 1 };
            if self.now_ns - quiet_since_ns > QUIET_NS {
                if is_settling {
                    break;
                }
                (is_settling, quiet_since_ns, quiet_turns) = (true, self.now_ns, 0);
                self.check_ended()?;
                for rank in 0..self.plan.ranks {
                    self.with(rank, |party, _, _| {
                        party.settle();
                        Ok(())
                    })?;
                }
            }
        }
        self.check_ended()?;
        for rank in 0..self.plan.ranks {
            if let Some(stage) = &self.stage {
                stage.show(rank);
            }
        }
        for rank in 0..self.plan.ranks {
            self.with(rank, |party, model, _| party.check_home(model))?;
        }
        Ok(())
    }

    fn check_ended(&self) -> Result<(), String> {
        let waiting = self
            .parties
            .iter()
            .position(|party| party.as_ref().is_some_and(|party| !party.is_done(self.plan)));
        if let Some(rank) = waiting {
            return Err(format!("rank {rank} does not get on"));
        }
        self.model.check_all_ended()
    }

    /// Time goes on, and what is due arrives. Returns whose turn it is, and whether anything has arrived.
    fn next_turn(&mut self, quiet_turns: u64) -> Result<(usize, bool), String> {
        self.report.turns += 1;
        if self.report.turns > TURNS_MAX {
            let left = self.parties.iter().flatten().map(|party| party.left(self.plan)).collect::<Vec<_>>();
            return Err(format!("no end after {} ns: {left:?}", self.now_ns));
        }
        // Longer steps while nothing happens, so that time-outs come.
        self.now_ns += match quiet_turns {
            0..100 => self.rng.below(3_000),
            100..400 => 100_000,
            400..800 => 100_000_000,
            _ => 20_000_000_000,
        };
        let World { mail, rng, hosts, parties, .. } = self;
        let came = mail.arrive(self.now_ns, rng, hosts, |to| parties[to].is_some());
        Ok((self.rng.below(self.plan.ranks as u64) as usize, came))
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

    fn with<T>(
        &mut self,
        rank: usize,
        what: impl FnOnce(&mut Party, &mut Model, &RankPlan) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        self.hosts[rank].set_clock(self.now_ns);
        self.hosts[rank].wire.plug().capacity = 2 * self.hosts[rank].spec.batch;
        let Some(party) = &mut self.parties[rank] else { return Ok(None) };
        what(party, &mut self.model, self.plan).map(Some)
    }

    fn turn(&mut self, rank: usize) -> Result<bool, String> {
        Ok(self.with(rank, |party, model, plan| party.turn(plan, model))?.unwrap_or(false))
    }

    /// A rank dies: in the middle of a turn, where its system calls are simulated.
    fn kill(&mut self, rank: usize) -> Result<(), String> {
        self.model.dies(rank);
        if let Some(stage) = self.stage.clone() {
            stage.kill(rank);
            self.turn(rank)?;
            self.hosts[rank].set_clock(self.now_ns);
        }
        self.abandon(rank);
        self.report.crashes += 1;
        Ok(())
    }

    fn abandon(&mut self, rank: usize) {
        self.hosts[rank].set_clock(self.now_ns);
        if let Some(party) = self.parties[rank].take() {
            party.abandon();
        }
        // What a processor has stored is seen, although its process is dead; and datagrams to it find nobody.
        self.hosts[rank].crash(self.now_ns);
    }
}
