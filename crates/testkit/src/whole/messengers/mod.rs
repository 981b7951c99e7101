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
use party::{Party, Scripted};

/// The machine that the others connect to.
const SERVER: usize = 2;
const MACHINES: usize = 3;
/// Turns after which a run has failed.
const TURNS_MAX: u64 = 200_000;
/// How long nothing happens to any program before everything has come to its end, virtual nanoseconds.
const QUIET_NS: u64 = 200_000_000_000;
/// What the first client does while it waits for a death: lengths of two messages, one from slices and one from memory, and of a request.
const SCRIPT: [Scripted; 3] = [Scripted::Slices(20_000), Scripted::Memory(400_000), Scripted::Call(20_000)];
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

/// When a machine dies. A step is a datagram that it sends; or, where its processes are simulated, a turn in which something happens, in
/// the middle of which it dies.
#[derive(Clone, Copy, Debug)]
pub struct Death {
    /// Which: a client, 0 or 1, or the server, 2.
    pub machine: usize,
    /// After how many of its steps, or in which. One that it never makes means that it lives.
    pub after_steps: u64,
}

/// Runs messengers from a seed.
///
/// # Errors
/// Which promise was broken, and when.
pub fn run_messengers(fabric: Fabric, seed: u64) -> Result<MessengerReport, String> {
    finish(World::new(fabric, seed, None)?, &format!("{fabric:?}, seed {seed}"))
}

/// Runs messengers of which the first client sends two long messages and asks with a long request, while one machine dies at a given
/// step. What else happens follows from the seed.
///
/// # Errors
/// Which promise was broken, and when.
pub fn run_messengers_until_death(
    fabric: Fabric,
    seed: u64,
    death: Death,
) -> Result<MessengerReport, String> {
    finish(World::new(fabric, seed, Some(death))?, &format!("{fabric:?}, seed {seed}, {death:?}"))
}

fn finish(mut world: World, what: &str) -> Result<MessengerReport, String> {
    let done = world.run();
    // Also where it failed: dropping an endpoint would wait by the system's clock.
    for machine in 0..MACHINES {
        world.abandon(machine);
    }
    done.map_err(|why| format!("{what}, turn {}: {why}", world.report.turns))?;
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
    /// The one that is asked for.
    death: Option<Death>,
    /// Those of the machine that is to die.
    steps: u64,
    report: MessengerReport,
}

impl World {
    fn new(fabric: Fabric, seed: u64, death: Option<Death>) -> Result<World, String> {
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
            mail: Mail::with_duplicates(),
            death,
            steps: 0,
            report: MessengerReport::default(),
            rng,
        };
        let brings = world.stage.clone().filter(|_| matches!(fabric, Fabric::Streams { .. }));
        for number in 0..MACHINES {
            let host = &mut world.hosts[number];
            host.open(0, seed, false)?;
            let endpoint = host.endpoint.take().ok_or("no endpoint")?;
            let mut party = Party::new(number, endpoint, brings.clone(), world.rng.next_u64())?;
            if death.is_some() {
                party.follow(if number == 0 { &SCRIPT } else { &[] });
            }
            world.parties.push(Some(party));
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
        let dies_at = (self.death.is_none() && self.rng.pct(DEATH_PCT)).then(|| self.rng.below(600));
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
                self.turn_or_die(machine)?
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

    /// One turn of a machine, which may be the one in which it dies as was asked for.
    fn turn_or_die(&mut self, machine: usize) -> Result<bool, String> {
        let death = self.death.filter(|death| death.machine == machine && self.parties[machine].is_some());
        let Some(death) = death else { return self.turn(machine) };
        let left = death.after_steps - self.steps;
        if self.stage.is_some() {
            if left == 1 {
                self.kill(machine)?;
                return Ok(true);
            }
            let happened = self.turn(machine)?;
            self.steps += u64::from(happened);
            return Ok(happened);
        }
        let turned = self.turn(machine);
        let sent = self.hosts[machine].wire.plug().out.len() as u64;
        if sent < left {
            self.steps += sent;
            return turned;
        }
        // What a program learns that is dead already is no matter.
        self.hosts[machine].wire.plug().out.truncate(left as usize);
        self.mail.depart(self.now_ns, &mut self.rng, &self.hosts, machine);
        self.ledger.dies(machine);
        self.abandon(machine);
        self.report.crashes += 1;
        Ok(true)
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
