//! Virtual time: what happens next.

use super::judge::Judge;
use super::machine::Host;
use super::memory::Work;
use super::network::{Net, Packet, address_of, machine_at};
use super::program::{self, Waiting, request_of};
use super::scenario::{Act, End, Job, Operating, Scenario, Step, Talk};
use super::side::{Doing, Life, Side};
use super::speaker::{self, Spoken};
use crate::sim::contents;
use crate::sim::dissect;
use crate::sim::rng::mix;
use cci::simulated::{self, Sleep};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// Events after which a run is a storm.
const EVENTS_MAX: u64 = 10_000_000;
/// Polls in a row that do nothing, within this time, before a machine is said to spin. While messages wait for buffers, an endpoint
/// looks every millisecond.
const IDLE_POLLS_MAX: u32 = 5_000;
const IDLE_POLLS_NS: u64 = SECOND;
/// How long a connection may do nothing in fair weather though something is to be done: some of the longest waits there are (a
/// second), by the slowest clock.
const STARVED_NS: u64 = 8 * SECOND;
/// From fair weather to the end of all work at most.
const WORK_NS: u64 = 300 * SECOND;
/// From the last farewell until nothing is left.
const FAREWELL_NS: u64 = 200 * SECOND;
const LOOK_NS: u64 = 50 * MS;

/// A promise that was not kept.
#[derive(Clone, Debug)]
pub struct Broken {
    /// Which kind of promise.
    pub rule: &'static str,
    /// When, by the simulation's clock.
    pub at_ns: u64,
    /// What happened.
    pub what: String,
    /// The trace, where one was asked for.
    pub lines: Vec<String>,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} broken at {} ns: {}", self.rule, self.at_ns, self.what)
    }
}

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

enum What {
    AtLink(Packet),
    AtSocket(Packet),
    Wake(usize),
    Step(usize),
    Answer,
    Reopen(usize),
    Look,
}

struct Entry {
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
enum Phase {
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

struct World<'a> {
    scenario: &'a Scenario,
    net: Net,
    hosts: Vec<Host>,
    judge: Judge,
    waiting: Vec<Waiting>,
    /// What sides that do not exist yet are to do.
    jobs: BTreeMap<(u32, bool), Vec<Doing>>,
    works: BTreeMap<(u32, bool), Vec<Operating>>,
    queue: BinaryHeap<Reverse<Entry>>,
    now_ns: u64,
    order: u64,
    events: u64,
    endpoints: u64,
    flips: u32,
    phase: Phase,
    calm_ns: u64,
}

/// Carries a scenario out and judges it.
///
/// # Errors
/// The first promise that was broken.
pub fn run(scenario: &Scenario) -> Result<Report, Broken> {
    World::new(scenario, false).run()
}

/// The same, and a failure has all that happened before it, a line each.
///
/// # Errors
/// The first promise that was broken.
pub fn run_with_trace(scenario: &Scenario) -> Result<Report, Broken> {
    World::new(scenario, true).run()
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario, trace: bool) -> World<'a> {
        let host = |spec| Host::new(spec, mix(scenario.seed));
        let mut world = World {
            scenario,
            net: Net::new(scenario),
            hosts: scenario.machines.iter().map(host).collect(),
            judge: Judge {
                gentle: scenario.is_gentle() && scenario.sabotage.is_none(),
                sabotage: scenario.sabotage,
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
        };
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
            self.hosts.iter_mut().for_each(Host::crash);
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

    fn at(&mut self, at_ns: u64, what: What) {
        self.order += 1;
        self.queue.push(Reverse(Entry { at_ns: at_ns.max(self.now_ns), order: self.order, what }));
    }

    fn wake(&mut self, machine: usize, at_ns: u64) {
        let host = &mut self.hosts[machine];
        let at_ns = at_ns.max(self.now_ns).max(host.next_poll_ns);
        if host.endpoint.is_some() && host.wake_ns.is_none_or(|set| set > at_ns) {
            host.wake_ns = Some(at_ns);
            self.at(at_ns, What::Wake(machine));
        }
    }

    fn open(&mut self, machine: usize) {
        self.endpoints += 1;
        self.judge.say(self.now_ns, || format!("machine {machine} opens its endpoint"));
        match self.hosts[machine].open(self.now_ns, machine, self.scenario.seed) {
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
            What::Step(number) => self.act(&self.scenario.steps[number]),
            What::Answer => self.answers(),
            What::Reopen(machine) => {
                if self.hosts[machine].endpoint.is_none() {
                    self.open(machine);
                }
            }
            What::Look => self.look(),
        }
    }

    fn enter(&mut self, packet: Packet) {
        let Packet { from, to, bytes } = packet;
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
            plug.inbox.push_back((address_of(from), bytes));
        }
        let at_ns = self.now_ns + self.hosts[to].spec.poll_ns;
        self.wake(to, at_ns);
    }

