//! Messengers in simulation: two clients and a server, who send messages of any length and call each other, while messages are cancelled
//! and refused, connections are closed, and one of the three dies. Everything follows from a seed.

mod ledger;
mod party;

use super::machine::Host;
use super::mail::Mail;
use super::scenario::{Fabric, Machine};
use super::shared::Stage;
use crate::rng::Rng;
use cci::simulated;
use ledger::Ledger;
use party::Party;

/// The machine that the others connect to.
const SERVER: usize = 2;
const MACHINES: usize = 3;
/// Turns after which a run has failed.
const TURNS_MAX: u64 = 200_000;
/// How long nothing happens to any program before everything has come to its end, virtual nanoseconds.
const QUIET_NS: u64 = 200_000_000_000;
const DEATH_PCT: f64 = 40.0;

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessengerReport {
    /// Messages that were sent and have come.
    pub messages: u64,
    /// Calls that were answered.
    pub calls: u64,
    /// Sends and calls that ended otherwise.
    pub failures: u64,
    /// Machines that died.
    pub crashes: u64,
    /// Turns of all machines.
    pub turns: u64,
}

/// Runs messengers from a seed.
///
/// # Errors
/// Which promise was broken, and when.
pub fn run_messengers(fabric: Fabric, seed: u64) -> Result<MessengerReport, String> {
    let mut world = World::new(fabric, seed)?;
    let done = world.run();
    // Also where it failed: dropping an endpoint would wait by the system's clock.
    for machine in 0..MACHINES {
        world.abandon(machine);
    }
    done.map_err(|what| format!("{fabric:?}, seed {seed}, turn {}: {what}", world.report.turns))?;
    let (messages, calls, failures) = world.ledger.counts();
    Ok(MessengerReport { messages, calls, failures, ..world.report })
}

struct World {
    rng: Rng,
    now_ns: u64,
    stage: Option<std::rc::Rc<Stage>>,
    hosts: Vec<Host>,
    parties: Vec<Option<Party>>,
    ledger: Ledger,
    mail: Mail,
    report: MessengerReport,
}

impl World {
    fn new(fabric: Fabric, seed: u64) -> Result<World, String> {
        let mut rng = Rng::new(seed ^ 0x6d73_6773);
        let stage = Stage::new(fabric, seed, MACHINES);
        let spec = Machine {
            recv_buffers: 64,
            send_buffers: 64,
            rma_operations: rng.pick(&[4, 16, 64]),
            memory_bytes_max: 16 << 20,
            send_timeout_ns: 5_000_000_000,
            ..Machine::default()
        };
        let mut world = World {
            now_ns: 0,
            hosts: (0..MACHINES).map(|number| Host::new(&spec, seed, number, stage.clone())).collect(),
            stage,
            parties: Vec::new(),
            ledger: Ledger::new(rng.pct(50.0)),
            mail: Mail::default(),
            report: MessengerReport::default(),
            rng,
        };
        let brings = world.stage.clone().filter(|_| matches!(fabric, Fabric::Streams { .. }));
        for number in 0..MACHINES {
            let host = &mut world.hosts[number];
            host.open(0, seed, false)?;
            let endpoint = host.endpoint.take().ok_or("no endpoint")?;
            world.parties.push(Some(Party::new(number, endpoint, brings.clone(), world.rng.next_u64())?));
        }
        let uri = world.hosts[SERVER].uri.clone();
        for number in 0..SERVER {
            world.hosts[number].set_clock(0);
            if let Some(party) = &mut world.parties[number] {
                party.connect(&uri, world.ledger.is_ordered)?;
            }
        }
        Ok(world)
    }

    fn run(&mut self) -> Result<(), String> {
        let dies_at = self.rng.pct(DEATH_PCT).then(|| self.rng.below(600));
        let (mut quiet_turns, mut quiet_since_ns, mut is_closing) = (0, 0, false);
        loop {
            self.report.turns += 1;
            if self.report.turns > TURNS_MAX {
                return Err(format!("no end: {}", self.ledger.explain()));
            }
            // Longer steps while nothing happens, so that time-outs come.
            self.now_ns += match quiet_turns {
                0..30 => self.rng.below(3_000),
                30..200 => 100_000,
                _ => 100_000_000,
            };
            let machine = self.rng.below(MACHINES as u64) as usize;
            let World { mail, rng, hosts, parties, .. } = self;
            let moved = mail.arrive(self.now_ns, rng, hosts, |to| parties[to].is_some());
            let happened = if dies_at == Some(self.report.turns) {
                self.kill(machine)?;
                true
            } else {
                self.turn(machine)?
            };
            let moved = self.mail.depart(self.now_ns, &mut self.rng, &self.hosts, machine) || moved;
            quiet_turns = if happened || moved { 0 } else { quiet_turns + 1 };
            if happened {
                quiet_since_ns = self.now_ns;
            }
            if self.now_ns - quiet_since_ns > QUIET_NS {
                if is_closing {
                    break;
                }
                self.ledger.check_all_ended()?;
                is_closing = true;
                quiet_since_ns = self.now_ns;
                self.close_all();
            }
        }
        self.ledger.check_all_ended()?;
        for machine in 0..MACHINES {
            self.hosts[machine].set_clock(self.now_ns);
            if let Some(party) = &mut self.parties[machine] {
                party.check_home(self.hosts[machine].spec.recv_buffers)?;
            }
        }
        Ok(())
    }

    /// One turn of a machine's program. Returns whether anything happened.
    fn turn(&mut self, machine: usize) -> Result<bool, String> {
        self.hosts[machine].set_clock(self.now_ns);
        self.hosts[machine].wire.plug().capacity = 2 * self.hosts[machine].spec.batch;
        let Some(party) = &mut self.parties[machine] else { return Ok(false) };
        let happened = party.turn(&mut self.ledger)?;
        if let Some(stage) = &self.stage
            && (!happened || self.rng.pct(70.0))
        {
            stage.show(machine);
        }
        Ok(happened)
    }

    /// A machine dies: in the middle of a turn, where its system calls are simulated.
    fn kill(&mut self, machine: usize) -> Result<(), String> {
        self.ledger.dies(machine);
        if let Some(stage) = self.stage.clone() {
            stage.kill(machine);
            self.turn(machine)?;
            self.hosts[machine].set_clock(self.now_ns);
        }
        self.abandon(machine);
        self.report.crashes += 1;
        Ok(())
    }

    fn abandon(&mut self, machine: usize) {
        self.hosts[machine].set_clock(self.now_ns);
        if let Some(party) = self.parties[machine].take() {
            party.abandon();
        }
        // What a processor has stored is seen, although its process is dead; and datagrams to it find nobody.
        self.hosts[machine].crash(self.now_ns);
    }

    /// Everybody closes what is open.
    fn close_all(&mut self) {
        for machine in 0..MACHINES {
            self.hosts[machine].set_clock(self.now_ns);
            if let Some(party) = &mut self.parties[machine] {
                party.close(&mut self.ledger);
            }
        }
    }
}

/// Whether the process whose turn it is has died in it.
fn is_dead() -> bool {
    simulated::is_dead()
}
