//! Virtual time: what happens next.

use super::broken::Broken;
use super::judge::Judge;
use super::machine::Host;
use super::network::{Net, Packet, interface_of, machine_at};
use super::program::{self, Waiting};
use super::scenario::{Act, End, Fabric, Operating, Scenario};
use super::shared::{Stage, Standby};
use super::side::{Doing, Life, Side};
use super::speaker::{self, Spoken};
use super::streams::Load;
use super::watch::{Watch, Watched};
use crate::rng::mix;
use crate::whole::dissect;
use cci::simulated::streams::{self, Direction};
use cci::simulated::{self, Sleep};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::rc::Rc;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// Events after which a run is a storm.
const EVENTS_MAX: u64 = 10_000_000;
/// Polls in a row that do nothing, within this time, before a machine is said to spin. While messages wait for buffers, an endpoint
/// looks every millisecond; with a keepalive of a millisecond, its links ask and are asked some thousand times.
const IDLE_POLLS_MAX: u32 = 20_000;
const IDLE_POLLS_NS: u64 = SECOND;
/// How long a connection may do nothing in fair weather though something is to be done: some of the longest waits there are (a
/// second), by the slowest clock.
const STARVED_NS: u64 = 8 * SECOND;
/// From fair weather to the end of all work at most.
const WORK_NS: u64 = 300 * SECOND;
/// From the last farewell until nothing is left.
const FAREWELL_NS: u64 = 200 * SECOND;
/// What sealing may add to a datagram.
const SEAL_BYTES_MAX: usize = 64;
const LOOK_NS: u64 = 50 * MS;

/// What a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Follows from everything that happened: equal for equal scenarios.
    pub trace: u64,
    /// When it was over.
    pub end_ns: u64,
    /// Endpoints that were opened.
    pub endpoints: u64,
    /// Connections that came up, each end counted.
    pub sides: u64,
    /// Messages that programs got.
    pub messages: u64,
    /// Operations that completed.
    pub operations: u64,
    /// Completions that were not successes.
    pub failures: u64,
    /// Datagrams sent, and lost.
    pub datagrams: u64,
    /// Of them.
    pub lost: u64,
    /// Times a program looked for events.
    pub polls: u64,
}

pub(super) enum What {
    AtLink(Packet),
    AtSocket(Packet),
    Wake(usize),
    /// What a machine's process has stored is seen by others.
    Show(usize),
    /// One end of a talk deregisters what the other works in, if it has not done so, and registers new memory.
    Renew(u32, End),
    /// What a stream carries arrives.
    Carry(Load),
    /// A machine's process that was stopped goes on.
    Resume(usize),
    Step(usize),
    Answer,
    Reopen(usize),
    /// A test looks.
    Watch(usize),
    Look,
}

pub(super) struct Entry {
    at_ns: u64,
    order: u64,
    what: What,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        (self.at_ns, self.order) == (other.at_ns, other.order)
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        (self.at_ns, self.order).cmp(&(other.at_ns, other.order))
    }
}

/// How far a run is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Things go wrong.
    Trouble,
    /// Nothing does any more; what was begun is done.
    Work,
    /// All is done; whatever is under way arrives.
    Settling(u64),
    /// Everybody disconnects.
    Farewell(u64),
    Over,
}

pub(super) struct World<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) net: Net,
    pub(super) hosts: Vec<Host>,
    /// Where machines live that share memory.
    pub(super) stage: Option<Rc<Stage>>,
    pub(super) judge: Judge,
    pub(super) waiting: Vec<Waiting>,
    /// What sides that do not exist yet are to do.
    pub(super) jobs: BTreeMap<(u32, bool), Vec<Doing>>,
    pub(super) works: BTreeMap<(u32, bool), Vec<Operating>>,
    pub(super) queue: BinaryHeap<Reverse<Entry>>,
    pub(super) now_ns: u64,
    pub(super) order: u64,
    pub(super) events: u64,
    pub(super) endpoints: u64,
    pub(super) flips: u32,
    pub(super) phase: Phase,
    pub(super) calm_ns: u64,
    watch: Option<Watch<'a>>,
}