    /// One turn of a program's loop.
    fn poll(&mut self, machine: usize) {
        let now_ns = self.now_ns;
        let host = &mut self.hosts[machine];
        host.polls += 1;
        host.set_clock(now_ns);
        let heard = {
            let mut plug = host.wire.plug();
            plug.room = 2 * host.spec.batch;
            plug.inbox.len()
        };
        let mut happened = heard + release(host, &mut self.judge, now_ns);
        let asked = self.waiting.len();
        let mut taken = program::take_all(host, machine, &mut self.judge, now_ns, &mut self.waiting);
        let Spoken { started, next_ns, suspects } = speaker::speak(host, &mut self.judge, now_ns);
        if started > 0 || !suspects.is_empty() {
            taken += program::take_all(host, machine, &mut self.judge, now_ns, &mut self.waiting);
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
            let what = format!("machine {machine} woke {IDLE_POLLS_MAX} times for nothing, now {sleep:?}");
            return self.judge.fail(now_ns, "spinning", what);
        }
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
        for (to, mut bytes) in out {
            let Some(target) = machine_at(to).filter(|target| *target < self.hosts.len()) else {
                self.judge.fail(self.now_ns, "network", format!("machine {machine} sends to {to}"));
                break;
            };
            if bytes.len() > usize::from(self.scenario.machines[machine].datagram_bytes_max) {
                self.judge.fail(
                    self.now_ns,
                    "network",
                    format!("machine {machine} sends {} bytes", bytes.len()),
                );
            }
            self.flip(&mut bytes);
            self.launch(Packet { from: machine, to: target, bytes: bytes.into() });
        }
        count
    }

