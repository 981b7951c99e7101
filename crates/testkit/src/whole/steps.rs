//! What the steps of a scenario do.

use super::forger::Forger;
use super::memory::Work;
use super::network::{Packet, address_of};
use super::program::{self, request_of};
use super::scenario::{Act, End, Job, Operating, Step, Talk};
use super::side::{Doing, Life, Side};
use super::speaker;
use super::streams::{ASK_NS, Load};
use super::world::{What, World};
use crate::rng::mix;
use cci::simulated::streams;
use std::time::Duration;

/// How long before its region is deregistered a machine may do that in the middle of another one's turn.
const WITHDRAWAL_NS: u64 = 100_000;

impl World<'_> {
    pub(super) fn act(&mut self, step: &Step) {
        let now_ns = self.now_ns;
        self.judge.log(now_ns, || format!("step {:?}", step.act));
        match &step.act {
            Act::Connect(talk) => self.connect(talk),
            Act::Send(talk, end, job) => self.log(*talk, *end, job),
            Act::Operate(talk, end, spec) => self.operate(*talk, *end, spec),
            Act::Deregister(talk, end) => {
                if self.stage.is_some() {
                    // Until then another process may be in the middle of a copy when it happens.
                    self.withdraw(*talk, *end);
                    self.at(now_ns + WITHDRAWAL_NS, What::Renew(*talk, *end));
                } else {
                    self.renew(*talk, *end);
                }
            }
            Act::HangUp(talk, end) => {
                if let Some(side) = self.judge.side_of(*talk, *end) {
                    self.hang_up(side, true);
                }
            }
            Act::SendTimeout(talk, end, ns) => {
                self.set(*talk, *end, |endpoint, connection| {
                    endpoint.set_send_timeout(connection, Duration::from_nanos(*ns)).is_ok()
                });
                if let Some(side) = self.judge.side_of(*talk, *end) {
                    self.judge.sides[side].send_timeout_ns = *ns;
                }
            }
            Act::Keepalive(talk, end, ns) => {
                if let Some(side) = self.judge.side_of(*talk, *end) {
                    self.judge.sides[side].keepalives += 1;
                }
                self.set(*talk, *end, |endpoint, connection| {
                    endpoint.set_keepalive(connection, Some(Duration::from_nanos(*ns))).is_ok()
                });
            }
            Act::Crash(machine, down_ns) => self.crash(*machine, *down_ns),
            Act::PowerFailure(machine, down_ns) => self.fail_power(*machine, *down_ns),
            Act::Cut(one, other) => {
                let ip_of = |machine: usize| address_of(self.place(machine)).ip();
                streams::cut(ip_of(*one), ip_of(*other));
            }
            Act::Stop(machine, ns) => {
                self.hosts[*machine].stopped_until_ns = now_ns + ns;
                if let Some(stage) = &self.stage {
                    stage.stop(*machine, true);
                }
                self.at(now_ns + ns, What::Resume(*machine));
            }
            Act::Jump(machine, ns) => {
                let host = self.scenario.machines[*machine].host;
                for machine in 0..self.hosts.len() {
                    if self.hosts[machine].spec.host == host {
                        self.hosts[machine].clock.jump(*ns);
                        self.judge.jumped(machine, *ns);
                        self.hosts[machine].wake_ns = None;
                        self.wake(machine, now_ns);
                    }
                }
            }
            Act::Outage(from, to, ns) => {
                let [from, to] = [from, to].map(|machine| machine.map(|machine| self.place(machine)));
                self.net.outage(from, to, now_ns + ns);
            }
            Act::Split(group, ns) => self.net.split(*group, now_ns + ns),
            Act::Storm(weather, ns) => self.net.storm(weather, now_ns + ns),
            Act::Hold(machine, hold, for_ns) => {
                self.hosts[*machine].hold = *hold;
                self.hosts[*machine].hold_until_ns = now_ns + for_ns;
            }
            Act::Replay(count) => {
                let again = self.net.seen(mix(self.scenario.seed ^ step.at_ns), *count);
                self.arrive_in_turn(again);
            }
            Act::ReplayElsewhere(count) => {
                let mut forger = Forger::new(mix(self.scenario.seed ^ step.at_ns), &self.scenario.machines);
                let again = self.net.seen(forger.draw(), *count);
                self.arrive_in_turn(again.into_iter().map(|packet| forger.move_elsewhere(packet)).collect());
            }
            Act::Forge(count) => {
                let mut forger = Forger::new(mix(self.scenario.seed ^ step.at_ns), &self.scenario.machines);
                let like = self.net.seen(forger.draw(), *count);
                self.arrive_in_turn(like.into_iter().map(|packet| forger.forge(packet)).collect());
            }
            Act::Unplug(machine, by, ns) => self.net.unplug(*machine, *by, true, now_ns + ns),
            Act::Mute(machine, by, ns) => self.net.unplug(*machine, *by, false, now_ns + ns),
            Act::Narrow(from, to, bytes) => {
                self.hosts[*from].wire.plug().narrow.insert(address_of(*to), *bytes);
            }
        }
    }

    /// Datagrams that nobody has sent now arrive one after the other.
    fn arrive_in_turn(&mut self, packets: Vec<Packet>) {
        for (number, packet) in packets.into_iter().enumerate() {
            self.at(self.now_ns + 1_000 * number as u64, What::AtLink(packet));
        }
    }

    fn connect(&mut self, talk: &Talk) {
        let number = self.judge.sides.len();
        let send_timeout_ns = self.hosts[talk.client].spec.send_timeout_ns;
        let mut side = Side::new(talk, End::Client, (talk.client, send_timeout_ns), None);
        let (server, is_near) = (&self.hosts[talk.server], self.is_near(talk.client, talk.server));
        let uri = if is_near { server.uri.clone() } else { from_afar(&server.uri) };
        let host = &mut self.hosts[talk.client];
        host.set_clock(self.now_ns);
        let Some(endpoint) = &mut host.endpoint else { return };
        let request = request_of(number, talk.request_bytes);
        let timeout = talk.timeout_ns.map(Duration::from_nanos);
        if let Some(stage) = &self.stage {
            stage.calls_may_fail(self.now_ns < self.calm_ns);
        }
        let connected = endpoint.connect(&uri, &request, talk.attribute, number as u64, timeout);
        self.calls_may_fail(false);
        if let Err(error) = connected {
            side.life = Life::Failed;
            let may_be = match error {
                cci::ConnectError::NoMemory => !self.judge.gentle,
                cci::ConnectError::System(_) => self.scenario.calls_may_fail(),
                _ => false,
            };
            if !may_be {
                self.judge.fail(self.now_ns, "connect", format!("side {number}: {error}"));
            }
        }
        side.jobs.extend(self.jobs.get(&(talk.number, true)).into_iter().flatten().cloned());
        self.judge.sides.push(side);
        self.wake(talk.client, self.now_ns);
    }

    fn is_near(&self, one: usize, other: usize) -> bool {
        self.scenario.machines[one].host == self.scenario.machines[other].host
    }

    fn log(&mut self, talk: u32, end: End, job: &Job) {
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
            let [own, targets] = match self.hosts.get_disjoint_mut([machine, other]) {
                Ok(both) => both,
                Err(_) => return Ok(()),
            };
            if own.endpoint.is_none() || targets.endpoint.is_none() {
                return Ok(());
            }
            let only = self.judge.sides[owner].connection.filter(|_| spec.draw.is_multiple_of(2));
            let work = &mut self.judge.sides[side].work;
            if work.is_none() {
                targets.set_clock(self.now_ns);
                let Some(endpoint) = &mut targets.endpoint else { return Ok(()) };
                let exposed = Work::expose(&spec, endpoint, only)?;
                own.set_clock(self.now_ns);
                let Some(endpoint) = &mut own.endpoint else { return Ok(()) };
                *work = Some(Work::new(&spec, endpoint, exposed)?);
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

    pub(super) fn begin_works(&mut self) {
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

    fn withdraw(&mut self, talk: u32, end: End) {
        let Some(side) = self.judge.side_of(talk, end) else { return };
        let Some(owner) = self.judge.peer(side) else { return };
        let Side { machine, life, .. } = self.judge.sides[owner];
        if let (Life::Up, Some(work), Some(stage)) = (life, &mut self.judge.sides[side].work, &self.stage) {
            stage.withdraw(machine, work.withdrawal());
        }
    }

    pub(super) fn renew(&mut self, talk: u32, end: End) {
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

    pub(super) fn hang_up(&mut self, side: usize, of_itself: bool) {
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

    /// Where in the network a machine is.
    fn place(&self, machine: usize) -> usize {
        if self.stage.is_some() { self.scenario.machines[machine].host } else { machine }
    }

    fn fail_power(&mut self, machine: usize, down_ns: u64) {
        let (host, until_ns) = (self.place(machine), self.now_ns + down_ns);
        self.net.outage(Some(host), None, until_ns);
        self.net.outage(None, Some(host), until_ns);
        for machine in 0..self.hosts.len() {
            if self.place(machine) == host {
                self.crash(machine, down_ns);
            }
        }
        for direction in streams::forget(address_of(host).ip()) {
            self.at(self.now_ns + ASK_NS, What::Carry(Load::ask(direction, self.now_ns)));
        }
    }

    fn crash(&mut self, machine: usize, down_ns: u64) {
        if self.hosts[machine].endpoint.is_none() {
            return;
        }
        if let Some(stage) = self.stage.clone() {
            // It dies in the middle of a turn.
            self.hosts[machine].stopped_until_ns = 0;
            stage.stop(machine, false);
            stage.kill(machine);
            self.poll(machine);
        }
        self.hosts[machine].set_clock(self.now_ns);
        self.waiting.retain(|waiting| waiting.machine != machine);
        self.hosts[machine].crash(self.now_ns);
        for side in self.judge.sides.iter_mut().filter(|side| side.machine == machine) {
            if !matches!(side.life, Life::Failed) {
                side.life = Life::Crashed;
            }
        }
        self.at(self.now_ns + down_ns, What::Reopen(machine));
    }

    pub(super) fn wake_for_answers(&mut self) {
        if let Some(at_ns) = self.waiting.iter().map(|waiting| waiting.due_ns).min() {
            self.at(at_ns, What::Answer);
        }
    }

    pub(super) fn answers(&mut self) {
        let now_ns = self.now_ns;
        self.calls_may_fail(true);
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
        self.calls_may_fail(false);
        self.begin_works();
        self.wake_for_answers();
    }
}

/// What of a URI serves from another host.
fn from_afar(uri: &str) -> String {
    let Some(parts) = uri.strip_prefix("any://") else { return uri.to_owned() };
    let serves = |part: &&str| !part.starts_with("id=") && !part.starts_with("shm=");
    format!("any://{}", parts.split(',').filter(serves).collect::<Vec<_>>().join(","))
}