/// Carries a scenario out and judges it.
///
/// # Errors
/// The first promise that was broken.
pub fn run(scenario: &Scenario) -> Result<Report, Broken> {
    World::new(scenario, false, None).run()
}

/// Runs a scenario; a failure lists all that happened before it, a line each.
///
/// # Errors
/// The first promise that was broken.
pub fn run_with_trace(scenario: &Scenario) -> Result<Report, Broken> {
    World::new(scenario, true, None).run()
}

/// Carries a scenario out and judges it. `look` sees it at these times, with the number of each, and once more before everybody
/// disconnects.
///
/// # Errors
/// The first promise that was broken.
pub fn run_watched(
    scenario: &Scenario,
    at_ns: &[u64],
    look: &mut dyn FnMut(usize, Watched<'_>),
) -> Result<Report, Broken> {
    World::new(scenario, false, Some(Watch { at_ns, look })).run()
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario, trace: bool, watch: Option<Watch<'a>>) -> World<'a> {
        let stage = Stage::new(scenario.fabric, scenario.seed, scenario.machines.len());
        let machines = scenario.machines.iter().enumerate();
        let hosts = machines
            .map(|(number, spec)| Host::new(spec, mix(scenario.seed), number, stage.clone()))
            .collect();
        let mut world = World {
            scenario,
            net: Net::new(scenario),
            hosts,
            stage,
            judge: Judge {
                gentle: scenario.is_gentle() && scenario.sabotage.is_none(),
                sabotage: scenario.sabotage,
                replays_elsewhere: scenario
                    .steps
                    .iter()
                    .any(|step| matches!(step.act, Act::ReplayElsewhere(_))),
                calls_may_fail: scenario.links_may_end(),
                is_shared: scenario.fabric != Fabric::Datagrams,
                lines: trace.then(Vec::new),
                ..Judge::default()
            },
            waiting: Vec::new(),
            jobs: BTreeMap::new(),
            works: BTreeMap::new(),
            queue: BinaryHeap::new(),
            now_ns: 0,
            order: 0,
            events: 0,
            endpoints: 0,
            flips: 0,
            phase: Phase::Trouble,
            calm_ns: scenario.calm_ns(),
            watch,
        };
        for number in 0..world.watch.as_ref().map_or(0, |watch| watch.at_ns.len()) {
            let at_ns = world.watch.as_ref().map_or(0, |watch| watch.at_ns[number]);
            world.at(at_ns, What::Watch(number));
        }
        for (number, step) in scenario.steps.iter().enumerate() {
            world.at(step.at_ns, What::Step(number));
        }
        world.at(world.calm_ns, What::Look);
        world
    }

    fn run(mut self) -> Result<Report, Broken> {
        // Machines that no step names stay off: endpoints cost time.
        for machine in self.named() {
            self.open(machine);
        }
        while self.phase != Phase::Over && self.judge.broken.is_none() {
            let Some(Reverse(entry)) = self.queue.pop() else { break };
            self.now_ns = self.now_ns.max(entry.at_ns);
            self.events += 1;
            if self.events > EVENTS_MAX {
                let left = self.judge.describe();
                self.judge.fail(self.now_ns, "storm", format!("{EVENTS_MAX} events\n{left}"));
            }
            self.step(entry.what);
        }
        self.end();
        if let Some(mut broken) = self.judge.broken.take() {
            broken.lines = self.judge.lines.take().unwrap_or_default();
            self.hosts.iter_mut().for_each(|host| host.crash(self.now_ns));
            return Err(broken);
        }
        Ok(self.report())
    }

    fn report(&self) -> Report {
        let up = |side: &&Side| side.connection.is_some();
        Report {
            trace: self.judge.trace,
            end_ns: self.now_ns,
            endpoints: self.endpoints,
            sides: self.judge.sides.iter().filter(up).count() as u64,
            messages: self.judge.messages,
            operations: self.judge.operations,
            failures: self.judge.failures,
            datagrams: self.net.sent,
            lost: self.net.lost,
            polls: self.hosts.iter().map(|host| host.polls).sum(),
        }
    }

    /// Machines that some step is about.
    fn named(&self) -> Vec<usize> {
        let mut named = vec![false; self.hosts.len()];
        for step in &self.scenario.steps {
            if let Act::Connect(talk) = &step.act {
                let broker = match talk.answer {
                    super::scenario::Answer::Broker(other) => Some(other),
                    _ => None,
                };
                for machine in [Some(talk.client), Some(talk.server), broker].into_iter().flatten() {
                    named[machine] = true;
                }
            }
        }
        (0..named.len()).filter(|machine| named[*machine]).collect()
    }

    pub(super) fn at(&mut self, at_ns: u64, what: What) {
        self.order += 1;
        self.queue.push(Reverse(Entry { at_ns: at_ns.max(self.now_ns), order: self.order, what }));
    }

    pub(super) fn wake(&mut self, machine: usize, at_ns: u64) {
        let host = &mut self.hosts[machine];
        let at_ns = at_ns.max(self.now_ns).max(host.next_poll_ns).max(host.stopped_until_ns);
        if host.endpoint.is_some() && host.wake_ns.is_none_or(|set| set > at_ns) {
            host.wake_ns = Some(at_ns);
            self.at(at_ns, What::Wake(machine));
        }
    }

    fn open(&mut self, machine: usize) {
        self.endpoints += 1;
        self.judge.log(self.now_ns, || format!("machine {machine} opens its endpoint"));
        match self.hosts[machine].open(self.now_ns, self.scenario.seed, self.scenario.sealed) {
            Ok(()) => self.wake(machine, self.now_ns),
            Err(what) => self.judge.fail(self.now_ns, "open", what),
        }
    }

    fn step(&mut self, what: What) {
        match what {
            What::AtLink(packet) => match self.net.arrive(self.now_ns, &packet) {
                Some(at_ns) if at_ns <= self.now_ns => self.enter(packet),
                Some(at_ns) => self.at(at_ns, What::AtSocket(packet)),
                None => {}
            },
            What::AtSocket(packet) => self.enter(packet),
            What::Wake(machine) => {
                if self.hosts[machine].wake_ns == Some(self.now_ns) {
                    self.hosts[machine].wake_ns = None;
                    self.poll(machine);
                }
            }
            What::Show(machine) => {
                if let Some(stage) = &self.stage {
                    stage.show(machine);
                }
            }
            What::Renew(talk, end) => self.renew(talk, end),
            What::Carry(load) => {
                let direction = load.direction;
                let more = load.arrive(&mut self.net, self.now_ns);
                self.carry_on(direction, more);
            }
            What::Resume(machine) => self.resume(machine),
            What::Step(number) => self.act(&self.scenario.steps[number]),
            What::Answer => self.answers(),
            What::Reopen(machine) => {
                if self.hosts[machine].endpoint.is_none() {
                    self.open(machine);
                }
            }
            What::Watch(number) => self.watched(number),
            What::Look => self.look(),
        }
        for direction in streams::pending() {
            let load = Load::depart(direction, &mut self.net, self.now_ns);
            self.carry_on(direction, Some(load));
        }
        self.wake_called();
    }

    fn watched(&mut self, number: usize) {
        let Some(watch) = &mut self.watch else { return };
        self.hosts.iter().for_each(|host| host.set_clock(self.now_ns));
        let (judge, hosts, net) = (&self.judge, &mut self.hosts[..], &self.net);
        (watch.look)(number, Watched { judge, hosts, net, now_ns: self.now_ns });
    }

    /// A stream carries more, or has no more to carry.
    fn carry_on(&mut self, direction: Direction, more: Option<(u64, Load)>) {
        if let Some(stage) = &self.stage {
            stage.is_under_way(direction, more.as_ref().is_some_and(|(_, load)| !load.is_held_up()));
        }
        if let Some((at_ns, load)) = more {
            self.at(at_ns, What::Carry(load));
        }
    }

    /// A machine's process that shares memory, or has streams, is woken by a descriptor.
    fn wake_called(&mut self) {
        if self.stage.is_none() {
            return;
        }
        for machine in 0..self.hosts.len() {
            let host = &self.hosts[machine];
            let at_ns = self.now_ns + host.spec.poll_ns;
            if host.wake_ns.is_none_or(|wake_ns| wake_ns > at_ns)
                && host.endpoint.as_ref().is_some_and(simulated::is_woken)
            {
                self.wake(machine, at_ns);
            }
        }
    }

    fn resume(&mut self, machine: usize) {
        if let Some(stage) =
            self.stage.as_ref().filter(|_| self.hosts[machine].stopped_until_ns <= self.now_ns)
        {
            stage.stop(machine, false);
            stage.show(machine);
        }
        self.wake(machine, self.now_ns);
    }

    /// The others may take turns in the middle of this machine's, or no more.
    fn lend_others(&mut self, machine: usize, are_lent: bool) {
        let Some(stage) = &self.stage else { return };
        for (other, host) in self.hosts.iter_mut().enumerate().filter(|(other, _)| *other != machine) {
            if !are_lent {
                if let Some(Standby { endpoint, held }) = stage.take_back(other) {
                    (host.endpoint, host.held) = (Some(endpoint), held);
                }
            } else if let Some(endpoint) = host.endpoint.take() {
                let standby = Standby { endpoint, held: std::mem::take(&mut host.held) };
                stage.lend(other, standby, host.clock.shows_ns(self.now_ns));
            }
        }
    }

    fn enter(&mut self, packet: Packet) {
        let Packet { from, to, by, bytes } = packet;
        let host = &mut self.hosts[to];
        if host.endpoint.is_none() {
            return;
        }
        {
            let mut plug = host.wire.plug();
            if plug.inbox_bytes + bytes.len() > host.spec.socket_bytes {
                return;
            }
            plug.inbox_bytes += bytes.len();
            plug.inbox.push_back((by[1], interface_of(from, by[0]), bytes));
        }
        let at_ns = self.now_ns + self.hosts[to].spec.poll_ns;
        self.wake(to, at_ns);
    }

    /// One turn of a program's loop.
    pub(super) fn poll(&mut self, machine: usize) {
        let now_ns = self.now_ns;
        if self.hosts[machine].stopped_until_ns > now_ns {
            return self.wake(machine, now_ns);
        }
        self.lend_others(machine, true);
        self.calls_may_fail(true);
        self.poll_alone(machine);
        self.calls_may_fail(false);
        self.lend_others(machine, false);
        let turns = self.stage.as_ref().map(|stage| stage.turns()).unwrap_or_default();
        for (other, sleep) in turns {
            self.sleep_for(other, sleep, None);
        }
        let shows_after_ns = self.stage.as_ref().and_then(|stage| stage.shows_after_ns(machine));
        if let Some(ns) = shows_after_ns {
            self.at(now_ns + ns, What::Show(machine));
        }
    }

    /// System calls are made to fail from now on, or no more.
    pub(super) fn calls_may_fail(&self, may_fail: bool) {
        if let Some(stage) = &self.stage {
            stage.calls_may_fail(may_fail && self.now_ns < self.calm_ns);
        }
    }

    fn poll_alone(&mut self, machine: usize) {
        let now_ns = self.now_ns;
        let host = &mut self.hosts[machine];
        host.polls += 1;
        host.set_clock(now_ns);
        let heard = {
            let mut plug = host.wire.plug();
            plug.capacity = 2 * host.spec.batch;
            plug.inbox.len()
        };
        let mut happened = heard + release(host, &mut self.judge, now_ns);
        let asked = self.waiting.len();
        let mut taken = program::take_all(host, machine, &mut self.judge, now_ns, &mut self.waiting);
        if simulated::is_dead() {
            return;
        }
        let Spoken { started, mut next_ns, suspects } = speaker::speak(host, &mut self.judge, now_ns);
        if started > 0 || !suspects.is_empty() {
            let ended = program::take_all(host, machine, &mut self.judge, now_ns, &mut self.waiting);
            if ended > 0 {
                // What waited for these to end is due.
                next_ns = Some(now_ns);
            }
            taken += ended;
        }
        // Nothing announces space to who has only silent sends on the way: such a program looks again.
        let waits_for_space = |side: &usize| {
            let side = &self.judge.sides[*side];
            side.has_more() && side.outstanding == 0
        };
        if host.active.iter().any(waits_for_space) {
            next_ns = Some(next_ns.unwrap_or(u64::MAX).min(now_ns + MS));
        }
        for side in suspects {
            if !self.judge.may_be_over(side) {
                self.judge.fail(now_ns, "refusal", format!("side {side} is over for no reason"));
            }
        }
        let sleep = host.endpoint.as_mut().map_or(Sleep::Forever, simulated::sleep);
        if host.polls.is_multiple_of(8)
            && let Err(what) = host.check()
        {
            self.judge.fail(now_ns, "memory", format!("machine {machine} {what}"));
        }
        happened += taken + started as usize + self.dispatch(machine);
        if self.waiting.len() > asked {
            self.wake_for_answers();
        }
        self.after_poll(machine, happened, sleep, next_ns);
    }

    fn after_poll(&mut self, machine: usize, happened: usize, sleep: Sleep, next_ns: Option<u64>) {
        let now_ns = self.now_ns;
        let host = &mut self.hosts[machine];
        let idle = happened == 0 && now_ns - host.idle_since_ns < IDLE_POLLS_NS;
        host.idle_polls = if idle { host.idle_polls + 1 } else { 0 };
        if !idle {
            host.idle_since_ns = now_ns;
        }
        host.next_poll_ns = now_ns + host.spec.poll_ns.max(1);
        if host.idle_polls > IDLE_POLLS_MAX {
            let shows_ns = host.clock.shows_ns(now_ns);
            let what = format!(
                "machine {machine} woke {IDLE_POLLS_MAX} times for nothing, now {sleep:?} at {shows_ns} on its clock"
            );
            return self.judge.fail(now_ns, "spinning", what);
        }
        self.sleep_for(machine, sleep, next_ns);
    }

    /// A machine sleeps until its endpoint, its program or something that has come wants a turn.
    fn sleep_for(&mut self, machine: usize, sleep: Sleep, next_ns: Option<u64>) {
        let (now_ns, host) = (self.now_ns, &self.hosts[machine]);
        let due_ns = match sleep {
            Sleep::No => Some(now_ns),
            Sleep::Until(shown_ns) => Some(host.clock.when_ns(shown_ns)),
            Sleep::Forever => None,
        };
        let held_ns = host.held.iter().map(|held| held.until_ns).min();
        let more = (!host.wire.plug().inbox.is_empty()).then_some(now_ns);
        if let Some(at_ns) = [due_ns, held_ns, next_ns, more].into_iter().flatten().min() {
            self.wake(machine, at_ns);
        }
    }

    /// Gives the network what has left the machine.
    fn dispatch(&mut self, machine: usize) -> usize {
        let out = std::mem::take(&mut self.hosts[machine].wire.plug().out);
        let count = out.len();
        for (by, to, mut bytes) in out {
            let Some((target, to_by)) = machine_at(to).filter(|(target, _)| *target < self.hosts.len())
            else {
                self.judge.fail(self.now_ns, "network", format!("machine {machine} sends to {to}"));
                break;
            };
            let seal_bytes = if self.scenario.sealed { SEAL_BYTES_MAX } else { 0 };
            if bytes.len() > usize::from(self.scenario.machines[machine].datagram_bytes_max) + seal_bytes {
                self.judge.fail(
                    self.now_ns,
                    "network",
                    format!("machine {machine} sends {} bytes", bytes.len()),
                );
            }
            self.flip(&mut bytes);
            self.launch(Packet { from: machine, to: target, by: [by, to_by], bytes: bytes.into() });
        }
        count
    }

    pub(super) fn launch(&mut self, packet: Packet) {
        let now_ns = self.now_ns;
        // Handshakes of sealed endpoints draw keys from the system: only lengths follow from the seed.
        let hashed = if self.scenario.sealed { &[] } else { &*packet.bytes };
        let hash = hashed.chunks(8).fold(packet.bytes.len() as u64, |hash, chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            mix(hash ^ u64::from_le_bytes(word))
        });
        let [from, to] = packet.ends();
        self.judge.note(now_ns, 8, (from as u64) << 32 | to as u64, hash);
        let copies = self.net.launch(now_ns, &packet);
        self.judge.log(now_ns, || {
            let outcome = if copies.is_empty() { "lost" } else { "" };
            format!(
                "{}.{}>{}.{} {:>5} bytes {} {outcome}",
                packet.from,
                packet.by[0],
                packet.to,
                packet.by[1],
                packet.bytes.len(),
                dissect::line(&packet.bytes)
            )
        });
        for at_ns in copies {
            self.at(at_ns, What::AtLink(packet.clone()));
        }
    }

    fn flip(&mut self, bytes: &mut [u8]) {
        if let Some(super::scenario::Sabotage::Flip(every)) = self.scenario.sabotage
            && bytes.len() >= 128
        {
            self.flips += 1;
            if self.flips.is_multiple_of(every) {
                bytes[100] ^= 1;
            }
        }
    }

    /// Judges progress, and goes from phase to phase.
    fn look(&mut self) {
        let now_ns = self.now_ns;
        self.begin_works();
        for machine in 0..self.hosts.len() {
            // Those who share memory are woken when they should be, or that is a defect.
            if self.stage.is_some() && self.waiting.is_empty() {
                continue;
            }
            // A request that another machine was to answer is decided on there; its own is woken by its descriptor.
            self.wake(machine, now_ns);
        }
        let busy = self.judge.sides.iter().any(Side::is_busy) || !self.waiting.is_empty();
        match self.phase {
            Phase::Trouble => self.phase = Phase::Work,
            Phase::Work if busy && now_ns < self.calm_ns + WORK_NS => self.check_starved(),
            Phase::Work if busy => {
                let left = self.judge.describe();
                self.judge.fail(now_ns, "work", format!("not done\n{left}"));
            }
            Phase::Work => self.phase = Phase::Settling(now_ns + 2 * SECOND),
            Phase::Settling(_) if busy => self.phase = Phase::Work,
            Phase::Settling(until_ns) if now_ns >= until_ns => {
                self.watched(self.watch.as_ref().map_or(0, |watch| watch.at_ns.len()));
                (0..self.judge.sides.len()).for_each(|side| self.hang_up(side, false));
                self.part();
                self.phase = Phase::Farewell(now_ns + FAREWELL_NS);
            }
            Phase::Settling(_) => {}
            Phase::Farewell(until_ns) => {
                let drained = |host: &Host| host.endpoint.as_ref().is_none_or(simulated::is_drained);
                if self.hosts.iter().all(drained) {
                    self.phase = Phase::Over;
                } else if now_ns > until_ns {
                    let left = (0..self.hosts.len()).filter(|at| !drained(&self.hosts[*at]));
                    let left = format!("machines {:?}\n{}", left.collect::<Vec<_>>(), self.judge.describe());
                    self.judge.fail(now_ns, "drain", format!("something is left on {left}"));
                }
            }
            Phase::Over => {}
        }
        self.at(now_ns + LOOK_NS, What::Look);
    }

    fn check_starved(&mut self) {
        let since_ns = self.now_ns.saturating_sub(STARVED_NS);
        if since_ns < self.calm_ns {
            return;
        }
        let starved = |number: &usize| {
            let side = &self.judge.sides[*number];
            side.life == Life::Up && side.is_busy() && side.progress_ns < since_ns
        };
        // What a dead peer's connection waits for is its send timeout, which may be long.
        let starved: Vec<usize> = (0..self.judge.sides.len())
            .filter(starved)
            .filter(|side| {
                !self.judge.may_be_over(*side) && self.peer_is_up(*side) && !self.waits_for_dead(*side)
            })
            .collect();
        if let Some(first) = starved.first() {
            let Side { machine, connection, .. } = self.judge.sides[*first];
            let endpoint = self.hosts[machine].endpoint.as_ref();
            let why =
                endpoint.zip(connection).and_then(|(endpoint, connection)| endpoint.explain(connection));
            let why = why.map_or_else(String::new, |why| why.to_string());
            let text = format!(
                "sides {starved:?} did nothing for {STARVED_NS} ns\n{why}\n{}",
                self.judge.describe()
            );
            self.judge.fail(self.now_ns, "starvation", text);
        }
    }

    /// Whether another connection of the same endpoint waits for a dead peer. It was alone perhaps and has all the places for sends,
    /// until its send timeout (ADR 19).
    fn waits_for_dead(&self, side: usize) -> bool {
        let machine = self.judge.sides[side].machine;
        let holds = |other: &usize| {
            let other_side = &self.judge.sides[*other];
            other_side.machine == machine && other_side.outstanding > 0 && !self.peer_is_up(*other)
        };
        (0..self.judge.sides.len()).any(|other| holds(&other))
    }

    fn peer_is_up(&self, side: usize) -> bool {
        self.judge.peer(side).is_some_and(|peer| self.judge.sides[peer].life == Life::Up)
    }

    /// Programs take their memory back.
    fn part(&mut self) {
        for number in 0..self.judge.sides.len() {
            let peer = self.judge.peer(number);
            let alive = |at: usize| self.judge.sides[at].life != Life::Crashed;
            let machine_of = |at: usize| self.judge.sides[at].machine;
            let ends = [Some(number), peer].map(|end| end.filter(|end| alive(*end)).map(machine_of));
            let Some(work) = &self.judge.sides[number].work else { continue };
            let handles = [Some(work.local_handle), Some(work.handle).filter(|_| !work.is_withdrawn())];
            for (machine, handle) in ends.into_iter().zip(handles) {
                let Some(handle) = handle else { continue };
                let host = machine.map(|machine| &mut self.hosts[machine]);
                let endpoint = host.and_then(|host| {
                    host.set_clock(self.now_ns);
                    host.endpoint.as_mut()
                });
                if let Some(Err(error)) = endpoint.map(|endpoint| endpoint.deregister(&handle)) {
                    self.judge.fail(self.now_ns, "memory", format!("side {number} at the end: {error}"));
                }
            }
        }
    }

    fn end(&mut self) {
        if self.judge.broken.is_some() {
            return;
        }
        let now_ns = self.now_ns;
        self.judge.finish(now_ns);
        for machine in 0..self.hosts.len() {
            self.hosts[machine].set_clock(now_ns);
            if let Err(what) = self.hosts[machine].check().and_then(|()| self.hosts[machine].check_home()) {
                self.judge.fail(now_ns, "end", format!("machine {machine}: {what}"));
            }
        }
    }
}

/// Gives back the buffers of messages that were kept long enough; how many.
fn release(host: &mut Host, judge: &mut Judge, now_ns: u64) -> usize {
    let before = host.held.len();
    host.held.retain(|held| {
        let keep = held.until_ns > now_ns;
        if !keep && held.is_damaged() {
            judge.fail(
                now_ns,
                "buffer",
                format!("a message of side {} changed while it was kept", held.side),
            );
        }
        keep
    });
    before - host.held.len()
}