    fn launch(&mut self, packet: Packet) {
        let now_ns = self.now_ns;
        let hash = packet.bytes.chunks(8).fold(packet.bytes.len() as u64, |hash, chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            mix(hash ^ u64::from_le_bytes(word))
        });
        self.judge.note(now_ns, 8, (packet.from as u64) << 32 | packet.to as u64, hash);
        let copies = self.net.launch(now_ns, &packet);
        self.judge.say(now_ns, || {
            let fate = if copies.is_empty() { "lost" } else { "" };
            format!(
                "{}>{} {:>5} bytes {} {fate}",
                packet.from,
                packet.to,
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

    fn act(&mut self, step: &Step) {
        let now_ns = self.now_ns;
        self.judge.say(now_ns, || format!("step {:?}", step.act));
        match &step.act {
            Act::Connect(talk) => self.connect(talk),
            Act::Say(talk, end, job) => self.say(*talk, *end, job),
            Act::Operate(talk, end, spec) => self.operate(*talk, *end, spec),
            Act::Deregister(talk, end) => self.renew(*talk, *end),
            Act::HangUp(talk, end) => {
                if let Some(side) = self.judge.side_of(*talk, *end) {
                    self.hang_up(side, true);
                }
            }
            Act::SendTimeout(talk, end, ns) => self.set(*talk, *end, |endpoint, connection| {
                endpoint.set_send_timeout(connection, Duration::from_nanos(*ns)).is_ok()
            }),
            Act::Keepalive(talk, end, ns) => {
                if let Some(side) = self.judge.side_of(*talk, *end) {
                    self.judge.sides[side].keepalives += 1;
                }
                self.set(*talk, *end, |endpoint, connection| {
                    endpoint.set_keepalive(connection, Some(Duration::from_nanos(*ns))).is_ok()
                });
            }
            Act::Crash(machine, down_ns) => self.crash(*machine, *down_ns),
            Act::Jump(machine, ns) => {
                let host = self.scenario.machines[*machine].host;
                for machine in 0..self.hosts.len() {
                    if self.hosts[machine].spec.host == host {
                        self.hosts[machine].clock.jump(*ns);
                        self.hosts[machine].wake_ns = None;
                        self.wake(machine, now_ns);
                    }
                }
            }
            Act::Cut(from, to, ns) => self.net.cut(*from, *to, now_ns + ns),
            Act::Split(group, ns) => self.net.split(*group, now_ns + ns),
            Act::Storm(weather, ns) => self.net.storm(weather, now_ns + ns),
            Act::Hold(machine, hold_ns, for_ns) => {
                self.hosts[*machine].hold_ns = *hold_ns;
                self.hosts[*machine].hold_until_ns = now_ns + for_ns;
            }
            Act::Replay(count) => {
                let again = self.net.seen(mix(self.scenario.seed ^ step.at_ns), *count);
                for (number, packet) in again.into_iter().enumerate() {
                    self.at(now_ns + 1_000 * number as u64, What::AtLink(packet));
                }
            }
            Act::Narrow(from, to, bytes) => {
                self.hosts[*from].wire.plug().narrow.insert(address_of(*to), *bytes);
            }
        }
    }

    fn connect(&mut self, talk: &Talk) {
        let number = self.judge.sides.len();
        let mut side = Side::new(talk, End::Client, talk.client, None);
        let host = &mut self.hosts[talk.client];
        host.set_clock(self.now_ns);
        let Some(endpoint) = &mut host.endpoint else { return };
        let uri = format!("udp://{}", address_of(talk.server));
        let request = request_of(number, talk.request_bytes);
        let timeout = talk.timeout_ns.map(Duration::from_nanos);
        if let Err(error) = endpoint.connect(&uri, &request, talk.attribute, number as u64, timeout) {
            side.life = Life::Failed;
            if !matches!(error, cci::ConnectError::NoMemory) || self.judge.gentle {
                self.judge.fail(self.now_ns, "connect", format!("side {number}: {error}"));
            }
        }
        side.jobs.extend(self.jobs.get(&(talk.number, true)).into_iter().flatten().cloned());
        self.judge.sides.push(side);
        self.wake(talk.client, self.now_ns);
    }

    fn say(&mut self, talk: u32, end: End, job: &Job) {
        let doing = Doing { left: job.messages, job: job.clone(), in_burst: 0, next_ns: self.now_ns };
        if job.messages == 0 {
            return;
        }
        match self.judge.side_of(talk, end) {
            Some(side) => {
                let this = &mut self.judge.sides[side];
                if this.outstanding == 0 && !this.has_more() {
                    this.progress_ns = self.now_ns;
                }
                this.jobs.push_back(doing);
                self.activate(side);
            }
            None => self.jobs.entry((talk, end == End::Client)).or_default().push(doing),
        }
    }

    fn activate(&mut self, side: usize) {
        let Side { machine, life, .. } = self.judge.sides[side];
        if life == Life::Up && !self.hosts[machine].active.contains(&side) {
            self.hosts[machine].active.push(side);
            self.wake(machine, self.now_ns);
        }
    }

    /// Work in memory begins once both ends are up.
    fn operate(&mut self, talk: u32, end: End, spec: &Operating) {
        let client = end == End::Client;
        self.works.entry((talk, client)).or_default().push(spec.clone());
        self.at(self.now_ns, What::Answer);
    }

    fn begin_work(&mut self, key: (u32, bool), side: usize, owner: usize) -> Result<(), String> {
        let Some(specs) = self.works.remove(&key) else { return Ok(()) };
        let (machine, other) = (self.judge.sides[side].machine, self.judge.sides[owner].machine);
        for spec in specs {
            let [own, owners] = match self.hosts.get_disjoint_mut([machine, other]) {
                Ok(both) => both,
                Err(_) => return Ok(()),
            };
            let (Some(own), Some(owners)) = (&mut own.endpoint, &mut owners.endpoint) else { return Ok(()) };
            let only = self.judge.sides[owner].connection.filter(|_| spec.draw.is_multiple_of(2));
            let work = &mut self.judge.sides[side].work;
            if work.is_none() {
                *work = Some(Work::new(&spec, own, owners, only)?);
            }
            if let Some(work) = work {
                work.left += spec.operations;
            }
        }
        let this = &mut self.judge.sides[side];
        if this.outstanding == 0 {
            this.progress_ns = self.now_ns;
        }
        self.activate(side);
        Ok(())
    }

    fn begin_works(&mut self) {
        let keys: Vec<(u32, bool)> = self.works.keys().copied().collect();
        for (talk, client) in keys {
            let (end, other) = if client { (End::Client, End::Server) } else { (End::Server, End::Client) };
            let (Some(side), Some(owner)) = (self.judge.side_of(talk, end), self.judge.side_of(talk, other))
            else {
                continue;
            };
            let up = |at: usize| self.judge.sides[at].life == Life::Up;
            if up(side)
                && up(owner)
                && speaker::can_operate(self.judge.sides[side].attribute())
                && let Err(what) = self.begin_work((talk, client), side, owner)
            {
                self.judge.fail(self.now_ns, "memory", what);
            }
        }
    }

    fn renew(&mut self, talk: u32, end: End) {
        let Some(side) = self.judge.side_of(talk, end) else { return };
        let Some(owner) = self.judge.peer(side) else { return };
        let Side { machine, life, connection, .. } = self.judge.sides[owner];
        if life != Life::Up {
            return;
        }
        self.hosts[machine].set_clock(self.now_ns);
        let Some(endpoint) = &mut self.hosts[machine].endpoint else { return };
        if let Some(work) = &mut self.judge.sides[side].work {
            let only = connection.filter(|_| work.spec.draw.is_multiple_of(2));
            if let Err(what) = work.renew(endpoint, only) {
                self.judge.fail(self.now_ns, "memory", format!("side {side}: {what}"));
            }
        }
    }

    fn set(&mut self, talk: u32, end: End, change: impl FnOnce(&mut cci::Endpoint, cci::Connection) -> bool) {
        let Some(side) = self.judge.side_of(talk, end) else { return };
        let Side { machine, life, connection, .. } = self.judge.sides[side];
        self.hosts[machine].set_clock(self.now_ns);
        if life == Life::Up
            && let (Some(endpoint), Some(connection)) = (&mut self.hosts[machine].endpoint, connection)
        {
            if !change(endpoint, connection) {
                self.judge.fail(self.now_ns, "option", format!("side {side}: refused"));
            }
            self.wake(machine, self.now_ns);
        }
    }

    fn hang_up(&mut self, side: usize, of_itself: bool) {
        let this = &mut self.judge.sides[side];
        if this.life != Life::Up {
            return;
        }
        this.life = Life::Closed;
        this.hung_up |= of_itself;
        this.jobs.clear();
        if let Some(work) = &mut this.work {
            work.left = 0;
        }
        let (machine, connection) = (this.machine, this.connection);
        self.hosts[machine].set_clock(self.now_ns);
        if let (Some(endpoint), Some(connection)) = (&mut self.hosts[machine].endpoint, connection) {
            endpoint.disconnect(connection);
        }
        self.wake(machine, self.now_ns);
    }

    fn crash(&mut self, machine: usize, down_ns: u64) {
        if self.hosts[machine].endpoint.is_none() {
            return;
        }
        self.waiting.retain(|waiting| waiting.machine != machine);
        self.hosts[machine].crash();
        for side in self.judge.sides.iter_mut().filter(|side| side.machine == machine) {
            if !matches!(side.life, Life::Failed) {
                side.life = Life::Crashed;
            }
        }
        self.at(self.now_ns + down_ns, What::Reopen(machine));
    }

    fn wake_for_answers(&mut self) {
        if let Some(at_ns) = self.waiting.iter().map(|waiting| waiting.due_ns).min() {
            self.at(at_ns, What::Answer);
        }
    }

    fn answers(&mut self) {
        let now_ns = self.now_ns;
        while let Some(at) = self.waiting.iter().position(|waiting| waiting.due_ns <= now_ns) {
            let waiting = self.waiting.remove(at);
            let machine = waiting.machine;
            let jobs = &self.jobs;
            let woken = program::answer(&mut self.hosts, &mut self.judge, now_ns, waiting, |side| {
                side.jobs.extend(jobs.get(&(side.talk.number, false)).into_iter().flatten().cloned());
            });
            for machine in woken.into_iter().chain([machine]) {
                self.wake(machine, now_ns);
            }
        }
        self.begin_works();
        self.wake_for_answers();
    }

    /// Judges progress, and goes from phase to phase.
    fn look(&mut self) {
        let now_ns = self.now_ns;
        self.begin_works();
        for machine in 0..self.hosts.len() {
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
            .filter(|side| !self.judge.may_be_over(*side) && self.peer_is_up(*side))
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
            let handles = [work.local_handle, work.handle];
            for (machine, handle) in ends.into_iter().zip(handles) {
                let endpoint = machine.and_then(|machine| self.hosts[machine].endpoint.as_mut());
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
        // Nobody may have written into it meanwhile.
        let short = held.message.len() < contents::NAMED_BYTES_MIN;
        if !keep && !short && contents::identify(&held.message).is_none() {
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
